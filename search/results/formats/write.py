"""The recipe of a search, or of a file, in another format, or for another batch or number of GPUs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, assert_never

from search.results.export import Exported
from search.results.formats.images import write_parts
from search.results.formats.sheet import Sheet, header, shown
from search.results.formats.winner import Winner, no_segmentation
from search.results.recipe_file import recipe_text
from spaces.conditions import scalars_of
from spaces.rules import batches
from trainable.data import DataInfo
from trainable.data.assembly import stored_parts
from trainable.data.measure import membership_digest, stored_files
from trainable.errors import UserError
from trainable.files.paths import without_tilde
from trainable.recipe.base import Purpose, with_guide_names
from trainable.recipe.optimizers import Timm
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.recipe.yamlfile import to_yaml, write_whole
from trainable.terminal import tell

ProgramFormat = Literal["tunebook", "timm", "torchvision", "paddleclas", "script"]


def export_as(
    exported: Exported,
    out: Path,
    form: ProgramFormat,
    *,
    gpus: int | None = None,
    batch: int | None = None,
    images: Path | None = None,
) -> str:
    """Write a recipe to `out`, and to standard error what its format cannot say; return which one it was.

    Args:
        gpus, batch: what the recipe is moved to; by default both stay as they are.
        images: a new folder for the parts of the data, as class folders, which the file then names.

    Raises UserError, also for images that are not those that the recipe was found with: what is written would
    name its scores beside their mean and spread.
    """
    _check_task(exported.recipe.task, form, images)
    winner = _winner(exported)
    if gpus is not None or batch is not None:
        winner = retargeted(winner, gpus=gpus, batch=batch)
    if images is not None:
        winner = _with_images(winner, images)
    text, sheet = _written(winner, out, form)
    write_whole(out, text.encode())
    _tell(winner, sheet, form)
    return winner.title


def _check_task(task: AnyTask, form: ProgramFormat, images: Path | None) -> None:
    match task:
        case Classification():
            return
        case Segmentation():
            if form != "tunebook":
                raise no_segmentation(form)
            if images is not None:
                raise UserError(
                    "--images: it writes class folders, which hold no masks, and this recipe segments images "
                    "(task.kind); expected --format tunebook without --images"
                )
        case _:
            assert_never(task)


def _winner(exported: Exported) -> Winner:
    from trainable.origins import Origins
    from trainable.training.pixels import resolved_for
    from trainable.training.timm_optimizers import check_timm_optimizer

    origins = Origins.of(exported.recipe.provenance)
    now = origins.with_images(exported.info)
    if changes := list(origins.changes(now, exported.recipe)):
        back = "put the former back, or " if origins.comparable(now) else ""
        raise UserError(
            f"{'; '.join(changes)}: {back}train with what is there now: the recipe that `tunebook train "
            "RECIPE --out DIR` leaves in DIR names these images"
        )
    if isinstance(exported.recipe.optimizer, Timm):
        check_timm_optimizer(exported.recipe.optimizer)
    provenance = exported.recipe.provenance
    search = provenance.search if provenance is not None else None
    title = exported.words if search is None else f"{exported.words} of the search {search}"
    recipe = resolved_for(exported.recipe, exported.info)
    return Winner(recipe, exported.info, exported.facts, title, exported.reasons, exported.varied)


def retargeted(winner: Winner, *, gpus: int | None, batch: int | None) -> Winner:
    """Return the recipe moved by the rules to another batch or number of GPUs, with reasons and sources.

    Its scores are left out: nobody has trained it. Raises UserError for a batch that the images do not fill,
    or that leaves a GPU without one.
    """
    recipe, facts = winner.recipe, winner.facts
    batch, devices = batch or recipe.loop.batch_size, gpus or 1
    refuse_batch(batch, devices, winner.info)
    values, provenance = scalars_of(recipe), recipe.provenance
    fitted = _limit(winner) if bool(gpus) == bool(facts.gpus) or gpus is None else None
    changed = batches.moved(facts, values, batch=batch, gpus=gpus or int(facts.gpus), fitted=fitted)
    new = recipe.with_values({path: ruling.what for path, ruling in changed.items()})
    if provenance is not None:
        unscored: dict[str, Any] = {
            "metrics": {},
            "final": None,
            "simplified": None,
            "finalized": None,
            "verification": None,
        }
        new = new.model_copy(update={"provenance": provenance.model_copy(update=unscored)})
    sources = with_guide_names(ruling.source for ruling in changed.values())
    why = {path: Purpose(ruling.reason, ruling.source) for path, ruling in changed.items()}
    changes = []
    for (path, ruling), source in zip(changed.items(), sources, strict=True):
        before_and_after = dict.fromkeys((shown(values.get(path)), shown(ruling.what)))
        changes.append(f"{path}: {' -> '.join(before_and_after)}: {ruling.reason} ({source})")
    where = "1 device" if devices == 1 else f"{devices} GPUs"
    moved = facts if gpus is None else facts.model_copy(update={"gpus": 1.0})
    return replace(
        winner,
        recipe=new,
        facts=moved,
        title=f"{winner.title}, moved to a batch of {batch:,} on {where}",
        reasons={**winner.reasons, **why},
        changes=tuple(changes),
        warnings=tuple(batches.warnings(facts, values, batch)),
        gpus=devices,
    )


def refuse_batch(batch: int, devices: int, info: DataInfo) -> None:
    """Raise UserError for a batch that the images do not fill, or that leaves a GPU without its share."""
    if batch > info.train_images:
        raise UserError(
            f"--batch {batch}: there are {info.train_images:,} training images, which fill no batch"
        )
    if batch % devices:
        raise UserError(
            f"--batch {batch}: expected a multiple of the {devices} GPUs, so that each has as many images"
        )


def _limit(winner: Winner) -> int | None:
    """Return the most images that fit into a device's memory, if the trial or a probe has met a limit."""
    loop, provenance = winner.recipe.loop, winner.recipe.provenance
    used = provenance.micro_batch if provenance is not None else None
    was_cut = used is not None and used < loop.batch_size
    return loop.micro_batch or (used if was_cut else None) or winner.facts.largest_micro_batch


