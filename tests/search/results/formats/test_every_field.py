"""Tests that no format loses a field in silence: whatever changes in a recipe shows in what is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from search.results.formats import paddleclas, script, timm_args, torchvision_args
from search.results.formats.paddleclas import paddleclas_sheet
from search.results.formats.script import script_sheet
from search.results.formats.script_text import script_text
from search.results.formats.sheet import NO_RESULT
from search.results.formats.table import OTHER_KIND, FieldRow, value_at, without_kinds
from search.results.formats.timm_args import timm_sheet
from search.results.formats.torchvision_args import torchvision_sheet
from search.results.formats.winner import Winner
from tests.search.results.formats.winners import recipe_of, winner_of
from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.tasks import Classification


def _script(winner: Winner) -> str:
    sheet = script_sheet(winner)
    return script_text(winner, sheet, Path("train.py"))


def _shown(sheet: Callable[[Winner], Any]) -> Callable[[Winner], str]:
    def text(winner: Winner) -> str:
        found = sheet(winner)
        return "\n".join([repr(found.arguments), *found.lines()])

    return text


FORMATS: dict[str, Callable[[Winner], str]] = {
    "timm": _shown(timm_sheet),
    "torchvision": _shown(torchvision_sheet),
    "paddleclas": _shown(paddleclas_sheet),
    "script": _script,
}

TABLES: dict[str, tuple[FieldRow, ...]] = {
    "timm": timm_args.TABLE,
    "torchvision": torchvision_args.TABLE,
    "paddleclas": paddleclas.TABLE,
    "script": script.TABLE,
}

OF_LABELS = {  # export refuses a segmentation, before it asks a table
    "augmentation.crop": Classification.crops,
    "augmentation.mixing": Classification.mixings,
}

KINDS: list[dict[str, Any]] = [  # every kind that a section may have, with all of its fields
    {},
    {"model.kind": "timm", "model.name": "test_resnet"},
    {"model.kind": "torchvision", "model.name": "resnet18"},
    *({"optimizer.kind": kind} for kind in ("sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb")),
    {"optimizer.kind": "adam_then_sgd"},
    {"optimizer.kind": "timm", "optimizer.name": "nadamw"},
    *({"schedule.kind": kind} for kind in ("constant", "cosine", "step", "poly", "exp")),
    {"schedule.kind": "sgdr", "schedule.cycle_epochs": 1.0, "schedule.growth": 3},
    *({"schedule.kind": "onecycle", "schedule.anneal": anneal} for anneal in ("cosine", "linear")),
    *({"schedule.kind": "cyclic", "schedule.mode": mode} for mode in ("triangular2", "exp_range")),
    *({"regularisation.clipping.kind": kind} for kind in ("norm", "adaptive")),
    *({"regularisation.class_weights.kind": kind} for kind in ("inverse", "effective_number")),
    {"regularisation.averaging.kind": "ema"},
    *({"augmentation.crop.kind": kind} for kind in ("none", "pad", "resized")),
    *({"augmentation.policy.kind": kind} for kind in ("randaugment", "trivialaugment", "autoaugment")),
    *({"augmentation.masking.kind": kind} for kind in ("erasing", "cutout", "gridmask", "hide_and_seek")),
    *({"augmentation.mixing.kind": kind} for kind in ("mixup", "cutmix")),
    *({"augmentation.size.kind": kind} for kind in ("multi_scale", "progressive")),
    *({"model.layer_rates.kind": kind} for kind in ("geometric", "decayed", "backbone")),
    {"evaluation.resize.kind": "center_crop"},
    {"loop.sampling": "balanced"},
    *(
        {"distillation.kind": kind, "distillation.teacher": "teacher"}
        for kind in ("logits", "dkd", "features")
    ),
]

OTHERS: dict[str, Any] = {  # of fields that cannot be changed by a factor
    "data.format": "folder",
    "data.name": "FashionMNIST",
    "data.columns.split": "part",
    "data.columns.group": "patient",
    "data.root": "/images",
    "data.group": "patient",
    "data.train": "training",
    "data.validation": "held",
    "data.test": "last",
    "data.exclude": "copies.csv",
    "data.exclude_parts": ["unlabeled"],
    "data.min_images": 3,
    "data.validation_seed": 1,
    "data.train_limit": 100,
    "data.channels": 1,
    "data.normalisation": {"mean": [0.1, 0.2, 0.3], "std": [0.1, 0.2, 0.3]},
    "data.interpolation": "bicubic",
    "data.flips": ["horizontal", "vertical"],
    "model.initialisation": "orthogonal",
    "model.zero_init_residual": False,
    "model.dropout": 0.2,
    "model.stochastic_depth": 0.2,
    "model.frozen_views": 2,
    "model.depth": 14,
    "model.stem_stride": 2,
    "optimizer.name": "adan",
    "augmentation.policy.policy": "svhn",
    "precision.kind": "bf16",
    "schedule.warmup_epochs": 1.0,
    "augmentation.crop.fraction": 0.25,
    "loop.micro_batch": 8,
    "evaluation.scales": [1.0, 1.5],
    "evaluation.metrics": [{"kind": "macro_f1"}],
}
SEVERAL: dict[str, list[Any]] = {  # not every recipe can have the first of these, or has it already
    "model.weights": ["default", __file__],
    "optimizer.scaling": ["none", "linear"],
    "schedule.anneal": ["linear", "cosine"],
    "schedule.mode": ["triangular"],
    "loop.sampling": ["balanced", "sqrt"],
}
UNUSED: dict[str, Callable[[Recipe], bool]] = {  # fields that change nothing in recipes such as those
    "augmentation.flip_probability": lambda recipe: not recipe.data.flips,
    "schedule.gamma": lambda recipe: (
        recipe.get("schedule.kind") == "cyclic" and recipe.get("schedule.mode") != "exp_range"
    ),
}
FIXED = {"version", "model.name"}


def _another(path: str, value: Any) -> Any:
    """Return other values for a field, of which the first that is valid is taken."""
    if path in SEVERAL:
        return SEVERAL[path]
    if path in OTHERS:
        return [OTHERS[path]]
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1]
        case float():
            return [value * 0.9, 0.1, value * 1.1]
        case str():
            return [f"{value}x"]
    return []


def _changed(recipe: Recipe, path: str, value: Any) -> Recipe | None:
    for other in _another(path, value):
        try:
            changed = recipe.with_values({path: other})
        except RecipeError:
            continue
        if changed != recipe:
            return changed
    return None


def kinds_of(section: type[Spec], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each section that has several kinds, with each of them."""
    for name, field in section.model_fields.items():
        inner = f"{path}.{name}".removeprefix(".")
        specs = [each for each in (field.annotation, *get_args(field.annotation)) if _is_section(each)]
        for spec in specs if inner != "provenance" else ():
            if "kind" in spec.model_fields:
                yield from ((inner, kind) for kind in get_args(spec.model_fields["kind"].annotation))
            yield from kinds_of(spec, inner)


