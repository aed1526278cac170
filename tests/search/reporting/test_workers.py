"""Tests what the workers' chart says of its bars."""

from __future__ import annotations

import pytest

from search.record.journal import RepeatPurpose
from search.reporting.charts import troubles, workers
from search.reporting.content import RepeatRow, Report


@pytest.mark.parametrize(
    ("purpose", "seed", "score", "says"),
    [
        ("pruning", None, 0.948, "trial 3 again, to its end: 0.9480 after 6 epochs"),
        ("finalist", 7, 0.948, "trial 3 again, with seed 7: 0.9480 after 6 epochs"),
        ("finalist", 7, None, "trial 3 again, with seed 7: failed"),
    ],
)
def test_a_run_that_trains_a_trial_again_is_in_words(
    planted_24: Report, purpose: RepeatPurpose, seed: int | None, score: float | None, says: str
) -> None:
    run = RepeatRow(
        id=24, of=3, purpose=purpose, seed=seed, split=None,
        state="failed" if score is None else "finished", epochs=6, score=score,
    )  # fmt: skip
    attempt = planted_24.attempts[-1].model_copy(update={"trial": 24})
    plot = workers(planted_24.model_copy(update={"attempts": (attempt,), "repeats": (run,)}))
    assert plot is not None
    assert [(each.trial, each.says) for each in plot.lines] == [(3, says)]


def test_a_failed_attempt_is_listed_with_its_reason(planted_24: Report) -> None:
    assert list(troubles(planted_24)) == []
    failed = planted_24.attempts[-1].model_copy(update={"outcome": "failed", "reason": "out of memory"})
    (found,) = troubles(planted_24.model_copy(update={"attempts": (*planted_24.attempts[:-1], failed)}))
    assert (found.trial, found.what, found.why) == (failed.trial, "failed", "out of memory")
