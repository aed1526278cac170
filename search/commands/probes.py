"""`tunebook lr-find` and `tunebook batch-find`: what the two probes say of a recipe, with a picture."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rich.table import Table

from search.commands.named import named_input, needing_images
from search.commands.options import SCHEMA, BatchFindOptions, LrFindOptions, bench_of, tell_fields
from spaces.domains import counted
from trainable.collector import load_torch, loading_torch
from trainable.errors import UserError
from trainable.files.folders import new_file
from trainable.files.store import name_in
from trainable.recipe.yamlfile import write_whole
from trainable.stages import stage
from trainable.terminal import GIB, tell

if TYPE_CHECKING:  # torch takes seconds to import
    from matplotlib.axes import Axes

    from search.commands.inputs import Target
    from trainable.probes.batch_find import BatchFound, Tried
    from trainable.probes.lr_find import LrBand
    from trainable.training.run import Run

Found = TypeVar("Found")

CURVES = ("#2166ac", "#4393c3", "#92c5de")
READINGS = {"minimum_tenth": "minimum / 10", "steepest": "steepest", "valley": "valley"}
COLOURS = {"minimum_tenth": "#d73027", "steepest": "#c51b7d", "valley": "#1b7837"}
# the space above the first loss, as a part of the fall: a loss that explodes leaves the picture. Otherwise it
# would flatten the rest
HEADROOM = 0.25
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child, th:first-child {{ text-align: left; }}
</style></head>
<body><h1>{title}</h1>
<img alt="the smoothed loss by learning rate" src="data:image/png;base64,{picture}">
{table}
{text}
</body></html>
"""
MIB = 2**20
ENDINGS = (".png", ".html", ".json")
# BatchNorm over fewer images is noisy (Wu and He, arXiv 1803.08494, figure 1: worse from 16 down)
FEW_FOR_NORM = 16
ADVICE = (
    "The band is where a search begins, not its answer: it says which rates work in a run's first steps, "
    "not which one is best at its end."
)


class Probed(NamedTuple, Generic[Found]):
    """What a probe has found, the run that it looked at, and the run's threads."""

    found: Found
    run: Run
    threads: int


def picture(band: LrBand, title: str, own_lr: float) -> bytes:
    """Return a PNG of the sweeps' losses by `optimizer.lr`, with the suggestions, the band and `own_lr`."""
    from search.reporting.picture import new_figure, png

    figure, (axes,) = new_figure()
    for number, sweep in enumerate(band.sweeps):
        rates = [rate * band.at_256 for rate in sweep.rates]
        colour = CURVES[number % len(CURVES)]
        axes.plot(rates, sweep.losses, ".", color=colour, markersize=3, alpha=0.35)
        axes.plot(rates, sweep.smoothed, color=colour, label=None if number else "smoothed loss of a sweep")
    _mark(axes, band, own_lr)
    _frame(axes, band, title)
    return png(figure)


def page(image: bytes, title: str, rows: Sequence[Sequence[str]], text: Sequence[str]) -> bytes:
    """Return a page of HTML that needs no other file: picture, table with its head as row one, and text."""
    head, *body = rows
    lines = ["<table>", _row(head, "th"), *(_row(row, "td") for row in body), "</table>"]
    return PAGE.format(
        title=escape(title),
        picture=base64.b64encode(image).decode(),
        table="\n".join(lines),
        text="\n".join(f"<p>{escape(line)}</p>" for line in text),
    ).encode()


def _mark(axes: Axes, band: LrBand, own_lr: float) -> None:
    if band.band_at_256 is not None:
        axes.axvspan(*band.band_at_256, color="black", alpha=0.08, linewidth=0, label="band")
    for name, label in READINGS.items():
        if band.suggestions is not None:
            rate = getattr(band.suggestions, name) * band.at_256
            axes.axvline(rate, color=COLOURS[name], linewidth=1.4, label=f"{label}: {rate:.2g}")
    axes.axvline(
        own_lr, color="black", linestyle="--", linewidth=1.0, label=f"the recipe's own: {own_lr:.2g}"
    )


