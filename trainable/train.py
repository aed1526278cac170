"""Trains one recipe from beginning to end and writes its files: the function behind the command `train`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from trainable.curves.diagnosis import Diagnosis, diagnose
from trainable.data import DataInfo, DataSet
from trainable.data.loading import statistics_of
from trainable.data.measure import DeviceKind
from trainable.data.own import MakeData, make_own
from trainable.errors import DataError, UserError
from trainable.models.own import BuildModel, name_of
from trainable.models.weights import METADATA, STATISTICS
from trainable.probes.speed import measure_speeds
from trainable.recipe import Recipe
from trainable.recipe.data import ChannelStatistics
from trainable.recipe.provenance import Provenance
from trainable.recipe.speeds import fastest
from trainable.recipe.trained_files import MODEL_FILE, RECIPE_FILE
from trainable.recipe.yamlfile import parse_setting, write_recipe, write_whole
from trainable.training.bootstrap import Intervals, intervals_of, resampled_metrics
from trainable.training.debug import Say, debugging, tools_named
from trainable.training.devices import default_device, threads
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import Own
from trainable.training.metrics import EpochResult
from trainable.training.network import make_network, stands_alone
from trainable.training.origins import DIGITS, differences, digests_of, provenance_of
from trainable.training.pixels import as_weights_know, load_for
from trainable.training.run import PREFIXES, Run
from trainable.training.score_gap import ScoredPart, ScoreGaps, score_gaps
from trainable.training.seeds import global_generators

METRICS_FILE = "metrics.json"


@dataclass(frozen=True)
class Outcome:
    """Holds the result of a run: the recipe as it was trained, with its provenance, every epoch, the test
    part's scores if they were asked for, the diagnosis of the curves, and the intervals of the test scores
    and how far validation and test scores are apart, which a run that diverged has not."""

    recipe: Recipe
    history: tuple[EpochResult, ...]
    test: Scores | None
    diagnosis: Diagnosis
    intervals: Intervals | None = None
    gaps: ScoreGaps | None = None

    @property
    def diverged(self) -> bool:
        return self.history[-1].diverged

    def tree(self) -> dict[str, Any]:
        """Returns what `train --json` prints:
        digest, last EpochResult and test metrics, flat, how sure these are, and the diagnosis."""
        return {**self.scores(), **self.sureness(), "diagnosis": self.diagnosis.tree()}

    def sureness(self) -> dict[str, Any]:
        """Returns how sure the test metrics are, and how far from those of validation, if they were asked
        for."""
        bounds = {} if self.intervals is None else {"test_intervals": self.intervals.tree(PREFIXES["test"])}
        return bounds if self.gaps is None else {**bounds, "validation_test_gap": self.gaps.tree()}

    def scores(self) -> dict[str, Any]:
        """Returns digest, last EpochResult and test metrics, flat."""
        test = self.test.metrics(PREFIXES["test"]) if self.test is not None else {}
        confusion = {"test_confusion": self.test.confusion} if self.test is not None else {}
        last = self.history[-1].tree()
        extra = last.pop("extra_metrics")
        return {"recipe": self.recipe.digest(), **last, **extra, **test, **confusion}


def train(
    recipe: Recipe,
    *,
    data: DataSet | MakeData | None = None,
    model: nn.Module | BuildModel | None = None,
    out: str | Path | None = None,
    test: bool = False,
    download: bool = False,
    device: torch.device | None = None,
    metrics: Own | None = None,
    debug: Sequence[str] = (),
    say: Say = lambda line: None,
) -> Outcome:
    """Trains a recipe; scores the test part if `test`; writes three files to `out` if it is not None.

    `data` and `model` are images and a network of your own, or the functions that make them.

    The number of threads in the recipe's provenance is used again, and torch's setting is restored
    afterwards. `say` receives a line for each epoch, and one for each way in which this machine or these data
    differ from the provenance. `out` receives `model.safetensors` (not if the run diverged: there is no
    model), `metrics.json` and `recipe.yaml`, each whole or not at all. `debug` names the tools of
    `trainable.training.debug` that are on; `profile` writes `profile.json` too.
    `metrics` are functions of the caller's, as in Run. Raises UserError before
    training if the run is impossible, and RunError for a crash.
    """
    tools = tools_named(debug)
    folder = _checked(out)
    with threads_of(recipe.provenance, say):
        device = device or default_device()
        images = images_of(
            recipe, data, device, own_model=stands_alone(model, recipe.model), download=download
        )
        if test and images.test is None:
            raise DataError(f"data.path {recipe.data.path}: there is no test part to score")
        images.refuse_leaks(recipe.data)
        images.be_here(say)
        if model is None:
            recipe = _in_fastest_format(recipe, images, device, say, download=download)
        run = Run(recipe, data=images, model=model, device=device, download=download, metrics=metrics)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            code = digests_of(model=model, data=data)
            for line in differences(recipe.provenance, run, code):
                say(line)
            with debugging(tools, device=device, folder=folder, say=say):
                _train(run, say)
            return _finish(run, folder, test, code)
        finally:
            run.close()


def images_of(
    recipe: Recipe,
    data: DataSet | MakeData | None,
    device: torch.device,
    *,
    own_model: bool,
    download: bool,
) -> DataSet:
    """Returns the images of a run: those that are given, that a given function makes, or the recipe's."""
    if data is None or isinstance(data, DataSet):
        if data is not None:
            return data
        return load_for(recipe, device, own_model=own_model, download=download)
    kind: DeviceKind = "cuda" if device.type == "cuda" else "cpu"
    spec = as_weights_know(recipe, kind, own_model=own_model, download=download).data
    if not spec.own:
        spec = spec.model_copy(update={"path": name_of(data), "format": "own"})
    return make_own(spec, data, resize=recipe.evaluation.resize, device_kind=kind)


