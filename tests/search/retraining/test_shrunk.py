"""Tests what is said of a pruned network: differences with intervals, verdicts, and the data of `--json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from search.record.finals import student
from search.retraining.shrunk import compared, difference
from trainable.bundle.trained import Trained
from trainable.data import DataSet, Split
from trainable.data.assembly import from_arrays
from trainable.models.widths import Widths
from trainable.origins import Origins
from trainable.probes.network_cost import Flops
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance
from trainable.shrinking.fine_tuning import Tuned
from trainable.shrinking.latency import Latency
from trainable.shrinking.prune import Pruned
from trainable.shrinking.shrink import DISTILLED, PRUNED, SCRATCH, TUNED, UNPRUNED, NarrowCost, Shrunk
from trainable.tasks.segmentation.answers import MaskAnswers
from trainable.training.answers import Answers
from trainable.training.bootstrap import RESAMPLES, counts_of_images, resampled_metrics
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import make_extra_metrics

IMAGES = 400
EXTRA = make_extra_metrics((), {}, ("no", "yes"))


def scores(wrong: int, first: int = 0) -> Scores:
    """Return the scores of a network that is wrong about so many images, from one on."""
    labels = torch.zeros(IMAGES, dtype=torch.int64)
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64).repeat(IMAGES, 1)
    logits[first : first + wrong] = torch.tensor([0.0, 2.0], dtype=torch.float64)
    accuracy = 1.0 - wrong / IMAGES
    return Scores(0.5, accuracy, accuracy, None, IMAGES, answers=Answers.of_logits(logits, labels))


def test_the_interval_holds_the_deviation_of_the_seeds_and_that_of_the_images() -> None:
    ours, theirs = [scores(30), scores(40), scores(50)], [scores(10)]
    found = difference(ours, theirs, "accuracy", EXTRA, seed=3)
    assert found.mean == pytest.approx(-30 / IMAGES)
    samples = [
        resampled_metrics(each.answers, EXTRA, 3, RESAMPLES)["accuracy"]
        for each in (*ours, *theirs)
        if each.answers is not None
    ]
    of_images = float(np.var(np.mean(samples[:3], axis=0) - samples[3]))
    of_seeds = float(np.var([0.925, 0.9, 0.875], ddof=1)) / 3
    total = of_images + of_seeds
    freedom = total**2 / (of_seeds**2 / 2)
    assert found.high - found.mean == pytest.approx(student(freedom) * total**0.5)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    assert found.sure


def test_images_are_paired_so_that_equal_answers_differ_by_nothing() -> None:
    same = difference([scores(40)], [scores(40)], "accuracy", EXTRA, seed=0)
    assert (same.mean, same.sure) == (0.0, False)
    assert 0.0 < same.high == -same.low < 0.01  # 0 of 400 images differ, which is no proof for all images
    other = difference([scores(40, first=40)], [scores(40)], "accuracy", EXTRA, seed=0)
    assert other.mean == 0.0
    assert other.high > 0.02


def test_without_answers_the_seeds_alone_say_how_sure_it_is() -> None:
    blind = [Scores(0.5, accuracy, accuracy, None, IMAGES) for accuracy in (0.8, 0.9)]
    found = difference(blind, [Scores(0.5, 0.9, 0.9, None, IMAGES)], "accuracy", EXTRA, seed=0)
    assert found.high - found.mean == pytest.approx(student(1) * (0.005 / 2) ** 0.5)


def test_two_equal_scores_do_not_say_that_training_has_no_luck() -> None:
    """Both are wrong about 40 images, of which ten are the same: 60 images differ, each by its own luck."""
    ours, theirs = [scores(40), scores(40, first=30)], [scores(20, first=200)]
    assert ours[0].accuracy == ours[1].accuracy
    found = difference(ours, theirs, "accuracy", EXTRA, seed=3)
    samples = [
        resampled_metrics(each.answers, EXTRA, 3, RESAMPLES)["accuracy"]
        for each in (*ours, *theirs)
        if each.answers is not None
    ]
    of_images = float(np.var((samples[0] + samples[1]) / 2 - samples[2]))
    of_seeds = float(np.var(samples[0] - samples[1])) / 2 / 2
    assert of_seeds == pytest.approx(60 / IMAGES**2 / 2 / 2, rel=0.2)
    total = of_images + of_seeds
    half = student(total**2 / of_seeds**2) * total**0.5
    assert found.high - found.mean == pytest.approx(half)
    assert half > 1.1 * student(np.inf) * of_images**0.5


def test_equal_scores_without_answers_are_known_no_finer_than_one_image() -> None:
    blind = [Scores(0.5, 0.8, 0.8, None, IMAGES)] * 2
    found = difference(blind, [Scores(0.5, 0.801, 0.801, None, IMAGES)], "accuracy", EXTRA, seed=0)
    assert found.high - found.mean == pytest.approx(student(1) * (1 / IMAGES**2 / 12 / 2) ** 0.5)
    assert not found.sure


def data() -> DataSet:
    pixels, labels = np.zeros((8, 8, 8), dtype=np.uint8), np.arange(8) % 2
    return from_arrays((pixels, labels), (pixels, labels))


def shrunk(tuned: list[int], *, unpruned: int = 20, scratch: list[int] | None = None, **of: Any) -> Shrunk:
    """Return a pruned network whose fine-tunings are wrong about so many images each."""
    recipe = Recipe().model_copy(update={"provenance": Provenance(**of)})
    latency = {batch: Latency(tuple(2.0 * batch + 0.1 * at for at in range(-10, 11))) for batch in (1, 32)}
    halves = {batch: Latency((0.5 * each.median_ms,) * 21) for batch, each in latency.items()}
    found = {UNPRUNED: [unpruned], PRUNED: [300], TUNED: tuned, SCRATCH: scratch or []}
    known: dict[str, tuple[Mapping[Split, Scores], ...]] = {
        name: tuple({"validation": scores(each)} for each in wrong) for name, wrong in found.items() if wrong
    }
    return Shrunk(
        Trained(recipe, data(), {}, 1),
        Recipe(),
        Pruned(nn.Identity(), Widths(layers={}, shapes={}), Flops(1000, {}), Flops(480, {})),
        Widths(layers={}, shapes={}),
        known,
        tuple(Tuned(seed, {}, known[TUNED][seed]) for seed in range(len(tuned))),
        {UNPRUNED: NarrowCost(100, 1000, 4000, latency), PRUNED: NarrowCost(50, 480, 2000, halves)},
        Origins(),
    )


@pytest.mark.parametrize(
    ("wrong", "verdict", "words"),
    [
        ([100, 101, 102], "lost", "it lost, by more than chance explains: val_accuracy differs by -0.2025"),
        ([19, 20, 22], "no sure difference", "no difference that chance does not explain"),
        ([1, 1, 2], "gained", "it gained, by more than chance explains"),
    ],
)
def test_the_verdict_says_in_a_sentence_whether_it_lost(wrong: list[int], verdict: str, words: str) -> None:
    found = compared(shrunk(wrong), 0.5)
    assert found.verdict == verdict
    assert words in found.words()
    assert found.words().startswith("With 48.0% of the operations, 3 seeds: ")
    one, many = (str(found.latency_ratios[batch]) for batch in (1, 32))
    assert (one[:6], many) == ("0.50 (", "0.50 (0.50 to 0.50)")
    words = f"Parameters 50.0%, latency {one} of it for 1, {many} of it for 32 images at once."
    assert words in found.words()
    costs = found.costs_table()
    assert costs.columns[3:7] == ("ms for 1", "ratio for 1", "ms for 32", "ratio for 32")
    assert [row[4] for row in costs.rows] == ["", one]


def test_a_loss_is_better_when_it_is_lower() -> None:
    found = shrunk([20, 20], objective="val_loss")
    worse: list[Mapping[Split, Scores]] = [
        {"validation": Scores(0.9 + seed / 100, 0.9, 0.9, None, IMAGES)} for seed in range(2)
    ]
    known = {**found.scores, TUNED: tuple(worse)}
    other = replace(found, scores=known)
    assert compared(other, 0.5).metric == "val_loss"
    assert compared(other, 0.5).verdict == "lost"


def test_it_is_judged_by_the_objective_of_its_search_where_that_is_measured() -> None:
    assert (
        compared(shrunk([20, 20], objective="val_balanced_accuracy"), 0.5).metric == "val_balanced_accuracy"
    )
    assert compared(shrunk([20, 20], objective="val_macro_f1"), 0.5).metric == "val_accuracy"
    assert compared(shrunk([20, 20]), 0.5).metric == "val_accuracy"


def test_the_best_of_the_fine_tunings_is_that_of_validation_and_of_equals_the_first() -> None:
    assert shrunk([30, 20, 20]).best.seed == 1


def test_the_best_is_that_of_the_metric_also_where_a_lower_one_is_better() -> None:
    found = shrunk([20, 20], objective="val_loss")
    sure = (Tuned(0, {}, {"validation": of_loss(0.5, 0.9)}), Tuned(1, {}, {"validation": of_loss(0.4, 0.8)}))
    assert replace(found, tuned=sure).best.seed == 1
    assert replace(shrunk([20, 20]), tuned=sure).best.seed == 0


def of_loss(loss: float, accuracy: float) -> Scores:
    return Scores(loss, accuracy, accuracy, None, IMAGES)


def distilled(wrong: list[int], *, tuned: list[int]) -> Shrunk:
    """Return a pruned network whose distilled ones are wrong about so many images each."""
    found = shrunk(tuned, scratch=[60, 61])
    taught = tuple(Tuned(seed, {}, {"validation": scores(each)}) for seed, each in enumerate(wrong))
    known = dict(found.scores)
    known[DISTILLED], known[SCRATCH] = tuple(each.scores for each in taught), known.pop(SCRATCH)
    return replace(found, tuned=taught, scores=known)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([20, 21], "distillation gained, by more than chance explains: val_accuracy differs by +0.2000"),
        ([180, 181], "distillation lost, by more than chance explains: val_accuracy differs by -0.2000"),
        ([99, 102], "no difference that chance does not explain: val_accuracy differs by +0.0000"),
    ],
)
def test_what_the_teacher_gained_is_said_against_the_fine_tuning_without_it(
    wrong: list[int], words: str
) -> None:
    found = compared(distilled(wrong, tuned=[100, 101]), 0.5)
    assert f"Against the fine-tuning without this teacher, {words}" in found.words()
    rows = [row[0] for row in found.scores_table().rows]
    assert rows == [UNPRUNED, PRUNED, TUNED, DISTILLED, SCRATCH]
    tree = found.tree()
    assert tree["kept"] == DISTILLED
    assert tree["networks"][DISTILLED]["scores"]["val_accuracy"][0] == 1 - wrong[0] / IMAGES
    assert tree["networks"][DISTILLED]["parameters"] == 50
    assert set(tree["without_teacher"]) == {"val_accuracy"}


def test_the_verdict_is_of_the_distilled_network_where_there_is_one() -> None:
    assert compared(distilled([20, 21], tuned=[100, 101]), 0.5).verdict == "no sure difference"
    found = compared(distilled([100, 101], tuned=[20, 21]), 0.5)
    assert found.verdict == "lost"
    assert found.from_scratch["validation"].mean == pytest.approx(-40 / IMAGES)
    without = compared(shrunk([20, 21]), 0.5)
    assert (without.without_teacher, "teacher" in without.words()) == ({}, False)


# --- masks --------------------------------------------------------------------------------------------

PIXELS = 100


def mask_scores(right: list[list[int]]) -> Scores:
    """Return the scores of a network that finds so many pixels of each of two classes, of half the pixels
    each, and take all others for the other class."""
    hits = np.array(right, dtype=np.float64)
    true = np.full_like(hits, PIXELS / 2)
    images = MaskAnswers(np.full(len(hits), 0.5), true, hits + (true - hits)[:, ::-1], hits, None, {})
    whole = images.resampled(np.ones((len(hits), 1), dtype=np.float32)).metrics
    named = {name: float(each[0]) for name, each in whole.items()}
    extra = {name: named[name] for name in ("mean_iou", "mean_dice")}
    known = (named["loss"], named["accuracy"], named["balanced_accuracy"], None, len(hits))
    return Scores(*known, extra=extra, by_image=images)


def of_masks(tuned: list[Scores], **provenance: Any) -> Shrunk:
    found = shrunk([20] * len(tuned), **provenance)
    info = replace(found.trained.data.info, task_kind="segmentation")
    trained = replace(found.trained, data=replace(found.trained.data, info=info))
    runs = tuple(Tuned(seed, {}, {"validation": each}) for seed, each in enumerate(tuned))
    known: dict[str, tuple[Mapping[Split, Scores], ...]] = {
        UNPRUNED: ({"validation": mask_scores(HALF)},),
        PRUNED: ({"validation": mask_scores([[0, 50]] * 8)},),
        TUNED: tuple(each.scores for each in runs),
    }
    return replace(found, trained=trained, scores=known, tuned=runs)


HALF = [[25 + image, 40 - image] for image in range(8)]


def test_networks_for_masks_are_judged_by_their_mean_iou() -> None:
    found = compared(of_masks([mask_scores([[48, 49]] * 8), mask_scores([[50, 48]] * 8)]), 0.5)
    assert (found.metric, found.verdict) == ("val_mean_iou", "gained")
    assert "val_mean_iou differs by" in found.words()
    assert "for 32 windows at once" in found.words()
    assert set(found.tree()["networks"][TUNED]["scores"]) >= {"val_mean_iou", "val_mean_dice", "val_accuracy"}
    other = of_masks([mask_scores(HALF)] * 2, objective="val_mean_dice")
    assert other.metric == "val_mean_dice"


def test_the_best_network_for_masks_is_that_with_the_highest_mean_iou() -> None:
    """Of two that are right about as many pixels, the one that finds both classes has the higher IoU."""
    both, one = mask_scores([[35, 35]] * 8), mask_scores([[22, 49]] * 8)
    assert one.accuracy > both.accuracy
    assert one.extra["mean_iou"] < both.extra["mean_iou"]
    assert of_masks([one, both]).best.seed == 1
    assert of_masks([one, both], objective="val_accuracy").best.seed == 0


def test_the_interval_of_masks_holds_the_deviation_of_the_images() -> None:
    ours, theirs = [mask_scores([[40, 30 + image] for image in range(8)])], [mask_scores(HALF)]
    found = difference(ours, theirs, "mean_iou", EXTRA, seed=3)
    (counts,) = counts_of_images(np.random.default_rng(3), 8, RESAMPLES)
    samples = [
        each.by_image.resampled(counts).metrics["mean_iou"]
        for each in (*ours, *theirs)
        if each.by_image is not None
    ]
    half = student(np.inf) * float(np.std(samples[0] - samples[1]))
    assert half > 0.001
    assert found.high - found.mean == pytest.approx(half)
    same = difference(ours, ours, "mean_iou", EXTRA, seed=3)
    assert (same.mean, same.sure) == (0.0, False)
    assert 0.0 < same.high == -same.low < 0.33  # 0 of 8 images differ


def test_the_same_layers_from_new_weights_are_compared_too() -> None:
    found = compared(shrunk([20, 21], scratch=[60, 61]), 0.5)
    assert (
        "Against the same layers trained from new weights, val_accuracy differs by +0.1000" in found.words()
    )
    assert [row[0] for row in found.scores_table().rows] == [UNPRUNED, PRUNED, TUNED, SCRATCH]
    assert [row[0] for row in found.costs_table().rows] == [UNPRUNED, PRUNED]


def test_the_table_says_that_the_pruned_row_has_statistics_of_the_unpruned_network() -> None:
    caption = compared(shrunk([20, 21]), 0.5).scores_table().caption
    assert caption.endswith("pruned: as it was cut, with the BatchNorm statistics of the unpruned network")


def test_the_data_hold_every_score_difference_and_cost() -> None:
    tree = json.loads(json.dumps(compared(shrunk([100, 100]), 0.5).tree(), allow_nan=False))
    assert tree["schema"] == 1
    assert tree["operations"] == {"asked": 0.5, "left": 0.48}
    assert tree["verdict"] == "lost"
    assert set(tree["networks"]) == {UNPRUNED, PRUNED, TUNED}
    tuned = tree["networks"][TUNED]
    assert tuned["scores"]["val_accuracy"] == [0.75, 0.75]
    assert set(tuned["scores"]) == {"val_loss", "val_accuracy", "val_balanced_accuracy"}
    assert set(tuned["differences"]["val_accuracy"]) == {"difference", "low", "high"}
    assert tree["networks"][UNPRUNED]["differences"] == {}
    assert (tuned["parameters"], tuned["flops"], tuned["file_bytes"]) == (50, 480, 2000)
    assert tuned["latencies"]["1"] == {"median_ms": 1.0, "p5_ms": 1.0, "p95_ms": 1.0, "rounds": 21}
    ratio = tuned["latency_ratios"]["1"]
    assert ratio["ratio"] == 0.5
    assert 0.35 < ratio["low"] < 0.49 < 0.51 < ratio["high"] < 0.8
    assert tree["networks"][UNPRUNED]["latency_ratios"] == {}


def test_a_difference_that_nothing_spreads_is_not_sure_and_has_no_interval() -> None:
    found = difference([scores(0)], [replace(scores(0), loss=0.7)], "loss", EXTRA, seed=0)
    assert (found.mean, found.sure) == (pytest.approx(-0.2), False)
    assert str(found) == "-0.2000 (no spread, so no interval)"
