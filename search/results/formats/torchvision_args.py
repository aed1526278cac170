"""A recipe as a command for the train.py of torchvision's references/classification."""

from __future__ import annotations

import math
import shlex
from typing import Any, assert_never

from search.results.formats.sheet import Sheet
from search.results.formats.table import (
    EQUAL_PARTS,
    LABELS_ALONE,
    NEUTRAL,
    UNTOUCHED,
    WHOLE_SIZE,
    FieldRow,
    colours,
    filled,
    folder,
    interpolation,
    lost,
    measured_norms,
    only,
    only_each,
    parts,
    rate,
    says,
    side,
)
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.recipe import augmentations, schedules

TITLE = "A command for train.py of torchvision's references/classification: run it in that folder"
# The references normalise by these, whatever is said
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NO_HELP = "the references have no argument for it"
FIXED = "the references have one value, in their code"
ONE_COSINE = ("poly", "sgdr", "onecycle", "cyclic")  # schedules that the references have not


def torchvision_sheet(winner: Winner) -> Sheet:
    """Return the references' arguments for a recipe, and what they cannot say."""
    return filled(TABLE, winner)


def shell_command(winner: Winner, sheet: Sheet) -> str:
    """Return the arguments as a shell command, one on each line; a value of True is a flag alone."""
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
        for name, value in sheet.arguments.items()
        if value is not None and value is not False
    ]
    return " \\\n  ".join([f"torchrun --nproc_per_node={winner.gpus} train.py", *flags]) + "\n"


def _fixed(value: float) -> str:
    return f"{FIXED}: {value:g}"


def _schedule(spec: schedules.Schedule, winner: Winner) -> dict[str, Any]:
    rising = round(spec.warmup_epochs)
    shape = _shape(spec, winner.recipe.loop.epochs - rising, rate(None, winner))
    if rising:
        shape |= {"lr_warmup_epochs": rising, "lr_warmup_method": "linear", "lr_warmup_decay": 0.5 / rising}
    return shape


def _shape(spec: schedules.Schedule, length: int, lr: float) -> dict[str, Any]:
    match spec:
        case schedules.Constant():
            return {"lr_scheduler": "steplr", "lr_step_size": length + 1}
        case schedules.Cosine(final_factor=final):
            return {"lr_scheduler": "cosineannealinglr", "lr_min": final * lr}
        case schedules.Step(every=every, gamma=gamma):
            steps = max(1, round(every * length))
            return {"lr_scheduler": "steplr", "lr_step_size": steps, "lr_gamma": gamma}
        case schedules.Exponential(gamma=gamma):
            return {"lr_scheduler": "exponentiallr", "lr_gamma": gamma}
        case schedules.Poly() | schedules.SGDR() | schedules.OneCycle() | schedules.Cyclic():
            return {"lr_scheduler": "cosineannealinglr"}
        case _:
            assert_never(spec)


def _why_no_schedule(spec: schedules.Schedule, _: Winner) -> str:
    whole = "" if spec.warmup_epochs == int(spec.warmup_epochs) else ", and warm up for whole epochs"
    instead = "; the file has one cosine instead" if spec.kind in ONE_COSINE else ""
    return f"the references change the rate once an epoch{whole}{instead}"


def _average(decay: float, winner: Winner) -> float:
    # the references multiply what a step forgets by the batch, over the epochs
    return 1.0 - (1.0 - decay) * winner.recipe.loop.epochs / winner.cut.batch


def _mirrors_half(_: object, winner: Winner) -> bool:
    flips = winner.recipe.data.flips or ()
    return winner.recipe.augmentation.flip_probability == 0.5 and flips == ("horizontal",)


def _share(winner: Winner) -> int:
    return winner.cut.parts * winner.cut.at_once


def _steps(winner: Winner) -> int:
    return math.ceil(math.ceil(winner.info.train_images / winner.gpus) / _share(winner))


