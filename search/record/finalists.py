"""Says which trials are trained again with fresh seeds, and with which seeds and splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search.record.repeats import SEEDS, Repeat
from search.record.trials import Trial
from search.study.finalists import Finalists


def best_first(trials: Sequence[Trial], metric: str, sign: float) -> list[Trial]:
    """Return the search's own finished trials, the best first; of equals the earliest.

    A metric is better where `sign` times its value is higher.
    """
    finished = [trial for trial in trials if trial.end == "finished" and not trial.is_repeat]
    return sorted(finished, key=lambda trial: -sign * trial.metrics[metric])


def finalists_of(finalists: Finalists, ranked: Sequence[Trial]) -> list[Trial]:
    """Return the trials that are trained again: the best ones, each recipe once.

    A small space is drawn from twice.
    """
    first: dict[str | None, Trial] = {}
    for trial in ranked:
        first.setdefault(trial.digest, trial)
    return list(first.values())[: finalists.top]


def missing_runs(finalists: Finalists, chosen: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[Repeat]:
    """Yield the runs of the chosen finalists that are not among `trials`, in the order of their training.

    Every finalist has its first run before any has its second: where time ends early, all have equally many.
    Run k has the k-th seed above the recipe's own, and with fresh splits the k-th split above: the same for
    all finalists, so that they are compared on equal images. A finalist with a run that diverged or crashed
    for good takes no further part, and trains no other run.
    """
    runs = [(each, each.repeat) for each in trials if each.repeat and each.repeat.purpose == "finalist"]
    there = {(repeat.of, repeat.seed) for _, repeat in runs}
    out = {repeat.of for run, repeat in runs if run.end in ("diverged", "failed")}
    staying = [trial for trial in chosen if trial.id not in out]
    for k in range(1, finalists.seeds + 1):
        for trial in staying:
            assert trial.recipe is not None, "a finished trial has a recipe"
            seed = (int(trial.recipe["loop"]["seed"]) + k) % SEEDS
            if (trial.id, seed) not in there:
                first = trial.recipe["data"]["validation_seed"] or 0
                split = first + k if finalists.splits == "fresh" else None
                yield Repeat(of=trial.id, purpose="finalist", seed=seed, split=split)
