"""Writes a recipe as a command for the train.py of torchvision's references/classification."""

from __future__ import annotations

import math
import shlex
from typing import Any, assert_never

from search.results.formats.sheet import OF_MASKS, Sheet
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.recipe import augmentations, models, optimizers, schedules, training
from trainable.training.optim import applied_lr

TITLE = "A command for train.py of torchvision's references/classification: run it in that folder"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The references normalise by these numbers, whatever their arguments."""
NO_HELP = "the references have no argument for it"
FIXED = "the references have one value, in their code"
ERASED = {"area_min": 0.02, "area_max": 0.33, "ratio_min": 0.3, "ratio_max": 3.3}


def torchvision_sheet(winner: Winner) -> Sheet:
    """Return the references' arguments for a recipe, and what they cannot say."""
    sheet = Sheet(winner.recipe)
    _data(sheet, winner)
    _model(sheet, winner)
    _optimizer(sheet, winner)
    _schedule(sheet)
    _regularisation(sheet, winner)
    _augmentation(sheet)
    _policy(sheet)
    _masking(sheet)
    _loop(sheet, winner)
    _evaluation(sheet, winner)
    sheet.only_labels()
    return sheet


def command(winner: Winner, sheet: Sheet) -> str:
    """Return the arguments as a shell command, one on each line; a value of True is a flag alone."""
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
        for name, value in sheet.arguments.items()
        if value is not None and value is not False
    ]
    return " \\\n  ".join([f"torchrun --nproc_per_node={winner.gpus} train.py", *flags]) + "\n"


def _data(sheet: Sheet, winner: Winner) -> None:
    data, info = winner.recipe.data, winner.info
    sheet.say(data_path=winner.images or data.path, interpolation=info.interpolation)
    sheet.say(train_crop_size=info.image_size, val_crop_size=info.image_size)
    if winner.images is None:
        sheet.only_parts(
            "the references read train/ and val/ of class folders: --images DIR writes them so, upright"
        )
    if statistics_of(data, info) != IMAGENET:
        sheet.cannot("data.normalisation", f"{FIXED}: ImageNet's mean and std")
    if info.channels != 3:
        sheet.cannot("data.channels", "the references read colour images")


def _model(sheet: Sheet, winner: Winner) -> None:
    spec = winner.recipe.model
    if isinstance(spec, models.TorchvisionModel):
        sheet.say(model=spec.name)
    else:
        sheet.cannot("model", "torchvision has no such network; write one's name after --model")
        return
    if isinstance(spec, models.TorchvisionModel) and spec.weights is not None:
        why = "the references load weights with their own number of classes; a new head needs a line of code"
        sheet.cannot("model.weights", why)
    for path, value in (
        *(("initialisation", "default"), ("zero_init_residual", None), ("dropout", None)),
        *(("stochastic_depth", None), ("freeze_epochs", 0), ("frozen_views", None), ("freeze_norm", False)),
    ):
        sheet.only(f"model.{path}", value, NO_HELP)
    if not isinstance(spec.layer_rates, models.UniformRates):
        sheet.cannot("model.layer_rates", NO_HELP)


def _optimizer(sheet: Sheet, winner: Winner) -> None:
    spec = winner.recipe.optimizer
    match spec:
        case optimizers.SGD():
            sheet.say(opt="sgd_nesterov" if spec.nesterov else "sgd", momentum=spec.momentum)
        case optimizers.RMSProp():
            sheet.say(opt="rmsprop", momentum=spec.momentum)
            sheet.only("optimizer.alpha", 0.9, f"{FIXED}: 0.9")
            sheet.only("optimizer.eps", 0.0316, f"{FIXED}: 0.0316")
        case optimizers.AdamW():
            sheet.say(opt="adamw")
            for name, value in (("beta1", 0.9), ("beta2", 0.999), ("eps", 1e-8)):
                sheet.only(f"optimizer.{name}", value, f"{FIXED}: {value:g}")
        case optimizers.LARS():
            sheet.say(opt="sgd", momentum=spec.momentum)
            sheet.cannot(
                "optimizer", "the references have no LARS; the file has SGD, which needs another rate"
            )
        case (
            optimizers.Adam()
            | optimizers.Adadelta()
            | optimizers.LAMB()
            | optimizers.AdamThenSGD()
            | optimizers.Timm()
        ):
            sheet.say(opt="adamw")
            sheet.cannot("optimizer", "the references have no such optimizer; the file has AdamW")
        case _:
            assert_never(spec)
    spared = {} if spec.decay_norm_and_bias else {"norm_weight_decay": 0.0, "bias_weight_decay": 0.0}
    sheet.say(lr=applied_lr(spec, winner.cut.batch), weight_decay=spec.weight_decay, **spared)


