"""Measures what a proposal costs: processor seconds of `Sampler.ask`, by the number of trials.

    python benchmarks/asks.py [--samplers prior-tpe --sizes 100,300 --seeds 2]

The space has fifteen rules, numbers and options, conditional ones too. Scores are invented, four trials are
open at each proposal, most are stopped early. Proposals of all kinds count: by the model, from the priors and
evenly; so does fitting the model, now and then. Processor time is what others on the machine lengthen least;
the load stands in the result.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from offline.planted_rules import space_of_rules
from report import described, environment, flatness, write
from search.deciding.make import make_sampler
from search.deciding.sampler import Sampler
from search.study import SamplerKind

WITHOUT_MODEL = ("random", "qmc")
SIZES = (100, 300, 1_000, 3_000)
AROUND = 0.1
"""Each size's figure is over the proposals from a tenth before it to a tenth after it."""
FLAT_FROM = 300
"""Proposals shall cost as much at any size from so many trials on."""
OPEN = 4
EPOCHS = 9

Found = Mapping[str, Sequence[Sequence[float]]]
"""It holds the seconds of each search's proposals, from trial 1 on, by sampler."""


def ask_seconds(kind: SamplerKind, seed: int, trials: int) -> Iterator[float]:
    """Yield the processor seconds of one search's proposals, from trial 1 on."""
    space, luck = space_of_rules(), random.Random(seed)
    sampler = make_sampler(space, kind, seed, "max")
    running: list[int] = []
    for number in range(trials):
        began = time.process_time()
        values = space.own if number == 0 else sampler.ask(number)
        if number > 0:
            yield time.process_time() - began
        sampler.add(number, values)
        running.append(number)
        if len(running) >= OPEN:
            _end(sampler, running.pop(luck.randrange(OPEN)), luck)


def _end(sampler: Sampler, number: int, luck: random.Random) -> None:
    score, chance = luck.random(), luck.random()
    if chance < 0.05:
        sampler.tell(number, "diverged", {})
    elif chance < 0.3:
        sampler.tell(number, "finished", dict.fromkeys(range(1, EPOCHS + 1), score))
    else:
        sampler.tell(number, "stopped", dict.fromkeys(range(1, luck.choice((2, 4))), score))


def page(found: Found, sizes: Sequence[int]) -> str:
    """Return the tables: what a proposal costs at each size, and whether that is flat."""
    rows = [_row(kind, size, near(searches, size)) for kind, searches in found.items() for size in sizes]
    head = "| sampler | trials | ms a proposal, mean | standard deviation | from, to | n proposals |\n"
    wholes = "\n".join(
        f"- {kind}: {', '.join(f'{sum(asks):.1f}' for asks in searches)} s of processor time for all "
        f"{len(searches[0])} proposals of a search; {flatness(_means(searches, sizes), FLAT_FROM)}"
        for kind, searches in found.items()
    )
    return f"# What a proposal costs\n\n{head}|-|-|-|-|-|-|\n{chr(10).join(rows)}\n\n{wholes}\n\n"


def near(searches: Sequence[Sequence[float]], size: int) -> list[float]:
    """Return the seconds of the proposals around a size."""
    around = round(AROUND * size)
    return [each for asks in searches for each in asks[size - around : size + around]]


def _means(searches: Sequence[Sequence[float]], sizes: Sequence[int]) -> dict[int, float]:
    return {size: statistics.mean(near(searches, size)) for size in sizes}


def _row(kind: str, size: int, seconds: Sequence[float]) -> str:
    milliseconds = [1e3 * each for each in seconds]
    mean, spread = statistics.mean(milliseconds), statistics.stdev(milliseconds)
    least, most = min(milliseconds), max(milliseconds)
    return (
        f"| {kind} | {size:,} | {mean:.1f} | {spread:.1f} | {least:.1f} to {most:.1f} | {len(milliseconds)} |"
    )


def main() -> None:
    models = [kind for kind in get_args(SamplerKind) if kind not in WITHOUT_MODEL]
    parser = argparse.ArgumentParser(description="Time the proposals of samplers in growing searches.")
    parser.add_argument("--samplers", nargs="+", choices=get_args(SamplerKind), default=models)
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--print", action="store_true", help="print the page and write no result")
    options = parser.parse_args()
    where = environment(1)
    trials = 1 + round((1 + AROUND) * max(options.sizes))
    found = {
        kind: [list(ask_seconds(kind, seed, trials)) for seed in range(options.seeds)]
        for kind in options.samplers
    }
    whole = page(found, options.sizes) + described(where)
    if options.print:
        print(whole)
        return
    record = {
        kind: {
            "seconds": {size: near(searches, size) for size in options.sizes},
            "whole_searches": [sum(asks) for asks in searches],
        }
        for kind, searches in found.items()
    }
    write("asks", {"environment": where, "samplers": record}, whole)


if __name__ == "__main__":
    main()
