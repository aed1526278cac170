"""Tests how work that takes seconds is shown to a person who waits."""

from __future__ import annotations

import re
import time

import pytest

from trainable.stages import shown_by, stage, waited_for, waited_seconds
from trainable.terminal import StageLines


@pytest.fixture(autouse=True)
def told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 0.05)
    monkeypatch.setattr("trainable.terminal.FIRST_AGAIN", 0.2)


def test_work_that_takes_long_is_told_while_it_is_done_and_with_its_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StageLines() as lines, shown_by(lines), stage("reading images"), stage("decoding images"):
        time.sleep(0.4)
    told = re.sub(r"[01] s", "N s", capsys.readouterr().err).splitlines()
    assert told[:2] == ["decoding images ...", "decoding images ... N s"], "the innermost one"
    assert "decoding images: N s" in told


def test_quick_work_is_not_told_and_nothing_is_where_nobody_looks_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StageLines() as lines:
        with shown_by(lines), stage("reading images"):
            pass
        with stage("timing steps"):
            time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_short_pieces_of_work_in_a_row_are_told_of_together_and_what_lies_between_counts_for_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 0.5)
    with StageLines() as lines, shown_by(lines):
        for number in range(4):
            with stage(f"piece {number}"):
                time.sleep(0.05)
            time.sleep(0.4)
        assert capsys.readouterr().err == "", "0.2 s of work"
        for number in range(4, 10):
            with stage(f"piece {number}"):
                time.sleep(0.2)
    told = capsys.readouterr().err
    assert re.search(r"^piece (\d) \.\.\.\npiece \1: 0 s\n", told), told


def test_work_that_fails_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with StageLines() as lines, shown_by(lines):
        with pytest.raises(ValueError, match="no images"), stage("reading images"):
            raise ValueError("no images")
        time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_work_may_end_within_what_began_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StageLines()
    for what in ("first", "second"):
        lines.began(what)
    for what in ("first", "second"):
        lines.ended(what)
    assert capsys.readouterr() == ("", "")


def test_a_function_may_be_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    @stage("counting")
    def count() -> int:
        time.sleep(0.2)
        return 3

    with StageLines() as lines, shown_by(lines):
        assert (count(), count()) == (3, 3)
    assert capsys.readouterr().err.count("counting ...\n") == 2


def test_each_stage_is_logged_with_its_seconds_whoever_looks_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with stage("reading images"), stage("decoding images"):
        pass
    assert caplog.messages == ["decoding images: 0.00 s", "reading images: 0.00 s"]


def test_a_wait_counts_from_the_beginning_of_the_outermost_block() -> None:
    assert waited_seconds() == 0.0
    with waited_for():
        time.sleep(0.05)
        with waited_for():
            assert waited_seconds() >= 0.05
    assert waited_seconds() == 0.0
