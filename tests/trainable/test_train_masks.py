"""Tests what one recipe for masks prints and writes: scores of each class, and how sure they are."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainable.small_segmentations import CLASSES, mask_recipe, write_masks
from trainable.__main__ import main
from trainable.outcome import Outcome
from trainable.recipe.yamlfile import write_recipe
from trainable.summary import MOST_CLASSES, by_class_lines, summary
from trainable.train import train
from trainable.training.answers import Answers
from trainable.training.evaluate import Scores


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    root = write_masks(tmp_path_factory.mktemp("masks"))
    setting = {"evaluation.metrics": [{"kind": "boundary_f1"}]}
    return train(mask_recipe(root, setting), test=True, out=root / "out"), root / "out"


def test_the_scores_of_each_class_are_a_table_with_intervals(outcome: tuple[Outcome, Path]) -> None:
    lines = summary(outcome[0]).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("class "))
    assert lines[head].split() == ["class", "iou", "dice", "boundary_f1"]
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == list(CLASSES)
    test = outcome[0].test
    assert test is not None
    value = test.by_class["iou"][0]
    assert f"{value:.4f} (" in lines[head + 1]
    assert (
        lines[head + 4] == "pixels: rows are the true classes, columns the predicted ones in the same order:"
    )
    assert any(line.startswith("test_mean_iou 0.") and " to " in line for line in lines)


def test_metrics_are_written_by_the_names_of_the_classes_with_their_intervals(
    outcome: tuple[Outcome, Path],
) -> None:
    tree = json.loads((outcome[1] / "metrics.json").read_text())
    assert tree["class_names"] == list(CLASSES)
    assert tree["last"]["test_by_class"].keys() == {"iou", "dice", "boundary_f1"}
    for name, values in tree["last"]["test_by_class"].items():
        for each, value in values.items():
            low, high = tree["test_intervals"]["by_class"][name][each]
            assert low - 1e-9 <= value <= high + 1e-9
    confusion = tree["last"]["test_confusion"]
    right = sum(confusion[at][at] for at in range(3))
    assert tree["last"]["test_accuracy"] == pytest.approx(right / sum(map(sum, confusion)))
    assert tree["test_intervals"]["intervals"].keys() >= {
        "test_mean_iou",
        "test_accuracy",
        "test_boundary_f1",
    }
    assert tree["validation_test_gap"]["metrics"].keys() >= {"mean_iou", "mean_dice", "accuracy"}
    assert "val_mean_iou" in tree["history"][-1]["extra_metrics"]


def test_a_line_for_each_epoch_has_the_mean_iou(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_recipe(tmp_path / "recipe.yaml", mask_recipe(write_masks(tmp_path)))
    assert main([str(tmp_path / "recipe.yaml"), "--json", "--test"]) == 0
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2
    assert all(" val_mean_iou 0." in line for line in lines)
    assert json.loads(printed.out)["test_by_class"]["iou"].keys() == set(CLASSES)


def test_a_class_that_occurs_nowhere_has_a_dash() -> None:
    scores = Scores(1.0, 0.5, 0.5, None, 3, by_class={"iou": (0.25, None)})
    assert by_class_lines(scores, None, ("cat", "dog")) == ["class  iou", "cat    0.2500", "dog    -"]


def test_a_confusion_of_many_classes_is_left_to_the_file(outcome: tuple[Outcome, Path]) -> None:
    found = outcome[0]
    assert found.test is not None
    assert found.recipe.provenance is not None
    names = tuple(f"class {number}" for number in range(MOST_CLASSES + 1))
    provenance = found.recipe.provenance.model_copy(update={"class_names": names})
    many = replace(
        found,
        recipe=found.recipe.model_copy(update={"provenance": provenance}),
        test=replace(found.test, by_class={"iou": (0.5,) * len(names)}),
        intervals=None,
    )
    *lines, last = summary(many).splitlines()
    assert re.fullmatch(r"class \d taken for class \d: [\d,]+ pixels", lines[-1])
    assert last == "the confusion of the 21 classes is in metrics.json (--out), in pixels"


def test_a_class_s_name_is_no_order_to_the_terminal(outcome: tuple[Outcome, Path]) -> None:
    found = outcome[0]
    assert found.recipe.provenance is not None
    names = ("a\x1b]0;x\x07", "b\u202e", "c\nd")
    provenance = found.recipe.provenance.model_copy(update={"class_names": names})
    renamed = replace(found, recipe=found.recipe.model_copy(update={"provenance": provenance}))
    said = summary(renamed)
    assert r"a\x1b]0;x\x07  " in said
    assert r"c\nd  " in said
    assert len(said.splitlines()) == len(summary(found).splitlines())


def test_of_many_labels_the_most_frequent_confusions_are_printed_and_written(
    outcome: tuple[Outcome, Path],
) -> None:
    names, count = tuple(f"class {number}" for number in range(300)), 300
    labels = torch.arange(count)
    answers = Answers.of_logits(torch.eye(count, dtype=torch.float64).roll(1, 0), labels)
    provenance = outcome[0].recipe.provenance
    assert provenance is not None
    many = replace(
        outcome[0],
        recipe=outcome[0].recipe.model_copy(
            update={"provenance": provenance.model_copy(update={"class_names": names})}
        ),
        test=Scores(1.0, 0.0, 0.0, 0.0, count, answers=answers),
        intervals=None,
    )

    lines = summary(many).splitlines()

    assert lines[-1] == "the most frequent confusion of the 300 classes is in metrics.json (--out), in images"
    assert sum(" taken for " in line for line in lines) == 10
    pairs = json.loads(many.metrics_file())["last"]["test_most_confused"]
    assert len(pairs) == 300
    assert pairs[0] == {"true": "class 0", "predicted": "class 299", "images": 1}
