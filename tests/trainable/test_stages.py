"""Tests how work that takes seconds is shown to a person who waits."""

from __future__ import annotations

import io
import re
import time

import pytest

from trainable.stages import (
    Count,
    Counts,
    Stage,
    counting,
    shown_by,
    stage,
    track,
    waited_for,
    waited_seconds,
)
from trainable.terminal import StageLines, tell


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
    lines, stages = StageLines(), (Stage("first"), Stage("second"))
    for each in stages:
        lines.began(each)
    for each in stages:
        lines.ended(each)
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


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def usual_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 2.0)
    monkeypatch.setattr("trainable.terminal.FIRST_AGAIN", 15.0)


def looked_at_each_second(lines: StageLines, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now += 1.0
        lines.look()


@pytest.mark.usefixtures("usual_times")
def test_long_work_says_how_far_it_is_after_a_while_and_then_once_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = StageLines(clock := Clock())
    with shown_by(lines), stage("training"), counting("epoch", 20) as epochs:
        epochs.done = 2
        with counting("step", 1200) as steps:
            steps.done = 1100
            looked_at_each_second(lines, clock, 150)
    assert capsys.readouterr().err.splitlines() == [
        "training ... 2 of 20 epochs, 1,100 of 1,200 steps",
        "training ... 17 s, 2 of 20 epochs, 1,100 of 1,200 steps",
        "training ... 77 s, 2 of 20 epochs, 1,100 of 1,200 steps",
        "training ... 137 s, 2 of 20 epochs, 1,100 of 1,200 steps",
        "training: 150 s",
    ]


@pytest.mark.usefixtures("usual_times")
def test_whoever_prints_a_line_meanwhile_shows_that_work_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with StageLines(clock) as lines, shown_by(lines), stage("training"):
        for epoch in range(60):
            looked_at_each_second(lines, clock, 3)
            tell(f"epoch {epoch}")
    assert capsys.readouterr().err.splitlines() == ["training ..."], "and no line at the end"


def test_items_are_counted_as_they_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StageLines(clock := Clock())
    with shown_by(lines), stage("timing"):
        for recipe in track("abc", "recipe", 3):
            if recipe == "c":
                looked_at_each_second(lines, clock, 1)
    assert capsys.readouterr().err.splitlines()[0] == "timing ... 2 of 3 recipes"


def test_a_process_that_is_waited_for_knows_what_it_counts_the_outermost_first() -> None:
    counts = Counts()
    with shown_by(counts), stage("training"):
        assert counts.outermost is None
        with counting("epoch", 20) as epochs:
            for _ in track("abc", "step", 3):
                epochs.done += 1
            assert counts.outermost == Count("epoch", 20, 3)
        assert counts.outermost is None


def test_a_terminal_has_a_bar_that_makes_room_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    with StageLines(clock) as lines, shown_by(lines), stage("decoding"), counting("image", 400) as images:
        images.done = 100
        looked_at_each_second(lines, clock, 1)
        drawn = screen.getvalue()
        tell("a line")
        with_line = screen.getvalue()[len(drawn) :]
    assert "decoding" in drawn
    assert "100 of 400 images, 1 s" in drawn
    assert with_line.endswith("\x1b[1A\x1b[2K"), "the bar is gone before the line is printed"
