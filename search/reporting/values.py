"""The trials' values, drawn: each rule's belief over them, and all of them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from search.reporting.charts import in_order, look_of, points_of
from search.reporting.content import Belief, BeliefCurve, Report, TrialRow
from search.reporting.plots import Area, Axis, Label, Plot, PlotLine, Spot, domain_axis, numbered_axis
from spaces.catalog.overrides import Fixed, parse
from spaces.domains import Choice, Domain, SpaceError, fraction_of, hull
from trainable.recipe.optimizers import OPTIMIZER_KIND

BELIEF_HEIGHT = 0.55  # the likeliest value of a belief is so high in its plot
JITTER = 0.6  # points of one option are spread over so much of its share
GOLDEN = 0.618033988749895  # multiples of it are spread evenly (Weyl's sequence)
NAMED = 2  # so many optimizers of timm's at most are named at one place of an axis
AXES = 12  # so many fields at most are drawn side by side
ROWS_OF_AXIS = 3.4
TOP = 90.0  # trials that beat so many of 100 others stand out


class Tile(NamedTuple):
    """One rule with its plot."""

    belief: Belief
    plot: Plot


def tiles(report: Report) -> list[Tile]:
    """Return a plot for each dimension: those with a clear verdict first, then those of the most trials."""
    trials = {each.id: each for each in report.trials}
    ordered = sorted(report.beliefs, key=lambda each: (each.verdict in (None, "untested"), -len(each.trials)))
    return [Tile(each, _tile(each, trials, report.answer.best)) for each in ordered]


def domain_of(belief: Belief) -> Domain:
    """Return the domain of a dimension."""
    parsed = parse(belief.domain)
    assert not isinstance(parsed, Fixed)
    assert parsed.domain is not None
    return parsed.domain


def _tile(belief: Belief, trials: Mapping[int, TrialRow], best: int | None) -> Plot:
    domain, at = domain_of(belief), dict(zip(belief.trials, belief.positions, strict=True))
    y = numbered_axis("beats of 100", 0.0, 100.0)

    def spot(trial: TrialRow) -> Spot:
        assert trial.place is not None
        return _jittered(domain, at[trial.id], trial.id), y.share(trial.place)

    having = [trials[each] for each in belief.trials if trials[each].place is not None]
    tallest = max(number for each in belief.curves for number in each.density)
    curves = [_outline(domain, each, tallest) for each in belief.curves]
    return Plot(
        f"{belief.name}: its values in {len(having)} trials, what the rule believes, and how many of 100 "
        "others each beats",
        _axis(belief.path.rpartition(".")[2], belief.path, domain, trials.values()),
        y,
        areas=[Area("belief", curves[0])],
        lines=[PlotLine("belief-edge", each) for each in curves],
        points=points_of(in_order(having, best), best, spot),
        rows=11.0,
    )


def _axis(name: str, path: str, domain: Domain, trials: Iterable[TrialRow]) -> Axis:
    """Return the axis of a field's values; optimizers of timm's are called by their own names."""
    axis, names = domain_axis(name, domain), sorted({each.optimizer for each in trials if each.optimizer})
    if path != OPTIMIZER_KIND or not names:
        return axis
    own = " or ".join(names) if len(names) <= NAMED else "timm's"
    return replace(
        axis, ticks=tuple(replace(each, text=own) if each.text == "timm" else each for each in axis.ticks)
    )


def _jittered(domain: Domain, position: float, trial: int) -> float:
    """Return a position; those of one option are spread, so that they do not hide each other."""
    if not isinstance(domain, Choice):
        return position
    return position + JITTER * ((trial * GOLDEN) % 1.0 - 0.5) / len(domain.options)


def _outline(domain: Domain, curve: BeliefCurve, tallest: float) -> list[Spot]:
    """Return the outline of a belief: a curve over a range, a step for each option."""
    heights = [BELIEF_HEIGHT * each / tallest for each in curve.density]
    if isinstance(domain, Choice):
        count = len(heights)
        steps = [((0.1, 0.0), (0.1, each), (0.9, each), (0.9, 0.0)) for each in heights]
        return [((at + side) / count, up) for at, step in enumerate(steps) for side, up in step]
    return [(at / (len(heights) - 1), each) for at, each in enumerate(heights)]


class _Field(NamedTuple):
    """One field of a recipe with the domain that holds all of its dimensions' ranges."""

    path: str
    domain: Domain


def side_by_side(report: Report) -> Plot | None:
    """Return the values of the most important fields, a line through them for each trial, and the places
    below; None where no trial has a place."""
    trials = [each for each in report.trials if each.place is not None]
    fields = _fields(report)
    if not trials or not fields:
        return None
    count, places = len(fields) + 1, numbered_axis("beats of 100 others", 0.0, 100.0)
    heights = [1.0 - (number + 0.6) / count for number in range(count)]
    lines = [
        PlotLine(_look(each, report.answer.best), spots, each.id)
        for each in sorted(trials, key=lambda each: (each.id == report.answer.best, each.own, each.place))
        if len(spots := _through(each, fields, heights, places)) > 1
    ]
    axes = [PlotLine("axis", [(0.0, height), (1.0, height)]) for height in heights]
    names = [*(each.path for each in fields), places.name]
    numbered = [*(_axis(each.path, each.path, each.domain, report.trials) for each in fields), places]
    labels = [Label((0.0, height), name, "name") for height, name in zip(heights, names, strict=True)]
    labels += [
        Label((tick.at, height), tick.text, "tick")
        for height, axis in zip(heights, numbered, strict=True)
        for tick in axis.ticks
    ]
    says = f"The values of {len(lines)} trials in {len(fields)} fields, and how many of 100 others each beats"
    return Plot(says, Axis(""), Axis(""), lines=[*axes, *lines], labels=labels, rows=ROWS_OF_AXIS * count)


def _fields(report: Report) -> list[_Field]:
    """Return the fields that vary, in the space's order; of many, those that matter most."""
    shares = {each.name: each.share for each in report.importances.fields} if report.importances else {}
    weights: dict[str, float] = {}
    domains: dict[str, list[Domain]] = {}
    for each in report.beliefs:
        weights[each.path] = weights.get(each.path, 0.0) + shares.get(each.name, 0.0)
        domains.setdefault(each.path, []).append(domain_of(each))
    kept = sorted(weights, key=lambda path: -weights[path])[:AXES]
    return [_Field(path, hull(domains[path])) for path in domains if path in kept]


def _look(trial: TrialRow, best: int | None) -> str:
    assert trial.place is not None
    look = look_of(trial, best)
    if look == "best" or trial.own:
        return look
    return f"{'top' if trial.place >= TOP else 'faint'} {trial.state}"


def _through(trial: TrialRow, fields: Sequence[_Field], heights: Sequence[float], places: Axis) -> list[Spot]:
    """Return the spots of a trial's values; a field that it lacks, or whose range it leaves, is skipped."""
    spots: list[Spot] = []
    for field, height in zip(fields, heights, strict=False):
        if field.path in trial.values:
            try:
                at = fraction_of(field.domain, trial.values[field.path])
            except SpaceError:
                continue
            spots.append((_jittered(field.domain, at, trial.id), height))
    assert trial.place is not None
    return [*spots, (places.share(trial.place), heights[-1])]
