"""Planted searches are what real ones would be: the same again with the same seed, pruned only at rungs."""

from __future__ import annotations

import pytest

from search.learning.standings import compared_epochs
from search.study import SamplerKind
from tests.search.planted_rules import EPOCHS, METRIC, PLANTED, nothing, planted, search, space_of_rules

SPACE = space_of_rules()


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_the_same_seed_gives_the_same_search_and_another_another(kind: SamplerKind) -> None:
    assert search(SPACE, kind, 14, 3) == search(SPACE, kind, 14, 3)
    assert search(SPACE, kind, 14, 3) != search(SPACE, kind, 14, 4)


def test_trials_end_at_rungs_at_the_last_epoch_or_by_diverging() -> None:
    summary = search(SPACE, "random", 60, 0)
    assert [trial.id for trial in summary.trials] == list(range(60))
    assert compared_epochs(summary) == (2, 6, EPOCHS)
    ends = {
        trial.state: {each.epochs for each in summary.trials if each.state == trial.state}
        for trial in summary.trials
    }
    assert ends["finished"] == {EPOCHS}
    assert ends["stopped"] <= {2, 6}
    assert ends["diverged"] <= {0, 1, 2}
    assert summary.trials[0].own
    assert summary.trials[0].values == SPACE.own


def test_an_unpruned_search_stops_no_trial() -> None:
    states = {trial.state for trial in search(SPACE, "random", 20, 0, pruned=False).trials}
    assert states <= {"finished", "diverged"}


def test_only_planted_rules_move_a_score() -> None:
    gain = planted(2.0, ["regularisation.label_smoothing"])
    own = dict(SPACE.own)
    assert gain(own) - gain({**own, "regularisation.label_smoothing": 0.1}) == 2.0
    assert gain({**own, "augmentation.mixing.kind": "mixup"}) == gain(own)
    assert nothing(own) == 0.0
    assert PLANTED.keys() <= {dimension.name for dimension in SPACE.dimensions}


def test_luck_spreads_scores_by_one() -> None:
    final = [
        trial.metrics[METRIC]
        for trial in search(SPACE, "random", 400, 0, pruned=False).trials
        if trial.epochs
    ]
    spread = (sum(score**2 for score in final) / len(final)) ** 0.5
    assert spread == pytest.approx(1.0, abs=0.1)
