"""What another program can say of a recipe: a table of rows for each program, and one walk that reads any.

The programs classify images: export refuses a recipe of another task before it asks a table.

A row names a field or a section of the recipe, and says which arguments of the program it becomes, or why the
program cannot say it. Rows are read in their order, which is that of the arguments in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from search.results.formats.sheet import Sheet
from search.results.formats.winner import Winner
from trainable.models.libraries import RGB
from trainable.recipe import Recipe
from trainable.training.optim import applied_lr

ValueOf = Callable[[Any, Winner], Any]  # of a field's or a section's own value
Condition = Callable[[Winner], bool]
OTHER_KIND = object()
# A name, which takes the field's value; values by name, or functions of the field's; or a function that
# returns these. What a dot and a `+` in a name do, `Sheet.say` says.
Arguments = str | Mapping[str, Any] | ValueOf


def never(*_: object) -> bool:
    """Return False, of any value."""
    return False


def always(_: Winner) -> bool:
    """Return True, of any recipe."""
    return True


@dataclass(frozen=True)
class FieldRow:
    """A field or a section of a recipe, in the words of a program.

    `path` is dotted. A section in it may name the kinds that the row is of: `optimizer[sgd|lars].momentum`.
    """

    path: str
    arguments: tuple[Arguments, ...] = ()
    why: str | ValueOf = ""  # the program cannot say it; empty: it can
    unless: ValueOf = never  # it can say these values
    condition: Condition = always


def says(path: str, *arguments: Arguments, but: str | ValueOf = "", unless: ValueOf = never) -> FieldRow:
    """Return a row of what a program says, but for a difference; without arguments it does so by itself."""
    return FieldRow(path, arguments, but, unless)


def lost(path: str, why: str | ValueOf, *, unless: ValueOf = never) -> FieldRow:
    """Return a row of what a program cannot say."""
    return FieldRow(path, why=why, unless=unless)


def only(path: str, value: Any, why: str) -> FieldRow:
    """Return a row of a field of which the program can say one value alone."""
    return lost(path, why, unless=lambda given, _: given == value)


def only_each(section: str, why: str | Callable[[Any], str], **values: Any) -> tuple[FieldRow, ...]:
    """Return rows of fields of which the program can say one value each, with a reason that may name it."""
    return tuple(
        only(f"{section}.{name}", value, why if isinstance(why, str) else why(value))
        for name, value in values.items()
    )


def where(condition: Condition, *rows: FieldRow) -> tuple[FieldRow, ...]:
    """Return rows that count under a condition."""
    return tuple(replace(row, condition=condition) for row in rows)


def filled(table: Sequence[FieldRow], winner: Winner, skeleton: Mapping[str, Any] | None = None) -> Sheet:
    """Return a program's arguments for a recipe, filled into a skeleton, and what they cannot say."""
    sheet = Sheet(winner.recipe)
    sheet.say(deepcopy(dict(skeleton or {})))
    for row in table:
        value = value_at(row.path, winner.recipe)
        if value is OTHER_KIND or not row.condition(winner):
            continue
        for arguments in row.arguments:
            sheet.say(_said(arguments, value, winner))
        if row.why and not row.unless(value, winner):
            why = row.why if isinstance(row.why, str) else row.why(value, winner)
            sheet.cannot(without_kinds(row.path), why)
    return sheet


def _said(arguments: Arguments, value: Any, winner: Winner) -> Mapping[str, Any]:
    match arguments:
        case str():
            return {arguments: value}
        case Mapping():
            return {
                name: it(value, winner) if callable(it) else deepcopy(it) for name, it in arguments.items()
            }
        case _:
            return dict(arguments(value, winner))


def without_kinds(path: str) -> str:
    """Return a row's path as the recipe has it."""
    return re.sub(r"\[.*?\]", "", path)


def value_at(path: str, recipe: Recipe) -> Any:
    """Return a row's field or section, or OTHER_KIND where a section on its path is of none of its kinds."""
    value: Any = recipe
    for part in path.split("."):
        name, _, kinds = part.rstrip("]").partition("[")
        value = getattr(value, name)
        if kinds and value.kind not in kinds.split("|"):
            return OTHER_KIND
    return value


# --- of several programs ---------------------------------------------------------------------------------


def folder(_: object, winner: Winner) -> str:
    """Return the folder that a program reads: the parts, if they were written, or else the data."""
    return winner.images or winner.recipe.data.path


def side(_: object, winner: Winner) -> int:
    """Return the side of an image in pixels."""
    return winner.info.image_size


def interpolation(_: object, winner: Winner) -> str:
    """Return how images are resized."""
    return winner.info.interpolation


def rate(_: object, winner: Winner) -> float:
    """Return the learning rate for the whole batch."""
    return applied_lr(winner.recipe.optimizer, winner.cut.batch)


def parts(why: str) -> FieldRow:
    """Return the row of the fields that decide on the parts: a program takes parts as they are."""
    return lost("data", why, unless=lambda _, winner: winner.images is not None)


def colours(why: str) -> FieldRow:
    """Return the row of the channels, for a program that reads colour images."""
    return lost("data.channels", why, unless=lambda _, winner: winner.info.channels == RGB)


def measured_norms(why: str) -> FieldRow:
    """Return the row of the batches that measure norms; frozen norms are not measured."""
    return lost(
        "evaluation.norm_batches",
        why,
        unless=lambda batches, winner: batches == 0 or winner.recipe.model.freeze_norm,
    )


def compiles_whole(program: str) -> FieldRow:
    """Return the row of `loop.compile` for a program that compiles whole networks."""
    reasons = {
        "blocks": f"{program} compiles the whole network",
        "auto": f"{program} times no steps, and compiles nothing",
    }
    return lost("loop.compile", lambda how, _: reasons[how], unless=lambda how, _: isinstance(how, bool))


UNTOUCHED = {  # of a network that a program makes its own way
    "initialisation": "default",
    "zero_init_residual": None,
    "freeze_epochs": 0,
    "frozen_views": None,
    "freeze_norm": False,
}
NEUTRAL = (  # nothing is to be said of these
    says("model.layer_rates[uniform]"),
    says("regularisation.class_weights[none]"),
    says("regularisation.clipping[none]"),
    says("regularisation.averaging[none]"),
    says("augmentation.size[fixed]"),
    says("augmentation.policy[none]"),
    says("augmentation.masking[none]"),
    says("augmentation.mixing[none]"),
)
EQUAL_PARTS = lost(
    "loop.batch_size",
    lambda _, winner: f"{winner.cut.gpus} GPUs with equal parts make a batch of {winner.cut.batch}",
    unless=lambda batch, winner: winner.cut.batch == batch,
)
PARTS_AT_ONCE = lost(
    "loop.micro_batch",
    lambda _, winner: f"the file has equal parts, of {winner.cut.at_once} images",
    unless=lambda images, winner: images in (None, winner.cut.at_once),
)
WHOLE_SIZE = lost(
    "evaluation.resize[center_crop].ratio",
    "the file has the nearest whole size",
    unless=lambda ratio, winner: ratio == winner.info.image_size / round(winner.info.image_size / ratio),
)
LABELS_ALONE = only("distillation", None, "the format learns from labels alone")
