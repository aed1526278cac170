"""Tests that a signal leaves what a process does as Ctrl-C would, and that a closed terminal is no fault."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from trainable.processes import ended_by_signals, undisturbed

ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Fail a test that leaves a signal otherwise handled than it was."""
    before = [signal.getsignal(each) for each in ENDING]
    yield
    assert [signal.getsignal(each) for each in ENDING] == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_each_block_and_a_second_one_does_not_disturb_that(number: int, code: int) -> None:
    left: list[str] = []

    @contextmanager
    def block() -> Iterator[None]:
        try:
            yield
        finally:
            for each in ENDING:
                signal.raise_signal(each)
            left.append("the block")

    with pytest.raises(SystemExit) as ended, ended_by_signals(), block():
        signal.raise_signal(number)
    assert (ended.value.code, left) == (code, ["the block"])


def test_what_a_process_was_told_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("called", "code"), [("leave_closed_terminal()", 0), ("", 1)])
@pytest.mark.parametrize("opened", [pty.openpty, os.pipe])
def test_nothing_fails_that_is_written_to_a_terminal_that_is_closed_or_to_what_ended_with_it(
    opened: Callable[[], tuple[int, int]], called: str, code: int
) -> None:
    first, second = opened()
    writes = (
        "import os; from trainable.processes import leave_closed_terminal; input(); {}; os.write(1, b'.')"
    )
    command = [sys.executable, "-c", writes.format(called)]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=second, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(second)
    os.close(first)
    _, said = started.communicate(b"\n")
    assert started.returncode == code, said


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_waits_until_what_was_started_is_noted(number: int, ends: type[BaseException]) -> None:
    noted: list[str] = []

    def start() -> None:
        with undisturbed():
            signal.raise_signal(number)
            noted.append("the process")
        noted.append("what comes after it")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ends), ended_by_signals():
            start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert noted == ["the process"]


ENDING_PROGRAM = """
import atexit, os, sys, threading, time
from trainable.processes import ending_at_once

class Large:
    def __del__(self):
        os.write(1, b"taken apart\\n")

large = Large()
atexit.register(print, "registered")

def late():
    time.sleep(0.1)
    print("thread")

def main():
    threading.Thread(target=late).start()
    print("main")
    sys.exit({code})

{call}
"""


def ended(code: str, call: str = "ending_at_once(main)", stdout: int | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-c", ENDING_PROGRAM.format(code=code, call=call)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("code", "number"), [("3", 3), ("0", 0), ("None", 0), ("-1", 255)])
def test_a_program_ends_with_all_that_python_does_but_for_taking_its_memory_apart(
    code: str, number: int
) -> None:
    said = "main\nthread\nregistered\n"
    assert ended(code) == (number, said, "")
    if code == "3":
        assert ended(code, call="main()") == (number, f"{said}taken apart\n", "")


@pytest.mark.parametrize("call", ["main()", "ending_at_once(main)"])
def test_what_cannot_be_printed_at_the_end_has_the_code_that_python_has_for_it(call: str) -> None:
    with open("/dev/full", "wb") as full:
        code, _, said = ended("0", call, full.fileno())
    assert code == 120
    assert "No space left on device" in said


@pytest.mark.parametrize("call", ["main()", "ending_at_once(main)"])
def test_words_to_end_with_are_printed_by_python(call: str) -> None:
    code, _, said = ended("'why'", call)
    assert (code, said) == (1, "why\n")