def with_settings(recipe: Recipe, settings: Sequence[str], data_path: str | None = None) -> Recipe:
    """Returns the recipe after `path=value` settings (values as in YAML) and another data path are applied.

    Another path is read with `data.format: auto`, unless a setting says otherwise. If a setting changes the
    recipe, the provenance no longer describes it and is dropped. Raises RecipeError, UserError.
    """
    values = dict(parse_setting(text) for text in settings)
    changed = recipe.with_values(values)
    if changed.digest() != recipe.digest():
        changed = changed.model_copy(update={"provenance": None})
    if data_path is None:
        return changed
    source = {"data.path": data_path, "data.format": "auto", "data.name": None, "data.root": None}
    return changed.with_values({path: value for path, value in source.items() if path not in values})


@contextmanager
def threads_of(provenance: Provenance | None, say: Say) -> Iterator[None]:
    """Sets torch's threads to the number in a provenance, which decides the last digits,
    and restores them afterwards."""
    wanted = provenance.threads if provenance is not None else None
    with threads(wanted) as got:
        if wanted is not None and got != wanted:
            say(f"the recipe was trained with {wanted} threads, torch gives {got}: {DIGITS}")
        elif wanted is not None and wanted > (cores := os.cpu_count() or 1):
            say(f"the recipe was trained with {wanted} threads, this machine has {cores} cores: slower")
        yield


def _in_fastest_format(
    recipe: Recipe, data: DataSet, device: torch.device, say: Say, *, download: bool
) -> Recipe:
    """Returns the recipe with the number format and layout in which its network trains fastest, in place of
    `precision.kind: auto`; `precision.channels_last: false` stays."""
    if recipe.precision.kind != "auto":
        return recipe
    info = data.info
    with global_generators(device, recipe.loop.seed):
        model = make_network(recipe.model.model_copy(update={"weights": None}), info, download=download)
    shape = (info.channels, info.image_size, info.image_size)
    measured = measure_speeds(model, shape, device, len(info.classes), dense=info.dense)
    speeds = [each for each in measured if recipe.precision.channels_last or not each.channels_last]
    if not speeds:
        return recipe
    best = fastest(speeds)
    say(f"precision: {best} images a second (timed: {', '.join(map(str, speeds))})")
    return recipe.with_values(
        {"precision.kind": best.number_format, "precision.channels_last": best.channels_last}
    )


def _train(run: Run, say: Say) -> None:
    """Trains all epochs and says a line for each;
    it says one more if memory ran out and the micro-batch was cut."""
    asked = run.micro_batch
    while not run.finished:
        say(_line(run.step(), run.recipe.loop.epochs))
    if run.micro_batch < asked:
        say(
            f"memory ran out: {run.micro_batch} images at once instead of {asked}; loop.batch_size stayed "
            f"{run.recipe.loop.batch_size}"
        )


