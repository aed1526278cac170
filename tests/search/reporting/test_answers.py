"""Tests what the best recipe gets wrong: weights of a real run, scored again for the report."""

from __future__ import annotations

import base64
import io
import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score
from torch import nn

from search.learning.search import Search
from search.record.code import record_of
from search.record.home import FACTS_FILE
from search.reporting.answers import (
    ANSWERS_FILE,
    WORST,
    answers_of,
    class_scores,
    scored_positions,
    thumbnail,
)
from search.study.code import Code
from tests.search.planted_searches import Run as PlantedRun
from tests.search.planted_searches import planted
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.data import ArrayPart
from trainable.data.measure import membership
from trainable.errors import UserError
from trainable.run import make_run
from trainable.training.run import Run

CLASSES = ("oak", "elm", "ash")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Return the folder of a search of one trial of one epoch, and the run whose checkpoint is in it."""
    base = {"model.width": 8, "loop.batch_size": 64, "precision.kind": "fp32"}
    folder = planted(
        tmp_path_factory.mktemp("trained"),
        lambda at, luck: PlantedRun(0.5, 0.5),
        trials=1,
        budget__epochs=1,
        base=base,
        space__name="quick",
    )
    best = Search(folder).best
    assert best is not None
    run = make_run(best.whole_recipe)
    run.step()
    CheckpointStore.at(Search(folder).home.checkpoints(0)).save(run.state_dict(), run.history)
    return folder, run


def test_the_answers_are_those_of_the_trained_weights(trained: tuple[Path, Run]) -> None:
    folder, run = trained
    found = answers_of(Search(folder))
    answers = run.score("validation", answers=True).answers
    assert answers is not None
    assert answers.logits is None  # they would take images x classes
    labels, predicted = answers.labels.numpy(), answers.predicted.numpy()
    assert found.confusion == tuple(
        map(tuple, confusion_matrix(labels, predicted, labels=range(10)).tolist())
    )
    assert (found.trial, found.images) == (0, len(labels))
    assert found.accuracy == pytest.approx((labels == predicted).mean())


def test_mistakes_are_the_images_whose_class_was_believed_least(trained: tuple[Path, Run]) -> None:
    folder, run = trained
    found, answers = answers_of(Search(folder)), run.score("validation", answers=True).answers
    assert answers is not None
    logits = torch.zeros(len(answers.labels), 10)
    run.score(
        "validation", take=lambda positions, found: logits.__setitem__(torch.from_numpy(positions), found)
    )
    probabilities = logits.double().softmax(1)
    wrong = sorted(
        (float(probabilities[at, label]), at)
        for at, label in enumerate(answers.labels.tolist())
        if answers.predicted[at] != label
    )
    assert [each.probability_true for each in found.mistakes] == pytest.approx(
        [chance for chance, _ in wrong[:WORST]]
    )
    validation = run.parts["validation"]
    assert isinstance(validation, ArrayPart)
    images, _ = validation.tensors()
    shown = Image.open(io.BytesIO(base64.b64decode(found.mistakes[0].thumbnail.partition(",")[2])))
    assert np.array_equal(np.array(shown), images[wrong[0][1], 0].numpy())


def test_answers_are_kept_beside_the_search(
    trained: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    first = answers_of(Search(folder))
    monkeypatch.setattr("trainable.training.run.Run.score", None)  # it would be called to compute them again
    assert answers_of(Search(folder)) == first


def test_answers_of_another_trial_are_not_taken(trained: tuple[Path, Run]) -> None:
    folder, _ = trained
    file = folder / ANSWERS_FILE
    found = answers_of(Search(folder))
    file.write_text(found.model_copy(update={"trial": 7, "images": 1}).model_dump_json())
    assert answers_of(Search(folder)) == found


def test_without_the_images_one_line_says_so(
    trained: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    (folder / ANSWERS_FILE).unlink(missing_ok=True)

    def away(*given: object, **named: object) -> None:
        raise UserError("data.path: /flowers does not exist")

    monkeypatch.setattr("trainable.tasks.kits.load_for", away)
    with pytest.raises(UserError, match="/flowers does not exist"):
        answers_of(Search(folder))


def test_some_images_are_scored_where_all_take_long_evenly_spaced_and_mistakes_are_shown_of_these(
    trained: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = trained
    (folder / ANSWERS_FILE).unlink(missing_ok=True)
    best = Search(folder).best
    assert best is not None
    seconds = best.metrics["evaluation_seconds"]
    monkeypatch.setattr("search.reporting.answers.LONGEST_SECONDS", seconds / 4.0)
    found, whole = answers_of(Search(folder)), run.score("validation", answers=True).answers
    assert whole is not None
    scored = scored_positions(len(whole.labels), seconds)
    assert scored is not None
    assert (found.images, found.images_of_part) == (len(whole.labels) // 4, len(whole.labels))
    right = whole.labels.numpy()[scored] == whole.predicted.numpy()[scored]
    assert found.accuracy == pytest.approx(right.mean())
    unlikely = np.exp(-whole.losses.numpy()[scored][~right])
    assert [each.probability_true for each in found.mistakes] == pytest.approx(sorted(unlikely)[:WORST])
    validation = run.parts["validation"]
    assert isinstance(validation, ArrayPart)
    shown = Image.open(io.BytesIO(base64.b64decode(found.mistakes[0].thumbnail.partition(",")[2])))
    worst = scored[~right][np.argsort(unlikely, kind="stable")[0]]
    assert np.array_equal(np.array(shown), validation.images[worst, 0])
    (folder / ANSWERS_FILE).unlink()


@pytest.mark.parametrize(
    ("images", "seconds", "count"), [(1000, 60.0, None), (1000, 120.0, 500), (1000, 1e6, 24), (20, 1e6, None)]
)
def test_so_many_images_are_scored_as_take_a_minute_but_some_always(
    images: int, seconds: float, count: int | None
) -> None:
    found = scored_positions(images, seconds)
    assert (None if found is None else len(found)) == count
    if found is not None:
        assert (found[0], found[-1]) == (0, images - 1)
        assert (np.diff(found) > 0).all()


def test_scores_of_classes_are_those_of_scikit_learn() -> None:
    labels, predicted = [0] * 10 + [1] * 10 + [2] * 10, [0] * 8 + [1] * 12 + [0, 1, 1, 1] + [2] * 6
    found = class_scores(CLASSES, np.array(labels), np.array(predicted))
    for name, score in (("recall", recall_score), ("precision", precision_score), ("f1", f1_score)):
        expected = score(labels, predicted, average=None)
        assert [getattr(each, name) for each in found] == pytest.approx(expected.tolist())


def test_a_class_without_images_or_answers_has_no_scores() -> None:
    found = class_scores(("oak", "elm"), np.zeros(3, np.int64), np.zeros(3, np.int64))
    assert (found[1].recall, found[1].precision, found[1].f1) == (None, None, None)


@pytest.mark.parametrize(("shape", "form"), [((1, 8, 8), "png"), ((3, 200, 100), "jpeg")])
def test_thumbnails_are_small(shape: tuple[int, int, int], form: str) -> None:
    found = thumbnail(np.zeros(shape, np.uint8))
    assert found.startswith(f"data:image/{form};base64,")
    image = Image.open(io.BytesIO(base64.b64decode(found.partition(",")[2])))
    assert max(image.size) <= 96
    assert len(found) < 4000


@pytest.mark.parametrize("whole", [False, True])
def test_files_that_are_others_since_the_search_are_not_scored_for_it_where_a_digest_reads_some(
    trained: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(
        "trainable.data.assembly.membership", lambda *given: membership(*given)._replace(whole=whole)
    )
    folder, _ = trained
    (folder / ANSWERS_FILE).unlink(missing_ok=True)
    facts = json.loads((folder / FACTS_FILE).read_text())
    content = json.dumps({**facts, "data": {**facts["data"], "stored": "0" * 16}})
    before = (folder / FACTS_FILE).read_text()
    (folder / FACTS_FILE).write_text(content)
    said = "the images have other names, classes or sizes than when the search"
    with nullcontext() if whole else pytest.raises(UserError, match=said):
        answers_of(Search(folder))
    (folder / FACTS_FILE).write_text(before)


def test_a_network_of_a_persons_own_answers_where_its_function_is_given(
    tmp_path: Path, trained: tuple[Path, Run]
) -> None:
    def network(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    folder, code = tmp_path / "own", Code(model=network)
    shutil.copytree(trained[0], folder)
    (folder / ANSWERS_FILE).unlink(missing_ok=True)
    facts = json.loads((folder / FACTS_FILE).read_text())
    (folder / FACTS_FILE).write_text(json.dumps({**facts, "code": record_of(code).tree()}))
    best = Search(folder).best
    assert best is not None
    run = make_run(best.whole_recipe, model=network)
    run.step()
    CheckpointStore.at(Search(folder).home.checkpoints(0)).save(run.state_dict(), run.history)
    with pytest.raises(UserError, match="code of yours, which is at hand only where Python ran the search"):
        answers_of(Search(folder))
    first = answers_of(Search(folder), code=code)
    assert first.accuracy == pytest.approx(run.score("validation").accuracy)
    assert answers_of(Search(folder)) == first, "they are kept"
