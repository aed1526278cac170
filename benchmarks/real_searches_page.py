"""Writes the page that compares real searches: epochs to each one's best, and winners with fresh seeds on
test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from scipy.stats import t

from report import described

Record = dict[str, Any]
Runs = Sequence[Record]

DATA = {"fashion-mnist": 9_000, "sign-language": 310}
"""Each set's validation images."""
SAMPLERS = ("auto", "prior-tpe", "tpe", "random")
ARMS = {f"{space}, {sampler}": (space, sampler) for space in ("document", "wide") for sampler in SAMPLERS}
del ARMS["wide, prior-tpe"]  # without priors it is TPE
ARMS_OF = {data: list(ARMS) for data in DATA}


HEAD = """# Real searches: the default sampler against the others

48 trials each, ResNet-8 of width 8 with stride 2, ASHA as each study's own rule sets it, {seeds} seeds;
`finalists: none`, so that every epoch is the search's own. `fresh`: the best trial, trained again from its
YAML alone with three fresh seeds, on the test part: mean and standard deviation of a run. Some of the rules'
own numbers (rates and averages in short runs, near shifts) were measured on these very images with this net:
`document` is no independent check of the rules, only of what a sampler makes of them.

| data | arm | seed | epochs | best | after epochs | fresh, test | finished, stopped, diverged, failed |
|-|-|-|-|-|-|-|-|
"""
AGAINST = """
## `auto` against each other sampler in the same space

`share`: the share of the other's epochs after which `auto`, same data and seed, had a finished trial as good
as the other's best on validation; `never` where it had none. `in error`: as good as that best less its
standard error, which the number of validation images sets: the best of many trials is lucky, too. `test`: the
fresh mean of `auto`'s winner less the other's, in points: mean over seeds and 95 % interval (t).

| data | space | against | share, by seed | in error, by seed | test, points | by seed |
|-|-|-|-|-|-|-|
"""


def page(found: Runs) -> str:
    seeds = max(each["seed"] for each in found) + 1
    rows, comparisons = "\n".join(map(_row, found)), "\n".join(_comparisons(found))
    commands = "\n".join(f"    {each['command']}" for each in found if each["seed"] == 0)
    text = f"{HEAD.format(seeds=seeds)}{rows}\n{AGAINST}{comparisons}\n\n{commands}\n\n"
    return text + described(found[-1]["environment"])


def _row(each: Record) -> str:
    states = ("finished", "stopped", "diverged", "failed")
    ends = ", ".join(str(each["ends"].get(state, 0)) for state in states)
    after = each["course"][-1][0] if each["course"] else "never"
    fresh = f"{statistics.mean(each['fresh_test']):.4f} ± {statistics.stdev(each['fresh_test']):.4f}"
    start = f"| {each['data']} | {each['arm']} | {each['seed']} | {each['epochs']} |"
    return f"{start} {each['best']:.4f} | {after} | {fresh} | {ends} |"


def _comparisons(found: Runs) -> Iterator[str]:
    for data in DATA:
        for arm, (space, sampler) in ARMS.items():
            pairs = _pairs(found, data, f"{space}, auto", arm)
            if sampler != "auto" and pairs:
                yield f"| {data} | {space} | {sampler} | {_compared(pairs)} |"


def _compared(pairs: Sequence[tuple[Record, Record]]) -> str:
    shares = ", ".join(_text(_share(ours, other, 0.0)) for ours, other in pairs)
    in_error = ", ".join(_text(_share(ours, other, standard_error(other))) for ours, other in pairs)
    means = [[statistics.mean(each["fresh_test"]) for each in pair] for pair in pairs]
    gains = [100 * (ours - other) for ours, other in means]
    return f"{shares} | {in_error} | {_interval(gains)} | {', '.join(f'{each:+.2f}' for each in gains)}"


def _pairs(found: Runs, data: str, ours: str, other: str) -> list[tuple[Record, Record]]:
    """Returns the runs of two arms on a set that have the same seed."""
    by_seed = {(each["arm"], each["seed"]): each for each in found if each["data"] == data}
    seeds = sorted(seed for arm, seed in by_seed if arm == ours and (other, seed) in by_seed)
    return [(by_seed[ours, seed], by_seed[other, seed]) for seed in seeds]


def epochs_to(found: Record, score: float) -> int | None:
    """Returns after how many epochs a search had a finished trial as good; None where it never had one."""
    return next((epochs for epochs, best in found["course"] if best >= score), None)


def standard_error(run: Record) -> float:
    """Returns the standard error of a run's best accuracy, from the number of its validation images."""
    best: float = run["best"]
    return math.sqrt(best * (1.0 - best) / DATA[run["data"]])


def _share(ours: Record, other: Record, less: float) -> float:
    """Returns our epochs to the other's best less so much, over its epochs; infinite if never reached."""
    reached = epochs_to(ours, other["best"] - less)
    return math.inf if reached is None else reached / other["epochs"]


def _interval(gains: Sequence[float]) -> str:
    mean = statistics.mean(gains)
    if len(gains) < 2:
        return f"{mean:+.2f}"
    half = t.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
    return f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"


def _text(share: float) -> str:
    return f"{share:.2f}" if math.isfinite(share) else "never"
