"""A whole search on masks with real Ray: its report, its exported recipe trained again, and its bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search.commands.guests import driver, resolved_study
from search.learning.search import Search
from search.reporting.content import Report
from search.results.trained_trial import trained_trial
from tests.search.results.trained_masks import mask_study
from tests.trainable.small_segmentations import CLASSES, write_masks
from trainable.__main__ import main
from trainable.bundle.write import write_bundle

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Path:
    """The folder of a small search that ran to its end."""
    storage = tmp_path_factory.mktemp("storage")
    study = mask_study(
        write_masks(storage / "data", sizes=((32, 32), (20, 40))),
        storage,
        epochs=2,
        name="masks",
        concurrent=1,
        objective={"metric": "val_mean_iou"},
    )
    assert driver().search(resolved_study(study.with_values({"budget.trials": 2}))) == "finished"
    return storage / "masks"


def test_the_report_has_the_masks_of_the_best_trial_and_its_iou(finished: Path) -> None:
    report = Report.model_validate_json((finished / "report.json").read_bytes())
    best = Search(finished).progress.best
    assert best is not None
    assert report.masks is not None
    assert report.answers is None
    assert report.masks.mean_iou == pytest.approx(best.metrics["val_mean_iou"], abs=1e-9)
    assert report.search.objective == "val_mean_iou"
    assert [each.name for each in report.masks.classes] == list(CLASSES)
    page = (finished / "report.html").read_text()
    assert page.count('alt="Its true mask') == len(report.masks.worst) > 0


def test_the_exported_recipe_gives_the_trial_s_numbers_again_exactly_and_masks(
    finished: Path, tmp_path: Path
) -> None:
    best, recipe = Search(finished).progress.best, finished / "best.yaml"
    assert best is not None
    assert "# " in next(line for line in recipe.read_text().splitlines() if "cross_entropy:" in line)
    assert (
        main([str(recipe), "--test", "--out", str(tmp_path / "out"), "--predict", str(tmp_path / "masks")])
        == 0
    )
    again = json.loads((tmp_path / "out" / "metrics.json").read_text())["last"]
    assert again["val_mean_iou"] == best.metrics["val_mean_iou"]
    files = list((tmp_path / "masks").glob("*.png"))
    assert len(files) == Search(finished).info.test_images


def test_the_best_trial_becomes_a_bundle(finished: Path, tmp_path: Path, few_passes: None) -> None:
    write_bundle(trained_trial(Search(finished)), tmp_path / "bundle")
    metrics = json.loads((tmp_path / "bundle" / "metrics.json").read_text())
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}
