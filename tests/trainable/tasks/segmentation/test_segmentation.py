"""Tests what a segmentation learns and answers, and runs of it: in parts, on ranks, and resumed."""

from __future__ import annotations

import copy
import json
import math
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional

from tests.trainable.small_runs import curve, finished
from tests.trainable.small_segmentations import CLASSES, mask_recipe, write_masks
from trainable.errors import RecipeError
from trainable.ranks import ALONE, Ranks, of_process_group
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED, MaskLoss, Segmentation
from trainable.run import make_run
from trainable.tasks.segmentation.task import (
    SegmentationTask,
    SlidingWindow,
    answer_in_windows,
    window_starts,
)
from trainable.training.evaluate import PLAIN, View
from trainable.training.extra_metrics import Metric
from trainable.training.run import Run

OFF = torch.autocast("cpu", enabled=False)
SIZES = ((24, 24), (18, 30), (30, 18))
WORLD = 2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp("masks"), 24, SIZES)


def convolution(stride: int = 1, side: int = 3) -> nn.Module:
    """Return a net in fp64 without norms."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, side, padding=side // 2, stride=stride)
    return nn.Sequential(first, nn.Tanh(), nn.Conv2d(8, 3, 1)).double()


def task(side: int = 16, **loss: Any) -> SegmentationTask:
    return SegmentationTask(Segmentation(loss=MaskLoss(**loss)), 3, SlidingWindow(side, 1 / 3))


# --- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "overlap"), [(16, 0.5), (17, 0.0), (40, 0.0), (40, 1 / 3), (100, 0.9)])
def test_windows_cover_an_axis_evenly_and_overlap_enough(length: int, overlap: float) -> None:
    starts = window_starts(length, 16, overlap)
    assert (starts[0], starts[-1] + 16) == (0, length)
    steps = [after - before for before, after in pairwise(starts)]
    assert all(step <= max(1, 16 * (1 - overlap)) for step in steps)
    assert not steps or max(steps) - min(steps) <= 1


@pytest.mark.parametrize("size", [(16, 16), (9, 11), (16, 40), (37, 33)])
def test_pixels_that_are_answered_alone_are_answered_alike_in_windows(size: tuple[int, int]) -> None:
    model, images = convolution(side=1), torch.randn(2, 3, *size, dtype=torch.float64)
    answered = answer_in_windows(model, images, OFF, SlidingWindow(16, 1 / 3))
    torch.testing.assert_close(answered, model(images))


def test_coarse_answers_are_enlarged_to_their_window() -> None:
    model, images = convolution(stride=4), torch.randn(1, 3, 16, 16, dtype=torch.float64)
    expected = functional.interpolate(model(images), size=(16, 16), mode="bilinear")
    torch.testing.assert_close(answer_in_windows(model, images, OFF, SlidingWindow(16, 0.0)), expected)


def test_overlapping_windows_are_averaged() -> None:
    """Each window answers its own mean: where two overlap, the answer is that of both."""

    class Mean(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.mean((1, 2, 3), keepdim=True).expand(-1, 1, *images.shape[-2:])

    images = torch.arange(24.0).expand(1, 1, 16, 24)
    answered = answer_in_windows(Mean(), images, OFF, SlidingWindow(16, 0.5))[0, 0, 0]
    assert answered.tolist() == [7.5] * 8 + [11.5] * 8 + [15.5] * 8


def test_beyond_a_small_image_the_network_sees_black() -> None:
    seen: list[Tensor] = []

    class Seeing(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images)
            return images

    black, images = torch.tensor([-1.0, -2.0, -3.0]), torch.randn(2, 3, 9, 11)
    answered = answer_in_windows(Seeing(), images, OFF, SlidingWindow(16, 0.5, black))
    assert torch.equal(answered, images)
    assert torch.equal(seen[0][:, :, :9, :11], images)
    assert torch.equal(seen[0][:, :, 9:], black[:, None, None].expand(2, 3, 7, 16))
    assert torch.equal(seen[0][:, :, :, 11:], black[:, None, None].expand(2, 3, 16, 5))


def test_windows_are_black_beyond_an_image_in_training_and_in_scoring(tmp_path: Path) -> None:
    """Images of 12 x 12 in windows of 16: both show the same level there."""
    levels: dict[bool, list[Tensor]] = {True: [], False: []}

    class Seeing(nn.Conv2d):
        def forward(self, images: Tensor) -> Tensor:
            levels[self.training].append(images.amin((0, 2, 3)).detach())
            return super().forward(images)

    root = write_masks(tmp_path, 12, ((12, 12),))
    make_run(mask_recipe(root, {"data.image_size": 16, "loop.epochs": 1}), model=Seeing(3, 3, 1)).step()
    assert levels[False]
    for black in levels[False]:
        torch.testing.assert_close(black, levels[True][0])


@pytest.mark.parametrize(("most", "refused"), [(10, 0), (3, 2)], ids=["together", "where memory runs out"])
def test_windows_are_answered_together_as_one_by_one(most: int, refused: int) -> None:
    """Images of 37 x 33 have 9 windows or more each, of which there is memory for `most`."""
    sizes: list[int] = []

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = convolution()

        def forward(self, images: Tensor) -> Tensor:
            sizes.append(len(images))
            if len(images) > most:
                raise torch.OutOfMemoryError("planted: out of memory")
            answered: Tensor = self.inner(images)
            return answered

    images = torch.randn(2, 3, 37, 33, dtype=torch.float64)
    expected = answer_in_windows(convolution(), images, OFF, SlidingWindow(16, 1 / 3), at_once=1)
    found = answer_in_windows(Small(), images, OFF, SlidingWindow(16, 1 / 3), at_once=10)
    torch.testing.assert_close(found, expected)
    assert sum(each > most for each in sizes) == refused
    assert max(each for each in sizes if each <= most) == most


def test_a_mirrored_view_answers_for_the_pixels_of_the_image() -> None:
    model, images = convolution(side=1), torch.randn(2, 3, 16, 20, dtype=torch.float64)
    mirrored = task().answer(model, images, OFF, [View(mirrored=True)])
    torch.testing.assert_close(mirrored, model(images))


def test_several_views_are_the_mean_of_their_probabilities_at_the_size_of_the_image() -> None:
    model, images = convolution(), torch.randn(2, 3, 20, 28, dtype=torch.float64)
    views = [PLAIN, View(size=24), View(size=24, mirrored=True)]
    answered = task().answer(model, images, OFF, views)
    assert answered.shape == (2, 3, 20, 28)
    alone = [task().answer(model, images, OFF, [view]).softmax(1) for view in views]
    torch.testing.assert_close(answered.softmax(1), torch.stack(alone).mean(0))


# --- losses, and what counts --------------------------------------------------------------------------


def test_other_heads_count_by_their_weight() -> None:
    masks = torch.randint(0, 3, (2, 16, 16))
    main, other = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 4, 4)
    alone, second = task().loss(main, masks), task().loss(other, masks)
    torch.testing.assert_close(task(auxiliary=0.3).loss((main, other), masks), alone + 0.3 * second)
    assert task(auxiliary=0.0).loss((main, other), masks) == alone


def test_the_loss_of_guessing_is_that_of_equal_answers() -> None:
    learnt = task(cross_entropy=1.0, focal=0.0)
    masks = torch.randint(0, 3, (4, 16, 16))
    assert learnt.loss(torch.zeros(4, 3, 16, 16), masks).item() == pytest.approx(math.log(3))
    assert learnt.guessing == pytest.approx(math.log(3))


def test_right_is_the_share_of_the_counted_pixels_of_each_image() -> None:
    masks = torch.tensor([[[0, 1], [2, IGNORED]], [[IGNORED, IGNORED], [IGNORED, IGNORED]]])
    logits = functional.one_hot(torch.tensor([[[0, 1], [0, 0]]] * 2), 3).permute(0, 3, 1, 2).float()
    assert task().right(logits, masks).tolist() == pytest.approx([2 / 3, 0.0])


def test_resized_images_have_resized_masks() -> None:
    images, masks = torch.randn(2, 3, 16, 16), torch.randint(0, 3, (2, 16, 16))
    smaller, shrunk = task().resized(images, masks, 8)
    assert smaller.shape == (2, 3, 8, 8)
    assert torch.equal(shrunk, masks[:, 1::2, 1::2])
    assert task().resized(images, masks, 16)[1] is masks


def test_masked_recipes_refuse_what_masks_cannot_have(root: Path) -> None:
    problems = {
        "augmentation.mixing.kind": "mixup",
        "evaluation.metrics": ["macro_f1"],
        "model.kind": "resnet_small",
    }
    for path, value in problems.items():
        with pytest.raises(RecipeError, match=f"{path}.* does not go with task.kind segmentation: expected"):
            mask_recipe(root, {path: value})
    for path, value in {"augmentation.crop.kind": "scaled", "model.kind": "unet_small"}.items():
        with pytest.raises(RecipeError, match=f"{path} {value} does not go with task.kind classification"):
            Recipe().with_values({path: value})


def test_a_segmentation_has_the_small_u_net_by_default() -> None:
    assert Recipe.from_tree({"task": {"kind": "segmentation"}}).model.kind == "unet_small"


# --- runs ---------------------------------------------------------------------------------------------


def trained(run: Run) -> list[dict[str, Any]]:
    finished(run)
    return curve(run.history)


def test_a_run_learns_and_reports_the_overlap_of_classes(root: Path) -> None:
    values = {"loop.epochs": 8, "evaluation.metrics": ["boundary_f1"], "augmentation.crop.kind": "scaled"}
    run = make_run(mask_recipe(root, values))
    history = trained(run)
    first, last = history[0], history[-1]
    assert {"val_mean_iou", "val_mean_dice", "val_boundary_f1"} <= last.keys()
    assert last["val_mean_iou"] > 0.5 > 2 * first["val_mean_iou"]
    scores = run.score("test", confusion=True)
    assert scores.confusion is not None
    assert len(scores.by_class["iou"]) == len(CLASSES)
    assert sum(map(sum, scores.confusion)) == sum(h * w for h, w in run.parts["test"].sizes)


@pytest.mark.parametrize(
    "values", [{}, {"task.loss.dice": 1.0}, {"regularisation.class_weights.kind": "inverse"}]
)
def test_cut_batches_are_whole_batches(root: Path, values: dict[str, Any]) -> None:
    whole = make_run(mask_recipe(root, values), model=convolution())
    parts = make_run(mask_recipe(root, {**values, "loop.micro_batch": 1}), model=convolution())
    for one, other in zip(trained(whole), trained(parts), strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-9)
        assert one["val_loss"] == pytest.approx(other["val_loss"], rel=1e-9)


@pytest.mark.parametrize(
    "values",
    [
        {"augmentation.crop.kind": "scaled", "augmentation.mixing.kind": "classmix"},
        {"augmentation.mixing.kind": "cutmix", "regularisation.averaging.kind": "ema", "loop.micro_batch": 3},
        {"data.in_memory": False, "augmentation.policy.kind": "trivialaugment", "evaluation.norm_batches": 2},
    ],
    ids=["classmix", "cutmix, average", "files, policy"],
)
def test_resuming_equals_never_stopping(root: Path, values: dict[str, Any]) -> None:
    recipe = mask_recipe(root, {**values, "loop.epochs": 3})
    never_stopped, stopped = make_run(recipe), make_run(recipe)
    expected = trained(never_stopped)
    stopped.step()
    state = copy.deepcopy(stopped.state_dict())
    resumed = make_run(recipe)
    resumed.load_state_dict(state)
    assert trained(resumed) == expected
    for name, weight in never_stopped.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name


def test_a_lost_run_reports_the_worst_finite_scores(root: Path) -> None:
    run = make_run(
        mask_recipe(root, {"optimizer.kind": "sgd", "optimizer.lr": 1e9, "optimizer.scaling": "none"})
    )
    last = trained(run)[-1]
    assert last["diverged"]
    assert (last["val_mean_iou"], last["val_mean_dice"]) == (0.0, 0.0)


def test_functions_of_the_caller_are_asked_for_each_image(root: Path) -> None:
    def share_of_discs(predicted: Tensor, mask: Tensor) -> float:
        assert predicted.shape == mask.shape
        return float((mask == 2).float().mean())

    run = make_run(
        mask_recipe(root, {"loop.epochs": 1}), metrics={"discs": Metric(share_of_discs, "min", 1.0)}
    )
    measured = run.step().extra_metrics["val_discs"]
    masks = [mask for _, masks in run.images.loader.evaluate("validation") for mask in masks]
    assert measured == pytest.approx(sum(float((mask == 2).float().mean()) for mask in masks) / len(masks))


RANKED: list[dict[str, Any]] = [
    {"loop.batch_size": 6},
    {
        "loop.batch_size": 5,
        "loop.micro_batch": 1,
        "task.loss.dice": 1.0,
        "task.loss.lovasz": 0.5,
        "augmentation.crop.kind": "scaled",  # mixing takes its pairs from a rank's own images
        "augmentation.policy.kind": "trivialaugment",
        "evaluation.metrics": ["boundary_f1"],
        "evaluation.batch_size": 2,
    },
]


def ranked(ranks: Ranks, root: str) -> list[list[dict[str, Any]]]:
    """Run whose images have three sizes; each rank scores its share."""
    return [
        trained(make_run(mask_recipe(Path(root), values), model=convolution(), ranks=ranks))
        for values in RANKED
    ]


def work(rank: int, folder: str, root: str) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(ranked(of_process_group(), root)))
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.integration
def test_two_ranks_are_one(root: Path, tmp_path: Path) -> None:
    expected = ranked(ALONE, str(root))
    spawn(work, (str(tmp_path), str(root)), nprocs=WORLD)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD))
    assert first == second
    for found, wanted in zip(chain(*first), chain(*expected), strict=True):
        for name in ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "val_mean_iou"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-9), name
