"""A whole search of a segmentation with real Ray, Optuna and MLflow: its trials and its best recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.commands.guests import driver, resolved_study
from search.followers.audit import audit
from search.learning.refine import refine
from search.learning.search import Search
from search.record.home import FACTS_FILE
from search.study import Study
from tests.trainable.small_segmentations import write_masks
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


def masks_study(root: Path, storage: Path) -> Study:
    """Return a study of small images with masks that takes seconds."""
    masks = {"classes": str(root / "classes.txt")}
    return Study.from_tree(
        {
            "name": "masks",
            "data": {"path": str(root), "image_size": 16},
            "base": {
                "task": {"kind": "segmentation", "masks": masks},
                "model": {"kind": "unet_small", "levels": 2, "width": 8},
                "precision.kind": "fp32",
                "loop.workers": 0,
            },
            "budget": {"trials": 4, "epochs": 4},
            "scheduler": {"grace_epochs": 1, "reduction_factor": 2},
            "concurrent": 1,
            "storage": str(storage),
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Path:
    """The folder of a small search of a segmentation that ran to its end."""
    root = write_masks(tmp_path_factory.mktemp("shapes"), count=32)
    storage = tmp_path_factory.mktemp("storage")
    assert driver().search(resolved_study(masks_study(root, storage))) == "finished"
    return storage / "masks"


def test_trials_of_a_segmentation_are_compared_by_their_mean_iou(finished: Path) -> None:
    summary = Search(finished).progress
    assert summary.objective == "val_mean_iou"
    assert [trial.id for trial in summary.trials] == [0, 1, 2, 3]
    assert summary.trials[0].own
    own = summary.trials[0].whole_recipe
    assert (own.schedule.kind, own.get("schedule.power"), own.model.kind) == ("poly", 0.9, "unet_small")
    assert summary.best is not None
    ended = [trial for trial in summary.trials if trial.state == "finished"]
    assert summary.best.metrics["val_mean_iou"] == max(each.metrics["val_mean_iou"] for each in ended)
    assert '"task": "segmentation"' in (finished / FACTS_FILE).read_text()


def test_the_best_recipe_of_a_segmentation_gives_the_trials_numbers_again(finished: Path) -> None:
    best = Search(finished).progress.best
    assert best is not None
    again = train(read_recipe(finished / "best.yaml")).history[-1].metrics()
    same = [name for name in best.metrics if name.startswith(("val_", "train_"))]
    assert {"val_mean_iou", "val_mean_dice"} <= set(same)
    assert {name: again[name] for name in same} == {name: best.metrics[name] for name in same}


def test_all_parts_of_a_search_with_masks_agree_and_it_can_be_refined(finished: Path) -> None:
    assert not audit(Search(finished)).differences
    found = refine(Search(finished))
    assert found.following.objective.metric == "val_mean_iou"
    assert found.following.base["task"]["kind"] == "segmentation"
