"""Tests what `show` and `explain` say of the rules, from a search's folder alone."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from search.deciding.scheduler import rungs
from search.followers.conclusions import conclusion, plan
from search.learning.search import Search
from search.record.folder import facts_text
from search.record.home import FACTS_FILE
from search.record.journal import EndEvent, Journal, StartEvent
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.study import Study
from search.study.space import build_space
from spaces.domains import Values
from tests.search.followers.small_final import a_search_with_a_final
from tests.search.followers.small_tracking import write
from tests.search.planted_rules import EPOCHS, FACTOR, GRACE, search
from tests.search.reporting.test_terminal import INFO
from tests.search.small_events import TURNAROUND, begun_in, drawn, session
from tests.spaces.small_facts import digits_facts
from trainable.training.metrics import EpochResult

TRIALS = 48
FACTS = digits_facts(epochs=EPOCHS)
Tunebook = Callable[..., tuple[int, str, str]]


def without_mixing(values: Values) -> float:
    """Return a score for which only mixing matters, and the rule that warns small nets of it is right."""
    return 5.0 * (values["augmentation.mixing.kind"] == "none")


def as_accuracy(result: EpochResult) -> EpochResult:
    """Return the result with a score between 0 and 1; the order of the trials is the same."""
    score = 1.0 / (1.0 + math.exp(-result.val_accuracy))
    return replace(result, val_accuracy=score, val_balanced_accuracy=score)


def written(folder: Path, summary: Summary, study: Study) -> Path:
    """Write a search's folder as its driver would leave it."""
    folder.mkdir(exist_ok=True)
    study.resolved(folder.name).write(folder)
    (folder / FACTS_FILE).write_bytes(facts_text(FACTS, INFO))
    space = build_space(study, FACTS, INFO)
    with Journal(folder) as journal:
        for event in begun_in(space, EPOCHS, rungs(GRACE, FACTOR, EPOCHS), folder.name):
            journal.append(event)
        for trial in summary.trials:
            journal.append(drawn(space, trial.id, trial.values))
            journal.append(StartEvent(trial=trial.id, attempt=1, epoch=0))
            for each in trial.history:
                journal.append(each.model_copy(update={"result": as_accuracy(each.result)}))
            assert trial.end is not None
            journal.append(EndEvent(trial=trial.id, state=trial.end))
        journal.append(session("finished", name=folder.name))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a finished search of the space `document` in which mixing alone matters."""
    tree = {"data": {"path": "digits"}, "budget": {"trials": TRIALS, "epochs": EPOCHS}}
    study = Study.from_tree({**tree, "space": {"overrides": {"augmentation.mixing.kind": HALF}}})
    summary = search(build_space(study, FACTS, INFO), "random", TRIALS, 0, without_mixing)
    return written(tmp_path_factory.mktemp("searches") / "planted", summary, study)


# A rule as well, since a person believes it; with it enough trials depart
HALF = {"choice": ["none", "mixup"], "weights": [0.6, 0.4]}


def test_show_tells_the_clear_verdicts_and_where_the_others_are(folder: Path, tunebook: Tunebook) -> None:
    code, printed, _ = tunebook("show", folder)
    assert code == 0
    lines = printed.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("rules: 1 supported, 0 "))
    assert lines[head].endswith(f"explain {folder}` lists them all")
    assert lines[head + 1].split("  ")[0] == "rule"
    assert lines[head + 2].startswith("augmentation.mixing.kind  supported  +")
    assert "at most 1 verdict in 10 is expected to be false" in printed


def test_show_as_json_has_every_rule_with_its_figures(folder: Path, tunebook: Tunebook) -> None:
    _, printed, _ = tunebook("show", folder, "--json")
    tree = json.loads(printed)
    assert tree["schema"] == 1
    verdicts = tree["verdicts"]
    assert verdicts["trials"] == TRIALS
    assert verdicts["false_share"] == 0.1
    (mixing,) = [each for each in verdicts["rules"] if each["rule"] == "augmentation.mixing.kind"]
    assert mixing["verdict"] == "supported"
    assert 0.0 < mixing["low"] < mixing["effect"] < mixing["high"]
    assert mixing["follow"] + mixing["depart"] == TRIALS - 1
    (batch,) = [each for each in verdicts["rules"] if each["rule"] == "loop.batch_size"]
    assert (batch["verdict"], batch["why"], batch["effect"]) == ("untested", "fixed, never varied", None)


def test_explain_of_a_search_has_every_rule_with_its_verdict(folder: Path, tunebook: Tunebook) -> None:
    code, printed, _ = tunebook("explain", folder)
    assert code == 0
    part = printed[printed.index(f"verdicts on the rules, from {TRIALS} trials") :]
    verdicts = Search(folder).verdicts
    assert verdicts is not None
    assert len(verdicts.rules) > 15
    for each in verdicts.beliefs:
        assert f"\n{each.rule} " in part
    assert f"{len(verdicts.fixed)} more rules fixed a value, which no trial varied: " in part
    for each in verdicts.fixed:
        assert f"{each.rule} {each.says}" in " ".join(part.split())


def test_a_study_or_a_search_without_ended_trials_has_no_verdicts(tmp_path: Path, tunebook: Tunebook) -> None:
    study = Study.from_tree({"data": {"path": "digits"}, "budget": {"trials": 2, "epochs": EPOCHS}})
    empty = Summary("x", None, "finished", None, "val_accuracy", (), EPOCHS, 0.0)
    _, printed, _ = tunebook("explain", written(tmp_path / "empty", empty, study))
    assert "verdicts" not in printed
    _, shown, _ = tunebook("show", tmp_path / "empty", "--json")
    assert json.loads(shown)["verdicts"] is None


def test_a_space_in_which_nothing_is_believed_has_only_its_fixed_values(tmp_path: Path) -> None:
    tree = {"data": {"path": "digits"}, "budget": {"trials": 20, "epochs": EPOCHS}, "space": {"name": "wide"}}
    study = Study.from_tree(tree)
    summary = search(build_space(study, FACTS, INFO), "random", 20, 0)
    found = Search(written(tmp_path / "wide", summary, study)).verdicts
    assert found is not None
    assert {each.why for each in found.rules} <= {"fixed, never varied"}
    assert found.beliefs == []


def without_cautions(folder: Path) -> Summary:
    """Return the summary of a search whose answer nothing limits."""
    return replace(Search(folder).summary, cautions=())


def test_the_note_for_mlflow_names_the_best_trial_and_the_clear_verdicts(folder: Path) -> None:
    best = Search(folder).progress.best
    assert best is not None
    found = conclusion(without_cautions(folder))
    assert found.answer.startswith(
        f"**Best**: trial {best.id}, val_accuracy {best.metrics['val_accuracy']:.4f}"
    )
    assert "**Spent**: " in found.answer
    assert "| augmentation.mixing.kind | supported | +" in found.rules
    assert len(json.loads(found.table)["data"]) > 15


def test_the_note_says_where_the_time_went_after_what_was_spent(folder: Path) -> None:
    assert "**Where the time went**" not in conclusion(Search(folder).summary).answer
    found = conclusion(replace(without_cautions(folder), turnaround=TURNAROUND)).answer.split("\n\n")
    assert found[1].startswith("**What it trains**: resnet_small (depth 8, width 16), from scratch, ")
    assert found[2].startswith("**Spent**: ")
    assert found[3].startswith(
        "**Where the time went** (4 trials at once, 0.25 GPU each, 16 min 40 s together): "
    )


def test_the_note_says_what_the_final_came_to_right_after_the_best_trial(folder: Path) -> None:
    found = conclusion(without_cautions(folder), "best recipe: val_accuracy 0.9000")
    _, second, _, third = found.answer.split("\n\n")[:4]
    assert second == "**Trained again**: best recipe: val_accuracy 0.9000"
    assert third.startswith("**Spent**: ")


def test_the_note_begins_with_the_figure_of_fresh_seeds_and_not_with_the_lucky_one(tmp_path: Path) -> None:
    record = Record(write(tmp_path, a_search_with_a_final(tmp_path)))
    summary = summarise(record, record.latest, objective="val_accuracy", epochs=2, locked=False)
    assert summary.finals is not None
    assert summary.finals.winner is not None
    known = summary.finals.winner.estimate
    assert known is not None
    assert conclusion(summary).answer.partition("\n")[0] == (
        f"**Best**: trial 1, val_accuracy {known.value:.4f} with fresh seeds, 0.8500 in the search; "
        "the documented recipe 0.9000"
    )


def test_no_text_of_the_study_or_its_values_is_markup_of_the_note(folder: Path) -> None:
    image, summary = "![x](http://a.b/i.png)", Search(folder).summary
    trials = tuple(replace(trial, values={"model.name": image}) for trial in summary.trials)
    noted = conclusion(replace(summary, trials=trials), f"best recipe: {image}").answer
    planned = plan(Study.from_tree({"data": {"path": f"/{image}"}, "name": "x"}), "my `x`")
    for text in (noted, planned):
        assert r"!\[x\](http\://a.b/i.png)" in text
        assert image not in text
    assert planned.endswith("`` tunebook show 'my `x`' ``")


@pytest.mark.integration
def test_to_show_a_search_takes_no_torch(folder: Path) -> None:
    program = (
        "import sys; from search.__main__ import main; sys.argv = ['tunebook', 'show', sys.argv[1]]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'ray', 'optuna', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert "augmentation.mixing.kind  supported" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
