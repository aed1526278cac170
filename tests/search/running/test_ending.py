"""Tests what a search leaves whose hours end before the final, or in the midst of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from search.commands.guests import write_results
from search.learning.search import Search
from search.record.home import BEST_FILE
from search.record.journal import Journal, SearchEvent, SearchState
from search.reporting import terminal
from tests.search.planted_searches import Run, planted
from trainable.recipe.yamlfile import read_recipe

TRIALS = 6
# With the luck of this seed, another trial is the best by fresh seeds than by its score in the search
SEED = 1
CUT = "the budget of hours is spent before the best trials were trained again as planned"


def lucky(at: Mapping[str, float], luck: random.Random) -> Run:
    return Run(accuracy=luck.uniform(0.6, 0.9), train=0.9)


def cut_in_the_final(storage: Path) -> Path:
    """Return the folder of a search with two of the three runs of each finalist; it is not finished yet."""
    final = {"top": 2, "seeds": 3}
    return planted(
        storage, lucky, trials=TRIALS, seed=SEED, last=TRIALS + 4, scheduler__kind="none", finalists=final
    )


def append(folder: Path, state: SearchState, reason: str | None = None) -> None:
    search_id = Search(folder).record.search_id
    assert search_id is not None
    event = SearchEvent(state=state, search_id=search_id, name="planted", reason=reason)
    with Journal(folder) as journal:
        journal.append(event)


def best_of(folder: Path) -> tuple[int, int]:
    """Return the trial of best.yaml, and the one that `show` calls the best."""
    recipe, best = read_recipe(folder / BEST_FILE), Search(folder).best
    assert recipe.provenance is not None
    assert recipe.provenance.trial is not None
    assert best is not None
    return recipe.provenance.trial, best.id


@pytest.mark.slow("runs a search")
def test_best_yaml_and_show_name_one_trial_where_hours_end_in_the_final(tmp_path: Path) -> None:
    folder = cut_in_the_final(tmp_path)
    by_score = Search(folder).best
    append(folder, "resumed")
    write_results(folder, "finished")
    append(folder, "finished", CUT)
    written, shown = best_of(folder)
    assert written == shown
    assert by_score is not None
    assert by_score.id != written


def test_an_audit_of_a_search_whose_final_was_cut_short_keeps_its_winner(tmp_path: Path) -> None:
    folder = cut_in_the_final(tmp_path)
    append(folder, "finished", CUT)
    before = Search(folder).best
    append(folder, "resumed")
    assert Search(folder).state == "interrupted", "no driver holds its lock"
    assert Search(folder).best == before
    write_results(folder, "interrupted")
    assert best_of(folder)[0] == best_of(folder)[1]


def test_show_and_the_end_of_a_search_say_that_its_hours_ended_before_the_final(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cut_in_the_final(tmp_path)
    append(folder, "finished", CUT)
    terminal.show(Search(folder), as_json=False)
    assert capsys.readouterr().out.splitlines()[0].endswith(CUT)
    terminal.closing(Search(folder), folder / BEST_FILE)
    assert CUT in capsys.readouterr().out.splitlines()
