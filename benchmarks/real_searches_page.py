"""Writes the page that compares real searches: epochs to each one's best, winners with fresh seeds on test,
and what the later half of each search gained."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from scipy.stats import t

from report import described

Record = dict[str, Any]
Runs = Sequence[Record]

DATA = {"fashion-mnist": 9_000, "sign-language": 310, "photographs": 3_000, "nuclei": 300}
"""Each set's validation images."""
DEFAULT = "auto"
SAMPLERS = (DEFAULT, "prior-tpe", "tpe", "random")
ARMS = {
    f"{space}, {sampler}": (space, sampler)
    for space in ("document", "wide")
    for sampler in SAMPLERS
    if (space, sampler) != ("wide", "prior-tpe")  # without priors it is TPE
}
AGAINST_OTHERS = [
    *((f"{space}, {DEFAULT}", arm) for arm, (space, sampler) in ARMS.items() if sampler != DEFAULT),
    *((f"document, {DEFAULT}", arm) for arm, (space, _) in ARMS.items() if space == "wide"),
]
"""Pairs of arms that the page compares."""
FEWER = [f"document, {DEFAULT}", "document, random", f"wide, {DEFAULT}"]
ARMS_OF = {
    "fashion-mnist": list(ARMS),
    "sign-language": list(ARMS),
    "photographs": FEWER,
    "nuclei": FEWER,
}


HEAD = """# Real searches: the default sampler against the others

48 trials each, ResNet-8 of width 8 with stride 2, ASHA as each study's own rule sets it, {seeds} seeds;
`finalists: none`, so that every epoch is the search's own. `fresh`: the best trial, trained again from its
YAML alone with three fresh seeds, on the test part: mean and standard deviation of a run. Some of the rules'
own numbers (rates and averages in short runs, near shifts) were measured on fashion-mnist and sign-language
with this net: there `document` is no independent check of the rules, only of what a sampler makes of them.
`photographs` are CIFAR-10's, of which 5,000 gave one of the rules' rates; `nuclei` are squares of microscope
images, by how many nuclei are in them. Of the rules for training from scratch, the shares of the optimizers
and Muon's rate alone were chosen on all four. Squares of one image are alike, so the standard error of
`nuclei` is too small.

| data | arm | seed | epochs | best | after epochs | fresh, test | finished, stopped, diverged, failed |
|-|-|-|-|-|-|-|-|
"""
AGAINST = """
## `auto` against each other sampler in the same space, and `document` against `wide`

`share`: the share of the other arm's epochs after which this one, same data and seed, had a finished trial as
good as the other's best on validation; `never` where it had none. `in error`: as good as that best less its
standard error, which the number of validation images sets: the best of many trials is lucky, too. `test`: the
fresh mean of this arm's winner less the other's, in points: mean over seeds and 95 % interval (t).

| data | arm | against | share, by seed | in error, by seed | test, points | by seed |
|-|-|-|-|-|-|-|
"""


LATER = """
## What the later half gained

The best trial against the one that was the best when half of the epochs were spent, in points: by the
search's own figures, which are the best of many; and by fresh seeds of both, on validation and on test, mean
over searches and 95 % interval (t). `a run`: the standard deviation of one such recipe's runs on test,
pooled. `documented`: what trial 0 has on test with fresh seeds, and how far the best trial is above it.

| data | arm | searches | own figures | fresh, validation | fresh, test | a run | documented | above it |
|-|-|-|-|-|-|-|-|-|
"""


def page(found: Runs) -> str:
    seeds = max(each["seed"] for each in found) + 1
    rows, comparisons, later = map("\n".join, (map(_row, found), _comparisons(found), _later(found)))
    commands = "\n".join(f"    {each['command']}" for each in found if each["seed"] == 0)
    text = f"{HEAD.format(seeds=seeds)}{rows}\n{AGAINST}{comparisons}\n{LATER}{later}\n\n{commands}\n\n"
    return text + "\n".join(_machines(found))


def _machines(found: Runs) -> Iterator[str]:
    """Yield each machine that runs were on, as of its last run, with their sets."""
    machines = {(each["environment"]["processor"], each["environment"]["gpu"]): each for each in found}
    for machine, last in machines.items():
        sets = {
            each["data"]
            for each in found
            if (each["environment"]["processor"], each["environment"]["gpu"]) == machine
        }
        yield f"{', '.join(sorted(sets))}: {described(last['environment'])}"


