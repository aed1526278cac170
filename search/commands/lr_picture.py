"""Draws a learning-rate band: as a picture, and as a page of its own."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from search.reporting.picture import new_figure, png
from trainable.probes.lr_find import LrBand

if TYPE_CHECKING:  # 0.6 s to import
    from matplotlib.axes import Axes

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


def picture(band: LrBand, title: str, own_lr: float) -> bytes:
    """Return a PNG of the sweeps' losses by `optimizer.lr`, with the suggestions, the band and `own_lr`."""
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
