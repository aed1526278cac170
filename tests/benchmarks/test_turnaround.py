"""Tests how the benchmark of turnaround tells a search's first seconds apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search.record.journal import EndEvent, Event, StartEvent, TrialEvent
from tests.epoch_results import epoch_result
from tests.search.small_events import epoch
from turnaround import (
    PARTS,
    Stage,
    drop_from_page_cache,
    first_step,
    following,
    stages,
    told_apart,
    until_first_step,
)

KIND = {"model": {}, "loop": {"batch_size": 10}, "data": {"image_size": 8}, "precision": {}}
OTHER = {**KIND, "loop": {"batch_size": 20}}


def trial(number: int, recipe: dict[str, Any]) -> TrialEvent:
    return TrialEvent(trial=number, values={}, recipe=recipe)


def starts(number: int) -> StartEvent:
    return StartEvent(trial=number, attempt=1, epoch=0)


def at(*times: float, events: list[Event]) -> list[Event]:
    return [event.model_copy(update={"time": time}) for time, event in zip(times, events, strict=True)]


def test_every_stage_that_is_told_apart_is_one_of_a_search() -> None:
    sources = [file.read_text() for folder in ("search", "trainable") for file in Path(folder).rglob("*.py")]
    assert [what for what in PARTS if not any(f'"{what}"' in each for each in sources)] == []


def test_the_stages_are_those_lines_of_a_log_that_have_seconds(tmp_path: Path) -> None:
    log = tmp_path / "search.log"
    log.write_text(
        "2026-11-28 12:56:34,900 INFO loading torch and Ray: 4.50 s\n"
        "2026-11-28 12:56:39,638 INFO d on 2 CPUs and 0 GPUs\n"
        "2026-11-28 12:56:45,000 INFO starting Ray: 5.00 s\n"
    )
    first, second = stages(log)
    assert (first.what, second.what) == ("loading torch and Ray", "starting Ray")
    assert second.ended - first.ended == pytest.approx(10.1)
    assert first.ended - first.began == pytest.approx(4.5)


def test_of_stages_within_others_the_innermost_counts_and_the_rest_are_facts() -> None:
    known = [
        Stage("loading torch and Ray", 1.0, 5.0),
        Stage("reading the images", 6.0, 8.0),
        Stage("finding what the study's probes ask for", 8.0, 20.0),
        Stage("reading the images", 10.0, 11.0),
        Stage("building the networks", 21.0, 23.0),
        Stage("starting Ray", 24.0, 30.0),
    ]
    found = told_apart(0.0, 30.0, known)
    assert found == {"imports": 5.0, "facts": 1.0 + 4.0, "data": 3.0, "timing": 11.0, "Ray": 6.0}


def test_the_first_step_has_its_share_of_the_epoch_and_all_that_only_it_took() -> None:
    result = epoch_result(
        epoch_seconds=12.0,
        evaluation_seconds=1.0,
        data_seconds=1.0,
        first_step_extra_seconds=5.0,
        images_per_second=10.0,  # 110 images
    )
    assert first_step(result, batch=22) == 1.0 + 5.0 + 5.0 / 5


def test_the_seconds_until_the_first_step_add_up() -> None:
    measured: dict[str, Any] = {"epoch_seconds": 3.0, "evaluation_seconds": 1.0, "data_seconds": 0.0}
    measured |= {"images_per_second": 10.0, "starting_seconds": 2.0, "checkpoint_seconds": 0.5}
    events: list[Event] = [trial(0, KIND), starts(0), epoch(0, 1, **measured)]
    found = until_first_step(100.0, [Stage("starting Ray", 105.0, 110.0)], at(104, 112, 118, events=events))
    assert found["parts"]["worker"] == 118.0 - 3.5 - 110.0
    assert found["parts"]["first step"] == 1.0  # one of two
    assert found["until_first_step"] == 114.5 + 1.0 - 100.0


def test_a_trial_follows_where_another_has_ended_and_one_of_its_kind_was_trained() -> None:
    def trained(number: int, seconds: float) -> Event:
        return epoch(number, 1, starting_seconds=seconds, first_step_extra_seconds=0.0)

    recipes = {0: KIND, 1: KIND, 2: OTHER, 3: KIND}
    events: list[Event] = [trial(number, recipe) for number, recipe in recipes.items()]
    events += [starts(0), starts(1), trained(0, 9.0), trained(1, 8.0)]
    events += [EndEvent(trial=0, state="finished"), starts(2), trained(2, 7.0)]
    events += [EndEvent(trial=1, state="finished"), starts(3), trained(3, 0.1)]
    assert list(following(events, recipes)) == [0.1]


def test_files_of_folders_are_dropped_from_the_page_cache_and_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"content")
    drop_from_page_cache([tmp_path, tmp_path / "digits"])  # the second is none, as where data have a name
    assert (tmp_path / "folder" / "file").read_bytes() == b"content"
