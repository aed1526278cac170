"""Describes in MLflow the trials that train others again: names and tags, and what they have come to."""

from __future__ import annotations

from search.record.finals import Estimate, Finals
from search.record.repeats import Repeat
from search.record.trials import Trial

PURPOSE = "tunebook.purpose"  # `search`, or what a trial's recipe is trained again for: `finalist`, `pruning`
REPEAT_OF, SEED, SPLIT = "tunebook.repeat_of", "tunebook.seed", "tunebook.split"
ESTIMATE = "final_estimate"
# what a finalist has come to, as metrics of its run: one point for each final
FINAL_NUMBERS = (ESTIMATE, "final_low", "final_high", "final_mean", "final_deviation")


def run_name(trial: Trial) -> str:
    """Return the name of a trial's run; in alphabetical order its repeats follow it."""
    repeat = trial.repeat
    if repeat is None:
        return f"trial-{trial.id:04d}"
    if repeat.purpose == "pruning":
        return f"trial-{repeat.of:04d} to its end"
    split = "" if repeat.split is None else f" split {repeat.split}"
    return f"trial-{repeat.of:04d} seed {repeat.seed}{split}"


def purpose_tags(repeat: Repeat | None) -> dict[str, str]:
    """Return the tags that tell the search's own trials from those that train their recipes again."""
    if repeat is None:
        return {PURPOSE: "search"}
    seeds = {SEED: repeat.seed, SPLIT: repeat.split}
    named = {tag: str(seed) for tag, seed in seeds.items() if seed is not None}
    return {PURPOSE: repeat.purpose, REPEAT_OF: str(repeat.of), **named}


def final_numbers(finals: Finals | None) -> dict[int, dict[str, float]]:
    """Return metrics of what the finalists have come to, by trial; none as long as their runs go on."""
    if finals is None or finals.winner is None:
        return {}
    return {each.trial: _numbers(each.estimate) for each in finals.finalists if each.estimate is not None}


def _numbers(known: Estimate) -> dict[str, float]:
    numbers = zip(FINAL_NUMBERS, (known.value, *known.bounds, known.mean, known.deviation), strict=True)
    return {name: number for name, number in numbers if number is not None}
