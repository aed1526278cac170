"""How a history of scores may differ from the journal's."""

from __future__ import annotations

import pytest

from search.followers.audit import history_differences

JOURNAL = {1: 0.5, 2: 0.625}


@pytest.mark.parametrize(
    ("points", "lines"),
    [
        ([(1, 0.5), (2, 0.625)], []),
        ([(2, 0.625), (1, 0.5)], []),
        ([(1, 0.5)], ["there: epoch 2 is missing"]),
        ([(1, 0.5), (2, 0.625), (2, 0.625)], ["there: epoch 2 is there 2 times"]),
        ([(1, 0.5), (2, 0.625), (3, 0.75)], ["there: epoch 3 is not in the journal"]),
        ([(1, 0.5), (2, 0.75)], ["there: epoch 2 has the score 0.75, the journal 0.625"]),
    ],
)
def test_every_epoch_is_expected_once_with_its_score(
    points: list[tuple[int, float]], lines: list[str]
) -> None:
    assert list(history_differences("there", JOURNAL, points)) == lines
