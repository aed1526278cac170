"""Tests that a trial of an earlier search teaches the trials of another one, and what is said of teachers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from search.commands.check import run_check
from search.commands.guests import ALL
from search.commands.inputs import with_teachers
from search.commands.named import named_input, needing_images
from search.commands.options import CheckOptions, InputOptions
from search.facts.hardware import Hardware, Node, per_trial
from search.facts.measured import facts_of
from search.jobs.package import check_for_cluster
from search.learning.search import Search
from search.record.home import Home
from search.record.journal import Journal
from search.record.trials import recipe_key
from search.results.export import recipe_of
from search.results.teachers import recipe_with_teacher, teacher_path, with_teacher
from search.running.driver import make_ledger
from search.running.prepare import Prepared, decide, load, prepare_again, write_facts
from search.study import Resources, Study, StudyError
from tests.search.results.trained_search import trained_search
from trainable.bench import Bench
from trainable.errors import ModelError, UserError
from trainable.models.weights import file_digest
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.run import make_run
from trainable.summary import summary
from trainable.tasks.distilled.task import Distilled
from trainable.train import train
from trainable.training.run import Run

MACHINE = Hardware((Node(cpus=2, gpus=0),))


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """The folder of a finished search of digits, and the run of its trial."""
    folder = tmp_path_factory.mktemp("searches") / "earlier"
    folder.mkdir()
    return folder, trained_search(folder)


def study_of(teacher: Path | str, **values: Any) -> Study:
    written = {path.replace("__", "."): value for path, value in values.items()}
    tree = {"data": {"path": "digits"}, "base": {"distillation": {"teacher": str(teacher)}, "model.width": 4}}
    return Study.from_tree(tree).with_values({"budget.epochs": 2, **written})


def plain_study(**values: Any) -> Study:
    return Study.from_tree({"data": {"path": "digits"}, "base": {"model.width": 4}, **values})


def write_other(teacher: Path, folder: Path) -> Path:
    """Write a teacher with other weights, and another recipe, than the given one's; return its folder."""
    state = load_file(teacher / "model.safetensors")
    folder.mkdir()
    save_file({name: each + 1 for name, each in state.items()}, folder / "model.safetensors")
    write_recipe(folder / "recipe.yaml", read_recipe(teacher / "recipe.yaml").with_values({"loop.seed": 7}))
    return folder


def prepared(study: Study, folder: Path, said: list[str] | None = None) -> Prepared:
    lines: list[str] = [] if said is None else said
    return decide(
        load(
            with_teacher(study).resolved("taught"),
            Home(folder),
            MACHINE,
            bench=Bench(say=lines.append),
            guests=ALL,
        )
    )


@pytest.mark.parametrize("named", ["{}", "{}#0"])
def test_a_trial_of_a_search_teaches_with_the_weights_that_it_was_scored_with(
    searched: tuple[Path, Run], named: str
) -> None:
    folder, run = searched
    path = Path(teacher_path(named.format(folder)))
    assert path == folder / "teachers" / "trial-0-epoch-1"
    student = make_run(Recipe().with_values({"distillation.teacher": str(path), "precision.kind": "fp32"}))
    assert isinstance(student.task, Distilled)
    theirs, ours = student.task.teacher.network.state_dict(), run.weights()
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)
    recipe = read_recipe(path / "recipe.yaml")
    assert recipe.provenance is not None
    assert recipe.provenance.class_names == run.info.classes
    before = (path / "model.safetensors").stat().st_mtime_ns
    assert teacher_path(named.format(folder)) == str(path)
    assert (path / "model.safetensors").stat().st_mtime_ns == before, "it is written once"


def test_a_recipe_of_a_file_names_a_search_too(searched: tuple[Path, Run], tmp_path: Path) -> None:
    folder, _ = searched
    write_recipe(tmp_path / "r.yaml", Recipe().with_values({"distillation.teacher": f"{folder}#0"}))
    found = with_teachers(named_input(InputOptions(file=str(tmp_path / "r.yaml"))))
    assert isinstance(found, Recipe)
    assert found.get("distillation.teacher") == teacher_path(str(folder))
    assert recipe_with_teacher(Recipe()) == Recipe()