def _row(each: Record) -> str:
    states = ("finished", "stopped", "diverged", "failed")
    ends = ", ".join(str(each["ends"].get(state, 0)) for state in states)
    after = each["course"][-1][0] if each["course"] else "never"
    scores = each["fresh"]["best"]["test"]
    fresh = f"{statistics.mean(scores):.4f} ± {statistics.stdev(scores):.4f}"
    start = f"| {each['data']} | {each['arm']} | {each['seed']} | {each['epochs']} |"
    return f"{start} {each['best']:.4f} | {after} | {fresh} | {ends} |"


def _comparisons(found: Runs) -> Iterator[str]:
    for data in DATA:
        for ours, other in AGAINST_OTHERS:
            if pairs := _pairs(found, data, ours, other):
                yield f"| {data} | {ours} | {other} | {_compared(pairs)} |"


def _compared(pairs: Sequence[tuple[Record, Record]]) -> str:
    shares = ", ".join(_text(_share(ours, other, 0.0)) for ours, other in pairs)
    in_error = ", ".join(_text(_share(ours, other, standard_error(other))) for ours, other in pairs)
    gains = [100 * (_mean(ours, "best", "test") - _mean(other, "best", "test")) for ours, other in pairs]
    return f"{shares} | {in_error} | {_interval(gains)} | {', '.join(f'{each:+.2f}' for each in gains)}"


def _later(found: Runs) -> Iterator[str]:
    for data in DATA:
        for arm in ARMS:
            runs = [each for each in found if (each["data"], each["arm"]) == (data, arm)]
            if runs := [each for each in runs if "halfway" in each["fresh"]]:
                yield f"| {data} | {arm} | {len(runs)} | {_gained(runs)} |"


def _gained(runs: Runs) -> str:
    own = [100 * (each["best"] - before[0]) for each in runs if (before := halfway(each))]
    validation, test, above = (
        [100 * (_mean(each, "best", part) - _mean(each, before, part)) for each in runs]
        for before, part in (("halfway", "validation"), ("halfway", "test"), ("documented", "test"))
    )
    samples = [fresh["test"] for each in runs for fresh in _different(each)]
    deviation = 100 * math.sqrt(statistics.mean(map(statistics.variance, samples)))
    documented = statistics.mean(_mean(each, "documented", "test") for each in runs)
    gains = " | ".join(map(_interval, (own, validation, test)))
    return f"{gains} | {deviation:.2f} | {documented:.4f} | {_interval(above)}"


def _different(run: Record) -> list[Record]:
    """Return the fresh runs of its best recipe and of the one of the halfway point, once if they are one."""
    halves = [run["fresh"][which] for which in ("best", "halfway")]
    return list({tuple(each["test"]): each for each in halves}.values())


def _mean(run: Record, which: str, part: str) -> float:
    scores: list[float] = run["fresh"][which][part]
    return statistics.mean(scores)


def halfway(run: Record) -> tuple[float, int] | None:
    """Return the best final score when half of the epochs were spent, and its trial; None before any."""
    steps = [(best, trial) for epochs, best, trial in run["course"] if epochs <= run["epochs"] / 2]
    return steps[-1] if steps else None


def _pairs(found: Runs, data: str, ours: str, other: str) -> list[tuple[Record, Record]]:
    """Return the runs of two arms on a set that have the same seed."""
    by_seed = {(each["arm"], each["seed"]): each for each in found if each["data"] == data}
    seeds = sorted(seed for arm, seed in by_seed if arm == ours and (other, seed) in by_seed)
    return [(by_seed[ours, seed], by_seed[other, seed]) for seed in seeds]


def epochs_to(found: Record, score: float) -> int | None:
    """Return after how many epochs a search had a finished trial as good; None where it never had one."""
    return next((epochs for epochs, best, *_ in found["course"] if best >= score), None)


def standard_error(run: Record) -> float:
    """Return the standard error of a run's best accuracy, from the number of its validation images."""
    best: float = run["best"]
    return math.sqrt(best * (1.0 - best) / DATA[run["data"]])


def _share(ours: Record, other: Record, less: float) -> float:
    """Return our epochs to the other's best less so much, over its epochs; infinite if never reached."""
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
