"""Measures what a search gains from earlier searches of other tasks, offline (`space.learn_from`).

    TUNEBOOK_DATA=FOLDER python benchmarks/learning.py [--tasks lcbench --seeds 8 --budget 40]

Each task is searched without priors first. Then it is searched again with what the searches of the next three
tasks teach, with what searches for the *worst* values of these teach, and with what its own search taught.
The facts of these tasks are not known: others count as a factor of ten away (a distance of 1), the task
itself as the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np

from offline.arms import REDUCTION_FACTOR, Settings, ours
from offline.our_search import Replay
from offline.regret import Array, difference, over_tasks, regret
from offline.search_task import BareSpace, SearchTask, Train, Trained, Values, seed_of
from offline.tasks import task, task_names
from report import described, environment, write
from search.deciding.cube import Cube
from search.deciding.observations import Observations
from search.deciding.scheduler import Asha, rungs
from search.learning.lessons import Lesson, with_lessons
from search.learning.likeness import Likeness
from search.learning.optimum import Optimum, optima
from search.record.journal import Outcome
from spaces.priors import likeliest

Source = Literal["nothing", "three others", "three others' worst", "itself"]
SOURCES: tuple[Source, ...] = ("nothing", "three others", "three others' worst", "itself")
SHARES = np.array([1 / 6, 1 / 3, 1.0])


class Heard(Replay):
    """Searches with the default sampler and ASHA, and remembers what came of each trial."""

    def __init__(self, chosen: SearchTask, space: BareSpace, seed: int, train: Train) -> None:
        scheduler = Asha(rungs(chosen.grace, REDUCTION_FACTOR, chosen.epochs), REDUCTION_FACTOR, "max")
        super().__init__(train, chosen.epochs, ours("auto")(space, seed), scheduler, space.own or None)
        self.observations = Observations(Cube(space), "max")

    def begin(self, number: int, values: Values) -> None:
        super().begin(number, values)
        self.observations.add(number, values)

    def end(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        super().end(number, outcome, scores)
        self.observations.tell(number, outcome, scores, {})


@cache
def taught(name: str, seed: int, settings: Settings, *, worst: bool) -> Mapping[str, Optimum]:
    """Return where a first search of a task found the best values to lie, or the worst."""
    chosen = task(name)
    train = chosen.begin()

    def negated(values: Values) -> Trained:
        trained = train(values)
        return Trained(trained.values, [-score for score in trained.curve])

    first = Heard(chosen, chosen.space, seed_of(f"earlier {name}", seed), negated if worst else train)
    first.run(settings.epochs(chosen.epochs), settings.workers)
    return optima(chosen.space, first.observations.told)


def learned(name: str, names: Sequence[str], source: Source, seed: int, settings: Settings) -> BareSpace:
    """Return a task's space with what searches teach, and the likeliest values as its first trial."""
    at, space = names.index(name), task(name).space
    if source == "nothing":
        return space
    earlier = [name] if source == "itself" else [names[(at + step) % len(names)] for step in (1, 2, 3)]
    likes = Likeness(0.0 if source == "itself" else 1.0)
    found = [(each, taught(each, seed, settings, worst=source == "three others' worst")) for each in earlier]
    dimensions = []
    for each in space.dimensions:
        said = [(of, optimum[each.name]) for of, optimum in found if each.name in optimum]
        lessons = [Lesson(of, optimum, each.domain, None, likes) for of, optimum in said]
        dimensions.append(with_lessons(each, lessons))
    space = replace(space, dimensions=tuple(dimensions))
    return replace(space, own=space.define(lambda each, prior: likeliest(each.domain, prior)))


def regrets(names: Sequence[str], seeds: int, settings: Settings) -> dict[Source, dict[str, Array]]:
    """Return the regrets at `SHARES`, by source and task, one seed a row."""
    found: dict[Source, dict[str, Array]] = {source: {} for source in SOURCES}
    for name in names:
        chosen = task(name)
        runs: dict[Source, list[list[tuple[int, float]]]] = {source: [] for source in SOURCES}
        for source, seed in ((source, seed) for source in SOURCES for seed in range(seeds)):
            space = learned(name, names, source, seed, settings)
            search = Heard(chosen, space, seed_of(f"search {name}", seed), chosen.begin())
            runs[source].append(search.run(settings.epochs(chosen.epochs), settings.workers).best)
        reached = [best[-1][1] for bests in runs.values() for best in bests if best]
        scale, moments = (max(chosen.best(), *reached), chosen.usual), SHARES * settings.epochs(chosen.epochs)
        for source, bests in runs.items():
            found[source][name] = np.stack([regret(best, scale, moments) for best in bests])
            print(name, source, found[source][name].mean(axis=0).round(3).tolist(), flush=True)
    return found


def page(found: Mapping[Source, Mapping[str, Array]], settings: Settings) -> str:
    """Return the table of mean regrets, with the difference to a search that learns nothing."""
    plain = over_tasks(found["nothing"])
    rows = (f"| {source} | {' | '.join(_cells(over_tasks(runs), plain))} |" for source, runs in found.items())
    return (
        "# What a search gains from earlier ones\n\n"
        f"{len(found['nothing'])} tasks, {len(plain)} seeds, {settings.trainings} whole trainings, "
        f"{settings.workers} workers in simulated time, sampler auto, ASHA. Mean regret (0: the best known, "
        "1: a median draw); in brackets the difference to learning nothing, with its 95 % bootstrap interval "
        "over seeds.\n\n| learned from | at a sixth | at a third | at the end |\n|-|-|-|-|\n"
        + "\n".join(rows)
        + "\n\n"
    )


def _cells(runs: Array, plain: Array) -> Iterator[str]:
    for at, share in enumerate(SHARES):
        value, low, high = difference(runs, plain, float(share), SHARES)
        yield f"{runs[:, at].mean():.3f} ({value:+.3f}, {low:+.3f} to {high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Search tasks with what searches of other tasks teach.")
    parser.add_argument("--tasks", default="lcbench")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--budget", type=int, default=40, help="in whole trainings")
    options = parser.parse_args()
    settings, where = Settings(options.budget, beyond=1.0), environment(threads=1)
    found = regrets(task_names(options.tasks), options.seeds, settings)
    plain = {source: {name: runs.tolist() for name, runs in by.items()} for source, by in found.items()}
    record = {"environment": where, "shares": SHARES.tolist(), "regrets": plain}
    write("learning", record, page(found, settings) + described(where))


if __name__ == "__main__":
    main()