def test_a_folder_whose_name_ends_as_a_trials_number_is_itself(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    folder = write_other(Path(teacher_path(str(searched[0]))), tmp_path / "large#3")
    assert teacher_path(str(folder)) == str(folder)
    assert recipe_with_teacher(Recipe().with_values({"distillation.teacher": str(folder)}))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("{}#7", "this search has no such trial; known: 0 to 0"),
        ("{}/nowhere#1", "is not the folder of a search"),
    ],
)
def test_a_trial_that_is_not_there_is_refused(searched: tuple[Path, Run], named: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_teacher(study_of(named.format(searched[0])))


@pytest.mark.parametrize("link", ["teachers", "teachers/trial-0-epoch-1"])
def test_a_teacher_is_not_written_through_a_link_in_the_folder_of_the_search(
    searched: tuple[Path, Run], tmp_path: Path, link: str
) -> None:
    folder, mine = tmp_path / "theirs", tmp_path / "mine"
    shutil.copytree(searched[0], folder, ignore=shutil.ignore_patterns("teachers"))
    mine.mkdir()
    (mine / "model.safetensors").write_text("mine")
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(mine)
    with pytest.raises(UserError, match=rf"^{folder / link}: is a link"):
        teacher_path(f"{folder}#0")
    assert [(each.name, each.read_text()) for each in mine.iterdir()] == [("model.safetensors", "mine")]


# --- before the first trial ---------------------------------------------------------------------------


@pytest.mark.slow("trains a teacher")
def test_a_study_is_prepared_with_the_teachers_facts_and_digests(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    folder, run = searched
    said: list[str] = []
    found = prepared(study_of(f"{folder}#0", budget__epochs=100), tmp_path, said)
    assert found.facts.teacher_parameters == sum(each.numel() for each in run.model.parameters())
    assert {"distillation.temperature", "distillation.weight"} <= {
        each.path for each in found.space.dimensions
    }
    recipe = found.space.recipe(found.space.own)
    assert Path(recipe.get("distillation.teacher")).is_absolute()
    teacher = recipe.get("distillation.teacher")
    assert list(found.weights) == [teacher, recipe_key(teacher)]
    assert not [line for line in said if line.startswith("distillation")]


@pytest.mark.slow("trains a teacher")
@pytest.mark.parametrize("named", ["{folder}#0", "teacher"])
@pytest.mark.parametrize("of_base", [True, False], ids=["base has one", "base has none"])
@pytest.mark.parametrize("as_file", [True, False], ids=["a file", "values"])
def test_a_first_trial_has_a_teacher_of_its_own_with_its_own_digest(
    searched: tuple[Path, Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    of_base: bool,
    as_file: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = Path(teacher_path(str(searched[0])))
    own = write_other(theirs, tmp_path / "teacher")
    asked, path = (theirs, str(own)) if named == "teacher" else (own, str(theirs))
    values = {"distillation.teacher": named.format(folder=searched[0]), "model.width": 4}
    written: Any = values
    if as_file:
        write_recipe(tmp_path / "r.yaml", Recipe().with_values({**values, "data.path": "digits"}))
        written = "r.yaml"
    study = study_of(asked, first=[written]) if of_base else plain_study(first=[written])
    found = prepared(study, tmp_path / "taught")
    (first,) = found.first
    assert Recipe.from_tree(first.recipe).get("distillation.teacher") == path
    assert found.weights[path] == file_digest(Path(path) / "model.safetensors")
    assert found.weights[recipe_key(path)] == read_recipe(Path(path) / "recipe.yaml").digest()
    recipes = {recipe_key(name) for name in found.weights}
    assert len({digest for name, digest in found.weights.items() if name not in recipes}) == 1 + of_base


@pytest.mark.slow("trains a teacher")
def test_a_first_trials_teacher_that_is_not_there_is_refused_before_any_trial(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    for named, kind, message in (
        (str(tmp_path / "nowhere"), ModelError, r"^first\.0 of the study: distillation\.teacher: .*nowhere"),
        (f"{searched[0]}#7", StudyError, "this search has no such trial"),
    ):
        with pytest.raises(kind, match=message):
            prepared(plain_study(first=[{"distillation.teacher": named}]), tmp_path / "taught")


def test_the_recipe_of_a_first_trial_has_the_digests_of_its_own_teacher(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    theirs = Path(teacher_path(str(searched[0])))
    own = write_other(theirs, tmp_path / "own")
    weights = {str(each): file_digest(each / "model.safetensors") for each in (theirs, own)}
    weights |= {recipe_key(str(each)): read_recipe(each / "recipe.yaml").digest() for each in (theirs, own)}
    search = Search(searched[0])
    assert search.best is not None
    for teacher in (theirs, own):
        recipe = Recipe().with_values({"distillation.teacher": str(teacher)})
        provenance = recipe_of(search, replace(search.best, recipe=recipe.tree(), weights=weights)).provenance
        assert provenance is not None
        assert provenance.teacher_digest == weights[str(teacher)]
        assert provenance.teacher_recipe == read_recipe(teacher / "recipe.yaml").digest()


def test_the_recipe_of_a_trial_has_its_teachers_time_in_all_epochs(searched: tuple[Path, Run]) -> None:
    search = Search(searched[0])
    assert search.best is not None
    (last,) = search.best.history
    epochs = [
        last.model_copy(update={"result": replace(last.result, epoch=number, teacher_seconds=seconds)})
        for number, seconds in ((1, 2.5), (2, 0.5), (3, 0.0))
    ]
    provenance = recipe_of(search, replace(search.best, history=tuple(epochs))).provenance
    assert provenance is not None
    assert provenance.metrics["total_teacher_seconds"] == 3.0
    plain = recipe_of(search, search.best).provenance
    assert plain is not None
    assert "total_teacher_seconds" not in plain.metrics


@pytest.mark.slow("trains a teacher")
def test_a_teacher_that_is_no_larger_is_said_to_gain_little(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    said: list[str] = []
    study = study_of(searched[0]).with_values({"base.model.width": 16})
    prepared(study, tmp_path, said)
    (line,) = [line for line in said if line.startswith("distillation")]
    assert "the teacher has 1 times the student's parameters: little is to be gained" in line
    assert "arXiv" in line


@pytest.mark.slow("trains a teacher")
def test_a_check_of_a_study_says_what_is_to_be_expected_of_its_teacher(
    searched: tuple[Path, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_bytes(study_of(searched[0]).yaml().encode())
    options = CheckOptions(file=str(tmp_path / "study.yaml"))
    run_check(needing_images(named_input(options)), options)
    said = " ".join(capsys.readouterr().out.split())
    assert "distillation: the teacher has " in said
    assert "times the student's parameters" in said


def test_a_missing_teacher_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^distillation\.teacher: .*nowhere: expected model\.safetensors"):
        prepared(study_of(tmp_path / "nowhere"), tmp_path)


@pytest.mark.slow("prepares a search")
def test_a_teacher_of_other_classes_is_refused_before_any_trial(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    path = Path(teacher_path(str(searched[0])))
    recipe = read_recipe(path / "recipe.yaml")
    assert recipe.provenance is not None
    other = recipe.provenance.model_copy(update={"class_names": tuple("abcdefghij")})
    (tmp_path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    write_recipe(tmp_path / "recipe.yaml", recipe.model_copy(update={"provenance": other}))
    with pytest.raises(ModelError, match="expected a teacher of the 10 classes of these images; it lacks 0"):
        prepared(study_of(tmp_path), tmp_path)


def test_a_teacher_on_a_cluster_has_an_absolute_path() -> None:
    def on_cluster(teacher: str, other: str) -> Study:
        first = [{"distillation": {"teacher": other}}]
        return study_of(teacher, storage="/shared/searches", first=first)

    check_for_cluster(on_cluster("/shared/teacher", "/shared/other"))
    with pytest.raises(StudyError, match=r"base\.distillation\.teacher: 'teacher' is a path on this machine"):
        check_for_cluster(on_cluster("teacher", "/shared/other"))
    with pytest.raises(StudyError, match=r"first\.0\.distillation\.teacher: 'other' is a path on this"):
        check_for_cluster(on_cluster("/shared/teacher", "other"))


def test_facts_of_a_recipe_without_a_teacher_name_none(searched: tuple[Path, Run]) -> None:
    _, run = searched
    trial = per_trial(Resources(), MACHINE)
    assert facts_of(run.model, Recipe(), run.info, trial).teacher_parameters is None


@pytest.mark.slow("trains a teacher")
def test_a_search_does_not_go_on_with_another_teacher(searched: tuple[Path, Run], tmp_path: Path) -> None:
    teacher, folder = tmp_path / "teacher", tmp_path / "taught"
    write_other(Path(teacher_path(str(searched[0]))), teacher)
    study = with_teacher(study_of(teacher, storage=str(tmp_path))).resolved("taught")
    folder.mkdir()
    first = decide(load(study, Home(folder), MACHINE))
    write_facts(first)
    study.write(folder)
    with Journal(folder) as journal:
        ledger = make_ledger(first, journal)
        ledger.begin("taught", weights=first.weights)
        proposal = ledger.propose()
        assert proposal is not None
        ledger.start(proposal.trial, 0)

    def again() -> Prepared:
        return prepare_again(study, Search(folder), MACHINE)

    assert again().weights == first.weights
    own = read_recipe(teacher / "recipe.yaml")
    write_recipe(teacher / "recipe.yaml", own.with_values({"optimizer.lr": 0.123}))
    with pytest.raises(
        UserError, match=r"the teacher's recipe has changed since .* put the earlier recipe back"
    ):
        again()
    write_recipe(teacher / "recipe.yaml", own)
    state = load_file(teacher / "model.safetensors")
    save_file({name: each * 2 for name, each in state.items()}, teacher / "model.safetensors")
    now = file_digest(teacher / "model.safetensors")
    with pytest.raises(UserError) as refused:
        again()
    message = str(refused.value)
    assert message.startswith(f"distillation.teacher: {teacher}: the teacher's weights have changed since")
    assert f"digest {first.weights[str(teacher)]}, now {now}" in message
    assert "put the earlier weights back, or start a new search" in message


# --- afterwards ---------------------------------------------------------------------------------------


@pytest.mark.slow("trains a teacher")
def test_a_trained_recipe_names_its_teacher_and_says_if_another_one_is_there(
    searched: tuple[Path, Run], tmp_path: Path
) -> None:
    path = teacher_path(str(searched[0]))
    recipe = Recipe().with_values({"distillation.teacher": path, "model.width": 4, "loop.epochs": 1})
    first = train(recipe, out=tmp_path / "first")
    provenance = first.recipe.provenance
    assert provenance is not None
    assert provenance.teacher_recipe == read_recipe(Path(path) / "recipe.yaml").digest()
    said: list[str] = []
    again = train(read_recipe(tmp_path / "first" / "recipe.yaml"), bench=Bench(say=said.append))
    assert again.history[-1].val_loss == first.history[-1].val_loss, "it trains again from its teacher"
    assert not [line for line in said if "teacher" in line]
    assert "the teacher answered for " in summary(again)
    changed = provenance.model_copy(update={"teacher_digest": "0" * 12})
    train(first.recipe.model_copy(update={"provenance": changed}), bench=Bench(say=said.append))
    (line,) = [line for line in said if "teacher" in line]
    digest = provenance.teacher_digest
    assert line == (
        f"distillation.teacher: {path}: these are not the weights of the teacher that the recipe was trained "
        f"with (digest {'0' * 12}, now {digest})"
    )
    said.clear()
    changed = provenance.model_copy(update={"teacher_recipe": "1" * 12})
    train(first.recipe.model_copy(update={"provenance": changed}), bench=Bench(say=said.append))
    (line,) = [line for line in said if "teacher" in line]
    assert "this is not the recipe of the teacher that the recipe was trained with" in line
    assert f"(digest {'1' * 12}, now {provenance.teacher_recipe})" in line