def _frame(axes: Axes, band: LrBand, title: str) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("optimizer.lr, at batch 256")
    axes.set_ylabel("training loss")
    axes.set_title(title)
    curves = [sweep for sweep in band.sweeps if sweep.losses]
    if curves:
        least, start = min(min(each.losses) for each in curves), max(each.losses[0] for each in curves)
        margin = HEADROOM * (start - least) or 1.0
        axes.set_ylim(least - margin / 2, start + margin)
    axes.legend(frameon=False, fontsize="small", loc="lower left")


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def run_lr_find(options: LrFindOptions) -> bool:
    """Print the band of learning rates of a recipe, and write it where that is asked for; return whether
    there is one. Raises UserError."""
    out, as_json = options.out, options.as_json
    if out is not None:
        new_file("--out", out, force=options.force, endings=ENDINGS)
    named = needing_images(named_input(options))
    load_torch()
    bench = bench_of(options)
    from search.commands.inputs import load_target
    from search.reporting.terminal import say

    target = load_target(named, options.file, bench=bench)
    _say_remarks(target, as_json)
    probed = rates_of(target, options)
    if as_json:
        tell_fields(_tree(probed))
    else:
        _print_band(probed.found, probed.run)
        if out is not None:
            say(f"written: {out}")
    return probed.found.found


def run_batch_find(options: BatchFindOptions) -> bool:
    """Print the micro-batch sizes that fit, and which to use; return whether any fits. Raises UserError."""
    _check_limit(options)
    named = needing_images(named_input(options))
    load_torch()
    bench = bench_of(options)
    from search.commands.inputs import load_target

    target = load_target(named, options.file, bench=bench)
    _say_remarks(target, options.as_json)
    probed = sizes_of(target, options)
    if options.as_json:
        tell_fields(_tree(probed))
    else:
        _print_sizes(*probed)
    return probed.found.found


def rates_of(target: Target, options: LrFindOptions) -> Probed[LrBand]:
    """Return the band of learning rates at which a target's first steps train well, and write it where that
    is asked for, to a name that ends with .png, .html or .json. Raises UserError."""
    from trainable.probes.lr_find import lr_find

    out = options.out
    if out is not None:
        out = new_file("--out", out, force=options.force, endings=ENDINGS)
    with run_of(target) as (run, count):
        probed = Probed(lr_find(run, steps=options.steps, sweeps=options.sweeps), run, count)
    if out is not None:
        with stage(f"writing {out}"):
            _write_band(out, probed)
    return probed


def sizes_of(target: Target, options: BatchFindOptions) -> Probed[BatchFound]:
    """Return the micro-batches of a target that fit into memory. Raises UserError for a limit of nothing."""
    from trainable.probes.batch_find import batch_find

    _check_limit(options)
    limit = options.limit_gib
    with run_of(target) as (run, count), stage("trying sizes of a micro-batch"):
        found = batch_find(run, limit_bytes=round(limit * GIB) if limit is not None else None)
        return Probed(found, run, count)


def _check_limit(options: BatchFindOptions) -> None:
    if (gib := options.limit_gib) is not None and not 0.0 < gib < float("inf"):
        raise UserError(f"--limit-gib: expected a number above 0, got {gib:g}")


def _say_remarks(target: Target, as_json: bool) -> None:
    for line in target.data.info.remarks:
        tell(line, sys.stderr if as_json else None)


# --- learning rates -----------------------------------------------------------------------------------


