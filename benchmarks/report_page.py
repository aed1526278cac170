"""Measures ways to draw a search's report: bytes of the page, time to write it, time until it is drawn.

    python benchmarks/report_page.py [--rounds 5]

Each way writes one page that needs no network: the learning curves of 2,000 trials x 20 epochs, 15 plots of
a value against the score (2,000 points each), and parallel coordinates (2,000 lines over 15 axes). Headless
Chromium opens it from the disk, at 1280 x 900 pixels. A page is drawn when its library says that it is, or,
without one, when it has loaded, and two frames were painted. `hover` is the median time from a move of the
mouse over the curves to the second frame after it.

The candidates are no dependencies of tunebook: `uv pip install bokeh plotly altair vl-convert-python`.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, sync_playwright

from report import described, environment, write

TRIALS, EPOCHS, FIELDS = 2_000, 20, 15
CHROMIUM = "/usr/bin/chromium"
MOVES = 20


class Content(NamedTuple):
    """Holds what every page shows: curves [trials, epochs], values [trials, fields] and scores [trials]."""

    curves: NDArray[np.float64]
    values: NDArray[np.float64]

    @property
    def scores(self) -> NDArray[np.float64]:
        return self.curves[:, -1]


class Way(NamedTuple):
    """Says how a page is written, and the JavaScript condition under which it is drawn."""

    package: str | None
    page: Callable[[Content], str]
    drawn: str
    curves: str
    """The selector of the plot of the curves."""


def content(seed: int = 0) -> Content:
    """Return invented trials: curves rise to an end that depends on the first two fields."""
    luck = np.random.default_rng(seed)
    values = luck.random((TRIALS, FIELDS))
    ends = 0.9 - 0.6 * np.abs(values[:, 0] - 0.5) - 0.1 * values[:, 1] + luck.normal(0, 0.02, TRIALS)
    rise = 1.0 - np.exp(-np.arange(1, EPOCHS + 1) / 5.0)
    return Content(ends[:, None] * rise + luck.normal(0, 0.01, (TRIALS, EPOCHS)), values)


# --- the ways


def with_plotly(found: Content) -> str:
    import plotly.graph_objects as go
    import plotly.io

    x = np.tile(
        np.append(np.arange(1.0, EPOCHS + 1), np.nan), TRIALS
    )  # one trace: 2,000 take minutes; WebGL is slower without a GPU
    y = np.concatenate([found.curves, np.full((TRIALS, 1), np.nan)], axis=1).ravel()
    figures = [go.Figure(go.Scatter(x=x, y=y, mode="lines", line={"width": 1}))]
    figures += [
        go.Figure(go.Scatter(x=found.values[:, at], y=found.scores, mode="markers")) for at in range(FIELDS)
    ]
    axes = [{"values": found.values[:, at], "label": f"field {at}"} for at in range(FIELDS)]
    figures.append(go.Figure(go.Parcoords(dimensions=axes, line={"color": found.scores})))
    parts = [
        plotly.io.to_html(each, full_html=False, include_plotlyjs=number == 0)
        for number, each in enumerate(figures)
    ]
    return _page("".join(parts))


def with_bokeh(found: Content) -> str:
    from bokeh.embed import file_html
    from bokeh.layouts import column
    from bokeh.models import HoverTool
    from bokeh.plotting import figure
    from bokeh.resources import INLINE

    epochs = list(range(1, EPOCHS + 1))
    curves = figure(width=1200, height=400, name="curves")
    curves.multi_line([epochs] * TRIALS, found.curves.round(4).tolist())
    curves.add_tools(HoverTool())
    plots = [curves]
    for at in range(FIELDS):
        plot = figure(width=400, height=250)
        plot.scatter(found.values[:, at].round(4), found.scores.round(4), size=4)
        plots.append(plot)
    parallel = figure(width=1200, height=400)
    parallel.multi_line([list(range(FIELDS))] * TRIALS, found.values.round(4).tolist())
    return str(file_html(column(*plots, parallel), INLINE, "report"))


def with_vega(found: Content) -> str:
    import altair as alt
    import pandas
    import vl_convert

    alt.data_transformers.disable_max_rows()
    trial = np.repeat(np.arange(TRIALS), EPOCHS)
    long = {"trial": trial, "epoch": np.tile(np.arange(1, EPOCHS + 1), TRIALS)}
    curves = pandas.DataFrame({**long, "score": found.curves.round(4).ravel()})
    charts = [
        alt.Chart(curves)
        .mark_line(strokeWidth=1)
        .encode(x="epoch:Q", y="score:Q", detail="trial:N", tooltip="trial:N")
        .properties(width=1100, height=350)
    ]
    for at in range(FIELDS):
        points = pandas.DataFrame({"value": found.values[:, at].round(4), "score": found.scores.round(4)})
        charts.append(alt.Chart(points).mark_point().encode(x="value:Q", y="score:Q", tooltip="score:Q"))
    flat = {"trial": np.repeat(np.arange(TRIALS), FIELDS), "field": np.tile(np.arange(FIELDS), TRIALS)}
    parallel = pandas.DataFrame({**flat, "value": found.values.round(4).ravel()})
    charts.append(
        alt.Chart(parallel)
        .mark_line(strokeWidth=1)
        .encode(x="field:O", y="value:Q", detail="trial:N")
        .properties(width=1100, height=350)
    )
    specs = [each.to_json(indent=None) for each in charts]
    library = vl_convert.javascript_bundle()
    calls = "".join(
        f"<div id=p{number}></div><script type=module>await vegaEmbed('#p{number}', {spec}, "
        "{renderer: 'canvas'}); window.done = (window.done ?? 0) + 1</script>"
        for number, spec in enumerate(specs)
    )
    return _page(f"<script type=module>{library}</script>{calls}")


def with_matplotlib(found: Content) -> str:
    from matplotlib.figure import Figure

    def svg(x: Any, y: Any, style: str, inches: tuple[float, float]) -> str:
        figure, out = Figure(figsize=inches), io.StringIO()
        figure.add_subplot().plot(x, y, style, linewidth=0.5, markersize=2)
        figure.savefig(out, format="svg")
        return out.getvalue()[out.getvalue().index("<svg") :]

    parts = [svg(np.arange(1, EPOCHS + 1), found.curves.T, "C0", (12, 4))]
    parts += [svg(found.values[:, at], found.scores, "C0o", (4, 2.5)) for at in range(FIELDS)]
    return _page("".join([*parts, svg(np.arange(FIELDS), found.values.T, "C0", (12, 4))]))


def with_own_svg(found: Content) -> str:
    from search.reporting.axes import axis_over
    from search.reporting.page import file_text, templates
    from search.reporting.plots import Line, Plot, Points, spots_on

    epochs = axis_over("epoch", [1, EPOCHS], whole=True)
    scores = axis_over("score", found.curves.ravel().tolist())
    lines = [
        Line("finished", spots_on(epochs, scores, enumerate(each, start=1)), trial)
        for trial, each in enumerate(found.curves.tolist())
    ]
    plots = [Plot("Learning curves", epochs, scores, lines=lines)]
    for at in range(FIELDS):
        x, y = (
            axis_over(f"field {at}", found.values[:, at].tolist()),
            axis_over("score", found.scores.tolist()),
        )
        spots = spots_on(x, y, zip(found.values[:, at].tolist(), found.scores.tolist(), strict=True))
        plots.append(Plot("Values", x, y, points=[Points("finished", spots, range(TRIALS))]))
    fields, share = axis_over("field", range(FIELDS), whole=True), axis_over("value", [0.0, 1.0])
    across = [
        Line("finished", spots_on(fields, share, enumerate(each)), trial)
        for trial, each in enumerate(found.values.tolist())
    ]
    plots.append(Plot("Parallel coordinates", fields, share, lines=across))
    draw: Any = templates().get_template("marks.html").module
    body = "".join(str(draw.plot(each, "")) for each in plots)
    data = '<script type=application/json id=data>{"trials": []}</script>'
    return _page(
        f"<style>{file_text('page.css')}</style><main>{body}{data}</main><script>{file_text('page.js')}"
    )


WAYS = {
    "plotly": Way(
        "plotly",
        with_plotly,
        "document.querySelectorAll('.js-plotly-plot .main-svg').length > 0"
        f" && document.querySelectorAll('.js-plotly-plot').length == {FIELDS + 2}",
        ".js-plotly-plot",
    ),
    "bokeh": Way("bokeh", with_bokeh, "window.Bokeh?.documents?.[0]?.is_idle", ".bk-Figure"),
    "vega-lite (altair, vl-convert)": Way("altair", with_vega, f"window.done == {FIELDS + 2}", "#p0"),
    "matplotlib's SVG": Way("matplotlib", with_matplotlib, "document.readyState == 'complete'", "svg"),
    "SVG and a small script of ours": Way(None, with_own_svg, "document.readyState == 'complete'", ".plot"),
}


def _page(body: str) -> str:
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>report</title><body>{body}</body></html>"


# --- measuring


def measure(way: Way, browser: Browser, folder: Path, rounds: int) -> dict[str, Any]:
    """Return the bytes of a way's page, and the seconds of each round."""
    found, writing, drawing, hovering = content(), [], [], []
    file = folder / "page.html"
    for _ in range(rounds):
        began = time.perf_counter()
        file.write_text(way.page(found))
        writing.append(time.perf_counter() - began)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        drawing.append(_seconds_until_drawn(page, file, way))
        hovering.append(_hover_seconds(page, way))
        nodes = page.evaluate("document.querySelectorAll('*').length")
        page.close()
    return {
        "version": metadata.version(way.package) if way.package else "",
        "bytes": file.stat().st_size,
        "nodes": nodes,
        "write_seconds": writing,
        "drawn_seconds": drawing,
        "hover_seconds": hovering,
    }