def _is_section(each: Any) -> bool:
    return isinstance(each, type) and issubclass(each, Spec)


def names_kind(row: FieldRow, section: str, kind: str) -> bool:
    """Return whether a row names a kind, or is of the section whatever its kind."""
    if row.path in (section, f"{section}.kind"):
        return bool(row.why) or any(map(_looks_at_the_value, row.arguments))
    named = re.match(rf"{re.escape(section)}\[([^]]*)\]", without_kinds_above(row.path, section))
    return named is not None and kind in named[1].split("|")


def _looks_at_the_value(arguments: Any) -> bool:
    values = arguments.values() if isinstance(arguments, Mapping) else [arguments]
    return any(map(callable, values))


def without_kinds_above(path: str, section: str) -> str:
    """Return a path without the kinds that it names of the sections above one."""
    names, depth = path.split("."), section.count(".")
    return ".".join([*map(without_kinds, names[:depth]), *names[depth:]])


@pytest.mark.parametrize("form", TABLES)
def test_a_table_forgets_no_kind_of_a_section(form: str) -> None:
    kinds = set(kinds_of(Recipe)) - {("task", kind) for kind in ("classification", "segmentation")}
    assert len(kinds) > 60
    forgotten = [
        f"{section}: {kind}"
        for section, kind in sorted(kinds)
        if kind in OF_LABELS.get(section, (kind,))
        and not any(names_kind(row, section, kind) for row in TABLES[form])
    ]
    assert not forgotten


