"""A rule that changes after a search began changes nothing of that search: its record is whole."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from search.commands.asked import resolved_study
from search.deciding.ledger import Decision, Ledger
from search.deciding.pruning import choose_pruning
from search.followers.conclusions import conclusion
from search.learning.search import Search
from search.record.chain import JournalError
from search.record.folder import read_search
from search.record.home import EVENTS_FILE, LOCK_FILE, Home
from search.record.journal import Event, Journal, TrialEvent, read
from search.reporting import terminal
from search.results.export import exported
from search.running.driver import make_ledger
from search.running.prepare import Prepared, decide, load, prepare_again, write_facts
from search.study import STUDY_FILE, Study
from search.study.space import build_space
from spaces.rules import augmentations
from spaces.rules.rulings import Ruling
from tests.epoch_results import epoch_result
from tests.search.command_line import Tunebook
from tests.search.running.test_prepare import MACHINE
from tests.search.small_events import replace_journal
from trainable.recipe import Recipe, digest_of
from trainable.recipe.yamlfile import read_recipe
from trainable.terminal import CLONE

FLIP = "augmentation.flip_probability"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted search: six of twelve trials have ended, one is half way."""
    storage = tmp_path_factory.mktemp("searches")
    study = Study.from_tree({"data": {"path": "digits"}, "storage": str(storage), "name": "digits-1"})
    study = resolved_study(study.with_values({"budget.trials": 12, "budget.epochs": 5}))
    folder = storage / "digits-1"
    prepared = decide(load(study, Home(folder), MACHINE))
    folder.mkdir()
    write_facts(prepared)
    study.write(folder)
    with Journal(folder) as journal:
        ledger = make_ledger(prepared, journal)
        ledger.begin("digits-1", {"torch": "2.15"}, "cafe")
        train(ledger, 6)
        proposal = ledger.propose()
        assert proposal is not None
        ledger.start(proposal.trial, 0)
        ledger.epoch(proposal.trial, epoch_result(1, 0.9))
        ledger.close("interrupted")
    return folder


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "digits-1"))


