"""Tests docs/tasks.md: its code adds a third task, which trains, is resumed, and is the same in parts."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainable.teachers import write_teacher
from trainable.errors import RecipeError

PAGE = Path(__file__).parents[1] / "docs" / "tasks.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return what the page's code defines."""
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    return names


def test_the_page_has_under_300_lines() -> None:
    assert len(PAGE.read_text().splitlines()) < 300


def test_the_third_task_learns(page: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = page["train_lights"]()
    first, last = run.history[0], run.history[-1]
    assert last.extra_metrics["val_mean_error"] < 0.05 < first.extra_metrics["val_mean_error"]
    assert last.val_accuracy > 0.9
    assert last.train_accuracy > 0.9
    assert last.clean_train_accuracy is not None
    assert len(capsys.readouterr().out.splitlines()) == 15


def test_its_batches_may_be_cut_and_its_runs_resumed(page: dict[str, Any]) -> None:
    whole = page["train_lights"](epochs=3)
    parts = page["make_run"](
        whole.recipe.with_values({"loop.micro_batch": 8}),
        data=page["light_set"](),
        model=page["network"](),
        task=page["Position"](),
    )
    parts.step()
    state = copy.deepcopy(parts.state_dict())
    resumed = page["make_run"](
        parts.recipe, data=page["light_set"](), model=page["network"](), task=page["Position"]()
    )
    resumed.load_state_dict(state)
    while not resumed.finished:
        resumed.step()
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-4)


def test_a_lost_run_has_the_scores_that_the_page_calls_worst(page: dict[str, Any]) -> None:
    whole = page["train_lights"](epochs=1)
    lost = page["make_run"](
        whole.recipe.with_values({"optimizer.kind": "sgd", "optimizer.lr": 1e9}),
        data=page["light_set"](),
        model=page["network"](),
        task=page["Position"](),
    )
    result = lost.step()
    assert result.diverged
    assert result.extra_metrics == {"val_mean_error": 1.0}


@pytest.mark.parametrize("kind", ["logits", "dkd"])
def test_a_teachers_answers_are_refused_where_outputs_are_no_logits(
    page: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=rf"distillation\.kind: expected features, got {kind}: Position"):
        taught_run(page, write_teacher(tmp_path), kind)


def test_a_third_task_learns_a_teachers_features(page: dict[str, Any], tmp_path: Path) -> None:
    result = taught_run(page, write_teacher(tmp_path), "features").step()
    assert not result.diverged
    assert result.teacher_seconds


def taught_run(page: dict[str, Any], teacher: Path, kind: str) -> Any:
    recipe = page["train_lights"](epochs=1).recipe
    values = {"distillation.teacher": str(teacher), "distillation.kind": kind}
    return page["make_run"](
        recipe.with_values(values), data=page["light_set"](), model=page["network"](), task=page["Position"]()
    )