def _finish(run: Run, folder: Path | None, test: bool, code: Mapping[str, str]) -> Outcome:
    if folder is not None and not run.diverged:
        write_whole(folder / MODEL_FILE, model_file(run.weights(), run.recipe, run.data.info))
    scores = run.score("test", confusion=True, answers=True) if test else None
    sure, gaps = _sureness(run, scores)
    named = {
        **_scores_in(run.history[-1]),
        **(scores.metrics(PREFIXES["test"]) if scores is not None else {}),
    }
    recipe = run.recipe.model_copy(update={"provenance": provenance_of(run, named, code)})
    outcome = Outcome(recipe, run.history, scores, diagnosed(run), sure, gaps)
    if folder is not None:
        write_recipe(folder / RECIPE_FILE, recipe)
        write_whole(folder / METRICS_FILE, _metrics_file(outcome))
    return outcome


def model_file(weights: Mapping[str, Tensor], recipe: Recipe, info: DataInfo) -> bytes:
    """Returns the content of `model.safetensors`. Its metadata say which recipe it is of, and by what images
    were normalised, as `data.normalisation` for a run that begins from it."""
    mean, std = statistics_of(recipe.data, info)
    statistics = ChannelStatistics(mean=mean, std=std).model_dump(mode="json")
    # One entry: safetensors writes several in any order, and equal weights would differ in their bytes.
    metadata = {METADATA: json.dumps({"recipe": recipe.digest(), STATISTICS: statistics})}
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in weights.items()}
    return safetensors_bytes(tensors, metadata=metadata)


def _sureness(run: Run, test: Scores | None) -> tuple[Intervals | None, ScoreGaps | None]:
    """Returns the intervals of the test scores, and how far those of validation are from them."""
    if test is None or test.answers is None:
        return None, None
    seed, extra = run.recipe.loop.seed, run.extra_metrics
    on_test = resampled_metrics(test.answers, extra, seed)
    validation = run.score("validation", answers=True)
    if validation.answers is None:
        return intervals_of(on_test), None
    on_validation = resampled_metrics(validation.answers, extra, seed + 1)  # others than those of the test
    spoken_of = ("accuracy", *(spec.kind for spec in extra.specs), *extra.own)
    parts = ScoredPart(validation.by_name(), on_validation), ScoredPart(test.by_name(), on_test)
    return intervals_of(on_test), score_gaps(*parts, spoken_of)


def diagnosed(run: Run) -> Diagnosis:
    """Returns what the learning curves of a run say."""
    info = run.data.info
    return diagnose(
        run.history,
        run.recipe,
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )


def _checked(out: str | Path | None) -> Path | None:
    """Returns the folder if it can be made and written to: an hour's work must not be lost to a misspelt one.

    The folder is made later, when nothing else prevents the run, so that a fault leaves nothing behind.
    """
    if out is None:
        return None
    folder = Path(out)
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UserError(f"--out {folder}: cannot be made: {there} is a file")
    if not os.access(there, os.W_OK):
        raise UserError(f"--out {folder}: {there} cannot be written to")
    return folder


def _metrics_file(outcome: Outcome) -> bytes:
    tree = {
        "recipe": outcome.recipe.digest(),
        "class_names": outcome.recipe.provenance.class_names if outcome.recipe.provenance else (),
        "last": outcome.scores(),
        **outcome.sureness(),
        "diagnosis": outcome.diagnosis.tree(),
        "history": [result.tree() for result in outcome.history],
    }
    return (json.dumps(tree, indent=2, allow_nan=False) + "\n").encode()


def _scores_in(result: EpochResult) -> dict[str, float]:
    """Returns what the model scored, without how long it took."""
    return {name: value for name, value in result.metrics().items() if name.startswith(("train_", "val_"))}


def _line(result: EpochResult, epochs: int) -> str:
    state = "  diverged" if result.diverged else ""
    extra = "".join(f"{name} {value:.4f}  " for name, value in result.extra_metrics.items())
    return (
        f"epoch {result.epoch}/{epochs}  train_loss {result.train_loss:.4f}  val_loss {result.val_loss:.4f}  "
        f"val_accuracy {result.val_accuracy:.4f}  {extra}applied_lr {result.applied_lr:.3g}  "
        f"{result.epoch_seconds:.1f} s{state}"
    )
