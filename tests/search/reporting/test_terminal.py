"""Tests what is shown of the best trial: a diagnosis from the folder alone, on the screen and in JSON."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search.commands.guests import conclude
from search.learning.next_steps import since_when_nothing_was_gained
from search.learning.search import Search
from search.record.code import CodeRecord, extend_call, functions_of
from search.record.cursor import Cursor
from search.record.folder import facts_text
from search.record.home import FACTS_FILE
from search.record.journal import EndEvent, EpochEvent, Event, Journal, SearchState, StartEvent
from search.record.lock import locked
from search.record.record import Record
from search.record.summary import summarise
from search.reporting import terminal
from search.study import Study
from search.study.code import NO_CODE
from search.study.space import build_space
from tests.epoch_results import epoch_result
from tests.golden_pages import assert_page
from tests.search.small_events import TURNAROUND, begun, begun_in, drawn, session
from tests.spaces.small_facts import digits_facts
from tests.trainable.small_runs import data_set
from trainable.data import DataInfo
from trainable.training.metrics import EpochResult

EPOCHS = 12
INFO = DataInfo(
    path="digits",
    format="digits",
    classes=tuple("0123456789"),
    channels=1,
    image_size=8,
    train_images=1257,
    validation_images=5000,
    test_images=270,
    class_counts=(125,) * 10,
    mean=(0.3,),
    std=(0.4,),
    flips=(),
    digest="0123",
    in_memory=True,
)


def result(epoch: int, accuracy: float, clean: float | None) -> EpochResult:
    return epoch_result(epoch, accuracy, train_loss=0.1, train_accuracy=0.5, clean_train_accuracy=clean)


def search_folder(
    folder: Path,
    trials: dict[int, tuple[float, dict[str, Any]]],
    *,
    open_trials: int = 0,
    state: SearchState = "finished",
) -> Path:
    """Make a search: trial -> (validation accuracy, values); all know their training images.

    So many `open_trials` come after these, and have not ended.
    """
    study = Study.from_tree({"data": {"path": "digits"}, "budget": {"trials": 2, "epochs": EPOCHS}})
    facts = digits_facts(epochs=EPOCHS)
    (folder / FACTS_FILE).write_bytes(facts_text(facts, INFO))
    study.resolved("planted").write(folder)
    space = build_space(study, facts, INFO)
    with Journal(folder) as journal:
        for event in begun_in(space, EPOCHS, name="planted"):
            journal.append(event)
        for trial, (accuracy, values) in trials.items():
            journal.append(drawn(space, trial, values))
            journal.append(StartEvent(trial=trial, attempt=1, epoch=0))
            for epoch in range(1, EPOCHS + 1):
                clean = 1.0 if epoch == EPOCHS else None
                journal.append(EpochEvent(trial=trial, result=result(epoch, accuracy, clean)))
            journal.append(EndEvent(trial=trial, state="finished"))
        for trial in range(len(trials), len(trials) + open_trials):
            journal.append(drawn(space, trial, space.own))
        journal.append(session(state, name="planted"))
    return folder


def values(**changes: Any) -> dict[str, Any]:
    return {"optimizer.kind": "sgd", "optimizer.lr": 0.5, "optimizer.weight_decay": 2e-4, **changes}


def shown(folder: Path, *, as_json: bool = False) -> None:
    terminal.show(Search(folder), as_json=as_json)


def test_the_best_trial_s_diagnosis_names_the_fields_of_its_own_recipe(tmp_path: Path) -> None:
    folder = search_folder(
        tmp_path, {0: (0.8, values()), 1: (0.9, values(**{"optimizer.weight_decay": 3e-4}))}
    )
    summary = Search(folder).summary
    assert summary.diagnosis is not None
    assert summary.diagnosis.verdict == "overfit"
    assert summary.diagnosis.figures["gap_points"] == pytest.approx(10.0)
    decay = next(each for each in summary.diagnosis.changes if each.path == "optimizer.weight_decay")
    assert (decay.now, decay.to) == (3e-4, 9e-4)


def test_show_prints_the_best_trial_the_table_and_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    folder = search_folder(tmp_path, {0: (0.8, values()), 1: (0.9, values())})
    shown(folder)
    first, page = capsys.readouterr().out.split("\n", 1)
    assert first.startswith("planted: finished, ")
    assert_page("show.txt", page.replace(str(folder), "FOLDER"))


def test_show_says_where_the_time_went_in_words_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = Search(search_folder(tmp_path, {0: (0.8, values())}))
    search.progress = replace(search.progress, turnaround=TURNAROUND)
    terminal.show(search, as_json=False)
    line = "where the time went: training steps 64%, starting 13%, idle 11%, scoring 9%\n"
    assert line in capsys.readouterr().out
    terminal.show(search, as_json=True)
    assert json.loads(capsys.readouterr().out)["turnaround"] == TURNAROUND.model_dump()


def with_accuracies(folder: Path, *accuracies: float) -> Path:
    return search_folder(folder, {trial: (each, values()) for trial, each in enumerate(accuracies)})


LATER = (0.85,) * 4


@pytest.mark.parametrize(
    ("accuracies", "told"),
    [
        ((0.8, 0.9, 0.895, 0.85, *LATER), "trial 1 is the best: the 6 trials after it gained nothing"),
        ((0.8, 0.895, 0.9, 0.85, *LATER), "trial 1 was as good within the noise (0.8 points): the 6 trials"),
        ((0.8, *LATER, 0.85, 0.9, 0.895), None),
        ((0.9, 0.85, 0.85, *LATER), None),
        ((0.9,), None),
    ],
)
def test_show_says_since_when_nothing_was_gained(
    accuracies: tuple[float, ...], told: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(with_accuracies(tmp_path, *accuracies))
    printed = " ".join(capsys.readouterr().out.split())
    if told is None:
        assert "gained nothing" not in printed
    else:
        assert told in printed


def begin_more(folder: Path, accuracies: Sequence[float]) -> None:
    """Begin trials in a search, each with one epoch, which have not ended."""
    space = Search(folder).space
    with Journal(folder) as journal:
        journal.append(session("resumed", name="planted"))
        for number, accuracy in enumerate(accuracies, start=8):
            journal.append(drawn(space, number, values()))
            journal.append(StartEvent(trial=number, attempt=1, epoch=0))
            journal.append(EpochEvent(trial=number, result=result(1, accuracy, None)))


def test_trials_that_have_not_ended_do_not_say_that_nothing_was_gained(tmp_path: Path) -> None:
    folder = with_accuracies(tmp_path, *LATER, 0.9, 0.85, 0.85, 0.85)
    begin_more(folder, (0.5,) * 8)
    assert since_when_nothing_was_gained(Search(folder)) == ""


def test_nothing_is_said_where_a_trial_that_has_not_finished_is_better_already(tmp_path: Path) -> None:
    folder = with_accuracies(tmp_path, 0.8, 0.9, *LATER, 0.85, 0.85)
    begin_more(folder, (0.905,))
    assert since_when_nothing_was_gained(Search(folder)).startswith("trial 1 is the best")
    other = tmp_path / "other"
    other.mkdir()
    begin_more(with_accuracies(other, 0.8, 0.9, *LATER, 0.85, 0.85), (0.95,))
    assert since_when_nothing_was_gained(Search(other)) == ""


def test_while_a_search_runs_show_does_not_say_that_nothing_more_was_gained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_accuracies(tmp_path, 0.9, *LATER, 0.85, 0.85, 0.85)
    assert "gained nothing" in since_when_nothing_was_gained(Search(folder))
    begin_more(folder, (0.5,))
    with locked(folder):
        shown(folder)
    assert "gained nothing" not in capsys.readouterr().out


def test_show_as_json_adds_the_diagnosis_and_changes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = search_folder(tmp_path, {0: (0.9, values())})
    shown(folder, as_json=True)
    tree = json.loads(capsys.readouterr().out)
    assert tree["schema"] == 1
    assert tree["diagnosis"]["verdict"] == "overfit"
    plain = Search(folder).progress.json()
    assert plain["diagnosis"] is plain["verdicts"] is None
    assert {**tree, "diagnosis": None, "verdicts": None} == plain


def test_the_end_of_a_search_tells_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = search_folder(tmp_path, {0: (0.9, values())})
    terminal.closing(Search(folder), folder / "best.yaml")
    printed = capsys.readouterr().out
    assert printed.index("trial 0 is overfit") < printed.index("best recipe:")


@pytest.fixture
def in_an_odd_folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "it's $(touch P) mine").mkdir()
    return search_folder(folder, {0: (0.9, values())})


def test_each_command_at_the_end_of_a_search_can_be_typed_as_it_is(
    in_an_odd_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, best = in_an_odd_folder, in_an_odd_folder / "best.yaml"
    (folder / "report.html").mkdir()
    conclude(folder, "finished", None, data_set(), NO_CODE)
    printed = capsys.readouterr().out
    commands = [line for line in printed.splitlines() if line.startswith("  tunebook ")]
    assert [shlex.split(line) for line in commands] == [
        ["tunebook", "ui", str(folder)],
        ["tunebook", "train", str(best), "--out", "planted-model", "--test"],
    ]
    assert shlex.split(printed.rpartition("; try `")[2].rstrip("`\n")) == ["tunebook", "report", str(folder)]


def test_what_a_search_of_somebody_s_functions_prints_is_a_call_in_python_with_names_alone(
    in_an_odd_folder: Path,
) -> None:
    code = 'exec("import os")'
    base = {"model": {"kind": "own", "name": code}}
    study = Study.from_tree({"data": {"path": "digits", "format": "own"}, "base": base})
    scored = CodeRecord(None, {"metrics.gain": None, f"metrics.{code}": None})
    own = functions_of(study, scored)
    assert own == f"model=..., data=digits, metrics={{'gain': gain, {code!r}: ...}}"
    call = ast.parse(extend_call(str(in_an_odd_folder), 3, study, scored), mode="eval").body
    assert isinstance(call, ast.Call)
    assert ast.literal_eval(call.args[0]) == str(in_an_odd_folder)


def test_a_search_without_a_finished_trial_has_no_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = search_folder(tmp_path, {})
    shown(folder, as_json=True)
    assert json.loads(capsys.readouterr().out)["diagnosis"] is None
    shown(folder)
    assert "trial" in capsys.readouterr().out


def test_a_trial_s_results_come_back_from_the_journal_as_they_were_reported(tmp_path: Path) -> None:
    (trial,) = Search(search_folder(tmp_path, {0: (0.9, values())})).progress.trials
    expected = [result(epoch, 0.9, None) for epoch in range(1, EPOCHS + 1)]
    expected[-1] = replace(expected[-1], clean_train_accuracy=1.0)
    assert trial.results == tuple(expected)


@pytest.mark.parametrize(
    ("running", "sent", "words"),
    [
        (True, 7.0, ""),
        (True, 1.0, "MLflow lacks the last 7 s of the search"),
        (False, 7.0, "MLflow lacks the last 1 s of the search"),
        (False, 8.0, ""),
        (False, None, "MLflow lacks the last 8 s of the search"),
    ],
)
def test_how_far_mlflow_is_behind(running: bool, sent: float | None, words: str) -> None:
    first, second = begun()
    events: list[Event] = [
        first.model_copy(update={"sequence": 0, "time": 1.0}),
        second.model_copy(update={"sequence": 1, "time": 9.0}),
    ]
    cursor = None if sent is None else Cursor(uri="", experiment="", seconds=sent)
    summary = summarise(
        Record(events), 99.0, objective="val_accuracy", epochs=EPOCHS, locked=running, sent=cursor
    )
    assert terminal.mlflow_lags(summary) == words