def _print_band(band: LrBand, run: Run) -> None:
    from search.reporting.terminal import console, say

    head, *body = _rows(band)
    table = Table(title=_title(run), title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in body:
        table.add_row(*row)
    console().print(table)
    for line in _band_conclusion(band, run):
        say(line)


def _rows(band: LrBand) -> list[list[str]]:
    """Return a head, then a row for each suggestion: by sweep, the median, and as `optimizer.lr`."""
    rows = [
        [
            "suggestion",
            *(f"sweep {number}" for number in range(1, len(band.sweeps) + 1)),
            "median, as applied",
            "optimizer.lr, at 256",
        ]
    ]
    for name, text in READINGS.items():
        each = [_rate(getattr(sweep.suggestions, name, None)) for sweep in band.sweeps]
        middle = getattr(band.suggestions, name) if band.suggestions is not None else None
        rows.append([text, *each, _rate(middle), _rate(middle and middle * band.at_256)])
    return rows


def _band_conclusion(band: LrBand, run: Run) -> Iterator[str]:
    yield from (f"note: {note}" for note in band.notes)
    if band.band is None or band.band_at_256 is None:
        yield f"no band: {band.reason}"
        return
    low, high = band.band_at_256
    own = run.recipe.optimizer.lr
    where = "below it" if own < low else "above it" if own > high else "in it"
    yield (
        f"band: optimizer.lr {_rate(low)} to {_rate(high)} at batch 256 ({_rate(band.band[0])} to "
        f"{_rate(band.band[1])} as applied to a batch of {run.recipe.loop.batch_size}); "
        f"the recipe's own {_rate(own)} is {where}"
    )
    yield ADVICE
    kind = f"--set facts.lr_band_kind={run.recipe.optimizer.kind}"
    yield f"a search around it:  --set 'facts.lr_band=[{low:.2g}, {high:.2g}]' {kind}"
    yield f"a search within it:  --set space.overrides.optimizer.lr='{{log: [{low:.2g}, {high:.2g}]}}'"


def _write_band(out: Path, probed: Probed[LrBand]) -> None:
    band, run = probed.found, probed.run
    if out.suffix.lower() == ".json":
        write_whole(out, json.dumps({"schema": SCHEMA, **_tree(probed)}, indent=2, allow_nan=False).encode())
        return
    title = _title(run)
    content = picture(band, title, run.recipe.optimizer.lr)
    if out.suffix.lower() == ".html":
        content = page(content, title, _rows(band), list(_band_conclusion(band, run)))
    write_whole(out, content)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


# --- batches ------------------------------------------------------------------------------------------


def _print_sizes(found: BatchFound, run: Run, count: int) -> None:
    from search.reporting.terminal import console, say

    table = Table(title=_title(run), title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in ("images", "memory", "images a second", ""):
        table.add_column(name, justify="right" if name else "left")
    for each in found.tried:
        table.add_row(*_cells(each, found))
    console().print(table)
    for line in _batch_conclusion(found, run, count):
        say(line)


def _cells(tried: Tried, found: BatchFound) -> Sequence[str]:
    memory = "-" if tried.peak_bytes is None else _memory(tried.peak_bytes)
    speed = "-" if tried.images_per_second is None else f"{tried.images_per_second:,.0f}"
    remarks = [
        "does not fit" if not tried.fits else "",
        "largest" if tried.images == found.largest else "",
        "as fast as any" if tried.images == found.flat else "",
    ]
    return str(tried.images), memory, speed, ", ".join(filter(None, remarks))


def _batch_conclusion(found: BatchFound, run: Run, count: int) -> Iterator[str]:
    if run.device.type == "cpu":
        speed = f"speed was measured with {counted(count, 'thread')}"
        yield f"memory is estimated from small steps, rather too high than too low; {speed}"
    if not found.found:
        yield "not even the smallest micro-batch fits: use smaller images, a smaller model, or more memory"
        return
    yield f"largest micro-batch: {found.largest} images ({_bound(found)})"
    batch = found.batch_size
    if found.micro_batch is None:
        yield f"the whole batch of {batch} fits: leave loop.micro_batch at null"
    else:
        parts = -(-batch // found.micro_batch)
        yield (
            f"set loop.micro_batch: {found.micro_batch}; the batch of {batch} is then trained "
            f"in {parts} parts, at the same learning rate"
        )
        if found.micro_batch < FEW_FOR_NORM and not run.recipe.model.freeze_norm:
            yield f"BatchNorm over fewer than {FEW_FOR_NORM} images is noisy: consider model.freeze_norm"
    if found.flat is not None:
        yield f"from {found.flat} images on, speed is within 5 % of the best"


def _bound(found: BatchFound) -> str:
    match found.bound:
        case "memory":
            return "larger ones run out of memory"
        case "limit":
            return f"the limit is {_memory(found.limit_bytes or 0)}"
        case "largest":
            return "no larger one was asked for"
        case "images":
            return "there are hardly more training images"


def _memory(amount: int) -> str:
    return f"{amount / GIB:.2f} GiB" if amount >= GIB else f"{amount / MIB:.1f} MiB"


# --- both ---------------------------------------------------------------------------------------------


@contextmanager
def run_of(target: Target) -> Iterator[tuple[Run, int]]:
    """Give the block the target's run and its number of threads, which is a trial's."""
    with loading_torch():
        from trainable.run import make_run
    from trainable.training.devices import threads

    with threads(target.threads) as count:
        with stage("building the network"):
            run = make_run(target.recipe, data=target.data, bench=target.bench)
        try:
            yield run, count
        finally:
            run.close()


def _tree(probed: Probed[LrBand] | Probed[BatchFound]) -> dict[str, Any]:
    return {**_described(probed.run), "threads": probed.threads, **probed.found.tree()}


def _title(run: Run) -> str:
    recipe = run.recipe
    return f"{name_in(recipe.data.path)}: {recipe.sentence}, batch {recipe.loop.batch_size}"


def _described(run: Run) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "recipe": recipe.digest(),
        "data": name_in(recipe.data.path),
        "sentence": recipe.sentence,
        "model": getattr(recipe.model, "name", recipe.model.kind),
        "optimizer": recipe.optimizer.kind,
        "lr": recipe.optimizer.lr,
        "batch_size": recipe.loop.batch_size,
        "device": str(run.device),
    }
