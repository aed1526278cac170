"""Tests `tunebook refine`: what it refuses, what it reports, and what the next study says."""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from search.commands.options import RefineOptions
from search.commands.refine import run_refine
from search.learning.refine import Draft, next_name, refine
from search.learning.search import Search
from search.record.folder import read_facts
from search.record.lock import locked
from search.study import Study, read_study
from search.study.space import build_space
from spaces.domains import Float
from spaces.rules import rates
from tests.search.learning.landscapes import BASE, DECAY, RANGES, RATE, SMALL, after, towards
from tests.search.planted_searches import Run, planted
from tests.search.small_events import replace_journal
from trainable.errors import UserError

Call = Callable[..., tuple[int, str, str]]
At = Mapping[str, float]


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.slow("reads many searches")
def test_the_next_study_is_written_with_its_reasons_and_can_be_searched(
    tunebook: Call, tmp_path: Path
) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    code, out, err = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 0, err
    for words in ("edge, optimizer.lr", "upper end", "search space boundaries", "0.01 to 1, log"):
        assert words in out
    text = (tmp_path / "study2.yaml").read_text()
    (line,) = (line for line in text.splitlines() if line.strip().startswith("optimizer.lr:"))
    assert "# was 0.01 to 1, log: the best trial's" in line
    old, new = read_study(folder / "study.yaml"), read_study(tmp_path / "study2.yaml")
    assert new.space.overrides[RATE]["log"] == [0.01, 10.0]
    assert new.space.overrides[RATE]["confidence"] == "medium"
    assert new.space.overrides[DECAY] == RANGES[DECAY]
    assert (new.name, new.seed, new.storage) == ("planted-2", old.seed + 1, old.storage)
    unchanged = {"name", "seed", "space"}
    assert new.model_dump(exclude=unchanged) == old.model_dump(exclude=unchanged)
    facts, info = read_facts(folder)
    (rate, _) = build_space(new, facts, info).dimensions
    assert rate.domain == Float(0.01, 10.0, log=True)
    code, out, err = tunebook("explain", "study2.yaml")
    assert code == 0, err
    assert "within 0.01 to 10, log" in out


def test_a_study_that_may_hold_a_password_is_its_owner_s_alone(tunebook: Call, tmp_path: Path) -> None:
    tunebook("refine", planted(tmp_path / "searches", towards(1.3), **SMALL), "-o", "study2.yaml")
    assert stat.S_IMODE((tmp_path / "study2.yaml").stat().st_mode) == 0o600


def test_without_a_file_nothing_is_written(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    before = set(tmp_path.rglob("*"))
    code, out, _ = tunebook("refine", folder)
    assert code == 0
    assert "-o FILE writes the next study" in out
    assert set(tmp_path.rglob("*")) == before


def test_the_audit_is_a_stage_that_a_person_sees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainable.stages")
    run_refine(RefineOptions(folder=planted(tmp_path / "searches", towards(0.5), **SMALL)))
    assert caplog.messages[-1].startswith("auditing the search: ")


def test_a_healthy_search_changes_nothing_and_says_what_was_looked_at(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), **SMALL)
    code, out, _ = tunebook("refine", folder)
    assert code == 0
    assert out.splitlines()[0] == "nothing to change in the study: no study written"
    for words in ("0 findings", "% of 0.01 to 1, log", "healthy"):
        assert words in out


def test_that_nothing_is_to_be_changed_is_an_answer_and_no_failure(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 0
    assert out.splitlines()[0] == "nothing to change in the study: study2.yaml is not written"
    assert not (tmp_path / "study2.yaml").exists()
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml", "--json")
    assert (code, json.loads(out)["out"], json.loads(out)["study"]) == (0, None, None)


def test_more_trials_are_proposed_as_a_command_that_can_be_typed(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), trials=7, **SMALL)
    _, out, _ = tunebook("refine", folder)
    assert f"1. trials: tunebook extend {folder} --trials 7\n" in out


def test_the_commands_for_the_next_study_can_be_typed_as_they_are(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    name = "next $(touch P); it's.yaml"
    code, out, err = tunebook("refine", folder, "-o", name)
    assert code == 0, err
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("  tunebook ")]
    assert commands == [["tunebook", "explain", name], ["tunebook", "search", name]]