TABLE: tuple[FieldRow, ...] = (
    says("data.path", {"data_path": folder}),
    says("data.interpolation", {"interpolation": interpolation}),
    says("data.image_size", {"train_crop_size": side, "val_crop_size": side}),
    parts("the references read train/ and val/ of class folders: --images DIR writes them so, upright"),
    lost(
        "data.normalisation",
        f"{FIXED}: ImageNet's mean and std",
        unless=lambda _, winner: statistics_of(winner.recipe.data, winner.info) == IMAGENET,
    ),
    colours("the references read colour images"),
    # --- the network
    says("model[torchvision].name", "model"),
    lost(
        "model[resnet_small|unet_small|timm|smp|own]",
        "torchvision has no such network; write one's name after --model",
    ),
    only(
        "model[torchvision].weights",
        None,
        "the references load weights with their own number of classes; a new head needs a line of code",
    ),
    *only_each("model[torchvision]", NO_HELP, **UNTOUCHED, dropout=None, stochastic_depth=None),
    lost("model[torchvision].layer_rates[geometric|decayed|backbone]", NO_HELP),
    # --- the optimizer
    says("optimizer[sgd]", {"opt": lambda spec, _: "sgd_nesterov" if spec.nesterov else "sgd"}),
    says("optimizer[rmsprop]", {"opt": "rmsprop"}),
    says("optimizer[adamw]", {"opt": "adamw"}),
    says(
        "optimizer[lars]",
        {"opt": "sgd"},
        but="the references have no LARS; the file has SGD, which needs another rate",
    ),
    says(
        "optimizer[adam|adadelta|lamb|adam_then_sgd|timm]",
        {"opt": "adamw"},
        but="the references have no such optimizer; the file has AdamW",
    ),
    says("optimizer[sgd|rmsprop|lars].momentum", "momentum"),
    *only_each("optimizer[rmsprop]", _fixed, alpha=0.9, eps=0.0316),
    *only_each("optimizer[adamw]", _fixed, beta1=0.9, beta2=0.999, eps=1e-8),
    says("optimizer.lr", {"lr": rate}),
    says("optimizer.weight_decay", "weight_decay"),
    says(
        "optimizer.decay_norm_and_bias",
        lambda all_decay, _: {} if all_decay else {"norm_weight_decay": 0.0, "bias_weight_decay": 0.0},
    ),
    # --- the schedule
    says("loop.epochs", "epochs"),
    says("schedule", _schedule, but=_why_no_schedule),
    # --- regularisation
    says("regularisation.label_smoothing", "label_smoothing"),
    lost("regularisation.class_weights[inverse|effective_number]", NO_HELP),
    only("regularisation.logit_adjustment", 0.0, NO_HELP),
    says("regularisation.clipping[norm].max_norm", "clip_grad_norm"),
    lost("regularisation.clipping[adaptive]", NO_HELP),
    says(
        "regularisation.averaging[ema]",
        {"model_ema": True, "model_ema_steps": 1},
        but="the references begin the average after the warm-up, at its whole decay",
    ),
    says("regularisation.averaging[ema].decay", {"model_ema_decay": _average}),
    # --- augmentation
    lost(
        "augmentation.crop[none|pad|resized]",
        f"{FIXED}: a resized crop of 0.08 to 1 of the area",
        unless=lambda crop, _: crop == augmentations.ResizedCrop(),
    ),
    lost("data.flips", f"{FIXED}: half of the images are mirrored left to right", unless=_mirrors_half),
    only("augmentation.flip_probability", 0.5, f"{FIXED}: 0.5"),
    lost("augmentation.size[multi_scale|progressive]", NO_HELP),
    says("augmentation.mixing[mixup].alpha", "mixup_alpha"),
    says("augmentation.mixing[cutmix].alpha", "cutmix_alpha"),
    only("augmentation.mixing[mixup|cutmix].probability", 1.0, "the references mix every batch"),
    says("augmentation.policy[randaugment]", {"auto_augment": "ra"}),
    says("augmentation.policy[randaugment].magnitude", "ra_magnitude"),
    only("augmentation.policy[randaugment].num_ops", 2, f"{FIXED}: 2"),
    says("augmentation.policy[trivialaugment]", {"auto_augment": "ta_wide"}),
    says("augmentation.policy[autoaugment].policy", "auto_augment"),
    says("augmentation.masking[erasing].probability", "random_erase"),
    *only_each("augmentation.masking[erasing]", _fixed, area_min=0.02, area_max=0.33),
    *only_each("augmentation.masking[erasing]", _fixed, ratio_min=0.3, ratio_max=3.3),
    lost("augmentation.masking[cutout|gridmask|hide_and_seek]", "the references erase rectangles alone"),
    *NEUTRAL,
    # --- the loop
    says("loop.batch_size", {"batch_size": lambda _, winner: _share(winner)}),
    says("loop.sync_norm", "sync_bn"),
    says("loop", {"device": lambda _, winner: winner.device}),
    says("precision[fp16|bf16|auto]", {"amp": lambda _, winner: winner.device == "cuda"}),
    says("precision[fp32|tf32]"),
    says("loop.workers", "workers"),
    EQUAL_PARTS,
    lost(
        "loop",
        lambda _, winner: (
            f"an epoch has {_steps(winner)} steps there, the last of fewer images, and here {winner.steps}"
        ),
        unless=lambda _, winner: _steps(winner) == winner.steps,
    ),
    lost(
        "loop.micro_batch",
        lambda _, winner: f"the references compute a device's {_share(winner)} images at once",
        unless=lambda images, winner: images in (None, _share(winner)),
    ),
    only("precision.kind", "fp16", "--amp is fp16, and without it the references compute in fp32"),
    only("precision.channels_last", False, NO_HELP),
    only("loop.sampling", "natural", "the references show each image once an epoch"),
    lost("loop.seed", "the references draw another one each time"),
    *only_each("loop", NO_HELP, bf16_gradients=False, checkpoint_activations=False, compile=False),
    # --- evaluation
    says(
        "evaluation.resize[stretch]",
        {"val_resize_size": side},
        but="of images that are not square the references take the middle",
    ),
    says(
        "evaluation.resize[center_crop].ratio",
        {"val_resize_size": lambda ratio, winner: round(winner.info.image_size / ratio)},
    ),
    WHOLE_SIZE,
    only("evaluation.flip", False, NO_HELP),
    only("evaluation.scales", (1.0,), NO_HELP),
    measured_norms("the references score with the statistics of the last steps"),
    only("evaluation.metrics", (), "the references measure accuracy and top-5 accuracy"),
    LABELS_ALONE,
)
