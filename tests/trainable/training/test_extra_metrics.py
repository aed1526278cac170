"""Tests each metric against the library or a loop over images, and functions of the caller's."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as library
from torch import Tensor

from tests.epoch_results import epoch_result
from tests.trainable.small_runs import CLASSES, data_set, numbers, plain_net, small_recipe
from tests.trainable.training.small_metrics import EVERY, NAMES, accuracy, answers, specs
from trainable.errors import RecipeError, UserError
from trainable.recipe import Recipe
from trainable.recipe.metrics import SCORE_OF_KIND
from trainable.recipe.tasks import Classification
from trainable.run import make_run
from trainable.training.answers import Answers
from trainable.training.extra_metrics import Metric, Own, make_extra_metrics, measured
from trainable.training.metrics import ALWAYS, OBJECTIVES, EpochResult, worst

KINDS = Classification.metrics


def value(metric: Any, found: Answers) -> float:
    (spec,) = specs([metric])
    return measured(spec, found, NAMES)


def by_class(found: Answers) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """For each class of the part: which images have it, and their probabilities of it."""
    there = np.unique(found.labels.numpy())
    return [(found.labels.numpy() == each, found.probabilities[:, each].numpy()) for each in there]


def pairs_won(positive: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
    above, below = scores[positive][:, None], scores[~positive][None]
    return float(((above > below) + 0.5 * (above == below)).mean())


@pytest.mark.slow("tries many examples")
@given(answers())
def test_auroc_is_the_share_of_pairs_in_the_right_order(found: Answers) -> None:
    classes = by_class(found)
    expected = 0.5 if len(classes) == 1 else np.mean([pairs_won(*each) for each in classes])
    assert value("auroc", found) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow("tries many examples")
@given(answers())
def test_average_precision_and_f1_are_the_librarys_over_the_classes_that_are_there(found: Answers) -> None:
    expected = np.mean([library.average_precision_score(*each) for each in by_class(found)])
    assert value("average_precision", found) == pytest.approx(expected, abs=1e-12)
    labels, predicted = found.labels.numpy(), found.predicted.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of classes that were never predicted
        report = library.classification_report(labels, predicted, output_dict=True)
    scores = [report[str(each)]["f1-score"] for each in np.unique(labels)]
    assert value("macro_f1", found) == pytest.approx(np.mean(scores), abs=1e-12)


@given(answers(), st.sampled_from([0.2, 0.5, 0.75, 1.0]))
def test_recall_at_a_precision_is_the_best_over_all_thresholds(found: Answers, precision: float) -> None:
    def best(positive: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
        recalls = [0.0]
        for threshold in scores:
            taken = scores >= threshold
            if positive[taken].mean() >= precision:
                recalls.append(positive[taken].sum() / positive.sum())
        return max(recalls)

    expected = np.mean([best(*each) for each in by_class(found)])
    metric = {"kind": "recall_at_precision", "precision": precision}
    assert value(metric, found) == pytest.approx(expected, abs=1e-12)


@given(answers(), st.integers(1, 20))
def test_cost_and_calibration_error_are_those_of_a_loop_over_images(found: Answers, bins: int) -> None:
    costs = [[0, 1, 1], [2, 0, 1], [5, 5, 0]]
    pairs = zip(found.labels.tolist(), found.predicted.tolist(), strict=True)
    expected = np.mean([costs[true][predicted] for true, predicted in pairs])
    assert value({"kind": "cost", "costs": costs}, found) == pytest.approx(expected, abs=1e-12)
    sure, right = found.probabilities.amax(1), found.predicted == found.labels
    total = 0.0
    for number in range(bins):
        inside = (sure > number / bins) & (sure <= (number + 1) / bins)
        if inside.any():
            gap = right[inside].double().mean() - sure[inside].mean()
            total += inside.double().mean().item() * abs(gap.item())
    metric = {"kind": "calibration_error", "bins": bins}
    assert value(metric, found) == pytest.approx(total, abs=1e-9)


@pytest.mark.slow("tries many examples")
@given(answers(), st.permutations(range(30)))
def test_the_order_of_images_changes_nothing_and_every_value_is_finite(
    found: Answers, order: list[int]
) -> None:
    mixed = found.of(np.array([each for each in order if each < len(found.labels)]))
    for metric in EVERY:
        assert math.isfinite(value(metric, found))
        assert value(metric, found) == pytest.approx(value(metric, mixed), abs=1e-12)


def test_answers_that_are_nearly_sure_are_no_ties() -> None:
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0]])
    assert logits.softmax(1)[0, 0] == logits.softmax(1)[1, 0], "they are in float32"
    assert value("auroc", Answers.of_logits(logits.double(), torch.tensor([1, 0]))) == 1.0


def test_costs_follow_the_names_of_the_classes() -> None:
    found = Answers.of_logits(torch.eye(3).double()[[0, 1, 2, 2]], torch.tensor([0, 0, 2, 1]))
    costs = [[0, 7, 1], [2, 0, 3], [4, 5, 0]]
    assert value({"kind": "cost", "costs": costs}, found) == (7 + 3) / 4
    named = {"kind": "cost", "costs": costs, "classes": ["2", "0", "1"]}  # rows: classes 2, 0, 1
    assert value(named, found) == (3 + 4) / 4


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"kind": "cost", "costs": [[0, 1], [1, 0]]}, r"2 rows of costs, the data have 3 classes: 0, 1, 2"),
        (
            {"kind": "cost", "costs": [[0] * 3] * 3, "classes": ["0", "1", "cat"]},
            r"classes 0, 1, cat, the data have 0, 1, 2",
        ),
    ],
)
def test_costs_of_other_classes_are_refused_before_any_training(metric: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=rf"evaluation\.metrics: cost: {message}"):
        make_run(small_recipe({"evaluation.metrics": [metric]}), data=data_set())


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["f1"], r"metrics\.0\.kind: expected one of 'macro_f1', 'auroc'.*, got 'f1'"),
        (["auroc", "auroc"], r"evaluation\.metrics: kind auroc is there more than once"),
        (["recall_at_precision"], r"metrics\.0\.precision: is required"),
        ([{"kind": "recall_at_precision", "precision": 1.5}], r"metrics\.0\.precision: .*1\.5"),
        ([{"kind": "cost", "costs": [[0, 1], [1]]}], r"as many columns as rows: 2 rows, a row of 1"),
        ([{"kind": "cost", "costs": [[0, 1], [1, 0]], "classes": ["a", "a"]}], r"class a is there more than"),
        ([{"kind": "calibration_error", "bins": 0}], r"metrics\.0\.bins: .*0"),
    ],
)
def test_a_faulty_metric_is_named(metrics: list[Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        specs(metrics)


def test_a_recipe_with_metrics_survives_yaml_and_has_another_digest() -> None:
    recipe = small_recipe({"evaluation.metrics": EVERY})
    assert Recipe.from_tree(recipe.tree()) == recipe
    assert recipe.digest() != small_recipe().digest()


def test_every_kind_can_be_an_objective() -> None:
    assert {f"val_{kind}" for kind in SCORE_OF_KIND} <= set(OBJECTIVES)
    assert tuple(each.kind for each in specs(EVERY)) == KINDS


# --- in a run


def test_a_run_reports_each_metric_of_the_validation_part_by_its_name() -> None:
    run = make_run(small_recipe({"evaluation.metrics": EVERY}), data=data_set())
    result = run.step()
    assert set(result.extra_metrics) == {f"val_{kind}" for kind in KINDS}
    assert result.metrics().items() >= result.extra_metrics.items()
    found = run.score("validation", answers=True)
    assert found.answers is not None
    assert torch.equal(found.answers.labels, torch.as_tensor(data_set().parts["validation"].labels).long())
    expected = {f"val_{spec.kind}": measured(spec, found.answers, NAMES) for spec in specs(EVERY)}
    assert result.extra_metrics == expected
    assert set(run.evaluate("test")) > {f"test_{kind}" for kind in KINDS}


def test_metrics_change_nothing_else_in_a_run() -> None:
    with_metrics = make_run(small_recipe({"evaluation.metrics": EVERY}), data=data_set())
    without = make_run(small_recipe(), data=data_set())
    for _ in range(2):
        with_metrics.step(), without.step()
    names = {f"val_{kind}" for kind in KINDS}
    for theirs, ours in zip(numbers(with_metrics.history), numbers(without.history), strict=True):
        assert {name: theirs[name] for name in theirs.keys() - names} == ours


def test_a_run_that_diverged_has_the_worst_value_of_each_metric() -> None:
    own: Own = {"gain": lambda p, y: 1.0, "error": Metric(lambda p, y: 0.5, mode="min", worst=9.0)}
    net = plain_net()
    net.register_forward_hook(lambda net, _, logits: logits if net.training else logits * math.nan)
    run = make_run(small_recipe({"evaluation.metrics": EVERY}), data=data_set(), model=net, metrics=own)
    assert run.step().extra_metrics == {
        "val_macro_f1": 0.0,
        "val_auroc": 0.0,
        "val_average_precision": 0.0,
        "val_recall_at_precision": 0.0,
        "val_cost": 5.0,
        "val_calibration_error": 1.0,
        "val_gain": 0.0,
        "val_error": 9.0,
    }


# --- functions of the caller's


def test_a_function_sees_the_probabilities_of_the_whole_part_once() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def spoil(probabilities: Tensor, labels: Tensor) -> float:
        seen.append((probabilities.clone(), labels.clone()))
        probabilities.zero_()
        labels.zero_()
        return 0.25

    recipe = small_recipe({"evaluation.batch_size": 7, "evaluation.metrics": ["auroc"]})
    run = make_run(recipe, data=data_set(), model=plain_net(), metrics={"spoil": spoil, "mine": accuracy})
    result = run.step()
    ((probabilities, labels),) = seen
    assert probabilities.dtype == torch.float64
    assert probabilities.sum(1).tolist() == pytest.approx([1.0] * 20)
    assert labels.tolist() == [each % CLASSES for each in range(20)]
    assert result.extra_metrics["val_spoil"] == 0.25
    assert result.extra_metrics["val_mine"] == result.val_accuracy
    assert result.score("val_mine") == result.val_accuracy


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda p, y: math.nan, r"metric mine: your function returned nan, expected a finite number"),
        (lambda p, y: 1 / 0, r"metric mine: your function raised ZeroDivisionError: division by zero"),
        (lambda p, y: "good", r"metric mine: your function raised ValueError: .*'good'"),
    ],
)
def test_a_function_that_fails_is_one_clear_message(function: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_run(small_recipe(), data=data_set(), metrics={"mine": function}).step()


def test_probabilities_that_do_not_fit_in_memory_are_refused_before_training_with_the_metrics_that_need_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = 20 * CLASSES * 8 * 2
    monkeypatch.setattr("trainable.training.extra_metrics.available_bytes", lambda: needed - 1)
    asked = small_recipe({"evaluation.metrics": ["auroc", "macro_f1"]})
    with pytest.raises(UserError) as caught:
        make_run(asked, data=data_set(), model=plain_net())
    assert str(caught.value).startswith(
        f"metrics auroc: the probabilities of {CLASSES} classes for 20 images take {needed:,} bytes of memory"
    )
    with pytest.raises(UserError, match="metrics mine: the probabilities of"):
        make_run(small_recipe(), data=data_set(), model=plain_net(), metrics={"mine": accuracy})
    make_run(small_recipe({"evaluation.metrics": ["macro_f1"]}), data=data_set(), model=plain_net()).close()
    monkeypatch.setattr("trainable.training.extra_metrics.available_bytes", lambda: needed)
    make_run(asked, data=data_set(), model=plain_net()).close()


@pytest.mark.parametrize("name", ["accuracy", "auroc", "F1", "", "a b"])
def test_a_function_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(UserError, match="a function cannot be called"):
        make_extra_metrics((), {name: accuracy}, NAMES)


def test_a_metric_that_is_better_when_lower_says_its_worst_value() -> None:
    with pytest.raises(ValueError, match="needs its worst finite value"):
        Metric(accuracy, mode="min")
    with pytest.raises(ValueError, match="worst must be finite, got inf"):
        Metric(accuracy, worst=math.inf)


RESULT = epoch_result(epoch=3, accuracy=0.75)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_result_holds_finite_numbers_only(number: float) -> None:
    with pytest.raises(ValueError, match="val_loss must be finite"):
        replace(RESULT, val_loss=number)


def test_metrics_leave_out_what_is_not_measured_and_what_is_no_metric() -> None:
    metrics = RESULT.metrics()
    assert metrics["val_accuracy"] == 0.75
    assert not {"epoch", "diverged", "val_top5_accuracy"} & set(metrics)


def test_a_result_survives_plain_data() -> None:
    assert EpochResult.from_tree(RESULT.tree()) == RESULT


def test_the_worst_value_ranks_behind_guessing_and_is_finite() -> None:
    for metric, (mode, *_) in ALWAYS.items():
        value = worst(metric, 10)
        guessing = 0.1 if mode == "max" else math.log(10)
        assert math.isfinite(value)
        assert value < guessing if mode == "max" else value > guessing