def test_a_few_trials_are_too_early(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), trials=7, **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 0
    assert "too early" in out
    assert "7 trials ended" in out
    assert not (tmp_path / "study2.yaml").exists()


def test_an_interrupted_search_is_audited_by_the_trials_that_ended(tmp_path: Path) -> None:
    found = refine(Search(planted(tmp_path, towards(1.3), trials=90, last=24, **SMALL)))
    assert found.compared_trials == 24
    assert list(after(found)) == [f"space.overrides.{RATE}"]


def test_the_audit_in_json_has_every_field_that_is_promised(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml", "--json")
    tree = json.loads(out)
    assert code == 0
    assert tree.keys() == {
        "schema", "search", "trials", "steps", "findings", "changes", "left_alone", "study", "out",
    }  # fmt: skip
    assert (tree["schema"], tree["search"], tree["trials"], tree["out"]) == (1, "planted", 24, "study2.yaml")
    (finding,), (change,) = tree["findings"], tree["changes"]
    assert finding.keys() == {"kind", "about", "seen", "rule", "source", "advice"}
    assert (finding["kind"], finding["about"]) == ("edge", RATE)
    assert change["path"] == f"space.overrides.{RATE}"
    assert change["before"] == "0.01 to 1, log"
    assert {"about", "why"} == set().union(*tree["left_alone"])
    assert Study.from_tree(tree["study"]) == read_study(tmp_path / "study2.yaml")


def test_a_file_that_exists_is_not_written_over(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    (tmp_path / "study2.yaml").write_text("mine\n")
    code, _, err = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 2
    assert "study2.yaml exists" in err
    assert (tmp_path / "study2.yaml").read_text() == "mine\n"


def test_a_folder_without_a_search_is_refused(tunebook: Call, tmp_path: Path) -> None:
    code, _, err = tunebook("refine", tmp_path, "-o", "study2.yaml")
    assert code == 2
    assert "not a search folder" in err


def test_a_search_of_which_no_trial_finished_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, lambda at, luck: Run(0.5, 0.5, diverges=True), trials=9, **SMALL)
    with pytest.raises(UserError, match="no trial has finished"):
        refine(Search(folder))


def test_a_running_search_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(1.3), trials=9, last=8, **SMALL)
    replace_journal(folder, b"".join((folder / "events.jsonl").read_bytes().splitlines(keepends=True)[:-1]))
    with locked(folder), pytest.raises(UserError, match="is running"):
        refine(Search(folder))


def test_what_was_searched_is_read_from_the_journal_whatever_the_study_says_now(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(1.3), **SMALL)
    before = refine(Search(folder))
    other = read_study(folder / "study.yaml").with_values({"space.overrides": {}})
    other.write(folder)
    assert refine(Search(folder)).findings == before.findings != ()


def test_what_was_before_is_what_was_drawn_from_whatever_the_rule_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planted(tmp_path, towards(1.3), space__name="quick", base=BASE)
    before = {each.path: each.before for each in refine(Search(folder)).edits}
    assert f"space.overrides.{RATE}" in before
    monkeypatch.setattr(rates, "SHORT_RUN_FACTOR", 10.0)
    assert {each.path: each.before for each in refine(Search(folder)).edits} == before


# --- the next study -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("digits", [], "digits-2"),
        ("digits", ["digits", "digits-2"], "digits-3"),
        ("digits-2", ["digits-2"], "digits-3"),
        ("digits-20260101-101010", [], "digits-20260101-101010-2"),
        ("a" * 100, [], "a" * 98 + "-2"),
    ],
)
def test_the_next_name_is_the_first_free_one(name: str, taken: list[str], expected: str) -> None:
    assert next_name(name, taken) == expected


def test_a_change_that_makes_no_search_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(0.5), trials=2, **SMALL)
    facts, info = read_facts(folder)
    draft = Draft(read_study(folder / "study.yaml"), facts, info)
    with pytest.raises(UserError, match=r"optimizer\.momentum"):
        draft.changed("space.overrides.optimizer.momentum", {"uniform": [0.9, 1.5]})
    with pytest.raises(UserError, match="training images"):
        draft.changed("space.overrides.loop.batch_size", {"int": [16, 8_000]})
    with pytest.raises(UserError, match=r"budget\.epochs"):
        draft.changed("budget.epochs", 0)
