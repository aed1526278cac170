"""Tests how a search ends before all of its trials are trained, and what it leaves."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from search.commands.guests import write_results
from search.facts.hardware import Hardware, Node, PerTrial
from search.followers.conclusions import conclusion
from search.learning.search import Search
from search.record.home import BEST_FILE, Home
from search.record.journal import DriverStart, Journal, SearchEvent, SearchState
from search.record.trials import GPU_HOURS_SPENT, NO_MORE_GAIN, PRICE_SPENT, TARGET_REACHED
from search.reporting import terminal
from search.reporting.gather import report_of
from search.reporting.page import page
from search.running.driver import end_by_gpu_hours, how_it_ended, make_ledger
from search.running.prepare import Prepared, decide, load, write_facts
from search.running.switch import StopSwitch
from tests.epoch_results import epoch_result
from tests.search.planted_searches import Run, planted
from tests.search.small_studies import study_of
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


@pytest.mark.slow("draws a report")
def test_the_reason_why_a_search_ended_early_is_said_wherever_its_answer_is(tmp_path: Path) -> None:
    folder = cut_in_the_final(tmp_path)
    append(folder, "resumed")
    write_results(folder, "finished", CUT)
    assert f"# The search ended early: {CUT}.\n" in (folder / BEST_FILE).read_text()
    append(folder, "finished", CUT)
    search = Search(folder)
    assert f"**Ended early**: {CUT}" in conclusion(search.summary).answer
    assert CUT in page(report_of(search))


# --- GPU-hours and goals ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def holding_gpus(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A search whose trials hold a GPU each, as far as its journal is concerned."""
    study = study_of(
        storage=str(tmp_path_factory.mktemp("storage")),
        name="gpus",
        base__model__width=4,
        base__precision__kind="fp32",
        budget__trials=TRIALS,
        budget__epochs=2,
        scheduler__kind="none",
        finalists="none",
    )
    prepared = decide(load(study, Home.of(study), Hardware((Node(2, 0),))))
    return replace(prepared, per_trial=PerTrial(1, 1.0))


SECONDS = 0.1  # that a trial takes at least
SPENT = SECONDS / 3600.0  # GPU-hours


def drive(prepared: Prepared, *, killed_after: int | None = None) -> None:
    """Train one trial after the other until the search ends, as a driver ends it; or until it is killed."""
    budget = prepared.study.budget
    with Journal(prepared.home.folder) as journal:
        ledger, switch = make_ledger(prepared, journal), StopSwitch()
        if (most := budget.most_gpu_hours) is not None:
            end_by_gpu_hours(switch, ledger, most)
        ledger.begin("gpus", start=DriverStart(seconds=1.0, slots=1, gpus=1.0))
        trained = 0
        while not switch.stops and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
            time.sleep(SECONDS)
            for epoch in range(1, budget.epochs + 1):
                ledger.epoch(proposal.trial, epoch_result(epoch, 0.9))
            if (trained := trained + 1) == killed_after:
                return
        state, reason = how_it_ended(ledger, switch, prepared)
        write_results(prepared.home.folder, state, reason)
        ledger.close(state, reason)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("budget", "trials", "reason"),
    [
        ({"gpu_hours": SPENT}, 1, GPU_HOURS_SPENT),
        ({"price": 2 * SPENT, "price_per_gpu_hour": 2}, 1, PRICE_SPENT),
        ({"gpu_hours": 1}, TRIALS, None),
        ({"target": 0.85}, 1, f"{TARGET_REACHED}: val_accuracy 0.9000 of trial 0, asked was 0.85"),
        ({"no_gain": 2}, 4, f"{NO_MORE_GAIN}: 2 trials more should gain 0.0000 at most"),
    ],
    ids=["gpu-hours", "price", "enough", "target", "no gain"],
)
def test_a_search_ends_by_its_budget_and_its_goals_and_also_when_it_was_killed_before(
    holding_gpus: Prepared, budget: dict[str, float], trials: int, reason: str | None, killed: bool
) -> None:
    values = {f"budget.{name}": value for name, value in budget.items()}
    study = holding_gpus.study.with_values({**values, "name": f"{'-'.join(budget)}-{trials}-{killed}"})
    prepared = replace(holding_gpus, study=study, home=Home.of(study))
    prepared.home.folder.mkdir()
    write_facts(prepared)
    study.write(prepared.home.folder)
    if killed:
        drive(prepared, killed_after=trials)
    drive(prepared)
    search = Search(prepared.home.folder)
    assert (search.state, len(search.trials)) == ("finished", trials)
    assert (search.progress.outcome_reason or "").startswith(reason or "")
    assert (reason is None) == ("# The search ended early: " not in (search.folder / BEST_FILE).read_text())