def _schedule(sheet: Sheet) -> None:
    spec, epochs, lr = sheet.recipe.schedule, sheet.recipe.loop.epochs, sheet.arguments["lr"]
    rising = round(spec.warmup_epochs)
    sheet.say(epochs=epochs, **_shape(spec, epochs - rising, lr))
    if rising:
        sheet.say(lr_warmup_epochs=rising, lr_warmup_method="linear", lr_warmup_decay=0.5 / rising)
    sheet.cannot("schedule", "the references change the rate once an epoch" + _instead(spec))


def _shape(spec: schedules.Schedule, length: int, lr: float) -> dict[str, Any]:
    match spec:
        case schedules.Constant():
            return {"lr_scheduler": "steplr", "lr_step_size": length + 1}
        case schedules.Cosine(final_factor=final):
            return {"lr_scheduler": "cosineannealinglr", "lr_min": final * lr}
        case schedules.Step(every=every, gamma=gamma):
            return {
                "lr_scheduler": "steplr",
                "lr_step_size": max(1, round(every * length)),
                "lr_gamma": gamma,
            }
        case schedules.Exponential(gamma=gamma):
            return {"lr_scheduler": "exponentiallr", "lr_gamma": gamma}
        case schedules.Poly() | schedules.SGDR() | schedules.OneCycle() | schedules.Cyclic():
            return {"lr_scheduler": "cosineannealinglr"}
        case _:
            assert_never(spec)


def _instead(spec: schedules.Schedule) -> str:
    known = schedules.Constant | schedules.Cosine | schedules.Step | schedules.Exponential
    whole = "" if spec.warmup_epochs == int(spec.warmup_epochs) else ", and warm up for whole epochs"
    return whole if isinstance(spec, known) else f"{whole}; the file has one cosine instead"


def _regularisation(sheet: Sheet, winner: Winner) -> None:
    spec = sheet.recipe.regularisation
    sheet.say(label_smoothing=spec.label_smoothing)
    if not isinstance(spec.class_weights, training.NoClassWeights):
        sheet.cannot("regularisation.class_weights", NO_HELP)
    sheet.only("regularisation.logit_adjustment", 0.0, NO_HELP)
    match spec.clipping:
        case training.NoClipping():
            pass
        case training.NormClipping(max_norm=norm):
            sheet.say(clip_grad_norm=norm)
        case training.AdaptiveClipping():
            sheet.cannot("regularisation.clipping", NO_HELP)
        case _:
            assert_never(spec.clipping)
    match spec.averaging:
        case training.NoAveraging():
            pass
        case training.ExponentialAveraging(decay=decay):
            sheet.say(model_ema=True, model_ema_steps=1, model_ema_decay=_decay(decay, winner))
            sheet.cannot(
                "regularisation.averaging",
                "the references begin the average after the warm-up, at its whole decay",
            )
        case _:
            assert_never(spec.averaging)


def _decay(decay: float, winner: Winner) -> float:
    """Return the argument that the references turn into this decay: they multiply what a step forgets by the
    batch, over the epochs."""
    return 1.0 - (1.0 - decay) * winner.recipe.loop.epochs / winner.cut.batch


def _augmentation(sheet: Sheet) -> None:
    spec, flips = sheet.recipe.augmentation, sheet.recipe.data.flips or ()
    usual = augmentations.ResizedCrop()
    if spec.crop != usual:
        sheet.cannot("augmentation.crop", f"{FIXED}: a resized crop of 0.08 to 1 of the area")
    if spec.flip_probability != 0.5 or flips != ("horizontal",):
        sheet.cannot("data.flips", f"{FIXED}: half of the images are mirrored left to right")
        sheet.only("augmentation.flip_probability", 0.5, f"{FIXED}: 0.5")
    if not isinstance(spec.size, augmentations.FixedSize):
        sheet.cannot("augmentation.size", NO_HELP)
    match spec.mixing:
        case augmentations.NoMixing():
            pass
        case augmentations.Mixup(alpha=alpha):
            sheet.say(mixup_alpha=alpha)
            sheet.only("augmentation.mixing.probability", 1.0, "the references mix every batch")
        case augmentations.CutMix(alpha=alpha):
            sheet.say(cutmix_alpha=alpha)
            sheet.only("augmentation.mixing.probability", 1.0, "the references mix every batch")
        case augmentations.ClassMix():
            sheet.cannot("augmentation.mixing", OF_MASKS)
        case _:
            assert_never(spec.mixing)


