"""Writes the page of a bundle: a model card of the Hugging Face Hub, from what was recorded and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainable.bundle.measured import MeasuredBundle
from trainable.bundle.trained import Trained
from trainable.bundle.weights_alone import uses_of_weights
from trainable.data import DataInfo, Split
from trainable.markdown import between, code, plain, table
from trainable.models.libraries import title_of
from trainable.recipe import Recipe
from trainable.recipe.models import TimmModel, is_published
from trainable.recipe.provenance import Provenance
from trainable.tasks.exporter import CardWords, Exporter
from trainable.training.run import PREFIXES

CLASSES_NAMED = 50  # so many are listed on the page; all are in the files


def model_card(trained: Trained, measured: MeasuredBundle) -> str:
    """Return the page as Markdown, with the Hub's metadata at its head."""
    recipe, info, exporter = trained.recipe, trained.data.info, trained.exporter
    pruned = "" if trained.widths is None else ", pruned,"
    sections = [
        f"---\n{_metadata(trained, measured)}\n---",
        f"# {plain(title_of(recipe.model))}{pruned} for {len(info.classes)} classes",
        *_introduction(recipe, info, exporter.words),
        *_warnings(trained),
        "## Use",
        *exporter.uses(),
        *uses_of_weights(trained),
        "## What it takes and gives",
        table(("", "what"), exporter.takes_and_gives().items()),
        "## Scores",
        *_scores(exporter, measured),
        *_again(trained),
        "## Latency",
        *_latency(measured.latency),
        "## Training",
        _training(trained),
        "## Limits",
        _limits(info, exporter.words, measured.part),
    ]
    return "\n\n".join(sections) + "\n"


def _metadata(trained: Trained, measured: MeasuredBundle) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    recipe, info = trained.recipe, trained.data.info
    of_timm = isinstance(recipe.model, TimmModel) and trained.widths is None
    words = trained.exporter.words
    result = EvalResult(
        task_type=words.hub_task,
        dataset_type="imagefolder",
        dataset_name=f"images of digest {info.digest}",
        dataset_split=measured.part,
        metric_type=words.metric,
        metric_value=round(measured.scores.by_name()[words.metric], 4),
    )
    data = ModelCardData(
        model_name=title_of(recipe.model),
        library_name="timm" if of_timm else "onnx",
        pipeline_tag=words.hub_task,
        tags=[words.hub_task, "onnx", "tunebook"],
        metrics=[words.metric],
        eval_results=[result],
    )
    return data.to_yaml()


def _introduction(recipe: Recipe, info: DataInfo, words: CardWords) -> Iterator[str]:
    yield f"{words.network} tunebook trained by recipe {recipe.digest()}: {plain(recipe.sentence)}."
    named = ", ".join(map(code, info.classes[:CLASSES_NAMED]))
    more = len(info.classes) - CLASSES_NAMED
    yield f"Classes: {named}" + (f" and {more:,} more" if more > 0 else "") + "."


def _warnings(trained: Trained) -> Iterator[str]:
    gap = () if trained.gap is None else (str(trained.gap.without(trained.causes)),)
    if warnings := (*trained.warnings, *gap):
        yield "**Before you trust it:**"
        yield "\n".join(f"- {plain(each)}" for each in warnings)


def _scores(exporter: Exporter, measured: MeasuredBundle) -> Iterator[str]:
    bounds, prefix = measured.intervals.bounds, PREFIXES[measured.part]
    values = measured.scores.metrics(prefix)
    rows = [
        (name, f"{value:.4f}", between(bounds.get(name.removeprefix(f"{prefix}_"))))
        for name, value in values.items()
    ]
    yield f"On the {measured.scores.images:,} images of the {measured.part} part:"
    yield table(("metric", "value", "95 % interval"), rows)
    if (by_class := exporter.by_class(measured.scores, measured.intervals)) is not None:
        yield by_class
    yield (
        f"Intervals are percentiles of {measured.intervals.resamples:,} bootstrap resamples of these images, "
        "or Wilson's of a share where all of them are equal (other metrics have none then): they say how "
        "sure the figures are for images of this kind, and nothing of a second training."
    )
    if measured.part == "validation":
        yield (
            "There is no test part: **the recipe or its weights were chosen on these very images**, so other "
            "images will score lower."
        )
    files = [(f"`{name}`", f"{share:.2%}") for name, share in measured.parity.items()]
    yield "Each file was run on these images as they are stored. Its top class was the trained network's:"
    yield table(("file", f"for this share of {exporter.words.of_part} {measured.part} part"), files)


