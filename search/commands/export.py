"""Writes the best recipe of a search, and trains it again first if that is asked for: `tunebook export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from search.commands.options import FAILED
from search.record.verification import keep_verification
from search.results import report
from search.results.export import Exported, exported, exported_file
from search.results.search import Search
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.provenance import Finalized, Provenance

if TYPE_CHECKING:
    from search.results.formats.write import Format


def run_export(
    source: Path,
    out: Path,
    trial: int | None,
    *,
    seeds: int,
    simplified: bool,
    finalized: bool,
    verified: int | None,
    form: Format,
    gpus: int | None,
    batch: int | None,
    images: Path | None,
    download: bool,
) -> None:
    """Write the recipe of a search, or of a file, to `out`: made simpler, then finalized, then verified, then
    moved to other hardware, in the format that is asked for.

    Ends the command with exit code 1 where the recipe is not verified; it is written all the same. Raises
    UserError as these steps do, and nothing is written then.
    """
    _check(source, trial, verified, gpus, batch)
    found = exported_file(source) if source.is_file() else exported(Search(source), trial)
    if simplified or finalized:
        found = _improved(found, seeds, download, simplified=simplified, finalized=finalized)
    if verified is not None:
        found = _verified(found, verified, download)
        if source.is_dir():
            keep_verification(source, found.recipe)
            report.say(f"`{report.command()} report {quote(str(source))}` shows this")
    if form == "tunebook" and (gpus, batch, images) == (None, None, None):
        found.write(out)
        words = found.words
    else:
        from search.results.formats.write import export_as

        words = export_as(found, out, form, gpus=gpus, batch=batch, images=images)
    print(f"{words} -> {out}")
    verification = found.recipe.provenance and found.recipe.provenance.verification
    if verified is not None and not (verification and verification.verified):
        raise typer.Exit(FAILED)


def _check(
    source: Path, trial: int | None, verified: int | None, gpus: int | None, batch: int | None
) -> None:
    if trial is not None and source.is_file():
        raise UserError(f"--trial {trial}: {source} is a recipe; only a search has trials")
    if verified is not None and (gpus is not None or batch is not None):
        raise UserError(
            "--verify: it trains what is exported on this machine, so leave --gpus and --batch to a later "
            "export of the file that it writes"
        )


def _improved(found: Exported, runs: int, download: bool, *, simplified: bool, finalized: bool) -> Exported:
    """Returns the recipe made simpler, then finalized, as far as these are asked for, with the same seeds."""
    from search.retraining.verify import claim_of, new_seeds

    (metric, _), seeds = claim_of(found.recipe), new_seeds(found.recipe, runs)
    if simplified:
        found = _simplified(found, metric, seeds, download)
    return _finalized(found, metric, seeds, download) if finalized else found


def _simplified(found: Exported, metric: str, seeds: Sequence[int], download: bool) -> Exported:
    from search.retraining.simplify import simplify

    simpler = simplify(found.recipe, metric, seeds, download=download, say=report.say)
    report.console().print(simpler.table())
    record, names = simpler.record, [each.field for each in simpler.record.dropped]
    report.say(
        f"left out: {', '.join(names) or 'nothing'}; {metric} {record.after:.4f} over {len(record.seeds)} "
        f"seeds, with all techniques {record.before:.4f}"
    )
    why = {
        each.field: f"left out: it gains {each.gain:+.4f} {metric}, within noise" for each in record.dropped
    }
    if not names:
        return found
    return _changed(found, simpler.recipe, {metric: record.after}, why, simplified=record)


def _finalized(found: Exported, metric: str, seeds: Sequence[int], download: bool) -> Exported:
    from search.retraining.finalize import finalize

    final = finalize(found.recipe, metric, seeds, download=download, say=report.say)
    report.console().print(final.table())
    if final.chosen == final.ways[0]:
        return found
    why = f"chosen on the validation part over {len(seeds)} seeds"
    record = Finalized(
        metric=metric,
        seeds=tuple(seeds),
        before=final.ways[0].mean,
        after=final.chosen.mean,
        latency_ms=final.chosen.latency_ms,
    )
    changes = dict.fromkeys(final.chosen.values, why)
    return _changed(found, final.recipe, {metric: record.after}, changes, finalized=record)


def _changed(
    found: Exported, recipe: Recipe, metrics: dict[str, float], why: dict[str, str], **provenance: Any
) -> Exported:
    """Returns another recipe in place of the exported one, whose scores in the search are not its own."""
    before = found.recipe.provenance or Provenance()
    update = {"metrics": metrics, "final": None, **provenance}
    changed = recipe.model_copy(update={"provenance": before.model_copy(update=update)})
    words = f"{found.words}, changed to recipe {recipe.digest()}"
    return replace(found, recipe=changed, reasons={**found.reasons, **why}, words=words)


def _verified(found: Exported, runs: int, download: bool) -> Exported:
    from search.retraining.verify import verify

    has_test = found.info.test_images > 0
    verification = verify(found.recipe, runs, has_test=has_test, download=download, say=report.say)
    report.say(verification.words())
    if verification.parts_differ is not None:
        report.say(verification.parts_differ)
    before = found.recipe.provenance or Provenance()
    provenance = before.model_copy(update={"verification": verification})
    return replace(found, recipe=found.recipe.model_copy(update={"provenance": provenance}))