FRAMES = (
    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
)


def _seconds_until_drawn(page: Page, file: Path, way: Way) -> float:
    page.goto(file.as_uri(), wait_until="commit", timeout=120_000)
    page.wait_for_function(way.drawn, timeout=120_000)
    return float(page.evaluate(f"{FRAMES}.then(() => performance.now())")) / 1000.0


def _hover_seconds(page: Page, way: Way) -> float:
    box = page.locator(way.curves).first.bounding_box()
    assert box is not None
    seconds = []
    for move in range(MOVES):
        began = time.perf_counter()
        page.mouse.move(box["x"] + box["width"] * (0.3 + 0.02 * move), box["y"] + box["height"] * 0.5)
        page.evaluate(FRAMES)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def page_of(runs: dict[str, dict[str, Any]], rounds: int, where: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Ways to draw the report",
        "",
        f"{TRIALS:,} trials x {EPOCHS} epochs, {FIELDS} plots of a value, parallel coordinates; median "
        f"(least to most) of {rounds} rounds, in headless Chromium {where['chromium']}.",
        "",
        "| drawn by | version | page, MB | written, s | drawn, s | a move of the mouse, ms | elements |",
        "|-|-|-|-|-|-|-|",
    ]
    lines += [
        f"| {name} | {run['version']} | {run['bytes'] / 1e6:.2f} | {spread(run['write_seconds'])} "
        f"| {spread(run['drawn_seconds'])} | {1000 * statistics.median(run['hover_seconds']):.0f} "
        f"| {run['nodes']:,} |"
        for name, run in runs.items()
    ]
    return "\n".join([*lines, "", described(where)])


def spread(seconds: Sequence[float]) -> str:
    """Return the median of measured seconds, with the least and the most."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    where = environment(1)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        where["chromium"] = browser.version
        runs = {name: measure(way, browser, Path(folder), rounds) for name, way in WAYS.items()}
        browser.close()
    record = {"environment": where, "rounds": rounds, "runs": runs}
    write("report-page", record, page_of(runs, rounds, where))


if __name__ == "__main__":
    main()
