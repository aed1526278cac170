"""From one search to the next: a real one is audited, and what is written of it is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.learning.refine import refine, write_next
from search.learning.search import Search
from search.study import read_study
from tests.integration.small_searches import digits_study

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.mark.scenario
def test_the_study_that_follows_from_a_search_too_short_is_longer_and_can_be_searched(
    tmp_path: Path,
) -> None:
    """Two epochs of a net with four channels are far too few for digits."""
    short = digits_study(tmp_path, name="short", budget__trials=8, budget__epochs=2, scheduler__kind="none")
    assert driver().search(resolved_study(short)) == "finished"
    found = refine(Search(tmp_path / "short"))
    write_next(found, tmp_path / "study2.yaml")
    study = read_study(tmp_path / "study2.yaml")
    assert (study.name, study.budget.epochs) == ("short-2", 4)
    assert driver().search(resolved_study(study.with_values({"budget.trials": 2}))) == "finished"
    assert {trial.epochs for trial in Search(tmp_path / "short-2").progress.trials} == {4}
