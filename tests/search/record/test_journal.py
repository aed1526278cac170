"""Tests that what was written to the journal is read back, and that torn lines do no harm."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.record.chain import START, JournalError, checksum_of, seal
from search.record.home import EVENTS_FILE, SYNCED_FILE
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
from search.record.lock import locked
from tests.epoch_results import epoch_result
from tests.search.small_events import replace_journal
from trainable.errors import UserError

TIME = 1763640000.25
EVENTS: tuple[Event, ...] = (
    SearchEvent(state="started", search_id="0a1b", name="digits"),
    TrialEvent(trial=0, values={"optimizer.kind": "sgd", "optimizer.lr": 0.1, "model.depth": 8}, own=True),
    StartEvent(trial=0, attempt=1, epoch=0),
    EpochEvent(trial=0, result=epoch_result(1, 1 / 3, peak_memory_bytes=2**40), rung=1),
    RetryEvent(trial=0, reason="the worker died"),
    EndEvent(trial=0, state="failed", reason="out of memory\nline two"),
    SearchEvent(state="finished", search_id="0a1b", name="digits"),
)


def sealed(body: bytes) -> bytes:
    """Return a line that follows the first of EVENTS, with the checksum that belongs there."""
    first = EVENTS[0].model_copy(update={"sequence": 0, "time": TIME})
    return seal(body, checksum_of(first.model_dump_json().encode(), ""))[0]


def write(folder: Path, *events: Event) -> list[Event]:
    with Journal(folder, clock=lambda: TIME) as journal:
        return [journal.append(event) for event in events]


def test_events_are_read_back_as_they_were_returned(tmp_path: Path) -> None:
    written = write(tmp_path, *EVENTS)
    assert read(tmp_path / EVENTS_FILE) == written
    assert [event.sequence for event in written] == list(range(len(EVENTS)))
    assert {event.time for event in written} == {TIME}


def test_times_never_go_back_and_jumps_of_the_machine_s_clock_are_no_time_that_was_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 86400.0
    for jumps in ((0.0, day, -2 * day), (-day, 3 * day, -day)):  # the second driver begins a day too early
        wall = TIME + jumps[0]
        monkeypatch.setattr("time.time", lambda: wall)  # noqa: B023  # it is the wall of this turn
        with Journal(tmp_path) as journal:
            before = journal.events
            first, *_ = written = [journal.append(EVENTS[0])] if not before else [journal.append(EVENTS[-1])]
            for jump in jumps[1:]:
                wall += jump
                written.append(journal.append(EVENTS[-1]))
        times = [event.time for event in (*before, *written)]
        assert times == sorted(times)
        assert written[-1].time - first.time < day / 2
    assert times[-1] - times[0] < day / 2


def test_each_event_is_one_line_that_begins_with_its_kind(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    lines = (tmp_path / EVENTS_FILE).read_text().splitlines()
    assert len(lines) == len(EVENTS)
    start = '{"event":"start","sequence":2,"time":1763640000.25,"trial":0,"attempt":1,"epoch":0,"sum":"'
    assert lines[2].startswith(start)
    assert len(lines[2]) == len(start) + len('0123456789ab"}')


@pytest.mark.slow("tries many examples")
@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.text())
def test_every_value_keeps_its_type_and_its_last_bit(
    tmp_path_factory: pytest.TempPathFactory, value: float | int | bool | str
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write(folder, TrialEvent(trial=0, values={"a.b": value}))
    (event,) = read(folder / EVENTS_FILE)
    assert isinstance(event, TrialEvent)
    assert repr(event.values["a.b"]) == repr(value)


def test_a_journal_opened_again_goes_on_counting(tmp_path: Path) -> None:
    first = write(tmp_path, *EVENTS[:3])
    with Journal(tmp_path) as journal:
        assert list(journal.events) == first
        assert journal.append(EVENTS[3]).sequence == 3
    assert len(read(tmp_path / EVENTS_FILE)) == 4


@pytest.mark.parametrize("keep", range(1, 60, 7))
def test_a_torn_last_line_is_left_out_with_a_warning_and_cut_off_by_the_next_writer(
    tmp_path: Path, keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, *EVENTS[:3])
    path = tmp_path / EVENTS_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":"retry","sequence":3,"time":1.0,"trial":0,"reason":"no"}\n'[:keep])
    assert len(read(path)) == 3
    assert "line 4: the last line was torn" in caplog.text
    written = write(tmp_path, EVENTS[3])
    assert path.read_bytes().startswith(whole)
    caplog.clear()
    assert read(path)[3:] == written
    assert caplog.text == ""


def test_half_a_line_of_a_driver_that_writes_is_no_reason_to_warn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with locked(tmp_path), Journal(tmp_path) as journal:
        journal.append(EVENTS[0])
        with (tmp_path / EVENTS_FILE).open("ab") as file:
            file.write(b'{"event":')
        assert len(read(tmp_path / EVENTS_FILE)) == 1
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken\n", "line 2: expected a line that ends with its checksum"),
        (b"\x00\x00\xff{\n", "line 2: expected a line that ends with its checksum"),
        (b'{"event":"retry","sum":"0123456789ab"}\n', "line 2: expected the checksum [0-9a-f]{12}, got 0123"),
        (sealed(b'{"event":"retry","sequence":1,"time":1.0,"trial":0}'), "event of a search: reason: Field"),
        (
            sealed(b'{"event":"retry","sequence":5,"time":1.0,"trial":0,"reason":""}'),
            "expected event 1, got 5",
        ),
        (sealed(b'{"event":"other","sequence":1,"time":1.0}'), "line 2: expected an event of a search"),
    ],
)
def test_a_broken_line_is_an_error_with_its_number(tmp_path: Path, line: bytes, message: str) -> None:
    write(tmp_path, *EVENTS[:3])
    path = tmp_path / EVENTS_FILE
    first, _, third = path.read_bytes().splitlines(keepends=True)
    for content in (first + line + third, first + line):
        path.write_bytes(content)
        with pytest.raises(JournalError, match=message):
            read(path)
        with pytest.raises(JournalError, match=message):
            Journal(tmp_path)
        assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"\x00\x01\xfe", b"garbage", b"garbage\n", b"[" * 100_000 + b"\n"])
def test_what_does_not_begin_as_a_search_is_no_journal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EVENTS_FILE).write_bytes(content)
    with pytest.raises(JournalError, match="line 1: expected"):
        read(tmp_path / EVENTS_FILE)


def test_a_first_line_that_is_torn_is_a_search_that_has_not_begun(tmp_path: Path) -> None:
    write(tmp_path, EVENTS[0])
    path = tmp_path / EVENTS_FILE
    whole = path.read_bytes()
    for length in range(len(whole)):
        replace_journal(tmp_path, whole[:length])
        assert read(path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"event":"search","sequence":0,"time":1.0,"state":"started","search_id":"0a","name":"a"}',
            "was made by tunebook 0.1.0; open it with that version, or start a new one",
        ),
        (b'{"event":"search","sequence":0,"format":3,"sum":"0"}', "of format 2, got format 3"),
    ],
)
def test_a_journal_of_another_version_is_refused_in_one_line(
    tmp_path: Path, line: bytes, message: str
) -> None:
    (tmp_path / EVENTS_FILE).write_bytes(line + b"\n")
    with pytest.raises(JournalError, match=message) as refusal:
        read(tmp_path / EVENTS_FILE)
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 1


def test_a_reader_goes_on_from_a_position_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / EVENTS_FILE
    with Journal(tmp_path) as journal:
        first = [journal.append(event) for event in EVENTS[:2]]
        events, position = read_from(path, START)
        assert events == first
        assert (position.offset, position.lines) == (len(path.read_bytes()), 2)
        assert read_from(path, position) == ([], position)
        third = journal.append(EVENTS[2])
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        assert read_from(path, position) == ([], position)
        path.write_bytes(whole)
        events, end = read_from(path, position)
        assert (events, end.offset) == ([third], len(whole))


def test_a_follower_names_the_line_in_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / EVENTS_FILE
    write(tmp_path, *EVENTS[:2])
    _, position = read_from(path, START)
    write(tmp_path, EVENTS[2])
    path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2'))
    with pytest.raises(JournalError, match="line 3: expected the checksum"):
        read_from(path, position)


def test_a_folder_without_a_journal_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{EVENTS_FILE}: no such file"):
        read(tmp_path / EVENTS_FILE)


@pytest.mark.parametrize("name", [EVENTS_FILE, SYNCED_FILE])
def test_a_file_that_cannot_be_written_to_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"{name}: cannot be written to: Is a directory"):
        Journal(tmp_path)
