"""`tunebook export`: the best recipe of a search, which is trained again first if that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from search.commands.options import FAILED, ExportOptions, aside, tell_fields
from search.learning.search import Search
from search.record.folder import keep_verification
from search.reporting import terminal
from search.results.export import Exported, chosen_trial, exported, exported_file
from trainable.bench import bench_on
from trainable.collector import load_torch
from trainable.errors import UserError
from trainable.files.folders import new_file
from trainable.files.paths import without_tilde
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose
from trainable.recipe.provenance import Finalized, Provenance, Simplified
from trainable.terminal import program_name, tell

if TYPE_CHECKING:
    from search.retraining.runs import Retraining

SEEDS = 3  # the runs of each variant, for --simplify and --finalize


def run_export(options: ExportOptions) -> None:
    """Write the recipe as `asked_export` does, and print where, or as JSON that and whether it is verified.

    Ends the command with exit code 1 where the recipe is not verified; it is written all the same.
    """
    with aside(options.as_json):
        found = asked_export(options)
    verified = None
    if options.verify is not None:
        verification = found.recipe.provenance and found.recipe.provenance.verification
        verified = bool(verification and verification.verified)
    if options.as_json:
        out = without_tilde(str(options.out))
        tell_fields({"out": str(out), "recipe": found.recipe.digest(), "verified": verified})
    else:
        tell(f"{found.words} -> {options.out}")
    if verified is False:
        raise typer.Exit(FAILED)


def asked_export(options: ExportOptions) -> Exported:
    """Return the recipe of a search, or of a file: made simpler, then finalized, then verified. Write it,
    moved to other hardware, in the format that is asked for; without `out` write nothing.

    Raises UserError as these steps do, and nothing is written then.
    """
    source, out, gpus, batch = options.source, options.out, options.gpus, options.batch
    images, verified = options.images, options.verify
    _check(options)
    if out is not None:
        out = new_file("-o", out, force=options.force)
    found = _found(source, options.trial, trains=options.trains)
    if images is not None:
        from search.results.formats.images import refuse_filled

        images = without_tilde(str(images))
        refuse_filled(images, found.info.digest)
    if gpus is not None or batch is not None:
        from search.results.formats.write import refuse_batch

        refuse_batch(batch or found.recipe.loop.batch_size, gpus or 1, found.info)
    if options.trains:
        load_torch()
        from search.retraining.runs import retraining

        bench = bench_on(options.device, may_fetch=options.download, say=terminal.say)
        with retraining(found.recipe, bench) as again:
            found = _improved(found, options, again)
            if verified is not None:
                found = _verified(found, verified, again)
            found = _with_origins(found, again)
    if verified is not None and source.is_dir():
        keep_verification(source, found.recipe)
        terminal.say(f"`{program_name()} report {quote(str(source))}` shows this")
    if out is None:
        return found
    if options.as_recipe:
        found.write(out, bare=options.bare)
        return found
    from search.results.formats.write import export_as

    words = export_as(found, out, options.form.value, gpus=gpus, batch=batch, images=images)
    return replace(found, words=words)


def _check(options: ExportOptions) -> None:
    """Raise UserError for options that do not go together."""
    if options.seeds is not None and not options.improves:
        raise UserError("--seeds: only for --simplify and --finalize")
    if options.bare and not options.as_recipe:
        raise UserError("--bare: only for --format tunebook, without --gpus, --batch and --images")
    if options.out is None and (options.bare or not options.as_recipe):
        raise UserError(
            "format, bare, gpus, batch and images say how a file is written: name it, out=FILE (-o FILE)"
        )
    if options.trial is not None and options.source.is_file():
        raise UserError(f"--trial {options.trial}: {options.source} is a recipe; only a search has trials")
    if options.verify is not None and (options.gpus is not None or options.batch is not None):
        raise UserError(
            "--verify: it trains what is exported on this machine, so leave --gpus and --batch to a later "
            "export of the file that it writes"
        )


def _found(source: Path, trial: int | None, *, trains: bool) -> Exported:
    """Return what is exported; raise UserError for a trial that did not finish where it is to be trained
    again, since its score is not that of its whole recipe."""
    if source.is_file():
        return exported_file(source)
    search = Search(source)
    chosen = chosen_trial(search, trial)
    if trains and chosen.state != "finished":
        raise UserError(
            f"--trial {chosen.id}: --simplify, --finalize and --verify expect a finished trial, got one that "
            f"is {chosen.state_in_words} after epoch {chosen.epochs}, whose score is not its whole recipe's"
        )
    return exported(search, chosen.id)


def _improved(found: Exported, options: ExportOptions, again: Retraining) -> Exported:
    """Return the recipe made simpler, then finalized, as far as these are asked for, with the same seeds."""
    if not options.improves:
        return found
    from search.results.verify import claim_of, new_seeds

    (metric, _), seeds = claim_of(found.recipe), new_seeds(found.recipe, options.seeds or SEEDS)
    if options.simplify:
        found = _simplified(found, metric, seeds, again)
    return _finalized(found, metric, seeds, again) if options.finalize else found


def _simplified(found: Exported, metric: str, seeds: Sequence[int], again: Retraining) -> Exported:
    from search.results.simplify import simplify

    simpler = simplify(found.recipe, metric, seeds, again)
    terminal.console().print(simpler.table())
    record, names = simpler.record, [each.field for each in simpler.record.dropped]
    terminal.say(
        f"left out: {', '.join(names) or 'nothing'}; {metric} {record.after:.4f} over {len(record.seeds)} "
        f"seeds, with all techniques {record.before:.4f}"
    )
    why = {
        each.field: Purpose(f"left out: it gains {each.gain:+.4f} {metric}, within noise", "")
        for each in record.dropped
    }
    if not record.changed:
        return _tried(found, simplified=record)
    return _changed(found, simpler.recipe, {metric: record.after}, why, simplified=record)


def _finalized(found: Exported, metric: str, seeds: Sequence[int], again: Retraining) -> Exported:
    from search.results.finalize import finalize

    final = finalize(found.recipe, metric, seeds, again)
    terminal.console().print(final.table())
    why = Purpose(f"chosen on the validation part over {len(seeds)} seeds", "")
    record = Finalized(
        metric=metric,
        seeds=tuple(seeds),
        before=final.ways[0].mean,
        after=final.chosen.mean,
        latency_ms=final.chosen.latency_ms,
    )
    if not record.changed:
        return _tried(found, finalized=record)
    changes = dict.fromkeys(final.chosen.values, why)
    return _changed(found, final.recipe, {metric: record.after}, changes, finalized=record)


def _changed(
    found: Exported, recipe: Recipe, metrics: dict[str, float], why: dict[str, Purpose], **provenance: Any
) -> Exported:
    """Return another recipe in place of the exported one, whose scores in the search are not its own."""
    unscored = {"metrics": metrics, "final": None, "verification": None}
    words = f"{found.words}, changed to recipe {recipe.short_digest}"
    changed = replace(found, recipe=recipe, reasons={**found.reasons, **why}, words=words)
    return _recorded(changed, **unscored, **provenance)


def _tried(found: Exported, **step: Simplified | Finalized) -> Exported:
    """Write into the recipe's provenance that a step was tried; the record of one that changed it stays."""
    known = found.recipe.provenance or Provenance()
    ((name, _),) = step.items()
    earlier = getattr(known, name)
    return found if earlier is not None and earlier.changed else _recorded(found, **step)


def _recorded(found: Exported, **provenance: Any) -> Exported:
    """Return what is exported with these fields of its provenance."""
    before = found.recipe.provenance or Provenance()
    after = before.model_copy(update=provenance)
    return replace(found, recipe=found.recipe.model_copy(update={"provenance": after}))


def _with_origins(found: Exported, again: Retraining) -> Exported:
    """Return what is exported with the digests of what its runs rest on, where the recipe had none."""
    known = found.recipe.provenance or Provenance()
    rests_on = again.origins.provenance().items()
    return _recorded(found, **{name: value for name, value in rests_on if not getattr(known, name)})


def _verified(found: Exported, runs: int, again: Retraining) -> Exported:
    from search.results.verify import verify

    verification = verify(found.recipe, runs, again, found.info)
    terminal.say(verification.words())
    if verification.gap is not None:
        terminal.say(str(verification.gap))
    return _recorded(found, verification=verification)
