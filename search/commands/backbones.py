"""`tunebook backbones`: which pretrained network suits these images, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from search.commands.named import Input, named_input
from search.commands.options import BackbonesOptions, bench_of, tell_fields
from search.study import WEIGHTS, Study, weights_path
from spaces.rules.backbones import BACKBONES, SIZES, BackboneSize
from trainable.bench import Say, silent
from trainable.collector import loading_torch
from trainable.errors import UserError
from trainable.files.folders import new_file
from trainable.files.paths import without_tilde
from trainable.models.network_names import check_name
from trainable.recipe.models import MODEL_NAME, OWN_WEIGHTS, WEIGHTS_ENDINGS
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.recipe.trees import with_value, without
from trainable.recipe.yamlfile import write_whole
from trainable.terminal import GIB

if TYPE_CHECKING:  # torch takes seconds to import
    from search.facts.backbones import Candidate

COLUMNS = ("network", "accuracy", "95 % interval", "best with", "parameters", "images/s", "GiB at 32")


def run_backbones(options: BackbonesOptions) -> None:
    """Print the ranking, and write the study that fine-tunes its first three, where that is asked for. Raises
    UserError."""
    from search.reporting import terminal

    say = silent if options.as_json else terminal.say
    study, found = compared_backbones(named_input(options), options, say)
    _show(study, found, as_json=options.as_json)
    write_next_study(study, found, options, say)


def compared_backbones(
    study: Input, options: BackbonesOptions, say: Say = silent
) -> tuple[Study, list[Candidate]]:
    """Return the study whose images the networks were compared on, and what was measured of each, the best
    first. Raises UserError for what is no study, and for its options."""
    out, weights = options.out, options.weights
    size = _size(options.size)
    if not isinstance(study, Study):
        raise UserError("backbones compares networks on images: give DATA or a study")
    _check_labelled(study.base_recipe().task)
    if out is not None:
        new_file("-o", out, force=options.force)
    names = _named_networks(options)
    with loading_torch():
        from search.facts.backbones import compare
    from search.results.teachers import with_teacher

    study = with_teacher(study)
    bench = bench_of(options, say)
    sizes = [size] if size is not None else [*SIZES[: 2 if bench.kind == "cuda" else 1]]
    chosen = names or [name for each in sizes for name in BACKBONES[each]]
    return study, compare(study, chosen, bench, weights=weights)


def _named_networks(options: BackbonesOptions) -> list[str]:
    """Return the names of timm's networks that a person names, else those in a folder of weights; empty where
    a list of a size is meant. Raises UserError, ModelError among them."""
    folder = None if options.weights is None else without_tilde(options.weights)
    if folder is not None and not folder.is_dir():
        raise UserError(
            f"--weights {options.weights}: expected a folder with NAME.safetensors of each network"
        )
    if options.models:
        for name in options.models:
            check_name("timm", name)
        return options.models
    if folder is None:
        return []
    found = sorted(each.stem for each in folder.iterdir() if each.suffix in WEIGHTS_ENDINGS)
    if not found:
        raise UserError(f"--weights {options.weights}: expected files such as NAME.safetensors, found none")
    return found


def write_next_study(
    study: Study, found: Sequence[Candidate], options: BackbonesOptions, say: Say = silent
) -> None:
    """Write the study that fine-tunes the first three networks, and say which, where that is asked for."""
    if options.out is None:
        return
    from search.facts.backbones import priors

    shares, out = priors(_allowed(study, found, say)), new_file("-o", options.out, force=options.force)
    write_whole(out, _next(study, shares, options.weights).yaml().encode())
    say(f"the next study, which chooses between {', '.join(shares)}: {options.out}")


def _show(study: Study, found: Sequence[Candidate], *, as_json: bool) -> None:
    from search.reporting.tables import TextTable
    from search.reporting.terminal import console, say

    if as_json:
        backbones = [
            {
                "name": each.name,
                "accuracy": each.score.accuracy,
                "interval": interval(each),
                "chance_to_be_best": each.chance,
                "validation_images": len(each.score.right),
                **each.costs._asdict(),
            }
            for each in found
        ]
        tell_fields({"backbones": backbones})
    else:
        console().print(TextTable("", COLUMNS, tuple(_row(each) for each in found), whole={"network"}))
        say("accuracy of a linear head on frozen features; costs are those of training all layers")
        if study.objective.counts_classes_alike:
            say(
                f"each image counts alike here; {study.objective.metric}, the objective, counts classes alike"
            )


def _check_labelled(task: AnyTask) -> None:
    match task:
        case Classification():
            return
        case Segmentation():
            raise UserError(
                "backbones ranks networks by linear heads on one label an image, and these images have "
                "masks: compare encoders in a search, as "
                "`space.overrides: {model.encoder: {choice: [resnet18, ...]}}`"
            )
        case _:
            assert_never(task)


def _allowed(study: Study, found: Sequence[Candidate], say: Say) -> Sequence[Candidate]:
    """Return the networks that have no more parameters than the study allows, and names those that have
    more. Raises UserError if all have."""
    limit = study.objective.constraints.parameters
    allowed = [each for each in found if limit is None or each.costs.parameters <= limit.max]
    if limit is not None and len(allowed) < len(found):
        large = ", ".join(each.name for each in found if each not in allowed)
        above = f"more parameters than objective.constraints.parameters.max, {limit.max:,.0f}"
        if not allowed:
            raise UserError(f"{large}: {above}: no study can be written")
        say(f"not in the next study, as they have {above}: {large}")
    return allowed


def _next(study: Study, shares: Mapping[str, float], weights: str | None) -> Study:
    """Return the study that fine-tunes networks, and draws them with these shares. What the study says of
    any network stays."""
    from search.facts.backbones import pins_of

    tree = study.model_dump(mode="json")
    where = str(weights_path(weights)) if weights is not None else OWN_WEIGHTS
    model = {**pins_of(study), "model.kind": "timm", WEIGHTS: where}
    overrides = {path: each for path, each in tree["space"]["overrides"].items() if path != MODEL_NAME}
    if len(shares) == 1:
        model[MODEL_NAME] = next(iter(shares))
    else:
        overrides[MODEL_NAME] = {"choice": list(shares), "weights": list(shares.values())}
    tree["base"] = without(tree["base"], "model")
    for path, value in model.items():
        tree["base"] = with_value(tree["base"], path.split("."), value, lambda section: True)
    tree["space"] |= {"name": "finetune", "overrides": overrides}
    return Study.from_tree(tree)


def _row(found: Candidate) -> tuple[str, ...]:
    low, high = interval(found)
    costs = found.costs
    return (
        found.name,
        f"{found.score.accuracy:.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{found.chance:.0%}",
        f"{costs.parameters / 1e6:.1f} M",
        f"{costs.images_per_second:,.3g}" if costs.images_per_second else "-",
        f"{costs.training_bytes / GIB:.2f}",
    )


def interval(found: Candidate) -> tuple[float, float]:
    """Return Wilson's 95 % interval of an accuracy."""
    from trainable.training.metrics import wilson_interval

    return wilson_interval(int(found.score.right.sum()), len(found.score.right))


def _size(text: str | None) -> BackboneSize | None:
    for each in SIZES:
        if text == each:
            return each
    if text is not None:
        raise UserError(f"--size: expected one of {', '.join(SIZES)}, got {text!r}")
    return None
