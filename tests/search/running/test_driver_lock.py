"""Tests that a search's folder is written only under its lock, and goes if the search never began."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver, sync
from search.facts.hardware import Hardware, Node
from search.record.chain import JournalError
from search.record.home import CURSOR_FILE, EVENTS_FILE, FACTS_FILE, FINDINGS_FILE, LOCK_FILE, LOG_FILE, Home
from search.record.journal import Journal, SearchEvent, read
from search.record.lock import LockedError, is_locked, locked
from search.running import driver as driving
from search.running.prepare import decide, is_same_study, load, refuse_existing, write_facts
from search.study import STUDY_FILE, Study
from tests.search.command_line import Tunebook
from tests.search.followers.small_tracking import client_of, storage_with_database
from tests.search.planted_searches import Images
from tests.spaces.small_facts import digits_facts
from trainable.errors import UserError

pytestmark = pytest.mark.usefixtures("refused_at_once")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.from_tree(
        {"name": "mine", "data": {"path": "digits"}, "storage": str(tmp_path / "searches")}
    )


@pytest.fixture
def folder(study: Study) -> Path:
    """Return the folder of a search whose driver was killed before its first trial."""
    folder = Home.of(study).folder
    folder.mkdir(parents=True)
    resolved_study(study).write(folder)
    facts = digits_facts(epochs=study.budget.epochs)
    (folder / FACTS_FILE).write_text(json.dumps({"facts": facts.tree(), "data": Images().info.tree()}))
    with Journal(folder) as journal:
        journal.append(SearchEvent(state="started", search_id="a", name="mine"))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_a_new_search_is_refused_while_another_one_of_its_name_prepares(study: Study) -> None:
    home = Home.of(study)
    with locked(home.folder):
        with pytest.raises(LockedError, match="this search is running already, in process"):
            driver().search(resolved_study(study))
        assert [each.name for each in home.folder.iterdir()] == [LOCK_FILE]


def test_a_running_search_keeps_its_files_when_another_one_of_its_name_is_refused(
    study: Study, folder: Path
) -> None:
    with locked(folder):
        before = contents(folder)
        for again in (False, True):
            with pytest.raises(LockedError):
                driver().search(resolved_study(study.model_copy(update={"seed": 7})), again=again)
        assert contents(folder) == before


@pytest.mark.parametrize("go_on", [driver().resume, sync])
def test_nobody_resumes_or_syncs_a_search_that_another_process_drives(
    folder: Path, go_on: Callable[[Path], object]
) -> None:
    with locked(folder):
        before = contents(folder)
        with pytest.raises(LockedError, match="stop that first, or wait for its end"):
            go_on(folder)
        assert contents(folder) == before


def test_the_lock_is_held_while_a_search_is_prepared(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, seen = Home.of(study).folder, []

    def look(*arguments: object, **more: object) -> None:
        seen.append((is_locked(folder), [each.name for each in folder.iterdir()]))
        raise UserError("enough")

    monkeypatch.setattr(driving, "load", look)
    with pytest.raises(UserError, match="enough"):
        driver().search(resolved_study(study))
    assert seen == [(True, [LOCK_FILE])]


def test_a_failed_preparation_leaves_nothing_behind(study: Study, tmp_path: Path) -> None:
    missing = study.with_values({"data.path": str(tmp_path / "nonsuch")})
    with pytest.raises(UserError, match="nonsuch"):
        driver().search(resolved_study(missing))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("a search is prepared, and MLflow imported")
def test_a_search_whose_experiment_was_deleted_is_refused_and_leaves_nothing(
    study: Study, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = client_of(storage := storage_with_database(tmp_path_factory))
    client.delete_experiment(number := client.create_experiment("thrown away"))
    tracking = {"tracking.uri": f"sqlite:///{storage}/mlflow.db", "tracking.experiment": "thrown away"}
    with pytest.raises(
        UserError, match=f"'thrown away' is deleted: .* restore -x {number}`.* --experiment OTHER"
    ):
        driver().search(resolved_study(study.with_values(tracking)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_search_is_left_as_it_was(study: Study) -> None:
    folder = Home.of(study).folder
    folder.mkdir(parents=True)
    (folder / "letters").touch()
    with pytest.raises(UserError, match="exists and is not a search; choose another --name"):
        driver().search(resolved_study(study))
    assert [each.name for each in folder.iterdir()] == ["letters"]


def test_a_search_that_exists_is_to_be_resumed_and_another_study_needs_another_name(
    study: Study, folder: Path
) -> None:
    with pytest.raises(UserError, match=f"this search exists; go on with `tunebook resume {folder}`"):
        driver().search(resolved_study(study))
    with pytest.raises(UserError, match="another study has this name; choose another --name"):
        driver().search(resolved_study(study.model_copy(update={"seed": 7})))


def test_a_search_goes_on_with_another_choice_of_what_becomes_of_unfit_machines(
    study: Study, folder: Path
) -> None:
    changed = resolved_study(study.with_values({"machines.unfit": "leave_out"}))
    assert is_same_study(Home.of(study), changed)
    assert not is_same_study(Home.of(study), changed.with_values({"seed": 7}))


def test_a_search_whose_experiment_is_the_former_default_goes_on(study: Study, folder: Path) -> None:
    """Experiments were all called tunebook; now they are called after the data."""
    asked = resolved_study(study)
    assert asked.tracking.experiment == "digits"
    asked.with_values({"tracking.experiment": "tunebook"}).write(folder)
    assert is_same_study(Home.of(study), asked)
    assert not is_same_study(Home.of(study), asked.with_values({"tracking.experiment": "other"}))


def test_a_search_of_the_first_version_is_not_to_be_resumed(study: Study, folder: Path) -> None:
    (folder / EVENTS_FILE).write_text('{"event":"search","state":"started","search_id":"0a","name":"mine"}\n')
    with pytest.raises(JournalError, match=r"made by tunebook 0\.1\.0; open it with that version"):
        driver().search(resolved_study(study))


def test_what_a_driver_left_that_was_killed_while_it_prepared_is_no_obstacle(study: Study) -> None:
    home = Home.of(study)
    home.folder.mkdir(parents=True)
    written = (LOCK_FILE, f"{LOCK_FILE}-999", FACTS_FILE, FINDINGS_FILE)
    for name in (*written, f".{FACTS_FILE}.k3j2h1", f".{FINDINGS_FILE}.k3j2h1", ".study.yaml.k3j2h1"):
        (home.folder / name).touch()
    refuse_existing(home, study)
    assert [each.name for each in home.folder.iterdir()] == [LOCK_FILE]


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("data", None),
        ("data", {"classes": 5}),
        ("data", []),
        ("facts", None),
        ("facts", {"train_images": "many"}),
    ],
)
def test_damaged_facts_are_one_line(tunebook: Tunebook, folder: Path, section: str, content: object) -> None:
    tree = json.loads((folder / FACTS_FILE).read_text())
    changed = {**tree[section], **content} if isinstance(content, dict) else content
    (folder / FACTS_FILE).write_text(json.dumps({**tree, section: changed}))
    code, out, err = tunebook("explain", folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"tunebook: {folder / FACTS_FILE}:")


@pytest.mark.slow("writes to MLflow")
@pytest.mark.parametrize("command", ["resume", "show", "sync"])
@pytest.mark.parametrize("name", [EVENTS_FILE, CURSOR_FILE])
def test_a_folder_instead_of_a_file_is_one_line(
    tunebook: Tunebook, folder: Path, name: str, command: str
) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    code, out, err = tunebook(command, folder)
    wanted = out + err
    lines = [each for each in wanted.splitlines() if "/docs/errors.md#" not in each]
    # a damaged journal and a delivery that fails are failures; MLflow's cursor is else a wrong call
    assert (code, len(lines)) == (1 if command == "sync" or name == EVENTS_FILE else 2, 1)
    assert str(folder / name) in wanted
    assert "Is a directory" in wanted or "is a directory" in wanted


@pytest.mark.slow("prepares a search twice")
def test_a_folder_instead_of_the_log_ends_a_resume_before_anything_is_written(
    study: Study, folder: Path
) -> None:
    write_facts(decide(load(study, Home(folder), Hardware((Node(cpus=2, gpus=0),)))))
    (folder / LOG_FILE).mkdir()
    with pytest.raises(UserError, match=r"search.log: cannot be written to: Is a directory"):
        driver().resume(folder)
    assert len(read(folder / EVENTS_FILE)) == 1


def test_a_copy_of_what_a_store_holds_is_not_resumed(folder: Path, study: Study) -> None:
    elsewhere = study.model_copy(update={"storage": "s3://b/searches"})
    elsewhere.write(folder)
    with pytest.raises(UserError, match="s3://b/searches/mine"):
        driver().resume(folder)
    assert (folder / STUDY_FILE).exists()
