"""Tests that timm's own factories make of the file what the recipe's own run does, step by step."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import Mixup, create_transform
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2, optimizer_kwargs
from timm.scheduler import create_scheduler_v2, scheduler_kwargs
from timm.utils import ModelEmaV3
from torch import nn, optim
from torch.optim.optimizer import register_optimizer_step_pre_hook

from search.results.formats.timm_args import timm_sheet
from search.results.formats.winner import Winner
from tests.search.results.formats.winners import CLASSES, recipe_of, winner_of
from trainable.augmentation.augment import make_augment
from trainable.augmentation.draws import Draws
from trainable.data import DataSet
from trainable.data.assembly import from_arrays
from trainable.data.decode import Form, square
from trainable.models.ema import Ema
from trainable.recipe import Recipe
from trainable.recipe.training import CenterCrop
from trainable.run import make_run
from trainable.tasks.classification.task import ClassificationTask

EPOCHS, STEPS = 3, 4
NETWORK = {"model__kind": "timm", "model__name": "test_resnet", "data__image_size": 32}
# Bookkeeping and the choice of kernels: no part of what an optimizer computes
OURS_ALONE = {"params", "rate_factor", "lr_scale", "initial_lr", "fused", "foreach", "step"}

# For each step, the settings with which each parameter is updated, by its name
Applied = list[dict[str, dict[str, Any]]]


def images() -> DataSet:
    pixels = np.random.default_rng(0).integers(0, 255, (16 * STEPS, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(len(pixels)) % len(CLASSES)
    return from_arrays((pixels, labels), (pixels[:9], labels[:9]), classes=CLASSES)


def recipe(**values: Any) -> Recipe:
    short = {"loop__epochs": EPOCHS, "loop__batch_size": 16, "evaluation__norm_batches": 0}
    return recipe_of(**NETWORK, **short, **values)


def winner_on(data: DataSet, asked: Recipe) -> Winner:
    return Winner(asked, data.info, winner_of(asked).facts, "a recipe")


def settings(optimizer: optim.Optimizer, names: dict[Any, str]) -> dict[str, dict[str, Any]]:
    return {
        names[each]: {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in group.items()
            if key not in OURS_ALONE
        }
        for group in optimizer.param_groups
        for each in group["params"]
    }


@contextmanager
def recorded(steps: Applied, names: dict[Any, str]) -> Iterator[None]:
    handle = register_optimizer_step_pre_hook(lambda optimizer, *_: steps.append(settings(optimizer, names)))
    try:
        yield
    finally:
        handle.remove()


def applied_by_run(asked: Recipe, data: DataSet) -> Applied:
    run, steps = make_run(asked, data=data), Applied()
    with recorded(steps, {each: name for name, each in run.model.named_parameters()}):
        while not run.finished:
            run.step()
    return steps


def applied_by_timm(cfg: Namespace) -> Applied:
    """Return what train.py does with these arguments: it sets the rate after each step for the next one."""
    torch.manual_seed(0)
    model = timm.create_model(cfg.model, num_classes=cfg.num_classes, in_chans=cfg.input_size[0])
    optimizer = create_optimizer_v2(model, **optimizer_kwargs(cfg), **cfg.opt_kwargs)
    scheduler, epochs = create_scheduler_v2(optimizer, **scheduler_kwargs(cfg), updates_per_epoch=STEPS)
    names, steps = {each: name for name, each in model.named_parameters()}, Applied()
    for step in range(epochs * STEPS):
        steps.append(settings(optimizer, names))
        scheduler.step_update(step + 1)
    return steps


RECIPES: dict[str, dict[str, Any]] = {
    "sgd, cosine": {"schedule__final_factor": 0.05},
    "plain sgd, all decay": {"optimizer__nesterov": False, "optimizer__decay_norm_and_bias": True},
    "rmsprop, poly": {"optimizer__kind": "rmsprop", "schedule__kind": "poly", "schedule__power": 0.9},
    "adam, step": {"optimizer__kind": "adam", "schedule__kind": "step", "schedule__every": 0.25},
    "adamw, exponential": {"optimizer__kind": "adamw", "schedule__kind": "exp", "schedule__gamma": 0.5},
    "adadelta, constant": {"optimizer__kind": "adadelta", "schedule__kind": "constant"},
    "lars": {"optimizer__kind": "lars", "optimizer__nesterov": True},
    "lamb": {"optimizer__kind": "lamb"},
    "timm's nadamw": {"optimizer__kind": "timm", "optimizer__options": {"betas": [0.8, 0.95], "eps": 1e-7}},
    "restarts": {"schedule__kind": "sgdr", "schedule__cycle_epochs": 1.0, "schedule__growth": 2},
    "decayed rates": {"model__layer_rates__kind": "decayed", "model__layer_rates__factor": 0.7},
    "geometric rates": {"model__layer_rates__kind": "geometric", "model__layer_rates__lowest": 0.1},
}


@pytest.mark.parametrize("name", RECIPES)
def test_timm_s_factories_give_each_parameter_the_rate_and_decay_of_the_run_at_every_step(name: str) -> None:
    data, asked = images(), recipe(**RECIPES[name])
    sheet = timm_sheet(winner_on(data, asked))
    theirs, ours = applied_by_timm(Namespace(**sheet.arguments)), applied_by_run(asked, data)
    assert len(theirs) == len(ours) == EPOCHS * STEPS
    for there, here in zip(theirs, ours, strict=True):
        assert there.keys() == here.keys()
        for parameter, wanted in here.items():
            found = there[parameter]
            assert found["lr"] == pytest.approx(wanted["lr"], rel=1e-9, abs=1e-15)
            assert {**found, "lr": 0} == {**wanted, "lr": 0}
    assert not [each for each in sheet.unsaid if each.path in ("schedule", "model.layer_rates", "loop")]


@pytest.mark.parametrize("warmup", [1.0, 2.0])
def test_a_warm_up_of_whole_epochs_begins_alike_and_the_rates_after_it_are_the_same(warmup: float) -> None:
    data, asked = images(), recipe(schedule__warmup_epochs=warmup)
    cfg = Namespace(**timm_sheet(winner_on(data, asked)).arguments)
    theirs, ours = (
        [step["fc.weight"]["lr"] for step in each]
        for each in (applied_by_timm(cfg), applied_by_run(asked, data))
    )
    rising = int(warmup * STEPS)
    assert theirs[0] == pytest.approx(ours[0])
    assert theirs[rising:] == pytest.approx(ours[rising:], rel=1e-9)
    assert max(abs(there - here) for there, here in zip(theirs, ours, strict=True)) < cfg.lr / rising


@pytest.mark.parametrize("warmup", [0.6, 1.0, 1.5])
def test_the_list_says_how_far_the_rates_of_a_warm_up_are_apart_at_most(warmup: float) -> None:
    data, asked = images(), recipe(schedule__warmup_epochs=warmup)
    sheet = timm_sheet(winner_on(data, asked))
    cfg = Namespace(**sheet.arguments)
    pairs = zip(applied_by_timm(cfg), applied_by_run(asked, data), strict=True)
    apart = max(abs(there["fc.weight"]["lr"] - here["fc.weight"]["lr"]) / cfg.lr for there, here in pairs)
    (line,) = [each.why for each in sheet.unsaid if each.path == "schedule"]
    assert f"{apart:.2%} of lr at most" in line


def test_parameters_that_timm_spares_from_decay_are_listed() -> None:
    vit = recipe_of(model__kind="timm", model__name="test_vit", data__image_size=160)
    (line,) = [
        each.why for each in timm_sheet(winner_of(vit)).unsaid if each.path == "optimizer.weight_decay"
    ]
    assert "pos_embed" in line or "cls_token" in line


def test_the_network_has_the_recipe_s_dropout_and_depth() -> None:
    asked = recipe(model__dropout=0.3, model__stochastic_depth=0.2)
    arguments = timm_sheet(winner_of(asked)).arguments
    made = timm.create_model(
        arguments["model"], drop_rate=arguments["drop"], drop_path_rate=arguments["drop_path"]
    )
    ours = make_run(asked, data=images()).model
    assert made.drop_rate == ours.drop_rate == 0.3
    paths = [
        [each.drop_prob for each in model.modules() if "DropPath" in type(each).__name__]
        for model in (made, ours)
    ]
    assert paths[0] == pytest.approx(paths[1])


def test_a_new_head_beside_weights_has_the_recipe_s_spread() -> None:
    asked = recipe_of(model__kind="timm", model__name="tf_efficientnet_lite0", model__weights="default")
    arguments = timm_sheet(winner_of(asked)).arguments
    head = timm.create_model(arguments["model"], num_classes=len(CLASSES)).get_classifier()
    spread = head.weight.std().item() * arguments["head_init_scale"]
    assert spread == pytest.approx(1.0 / (3.0 * head.in_features) ** 0.5, rel=0.1)


# --- images -------------------------------------------------------------------------------------------


def transform_of(asked: Recipe, *, training: bool) -> Any:
    """Return the transform that train.py makes of the arguments."""
    given = timm_sheet(winner_of(asked)).arguments
    common = {"input_size": tuple(given["input_size"]), "mean": given["mean"], "std": given["std"]}
    if not training:
        return create_transform(**common, interpolation=given["interpolation"], crop_pct=given["crop_pct"])
    return create_transform(
        **common,
        is_training=True,
        scale=given["scale"],
        ratio=given["ratio"],
        hflip=given["hflip"],
        vflip=given["vflip"],
        color_jitter=given["color_jitter"],
        auto_augment=given.get("aa"),
        interpolation=given["train_interpolation"],
        re_prob=given.get("reprob", 0.0),
        re_mode=given.get("remode", "pixel"),
        re_count=given.get("recount", 1),
    )


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.25)))
    return (pixels / 255.0 - mean) / std


def photograph(side: int) -> Image.Image:
    small = np.random.default_rng(1).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("flips", [["horizontal"], ["vertical"], ["horizontal", "vertical"], []])
def test_a_training_image_without_chance_is_the_same_pixel_by_pixel(flips: list[str]) -> None:
    asked = recipe_of(augmentation__crop__kind="none", augmentation__flip_probability=1.0, data__flips=flips)
    image = photograph(32)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    for change in make_augment(asked.augmentation, flips, 32):
        pixels = change(pixels, Draws(0, 0, np.array([0])))
    assert torch.allclose(transform_of(asked, training=True)(image), normalised(pixels[0]), atol=1e-5)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_scored_square_image_differs_by_the_rounding_of_a_filter_alone(interpolation: str) -> None:
    asked = recipe_of(data__interpolation=interpolation)
    image = photograph(80)
    ours = torch.from_numpy(square(image.copy(), Form(3, 32, interpolation=interpolation)))  # type: ignore[arg-type]
    theirs = transform_of(asked, training=False)(image)
    assert (theirs - normalised(ours)).abs().max() < 2 / 255 / 0.2


def test_a_central_crop_shows_the_same_middle() -> None:
    asked = recipe_of(evaluation__resize__kind="center_crop", evaluation__resize__ratio=0.8)
    image = photograph(80)
    ours = torch.from_numpy(square(image.copy(), Form(3, 32, CenterCrop(ratio=0.8))))
    assert (transform_of(asked, training=False)(image) - normalised(ours)).abs().mean() < 0.02


def test_random_changes_have_the_recipe_s_numbers() -> None:
    asked = recipe_of(
        augmentation__crop__kind="resized",
        augmentation__crop__scale_min=0.3,
        augmentation__crop__ratio_min=0.8,
        augmentation__masking__kind="erasing",
        augmentation__masking__probability=0.4,
        augmentation__policy__kind="randaugment",
        augmentation__policy__num_ops=3,
        augmentation__policy__magnitude=15,
    )
    crop, flip, policy, *_, erasing = transform_of(asked, training=True).transforms
    assert (crop.scale, crop.ratio) == ((0.3, 1.0), (0.8, 4 / 3))
    assert flip.p == 0.5
    assert policy.num_layers == 3
    assert {op.magnitude for op in policy.ops} == {5.0}, "15 of 30 is 5 of 10"
    assert {op.prob for op in policy.ops} == {1.0}
    assert (erasing.probability, erasing.min_area, erasing.mode) == (0.4, 0.02, "const")


# --- labels, averages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothed_labels_cost_as_much(smoothing: float) -> None:
    asked = recipe_of(regularisation__label_smoothing=smoothing)
    logits, labels = (
        torch.randn(6, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 2, 0, 1, 2]),
    )
    given = timm_sheet(winner_of(asked)).arguments["smoothing"]
    theirs = LabelSmoothingCrossEntropy(given)(logits, labels)
    assert theirs.item() == pytest.approx(ClassificationTask(3, smoothing).loss(logits, labels).item())


@pytest.mark.parametrize(("kind", "active"), [("mixup", "mixup_alpha"), ("cutmix", "cutmix_alpha")])
def test_mixed_labels_cost_as_much(kind: str, active: str) -> None:
    asked = recipe_of(
        augmentation__mixing__kind=kind,
        augmentation__mixing__alpha=0.7,
        augmentation__mixing__probability=0.6,
        regularisation__label_smoothing=0.1,
    )
    given = timm_sheet(winner_of(asked)).arguments
    mixup = Mixup(
        mixup_alpha=given.get("mixup", 0.0),
        cutmix_alpha=given.get("cutmix", 0.0),
        prob=given["mixup_prob"],
        mode=given["mixup_mode"],
        label_smoothing=given["smoothing"],
        num_classes=given["num_classes"],
    )
    alphas = {"mixup_alpha": 0.0, "cutmix_alpha": 0.0, active: 0.7}
    assert {name: getattr(mixup, name) for name in alphas} == alphas
    assert mixup.mix_prob == 0.6
    np.random.seed(3)
    pixels, labels = torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 2, 1])
    mixed, targets = mixup(pixels.clone(), labels)
    plain = Mixup(**alphas, prob=0.6, label_smoothing=0.0, num_classes=3)
    np.random.seed(3)
    shares = plain(pixels.clone(), labels)[1]
    logits = mixed.mean((2, 3))
    wanted = ClassificationTask(3, 0.1).loss(logits, shares)
    assert SoftTargetCrossEntropy()(logits, targets).item() == pytest.approx(wanted.item(), rel=1e-6)


def test_the_average_of_weights_is_the_same_after_every_step() -> None:
    asked = recipe_of(regularisation__averaging__kind="ema", regularisation__averaging__decay=0.8)
    given = timm_sheet(winner_of(asked)).arguments
    layer = nn.Linear(2, 2)
    ours = Ema(layer, 0.8)
    theirs = ModelEmaV3(layer, decay=given["model_ema_decay"], use_warmup=given["model_ema_warmup"])
    for step in range(1, 12):
        with torch.no_grad():
            layer.weight.add_(torch.randn(2, 2, generator=torch.Generator().manual_seed(step)))
        ours.update()
        theirs.update(layer, step=step)  # train.py counts the step that is done
        assert torch.allclose(ours.model.get_parameter("weight"), theirs.module.weight, atol=1e-6)


@pytest.mark.parametrize(("kind", "mode", "value"), [("norm", "norm", 1.0), ("adaptive", "agc", 0.01)])
def test_gradients_are_clipped_in_the_same_way(kind: str, mode: str, value: float) -> None:
    given = timm_sheet(winner_of(recipe_of(regularisation__clipping__kind=kind))).arguments
    assert (given["clip_mode"], given["clip_grad"]) == (mode, value)


# --- batches ------------------------------------------------------------------------------------------


def test_gpus_and_parts_make_the_recipe_s_batch_and_rate() -> None:
    asked = recipe_of(loop__batch_size=96, loop__micro_batch=20, optimizer__lr=0.1)
    given = timm_sheet(winner_of(asked, gpus=2)).arguments
    assert (given["batch_size"], given["grad_accum_steps"]) == (16, 3)
    assert given["lr"] == pytest.approx(0.1 * 96 / 256)


def test_another_number_of_steps_an_epoch_is_listed() -> None:
    asked = recipe_of(loop__batch_size=48, loop__micro_batch=16)
    (line,) = [each.why for each in timm_sheet(winner_of(asked)).unsaid if each.path == "loop"]
    assert line == "timm takes 7 steps an epoch, and the recipe 6", (
        "320 images are 20 parts, and 6 batches of 3"
    )
