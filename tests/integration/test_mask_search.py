"""A whole search of a segmentation with real Ray, Optuna and MLflow, and what is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.refine import refine
from search.learning.search import Search
from search.record.home import FACTS_FILE
from search.reporting.content import Report
from search.results.trained_trial import trained_trial
from search.study import Study
from tests.trainable.small_segmentations import CLASSES, write_masks
from trainable.__main__ import main
from trainable.bundle.write import write_bundle

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Search:
    storage = tmp_path_factory.mktemp("storage")
    root = write_masks(storage / "data", count=32, sizes=((32, 32), (20, 40)))
    study = {
        "name": "masks",
        "data": {"path": str(root), "image_size": 16},
        "base": {
            "task": {"kind": "segmentation", "masks": {"classes": str(root / "classes.txt")}},
            "model": {"kind": "unet_small", "levels": 2, "width": 8},
            "precision.kind": "fp32",
            "loop.workers": 0,
        },
        "budget": {"trials": 4, "epochs": 4},
        "scheduler": {"grace_epochs": 1, "reduction_factor": 2},
        "concurrent": 1,
        "storage": str(storage),
    }
    assert driver().search(resolved_study(Study.from_tree(study))) == "finished"
    return Search(storage / "masks")


def test_trials_of_a_segmentation_are_compared_by_their_mean_iou(finished: Search) -> None:
    summary = finished.progress
    assert summary.objective == "val_mean_iou"
    assert [trial.id for trial in summary.trials] == [0, 1, 2, 3]
    assert summary.trials[0].own
    own = summary.trials[0].whole_recipe
    assert (own.schedule.kind, own.get("schedule.power"), own.model.kind) == ("poly", 0.9, "unet_small")
    assert summary.best is not None
    ended = [trial for trial in summary.trials if trial.state == "finished"]
    assert summary.best.metrics["val_mean_iou"] == max(each.metrics["val_mean_iou"] for each in ended)
    assert '"task": "segmentation"' in (finished.folder / FACTS_FILE).read_text()


def test_the_report_has_the_masks_of_the_best_trial_and_its_iou(finished: Search) -> None:
    report = Report.model_validate_json((finished.folder / "report.json").read_bytes())
    best = finished.progress.best
    assert best is not None
    assert report.masks is not None
    assert report.answers is None
    assert report.masks.mean_iou == pytest.approx(best.metrics["val_mean_iou"], abs=1e-9)
    assert report.search.objective == "val_mean_iou"
    assert [each.name for each in report.masks.classes] == list(CLASSES)
    page = (finished.folder / "report.html").read_text()
    assert page.count('alt="Its true mask') == len(report.masks.worst) > 0


def test_the_exported_recipe_gives_the_trial_s_numbers_again_exactly_and_masks(
    finished: Search, tmp_path: Path
) -> None:
    best, recipe = finished.progress.best, finished.folder / "best.yaml"
    assert best is not None
    assert "# " in next(line for line in recipe.read_text().splitlines() if "cross_entropy:" in line)
    out, masks = tmp_path / "out", tmp_path / "masks"
    assert main([str(recipe), "--test", "--out", str(out), "--predict", str(masks)]) == 0
    again = json.loads((out / "metrics.json").read_text())["last"]
    same = [name for name in best.metrics if name.startswith(("val_", "train_"))]
    assert {"val_mean_iou", "val_mean_dice"} <= set(same)
    assert {name: again[name] for name in same} == {name: best.metrics[name] for name in same}
    assert len(list(masks.glob("*.png"))) == finished.info.test_images


def test_the_best_trial_becomes_a_bundle(finished: Search, tmp_path: Path, few_passes: None) -> None:
    write_bundle(trained_trial(finished), tmp_path / "bundle")
    metrics = json.loads((tmp_path / "bundle" / "metrics.json").read_text())
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}


def test_all_parts_of_a_search_with_masks_agree_and_it_can_be_refined(finished: Search) -> None:
    assert not audit(finished).differences
    found = refine(finished)
    assert found.following.objective.metric == "val_mean_iou"
    assert found.following.base["task"]["kind"] == "segmentation"
