"""The journal: what was written is read back, torn lines are survived."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from search.record.home import EVENTS_FILE
from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    Journal,
    RetryEvent,
    SearchEvent,
    StartEvent,
    TrialEvent,
    read,
    read_from,
)
from trainable.errors import UserError

EVENTS: tuple[Event, ...] = (
    SearchEvent(state="started", search_id="0a1b", name="digits"),
    TrialEvent(trial=0, values={"optimizer.kind": "sgd", "optimizer.lr": 0.1, "model.depth": 8}, own=True),
    StartEvent(trial=0, attempt=1, epoch=0),
    EpochEvent(trial=0, epoch=1, metrics={"val_accuracy": 1 / 3, "peak_memory_bytes": 2.0**40}, rung=1),
    RetryEvent(trial=0, reason="the worker died"),
    EndEvent(trial=0, state="failed", reason="out of memory\nline two"),
    SearchEvent(state="finished", search_id="0a1b", name="digits"),
)


def write(folder: Path, *events: Event) -> list[Event]:
    with Journal(folder, clock=lambda: 1763640000.25) as journal:
        return [journal.append(event) for event in events]


def test_events_are_read_back_as_they_were_returned(tmp_path: Path) -> None:
    written = write(tmp_path, *EVENTS)
    assert read(tmp_path / EVENTS_FILE) == written
    assert [event.sequence for event in written] == list(range(len(EVENTS)))
    assert {event.time for event in written} == {1763640000.25}


def test_each_event_is_one_line_that_begins_with_its_kind(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    lines = (tmp_path / EVENTS_FILE).read_text().splitlines()
    assert len(lines) == len(EVENTS)
    assert lines[2] == '{"event":"start","sequence":2,"time":1763640000.25,"trial":0,"attempt":1,"epoch":0}'


@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.text())
def test_every_value_keeps_its_type_and_its_last_bit(
    tmp_path_factory: pytest.TempPathFactory, value: float | int | bool | str
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write(folder, TrialEvent(trial=0, values={"a.b": value}))
    (event,) = read(folder / EVENTS_FILE)
    assert isinstance(event, TrialEvent)
    assert repr(event.values["a.b"]) == repr(value)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_only_finite_numbers_can_be_journaled(number: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        EpochEvent(trial=0, epoch=1, metrics={"val_loss": number})


def test_a_journal_opened_again_goes_on_counting(tmp_path: Path) -> None:
    first = write(tmp_path, *EVENTS[:3])
    with Journal(tmp_path) as journal:
        assert list(journal.events) == first
        assert journal.append(EVENTS[3]).sequence == 3
    assert len(read(tmp_path / EVENTS_FILE)) == 4


@pytest.mark.parametrize("keep", range(1, 60, 7))
def test_a_torn_last_line_is_ignored_by_readers_and_cut_off_by_the_next_writer(
    tmp_path: Path, keep: int
) -> None:
    write(tmp_path, *EVENTS[:3])
    path = tmp_path / EVENTS_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":"retry","sequence":3,"time":1.0,"trial":0,"reason":"no"}\n'[:keep])
    assert len(read(path)) == 3
    written = write(tmp_path, EVENTS[3])
    assert path.read_bytes().startswith(whole)
    assert read(path)[3:] == written


def test_a_last_line_of_garbage_with_a_newline_counts_as_torn(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS[:2])
    path = tmp_path / EVENTS_FILE
    path.write_bytes(path.read_bytes() + b"\x00\x00\xff{\n")
    assert len(read(path)) == 2
    write(tmp_path, EVENTS[2])
    assert len(read(path)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "line 2: not an event of a search: line: Invalid JSON"),
        (
            '{"event":"retry","sequence":1,"time":1.0,"trial":0}',
            "line 2: not an event of a search: reason: Field",
        ),
        (
            '{"event":"start","sequence":5,"time":1.0,"trial":0,"attempt":1,"epoch":0}',
            "expected event 1, got 5",
        ),
        ('{"event":"other","sequence":1,"time":1.0}', "line 2: not an event of a search"),
    ],
)
def test_a_broken_line_elsewhere_is_an_error_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    written = write(tmp_path, *EVENTS[:3])
    path = tmp_path / EVENTS_FILE
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, lines[2], ""]))
    with pytest.raises(UserError, match=message):
        read(path)
    with pytest.raises(UserError, match=message):
        Journal(tmp_path)
    assert len(written) == 3


def test_a_reader_follows_by_offset_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / EVENTS_FILE
    with Journal(tmp_path) as journal:
        first = [journal.append(event) for event in EVENTS[:2]]
        events, offset = read_from(path, 0)
        assert events == first
        assert read_from(path, offset) == ([], offset)
        third = journal.append(EVENTS[2])
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        assert read_from(path, offset) == ([], offset)
        path.write_bytes(whole)
        assert read_from(path, offset) == ([third], len(whole))


def test_a_follower_names_the_line_in_the_whole_file(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS[:2])
    path = tmp_path / EVENTS_FILE
    offset = len(path.read_bytes())
    path.write_text(path.read_text() + '{"event":"other"}\n')
    with pytest.raises(UserError, match="line 3: not an event"):
        read_from(path, offset)


def test_a_folder_without_a_journal_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{EVENTS_FILE}: no such file"):
        read(tmp_path / EVENTS_FILE)
