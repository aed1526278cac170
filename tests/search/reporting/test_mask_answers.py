"""Tests what the best masks get wrong: weights of a real run, scored again for the report."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from search.learning.search import Search
from search.reporting.answers import ANSWERS_FILE, answers_of
from search.reporting.content import ReportedMasks
from search.reporting.gather import report_of
from search.reporting.mask_answers import WORST, class_colours, mask_answers, small, with_class
from search.reporting.page import page
from search.reporting.samples import PER_CLASS, SAMPLES_FILE, samples_of
from tests.search.results.trained_masks import trained_mask_search
from tests.trainable.small_segmentations import CLASSES
from trainable.bench import ON_CPU
from trainable.recipe.tasks import IGNORED
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.tasks.segmentation.answers import MaskAnswers as AnswersOfImages
from trainable.tasks.segmentation.data.parts import MaskedPart
from trainable.training.run import Run

Trained = tuple[Path, Run]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("searches") / "masks"
    folder.mkdir()
    return folder, trained_mask_search(folder)


@pytest.fixture(scope="module")
def found(trained: Trained) -> ReportedMasks:
    answers = answers_of(Search(trained[0]))
    assert isinstance(answers, ReportedMasks)
    return answers


def test_the_scores_are_those_of_the_trained_weights(trained: Trained, found: ReportedMasks) -> None:
    scores = trained[1].score("validation", confusion=True)
    assert found.confusion == scores.confusion
    assert (found.accuracy, found.mean_iou) == (scores.accuracy, scores.extra["mean_iou"])
    assert [each.iou for each in found.classes] == list(scores.by_class["iou"])
    assert [each.dice for each in found.classes] == list(scores.by_class["dice"])
    assert [each.name for each in found.classes] == list(CLASSES)
    assert sum(each.pixels for each in found.classes) == found.pixels == sum(map(sum, found.confusion))


def test_recalls_and_precisions_are_shares_of_the_confusion(found: ReportedMasks) -> None:
    counts = np.array(found.confusion)
    for at, each in enumerate(found.classes):
        true, predicted = counts[at].sum(), counts[:, at].sum()
        assert each.recall == (pytest.approx(counts[at, at] / true) if true else None)
        assert each.precision == (pytest.approx(counts[at, at] / predicted) if predicted else None)
        if each.iou is not None and each.low is not None and each.high is not None:
            assert each.low - 1e-9 <= each.iou <= each.high + 1e-9


def test_the_worst_images_come_first_by_name(trained: Trained, found: ReportedMasks) -> None:
    answers = trained[1].score("validation", answers=True).by_image
    assert isinstance(answers, AnswersOfImages)
    part = trained[1].parts["validation"]
    assert isinstance(part, MaskedPart)
    names = part.names
    ious = dict(zip(names, answers.mean_ious().tolist(), strict=True))
    assert [each.mean_iou for each in found.worst] == sorted(ious.values())[:WORST]
    assert all(each.mean_iou == ious[each.name] for each in found.worst)


def test_they_are_the_same_from_files_as_from_memory(trained: Trained, found: ReportedMasks) -> None:
    run = trained[1]
    recipe = run.recipe.with_values({"data.in_memory": False})
    images = load_for(recipe, ON_CPU)
    streamed = make_run(recipe, data=images)
    streamed.model.load_state_dict(run.weights())
    again = mask_answers(found.trial, streamed, images)
    streamed.close()
    assert again == found


def test_answers_are_kept_and_the_report_has_them_in_the_place_of_labels(
    trained: Trained, found: ReportedMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (trained[0] / ANSWERS_FILE).exists()
    monkeypatch.setattr("trainable.training.run.Run.score", None)  # it would be called to compute them again
    report = report_of(Search(trained[0]))
    assert (report.answers, report.masks) == (None, found)
    assert "answers" not in report.left_out
    assert f"The {len(found.worst)} worst images" in page(report)


def test_where_scoring_takes_long_some_images_are_scored_and_their_masks_shown(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = trained
    whole = run.score("validation", answers=True).by_image
    assert isinstance(whole, AnswersOfImages)
    (folder / ANSWERS_FILE).unlink()
    monkeypatch.setattr("search.reporting.answers.LONGEST_SECONDS", 0.0)
    monkeypatch.setattr("search.reporting.answers.LEAST_SCORED", 3)
    part = run.parts["validation"]
    found = answers_of(Search(folder))
    assert isinstance(found, ReportedMasks)
    assert (found.images, found.images_of_part, len(found.worst)) == (3, len(part), 3)
    ious = {part.name(at): iou for at, iou in enumerate(whole.mean_ious().tolist())}
    assert {each.name: each.mean_iou for each in found.worst}.items() <= ious.items()
    assert f"on 3 of the {len(part)} images of the validation part" in page(report_of(Search(folder)))
    (folder / ANSWERS_FILE).unlink()


def test_masks_are_shown_where_every_pixel_is_right(trained: Trained) -> None:
    run = trained[1]
    images = load_for(run.recipe, ON_CPU)
    right = mask_answers(0, run, images).model_copy(update={"accuracy": 1.0})
    report = report_of(Search(trained[0])).model_copy(update={"masks": right})
    assert f"Every pixel is right: {len(right.worst)} of the images" in page(report)


def test_each_class_has_training_images_that_show_it_from_memory_as_from_files(trained: Trained) -> None:
    folder, run = trained
    search = Search(folder)
    from_memory = samples_of(search, lambda: load_for(run.recipe, ON_CPU))
    (folder / SAMPLES_FILE).unlink()
    files = run.recipe.with_values({"data.in_memory": False})
    assert samples_of(search, lambda: load_for(files, ON_CPU)) == from_memory
    assert [each.name for each in from_memory.classes] == list(CLASSES)
    assert [each.images for each in from_memory.classes] == list(search.info.class_counts)
    assert all(len(each.thumbnails) == PER_CLASS for each in from_memory.classes)
    text = page(report_of(search))
    assert text.count('alt="Training image') == PER_CLASS * len(CLASSES)
    assert "with the pixels of the class in its colour and all others pale" in text


def test_a_class_has_its_colour_in_its_pictures_and_the_rest_is_pale() -> None:
    mask = np.repeat(np.array([0, 1, IGNORED], np.uint8), 16)[:, None].repeat(48, 1)
    image, shown = small(np.full((1, 48, 48), 100, np.uint8), mask, 48)
    uri = with_class(image, shown, 1, class_colours(2)[1])
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))), int)
    others, own = pixels[4:12, 4:44], pixels[20:28, 4:44]
    assert others.min() > 150
    assert np.abs(others - others.mean(axis=2, keepdims=True)).max() < 10  # grey
    assert np.abs(own - (class_colours(2)[1] + 100.0) / 2).max() < 10
