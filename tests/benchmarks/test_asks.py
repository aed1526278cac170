"""What a proposal costs is read around each size, and its growth is judged."""

from __future__ import annotations

import pytest

from asks import ask_seconds, near, page


def test_each_proposal_is_timed_but_the_first_trial_which_is_the_documented_recipe() -> None:
    seconds = list(ask_seconds("tpe", seed=0, trials=20))
    assert len(seconds) == 19
    assert min(seconds) >= 0


def test_a_size_stands_for_the_proposals_around_it() -> None:
    search = [0.001 * each for each in range(400)]
    assert near([search], 100) == search[90:110]
    assert len(near([search, search], 300)) == 120


@pytest.mark.parametrize(
    ("growth", "told"), [(1.5, "1.50 times the cheapest (asked: at most 2; met)"), (3, "not met")]
)
def test_growth_from_300_trials_on_is_judged(growth: float, told: str) -> None:
    search = [0.001] * 700 + [0.001 * growth] * 500
    assert told in page({"tpe": [search]}, [100, 300, 1000])
    assert "| tpe | 1,000 | " in page({"tpe": [search]}, [100, 300, 1000])
    assert "no two sizes" in page({"tpe": [search]}, [100, 300])