@pytest.mark.parametrize("form", TABLES)
def test_a_table_names_no_kind_that_a_section_has_not(form: str) -> None:
    known = set(kinds_of(Recipe))
    named = {
        (without_kinds(row.path[: found.start()]), kind)
        for row in TABLES[form]
        for found in re.finditer(r"\[([^]]*)\]", row.path)
        for kind in found[1].split("|")
    }
    assert named <= known


@pytest.mark.parametrize("form", TABLES)
def test_a_table_has_a_row_for_each_field_or_its_section(form: str) -> None:
    forgotten = set()
    for kinds in KINDS:
        recipe = recipe_of(**{path.replace(".", "__"): value for path, value in kinds.items()})
        rows = [row for row in TABLES[form] if value_at(row.path, recipe) is not OTHER_KIND]
        sections = tuple(f"{without_kinds(row.path)}." for row in rows)
        for path, _ in recipe.leaves():
            is_kind = path.endswith(".kind") or path in (*NO_RESULT, *FIXED)
            if not is_kind and not f"{path}.".startswith(sections):
                forgotten.add(path)
    assert not forgotten


@pytest.mark.slow("exports after each change")
@pytest.mark.parametrize("form", FORMATS)
def test_a_change_of_any_field_changes_the_file_or_its_list(form: str) -> None:
    write, lost, tried = FORMATS[form], [], set()
    for kinds in KINDS:
        recipe = recipe_of(**{path.replace(".", "__"): value for path, value in kinds.items()})
        before = write(winner_of(recipe))
        sections = {path.rpartition(".")[0] for path in kinds} or {path for path, _ in recipe.leaves()}
        for path, value in recipe.leaves():
            inside = not kinds or path.rpartition(".")[0] in sections
            if not inside or path in NO_RESULT or path in FIXED or path.endswith(".kind"):
                continue
            if path in UNUSED and UNUSED[path](recipe):
                continue
            changed = _changed(recipe, path, value)
            tried.add(path)
            if changed is None:
                lost.append(f"{path} of {kinds}: no other value is valid")
            elif write(winner_of(changed)) == before:
                lost.append(f"{path} of {kinds}: {value} and {changed.get(path)}")
    assert not lost, "\n".join(lost)
    assert len(tried) > 100


@pytest.mark.slow("exports after each change")
@pytest.mark.parametrize("form", FORMATS)
def test_every_kind_of_a_section_gives_another_file(form: str) -> None:
    texts = [
        FORMATS[form](
            winner_of(recipe_of(**{path.replace(".", "__"): value for path, value in kinds.items()}))
        )
        for kinds in KINDS[1:]
    ]
    same_as_default = [
        {"schedule.kind": "cosine"},
        {"optimizer.kind": "sgd"},
        {"augmentation.crop.kind": "pad"},
    ]
    assert len(set(texts)) == len(texts) - len(same_as_default) + 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("compiling", ["blocks", "auto"])
def test_a_format_says_that_it_does_not_compile_by_blocks_or_by_choice(form: str, compiling: str) -> None:
    text = FORMATS[form](winner_of(recipe_of(loop__compile=compiling)))
    assert f"loop.compile: {compiling}: " in text
