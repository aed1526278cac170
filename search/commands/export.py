"""Writes the best recipe of a search, and trains it again first if that is asked for: `tunebook export`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from search.commands.options import FAILED
from search.record.home import VERIFICATION_FILE
from search.results import report
from search.results.export import Exported, exported
from search.results.search import Search
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance, Verification
from trainable.recipe.yamlfile import write_whole


def run_export(
    folder: Path,
    out: Path,
    trial: int | None,
    *,
    seeds: int,
    simplified: bool,
    finalized: bool,
    verified: int | None,
    download: bool,
) -> None:
    """Write the recipe to `out`: made simpler, then finalized, then verified, as far as each is asked for.

    Ends the command with exit code 1 where the recipe is not verified; it is written all the same. Raises
    UserError as the three do, and nothing is written then.
    """
    search = Search(folder)
    found = exported(search, trial)
    if simplified:
        found = _simplified(found, seeds, download)
    if finalized:
        found = _finalized(found, seeds, download)
    verification = None
    if verified is not None:
        found, verification = _verified(found, verified, search, download)
    found.write(out)
    print(f"{found.words} -> {out}")
    if verification is not None and not verification.verified:
        raise typer.Exit(FAILED)


def _simplified(found: Exported, seeds: int, download: bool) -> Exported:
    from search.retraining.simplify import simplify
    from search.retraining.verify import claim_of, new_seeds

    metric, _ = claim_of(found.recipe)
    simpler = simplify(
        found.recipe, metric, new_seeds(found.recipe, seeds), download=download, say=report.say
    )
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


def _finalized(found: Exported, seeds: int, download: bool) -> Exported:
    from search.retraining.finalize import finalize
    from search.retraining.verify import claim_of, new_seeds

    metric, _ = claim_of(found.recipe)
    final = finalize(found.recipe, metric, new_seeds(found.recipe, seeds), download=download, say=report.say)
    report.console().print(final.table())
    if final.chosen == final.ways[0]:
        return found
    why = f"chosen on the validation part over {seeds} seeds"
    return _changed(found, final.recipe, {metric: final.chosen.mean}, dict.fromkeys(final.chosen.values, why))


def _changed(
    found: Exported, recipe: Recipe, metrics: dict[str, float], why: dict[str, str], **provenance: Any
) -> Exported:
    """Returns another recipe in place of the exported one, whose scores in the search are not its own."""
    before = found.recipe.provenance or Provenance()
    update = {"metrics": metrics, "final": None, **provenance}
    changed = recipe.model_copy(update={"provenance": before.model_copy(update=update)})
    words = f"{found.words}, changed to recipe {recipe.digest()}"
    return replace(found, recipe=changed, reasons={**found.reasons, **why}, words=words)


def _verified(found: Exported, runs: int, search: Search, download: bool) -> tuple[Exported, Verification]:
    from search.retraining.verify import verify

    has_test = search.info.test_images > 0
    verification = verify(found.recipe, runs, has_test=has_test, download=download, say=report.say)
    report.say(in_words(verification))
    before = found.recipe.provenance or Provenance()
    provenance = before.model_copy(update={"verification": verification})
    recipe = found.recipe.model_copy(update={"provenance": provenance})
    record = {"recipe": recipe.digest(), **verification.model_dump(mode="json")}
    write_whole(search.folder / VERIFICATION_FILE, f"{json.dumps(record, indent=2)}\n".encode())
    return replace(found, recipe=recipe), verification


def in_words(found: Verification) -> str:
    """Returns in a sentence whether the figure holds, and the numbers that say so."""
    name = found.metric.replace("val_", "test_") if found.part == "test" else found.metric
    verdict = "verified" if found.verified else "not verified"
    if found.mean is None or found.short is None or found.allowed is None:
        return f"{verdict}: {'; '.join(found.faults)}"
    faults = f"; {'; '.join(found.faults)}" if found.faults else ""
    side = "worse" if found.short >= 0.0 else "better"
    return (
        f"{verdict}: {name} {found.mean:.4f}, deviation {found.deviation:.4f}, over {len(found.scores)} new "
        f"seeds; {abs(found.short):.4f} {side} than the {found.metric} {found.claimed:.4f} that the recipe "
        f"claims, where {found.allowed:.4f} worse is allowed{faults}"
    )