def _again(trained: Trained) -> Iterator[str]:
    """Yield what was found when the recipe was trained again: how far its scores are luck, without what the
    warnings above have said."""
    known, found = trained.recipe.provenance or Provenance(), list[str]()
    if known.final is not None:
        final = known.final
        found.append(
            f"In its search {len(final.seeds)} runs with fresh seeds had a mean {final.metric} of "
            f"{final.mean:.4f}, deviation {final.deviation:.4f}: it is worth {final.estimate:.4f} "
            f"({final.sureness}), and the search's own figure is "
            f"{abs(final.gap):.4f} {'above' if final.gap >= 0.0 else 'below'} that."
        )
    if known.verification is not None:
        words = known.verification.words()
        found.append(f"From its file alone: {words}. Rule: {known.verification.rule}.")
        gap, above = known.verification.gap, trained.gap
        if gap is not None and (above is None or above.what != gap.what):
            said = trained.causes if above is None else (*trained.causes, *(above.causes or ()))
            found.append(str(gap.without(said)))
    if found:
        yield "The same recipe, trained again, which gives other weights than these:"
        yield "\n".join(f"- {plain(each)}" for each in found)


def _latency(latency: Mapping[str, Any]) -> Iterator[str]:
    height, width, channels = latency["image"]
    yield (
        f"Milliseconds a batch, median (5th to 95th percentile of the passes), on {latency['processor']}, "
        f"{latency['threads']} thread(s), of decoded images of {height} x {width} x {channels}:"
    )
    files: Mapping[str, Any] = latency["files"]
    batches = list(next(iter(files.values()))["batches"])
    rows = [
        (f"`{name}`, {each['runtime']}", *(_milliseconds(each["batches"][batch]) for batch in batches))
        for name, each in files.items()
    ]
    yield table(("file", *(f"batch {batch}" for batch in batches)), rows)


def _training(trained: Trained) -> str:
    recipe, info = trained.recipe, trained.data.info
    rows = {
        "recipe": f"`recipe.yaml`, digest {recipe.digest()}: `tunebook train recipe.yaml` trains it again",
        "began from": _beginning(recipe.model.weights),
        "epochs": f"{trained.epochs} of the recipe's {recipe.loop.epochs}",
        "images": f"{info.train_images:,} to train, {info.validation_images:,} to validate, "
        f"{info.test_images:,} to test; digest {info.digest}",
        **_origin(recipe.provenance or Provenance()),
    }
    return table(("", "what"), rows.items())


def _beginning(weights: str | None) -> str:
    """Return what a network began from, without the folder of a file."""
    if weights is None:
        return "weights drawn at random"
    return f"published weights: {weights}" if is_published(weights) else code(Path(weights).name)


def _origin(known: Provenance) -> dict[str, str]:
    """Return what a provenance says of where the weights come from, without what it does not say."""
    found = {
        "search": known.search and code(known.search),
        "trial": None if known.trial is None else str(known.trial),
        "MLflow run": known.mlflow_run_id and plain(known.mlflow_run_id),
        **{name: plain(each) for name, each in _steps(known).items()},
        "digest of the weights it began from": known.weights_digest and plain(known.weights_digest),
        "commit": known.git_commit and plain(known.git_commit),
        "versions": ", ".join(plain(f"{name} {version}") for name, version in known.versions.items()),
        "device": known.device and plain(known.device),
    }
    return {name: each for name, each in found.items() if each}


def _steps(known: Provenance) -> dict[str, str]:
    """Return what was changed in the recipe after its search, if anything was."""
    found: dict[str, str] = {}
    if known.simplified is not None and known.simplified.changed:
        names = ", ".join(each.field for each in known.simplified.dropped)
        found["left out as within noise"] = f"{names} ({len(known.simplified.seeds)} seeds)"
    if known.finalized is not None and known.finalized.changed:
        gain, metric = known.finalized.after - known.finalized.before, known.finalized.metric
        found["weights and views"] = (
            f"chosen on the validation part over {len(known.finalized.seeds)} seeds: {gain:+.4f} {metric}"
        )
    return found


def _limits(info: DataInfo, words: CardWords, part: Split) -> str:
    least, most = min(info.class_counts), max(info.class_counts)
    lines = [
        f"It knows these {len(info.classes)} classes: whatever it is shown, one of them is {words.answer}.",
        f"Classes had {least:,} to {most:,} training images; a class with few of them is known less well "
        f"than the {words.metric_title} says.",
        f"Its scores are for images like those of the {part} part. Images from another camera, place or "
        "group of people may score lower, and nothing here measures it.",
        "Probabilities are not calibrated.",
        "Nobody has reviewed it for any use. Its licence is for you to choose, within those of its images "
        "and of the weights that it began from.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _milliseconds(found: Mapping[str, float]) -> str:
    middle, low, high = (_three_digits(found[name]) for name in ("median_ms", "p5_ms", "p95_ms"))
    return f"{middle} ({low} to {high})"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"
