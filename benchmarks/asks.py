"""Measures what a draw of prior-tpe costs: processor seconds of `Sampler.ask`, by the number of trials.

The space has fifteen rules, numbers and options, conditional ones too. Scores are invented, four trials are
open at each draw, most are stopped early. Draws of all ways count: by TPE, from the priors and evenly.
Processor time is what others on the machine lengthen least; the load stands in the result.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence

from offline.planted_rules import space_of_rules
from report import described, environment, write
from search.deciding.make import make_sampler
from search.deciding.sampler import Sampler

SIZES = (100, 300, 800)
AROUND = 20
"""Each size's figure is over so many draws before it and so many after it."""
OPEN = 4
EPOCHS = 9


def ask_seconds(seed: int, trials: int) -> Iterator[float]:
    """Yields the processor seconds of one search's draws, from trial 1 on."""
    space, luck = space_of_rules(), random.Random(seed)
    sampler = make_sampler(space, "prior-tpe", seed, "max")
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


def _row(size: int, seconds: Sequence[float]) -> str:
    milliseconds = [1e3 * each for each in seconds]
    mean, spread = statistics.mean(milliseconds), statistics.stdev(milliseconds)
    least, most = min(milliseconds), max(milliseconds)
    return f"| {size} | {mean:.1f} | {spread:.1f} | {least:.1f} to {most:.1f} | {len(milliseconds)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the draws of prior-tpe in searches of growing length.")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    where = environment(1)
    searches = [list(ask_seconds(seed, max(SIZES) + AROUND + 1)) for seed in range(arguments.seeds)]
    near = {
        size: [each for asks in searches for each in asks[size - AROUND : size + AROUND]] for size in SIZES
    }
    head = "| trials | ms a draw, mean | standard deviation | from, to | n draws |\n|-|-|-|-|-|"
    rows = "\n".join(_row(size, seconds) for size, seconds in near.items())
    wholes = ", ".join(f"{sum(asks):.1f}" for asks in searches)
    page = (
        f"# What a draw of prior-tpe costs\n\n{head}\n{rows}\n\n"
        f"All draws of a search of {max(SIZES) + AROUND + 1} trials: {wholes} s of processor time.\n\n"
        f"{described(where)}"
    )
    write(
        "asks",
        {"environment": where, "seconds": near, "whole_searches": [sum(asks) for asks in searches]},
        page,
    )


if __name__ == "__main__":
    main()