def _with_images(winner: Winner, folder: Path) -> Winner:
    from trainable.origins import Origins

    parts, classes = stored_parts(winner.recipe.data)
    stored = stored_files(parts, classes)
    digest = membership_digest(parts, stored.size)
    now = replace(winner.info, classes=classes, digest=digest, stored=stored.names)
    origins = Origins().with_images(winner.info)
    if changes := list(origins.changes(origins.with_images(now), winner.recipe)):
        raise UserError(f"--images: {'; '.join(changes)}: put the former back, or leave --images out")
    absolute = without_tilde(str(folder)).absolute()  # these programs are run in folders of their own
    write_parts(parts, classes, absolute, winner.info.digest)
    return replace(winner, images=str(absolute))


def _written(winner: Winner, out: Path, form: ProgramFormat) -> tuple[str, Sheet]:
    match form:
        case "tunebook":
            sheet = Sheet(winner.recipe)
            lines = [winner.title, *winner.notes]
            return recipe_text(winner.recipe, winner.reasons, winner.varied, lines), sheet
        case "timm":
            from search.results.formats import timm_args

            return _as_yaml(winner, timm_args.timm_sheet(winner), timm_args.usage(winner))
        case "torchvision":
            from search.results.formats import torchvision_args

            sheet = torchvision_args.torchvision_sheet(winner)
            head = header(winner.title, sheet, torchvision_args.TITLE, winner.notes)
            return head + torchvision_args.shell_command(winner, sheet), sheet
        case "paddleclas":
            from search.results.formats import paddleclas

            return _as_yaml(winner, paddleclas.paddleclas_sheet(winner), paddleclas.usage(winner))
        case "script":
            from search.results.formats.script import script_sheet
            from search.results.formats.script_text import script_text

            sheet = script_sheet(winner)
            return script_text(winner, sheet, out), sheet
        case _:
            assert_never(form)


def _as_yaml(winner: Winner, sheet: Sheet, usage: str) -> tuple[str, Sheet]:
    return header(winner.title, sheet, usage, winner.notes) + to_yaml(sheet.arguments, {}), sheet


def _tell(winner: Winner, sheet: Sheet, form: ProgramFormat) -> None:
    """Print, to standard error, what was changed, what was not seen, and what the format cannot say."""
    for change in winner.changes:
        tell(f"moved: {change}", sys.stderr)
    for warning in winner.warnings:
        tell(f"not seen: {warning}", sys.stderr)
    for line in sheet.lines():
        tell(f"{form} cannot say {line}", sys.stderr)