def _policy(sheet: Sheet) -> None:
    spec = sheet.recipe.augmentation.policy
    match spec:
        case augmentations.NoPolicy():
            pass
        case augmentations.RandAugment(magnitude=magnitude):
            sheet.say(auto_augment="ra", ra_magnitude=magnitude)
            sheet.only("augmentation.policy.num_ops", 2, f"{FIXED}: 2")
        case augmentations.TrivialAugment():
            sheet.say(auto_augment="ta_wide")
        case augmentations.AutoAugment(policy=policy):
            sheet.say(auto_augment=policy)
        case _:
            assert_never(spec)


def _masking(sheet: Sheet) -> None:
    spec = sheet.recipe.augmentation.masking
    match spec:
        case augmentations.NoMasking():
            pass
        case augmentations.RandomErasing():
            sheet.say(random_erase=spec.probability)
            for name, value in ERASED.items():
                sheet.only(f"augmentation.masking.{name}", value, f"{FIXED}: {value:g}")
        case augmentations.Cutout() | augmentations.GridMask() | augmentations.HideAndSeek():
            sheet.cannot("augmentation.masking", "the references erase rectangles alone")
        case _:
            assert_never(spec)


def _loop(sheet: Sheet, winner: Winner) -> None:
    spec, share = sheet.recipe.loop, winner.cut.parts * winner.cut.at_once
    sheet.say(batch_size=share, sync_bn=spec.sync_norm, device=winner.device)
    sheet.say(amp=sheet.recipe.precision.kind in ("fp16", "bf16", "auto") and winner.device == "cuda")
    if spec.workers is not None:
        sheet.say(workers=spec.workers)
    if winner.cut.batch != spec.batch_size:
        sheet.cannot(
            "loop.batch_size", f"{winner.gpus} GPUs with equal parts make a batch of {winner.cut.batch}"
        )
    steps = math.ceil(math.ceil(winner.info.train_images / winner.gpus) / share)
    if steps != winner.steps:
        sheet.cannot(
            "loop",
            f"an epoch has {steps} steps there, the last of fewer images, and here {winner.steps}",
        )
    if spec.micro_batch not in (None, share):
        sheet.cannot("loop.micro_batch", f"the references compute a device's {share} images at once")
    sheet.only("precision.kind", "fp16", "--amp is fp16, and without it the references compute in fp32")
    sheet.only("precision.channels_last", False, NO_HELP)
    sheet.only("loop.sampling", "natural", "the references show each image once an epoch")
    sheet.cannot("loop.seed", "the references draw another one each time")
    for path in ("bf16_gradients", "checkpoint_activations", "compile"):
        sheet.only(f"loop.{path}", False, NO_HELP)


def _evaluation(sheet: Sheet, winner: Winner) -> None:
    spec, side = sheet.recipe.evaluation, winner.info.image_size
    match spec.resize:
        case training.Stretch():
            sheet.say(val_resize_size=side)
            sheet.cannot("evaluation.resize", "of images that are not square the references take the middle")
        case training.CenterCrop(ratio=ratio):
            sheet.say(val_resize_size=round(side / ratio))
            sheet.only(
                "evaluation.resize.ratio", side / round(side / ratio), "the file has the nearest whole size"
            )
        case _:
            assert_never(spec.resize)
    sheet.only("evaluation.flip", False, NO_HELP)
    sheet.only("evaluation.scales", [1.0], NO_HELP)
    if not sheet.recipe.model.freeze_norm:
        sheet.only("evaluation.norm_batches", 0, "the references score with the statistics of the last steps")
    sheet.only("evaluation.metrics", [], "the references measure accuracy and top-5 accuracy")