@pytest.fixture
def changed_rule(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give a rule another number, as a later version might."""

    def change() -> None:
        monkeypatch.setattr(augmentations, "flip_probability", lambda facts: Ruling(0.125, "new", "none"))

    return change


def train(ledger: Ledger, trials: int) -> None:
    """Train the next trials to their ends; the later ones are the better."""
    for _ in range(trials):
        proposal = ledger.propose()
        assert proposal is not None
        ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
        for number in range(ledger.epochs_done(proposal.trial) + 1, 6):
            accuracy = 0.5 + 0.02 * proposal.trial + 0.01 * number
            result = epoch_result(number, accuracy)
            if ledger.epoch(proposal.trial, result) is Decision.STOP:
                break


def printed(show: Callable[[], None]) -> str:
    with redirect_stdout(io.StringIO()) as out:
        show()
    return out.getvalue()


def base_by_todays_rules(search: Search) -> Recipe:
    return build_space(search.study, search.facts, search.info).base


def test_the_rule_that_is_changed_here_decides_a_field(
    folder: Path, changed_rule: Callable[[], None]
) -> None:
    before = base_by_todays_rules(Search(folder))
    changed_rule()
    after = base_by_todays_rules(Search(folder))
    assert (before.get(FLIP), after.get(FLIP)) == (0.5, 0.125)


@pytest.mark.slow("shows a whole search")
def test_show_and_explain_and_the_conclusion_say_what_they_said(
    folder: Path, changed_rule: Callable[[], None], tunebook: Tunebook
) -> None:
    def said() -> tuple[object, ...]:
        shown = json.loads(printed(lambda: terminal.show(Search(folder), as_json=True)))
        code, explained, _ = tunebook("explain", folder, "--all")
        assert code == 0
        return shown, explained, conclusion(Search(folder).summary), Search(folder).pruning

    before = said()
    changed_rule()
    assert said() == before


@pytest.mark.parametrize("trial", [None, 3])
def test_export_writes_the_recipe_that_was_trained_with_its_reasons(
    folder: Path, changed_rule: Callable[[], None], trial: int | None
) -> None:
    def written() -> tuple[str, list[str]]:
        found = exported(Search(folder), trial)
        found.write(folder / "out.yaml")
        lines = (folder / "out.yaml").read_text().splitlines()
        return found.words, [line for line in lines if "created:" not in line]

    before = written()
    changed_rule()
    assert written() == before
    assert "flip_probability: 0.5" in "\n".join(before[1])


def test_the_versions_and_the_commit_in_a_recipe_are_those_of_its_trials_driver(folder: Path) -> None:
    with Journal(folder) as journal:
        ledger = make_ledger(prepare_again(read_search(folder), Search(folder), MACHINE), journal)
        ledger.begin("digits-1", {"torch": "3.0"}, "f00d")
        train(ledger, 1)
    for trial, versions, commit in ((3, {"torch": "2.15"}, "cafe"), (6, {"torch": "3.0"}, "f00d")):
        exported(Search(folder), trial).write(folder / "out.yaml")
        provenance = read_recipe(folder / "out.yaml").provenance
        assert provenance is not None
        assert (provenance.versions, provenance.git_commit) == (versions, commit)


def resumed(folder: Path, trials: int) -> list[Event]:
    """Go on with the search, without Ray: what the next trials are, and what the journal then holds."""
    prepared: Prepared = prepare_again(read_search(folder), Search(folder), MACHINE)
    known = len(read(folder / EVENTS_FILE))
    with Journal(folder) as journal:
        ledger = make_ledger(prepared, journal)
        ledger.begin("digits-1")
        train(ledger, trials)
    events = read(folder / EVENTS_FILE)[known:]
    return [event.model_copy(update={"time": 0.0}) for event in events]


def test_resume_goes_on_with_the_same_trials_recipes_and_rungs(
    begun: Path, tmp_path: Path, changed_rule: Callable[[], None]
) -> None:
    one, other = (Path(shutil.copytree(begun, tmp_path / name)) for name in ("one", "other"))
    before = resumed(one, trials=4)
    changed_rule()
    assert resumed(other, trials=4) == before
    drawn = [event for event in before if isinstance(event, TrialEvent)]
    assert [event.trial for event in drawn] == [7, 8, 9]
    assert {Recipe.from_tree(event.recipe or {}).get(FLIP) for event in drawn} == {0.5}


def test_resume_refuses_a_trial_whose_recipe_this_version_would_make_otherwise(folder: Path) -> None:
    """As where a default of the recipe has changed, which no space holds."""
    change_recipe(folder, lambda recipe: Recipe.from_tree(recipe).with_values({FLIP: 0.25}).tree())
    before = (folder / EVENTS_FILE).read_bytes()
    wanted = f"trial 3: {FLIP} is 0.25 in the journal and 0.5 by this version of tunebook; finish it"
    with pytest.raises(JournalError, match=wanted) as refusal:
        resumed(folder, trials=1)
    assert (refusal.value.exit_code, "\n" in str(refusal.value)) == (1, False)
    assert f"with its own study and tunebook {version('tunebook')}, or" in str(refusal.value)
    assert (folder / EVENTS_FILE).read_bytes() == before


def without_flips(recipe: dict[str, Any]) -> dict[str, Any]:
    section, field = FLIP.split(".")
    return {**recipe, section: {name: value for name, value in recipe[section].items() if name != field}}


def change_recipe(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], trial: int = 3) -> None:
    """The journal as it would be if a trial had had another recipe."""
    events = read(folder / EVENTS_FILE)
    replace_journal(folder)
    with Journal(folder) as journal:
        for event in events:
            if isinstance(event, TrialEvent) and event.trial == trial:
                recipe = change(event.recipe or {})
                event = event.model_copy(update={"recipe": recipe, "digest": digest_of(recipe)})
            journal.append(event)


def test_a_recipe_to_which_this_version_would_add_a_field_is_not_exported(folder: Path) -> None:
    """As where a later version's recipe has one more field, whose value nobody trained with."""
    change_recipe(folder, without_flips)
    with pytest.raises(
        JournalError, match=f"trial 3: {FLIP} is absent in the journal and 0.5 by this version"
    ):
        exported(Search(folder), 3)


def test_a_search_whose_best_recipe_is_another_one_today_is_still_shown(
    folder: Path, tunebook: Tunebook
) -> None:
    best = Search(folder).best
    assert best is not None
    assert Search(folder).diagnosis is not None
    change_recipe(folder, without_flips, best.id)
    code, out, err = tunebook("show", folder)
    assert (code, err) == (0, "")
    assert f"(trial {best.id})" in out
    assert Search(folder).diagnosis is None


def test_objective_and_epochs_are_the_journals_whatever_study_yaml_says_now(
    folder: Path, tunebook: Tunebook
) -> None:
    def said() -> tuple[object, ...]:
        asked, explained = Search(folder).study, tunebook("explain", folder, "--all")
        return (
            explained,
            exported(Search(folder)).words,
            asked.objective.metric,
            asked.budget.epochs,
        )

    before = said()
    read_search(folder).with_values({"objective.metric": "val_loss", "budget.epochs": 30}).write(folder)
    assert said() == before


def test_resume_refuses_a_study_with_another_objective(folder: Path) -> None:
    study = read_search(folder)
    study.with_values({"objective.metric": "val_loss"}).write(folder)
    wanted = "objective is val_accuracy in the journal and val_loss by"
    with pytest.raises(JournalError, match=wanted):
        resumed(folder, trials=1)


# --- journals that are refused --------------------------------------------------------------------------

COMMANDS = (
    ("show", "DIR"),
    ("show", "DIR", "--json"),
    ("export", "DIR", "-o", "out.yaml"),
    ("explain", "DIR"),
    ("refine", "DIR", "-o", "next.yaml"),
    ("sync", "DIR"),
    ("resume", "DIR"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_a_damaged_journal_and_writes_nothing(
    folder: Path, tunebook: Tunebook, command: tuple[str, ...]
) -> None:
    journal = folder / EVENTS_FILE
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    assert refused(folder, tunebook, command).startswith(
        f"tunebook: {journal}: line 5: expected the checksum"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_a_search_of_the_first_version(
    folder: Path, tunebook: Tunebook, command: tuple[str, ...]
) -> None:
    """Its study may hold a field that has another name now."""
    study = (folder / STUDY_FILE).read_text()
    (folder / STUDY_FILE).write_text(study.replace("\nbase: {}", "\nbase: {regularisation.clip_norm: 1.0}"))
    assert "clip_norm" in (folder / STUDY_FILE).read_text()
    line = '{"event":"search","sequence":0,"time":1.0,"state":"started","search_id":"0a","name":"digits-1"}\n'
    (folder / EVENTS_FILE).write_text(line)
    assert "was made by tunebook 0.1.0; open it with that version" in refused(folder, tunebook, command)


def refused(folder: Path, tunebook: Tunebook, command: tuple[str, ...]) -> str:
    """The one line that a command says, with where to read more; nothing in the folder has changed."""
    before = contents(folder)
    code, out, err = tunebook(*(str(folder) if word == "DIR" else word for word in command))
    assert (code, out) == (1, "")
    assert err.splitlines()[1:] == [f"more: {CLONE}/docs/errors.md#a-journal"]
    assert contents(folder) == before
    assert not Path("out.yaml").exists()
    assert not Path("next.yaml").exists()
    return err


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name != LOCK_FILE
    }


# --- a search that exists -------------------------------------------------------------------------------


def test_a_search_is_opened_by_its_folder_and_tells_all_of_itself(folder: Path) -> None:
    search = Search(folder)
    assert (search.study.name, search.summary.state, len(search.trials)) == ("digits-1", "interrupted", 7)
    assert search.best == search.summary.best == search.trials[5]
    assert search.diagnosis == search.summary.diagnosis is not None
    assert search.verdicts == search.summary.verdicts is not None
    assert search.space.recipe(search.best.values) == search.best.whole_recipe
    assert search.pruning == choose_pruning(search.study, search.space)


def test_its_trials_are_a_data_frame(folder: Path) -> None:
    frame = Search(folder).trials_frame()
    assert list(frame.index) == list(range(7))
    assert list(frame["state"])[-1] == "paused"
    assert frame.loc[5, "val_accuracy"] == pytest.approx(0.65)
    assert frame.loc[0, "optimizer.lr"] == Search(folder).trials[0].values["optimizer.lr"]
