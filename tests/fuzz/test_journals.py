"""Fuzzes the folder of a search: whatever a reader gets is the whole search, or one clear message."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from search.deciding.ledger import Ledger
from search.deciding.make import make_sampler, make_scheduler
from search.learning.search import Search
from search.record.chain import START, seal
from search.record.cursor import Cursor, write_cursor
from search.record.home import CURSOR_FILE, EVENTS_FILE, FACTS_FILE, SYNCED_FILE
from search.record.journal import ExtendEvent, Journal, SearchEvent
from search.reporting import terminal
from search.results.teachers import first_of
from search.study import STUDY_FILE
from tests.fuzz import mutations
from tests.fuzz.bounds import Tally
from tests.search.planted_searches import Run, planted
from trainable.errors import UserError

FILES = (EVENTS_FILE, EVENTS_FILE, EVENTS_FILE, EVENTS_FILE, FACTS_FILE, CURSOR_FILE, SYNCED_FILE, STUDY_FILE)
STUDY = "data: {path: digits}\nbudget: {trials: 3, epochs: 4}\n"
TALLY = Tally()
pytestmark = pytest.mark.fuzz


class Searched(NamedTuple):
    """A search that has ended, and a folder for damaged copies of it."""

    whole: dict[str, bytes]
    damaged: Path


def prepare(folder: Path) -> Searched:
    made = planted(
        folder,
        lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.9, diverges=luck.random() < 0.2),
        trials=3,
        budget__epochs=4,
    )
    with Journal(made) as journal:  # it is extended, and interrupted at once
        (began,) = (
            each for each in journal.events if isinstance(each, SearchEvent) and each.state == "started"
        )
        journal.append(began.model_copy(update={"state": "resumed"}))
        journal.append(ExtendEvent(trials=5))
        journal.append(began.model_copy(update={"state": "interrupted", "versions": {}}))
    (made / STUDY_FILE).write_text(f"name: planted\nstorage: {folder}\n{STUDY}")  # short: it is read twice
    write_cursor(made, Cursor(uri="sqlite:///x.db", experiment="e", run_ids={0: "r"}, events=3))
    whole = {name: (made / name).read_bytes() for name in sorted(set(FILES))}
    (folder / "damaged").mkdir()
    looked_at(made).trials_frame()  # imports what else the first input would wait for
    searched = Searched(whole, folder / "damaged")
    restore(searched, *whole)
    return searched


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    return prepare(tmp_path_factory.mktemp("searches"))


def check_one(searched: Searched, luck: mutations.Luck) -> None:
    name = luck.choice(FILES)
    damage = luck.choice((bytes_changed, events_changed if name == EVENTS_FILE else json_changed))
    content = damage(searched.whole[name], luck)
    TALLY.shown = (name, content)
    (searched.damaged / name).write_bytes(content)
    as_json = luck.randrange(4) > 0
    try:
        TALLY.outcome(lambda: looked_at(searched.damaged, as_json))
    finally:
        restore(searched, name, EVENTS_FILE)  # a journal's torn end is cut off


def restore(searched: Searched, *names: str) -> None:
    for name in names:
        (searched.damaged / name).write_bytes(searched.whole[name])


def test_a_damaged_search_is_refused_or_shown(searched: Searched, capsys: pytest.CaptureFixture[str]) -> None:
    TALLY.try_all(lambda luck: check_one(searched, luck))
    capsys.readouterr()
    TALLY.check(least_share=0.1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(set(FILES)))
def test_a_folder_or_a_pipe_in_a_files_place_is_refused(
    searched: Searched, tmp_path: Path, name: str
) -> None:
    for other, whole in searched.whole.items():
        (tmp_path / other).write_bytes(whole)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=name):
        looked_at(tmp_path)
    (tmp_path / name).rmdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name}.* is a named pipe; expected a regular file"):
        looked_at(tmp_path)


def looked_at(folder: Path, as_json: bool = False) -> Search:
    """Do what `show` does, and what `resume` does with the journal."""
    search = Search(folder)
    terminal.show(search, as_json=as_json)
    replayed(search)
    return search


def replayed(search: Search) -> None:
    study, space, pruning = search.study, search.space, search.pruning
    direction = study.objective.direction
    with Journal(search.folder) as journal:
        Ledger(
            journal,
            space,
            make_sampler(space, study.sampler.kind, study.seed, direction),
            make_scheduler(space, pruning, direction),
            trials=study.budget.trials,
            first=first_of(search),
            epochs=study.budget.epochs,
            metric=study.objective.metric,
            why=pruning.why,
        )


def bytes_changed(content: bytes, luck: mutations.Luck) -> bytes:
    return mutations.content(content, luck)


def json_changed(content: bytes, luck: mutations.Luck) -> bytes:
    try:
        tree = json.loads(content)
    except ValueError:
        return bytes_changed(content, luck)
    return json.dumps(mutations.tree(tree, luck)).encode()


def events_changed(content: bytes, luck: mutations.Luck) -> bytes:
    """Change events, and seals the lines again: so the checksums are right and the fold has to judge."""
    events = [json.loads(line) for line in content.splitlines()]
    changed = mutations.tree(
        events, luck, names=("trial", "trials", "epoch", "state", "rung", "result", "values")
    )
    if luck.randrange(3) == 0:
        changed.insert(luck.randint(0, len(changed)), luck.choice(events))
    return sealed(changed, renumber=luck.randrange(4) > 0)


def sealed(events: list[Any], renumber: bool) -> bytes:
    lines, checksum = [], START.checksum
    for number, event in enumerate(events):
        if isinstance(event, dict):
            event.pop("sum", None)
            if renumber:
                event["sequence"] = number
        line, checksum = seal(json.dumps(event, separators=(",", ":")).encode(), checksum)
        lines.append(line)
    return b"".join(lines)
