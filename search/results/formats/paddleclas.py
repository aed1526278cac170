"""Writes a recipe as a configuration of PaddleClas: `python tools/train.py -c FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_never

from search.results.formats.sheet import OF_MASKS, Sheet
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.recipe import augmentations, models, optimizers, schedules, training
from trainable.recipe.models import network_name
from trainable.training.optim import applied_lr

NETWORKS = {
    "resnet18": "ResNet18",
    "resnet34": "ResNet34",
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
    "resnet152": "ResNet152",
    "resnext50_32x4d": "ResNeXt50_32x4d",
    "densenet121": "DenseNet121",
    "efficientnet_b0": "EfficientNetB0",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_large": "MobileNetV3_large_x1_0",
    "mobilenet_v3_small": "MobileNetV3_small_x1_0",
    "convnext_tiny": "ConvNeXt_tiny",
    "convnext_small": "ConvNeXt_small",
    "swin_t": "SwinTransformer_tiny_patch4_window7_224",
    "vgg16": "VGG16",
}
"""These are networks that PaddleClas has too, by the names of torchvision and timm."""
NO_HELP = "PaddleClas has no field for it"
LISTS = ("train_list.txt", "val_list.txt")


def usage(winner: Winner) -> str:
    """Return in a line what the file is and how it is used; each GPU has a process of its own."""
    gpus = ",".join(map(str, range(winner.gpus)))
    start = "python" if winner.gpus == 1 else f"python -m paddle.distributed.launch --gpus={gpus}"
    return f"A configuration of PaddleClas 2.6: {start} tools/train.py -c THIS_FILE"


def paddleclas_sheet(winner: Winner) -> Sheet:
    """Return the sections of PaddleClas for a recipe, and what they cannot say."""
    sheet = Sheet(winner.recipe)
    info, spec = winner.info, winner.recipe
    sheet.say(
        Global={
            "output_dir": "./output/",
            "device": "gpu" if winner.device == "cuda" else "cpu",
            "checkpoints": None,
            "pretrained_model": None,
            "save_interval": 1,
            "eval_during_train": True,
            "eval_interval": 1,
            "epochs": spec.loop.epochs,
            "print_batch_step": 10,
            "use_visualdl": False,
            "save_inference_dir": "./inference",
            "seed": spec.loop.seed,
            "update_freq": winner.cut.parts,
            "image_shape": [info.channels, info.image_size, info.image_size],
        },
        Arch=_network(sheet, winner),
        Loss={"Train": [{"CELoss": _loss(sheet)}], "Eval": [{"CELoss": {"weight": 1.0}}]},
        Optimizer=_optimizer(sheet, winner),
        DataLoader={
            "Train": _part(
                winner, LISTS[0], _training_operations(sheet, winner), _mixing(sheet), winner.cut.at_once
            ),
            "Eval": _part(
                winner, LISTS[1], _scoring_operations(sheet, winner), [], spec.evaluation.batch_size
            ),
        },
        Metric={"Eval": [{"TopkAcc": {"topk": [1, 5] if len(info.classes) > 4 else [1]}}]},
    )
    _averaging(sheet)
    _precision(sheet)
    _rest(sheet, winner)
    sheet.only_labels()
    return sheet


def _network(sheet: Sheet, winner: Winner) -> dict[str, Any]:
    spec = winner.recipe.model
    name = (
        NETWORKS.get(network_name(spec).partition(".")[0]) if not isinstance(spec, models.OwnModel) else None
    )
    if name is None:
        sheet.cannot("model", "PaddleClas has no network of this name that we know; write one into Arch")
        return {"name": None, "class_num": len(winner.info.classes), "pretrained": False}
    sheet.cannot("model.kind", "PaddleClas has the network, made and drawn its own way")
    for path in ("dropout", "stochastic_depth"):
        sheet.only(f"model.{path}", None, "its name differs from network to network of PaddleClas")
    sheet.only("model.weights", None, "PaddleClas has weights of its own: pretrained: True takes those")
    for path, value in (
        *(("initialisation", "default"), ("zero_init_residual", None)),
        *(("freeze_epochs", 0), ("frozen_views", None), ("freeze_norm", False)),
    ):
        sheet.only(f"model.{path}", value, NO_HELP)
    if not isinstance(spec.layer_rates, models.UniformRates):
        sheet.cannot("model.layer_rates", "PaddleClas has them in AdamWDL alone, for a few transformers")
    return {
        "name": name,
        "class_num": len(winner.info.classes),
        "pretrained": spec.weights == models.OWN_WEIGHTS,
    }


def _loss(sheet: Sheet) -> dict[str, Any]:
    spec = sheet.recipe.regularisation
    if not isinstance(spec.class_weights, training.NoClassWeights):
        sheet.cannot("regularisation.class_weights", NO_HELP)
    sheet.only("regularisation.logit_adjustment", 0.0, NO_HELP)
    return {"weight": 1.0, **({"epsilon": spec.label_smoothing} if spec.label_smoothing else {})}


def _optimizer(sheet: Sheet, winner: Winner) -> dict[str, Any]:
    spec = winner.recipe.optimizer
    rate = _rate(sheet, applied_lr(spec, winner.cut.batch))
    # PaddleClas looks at vectors only where a name is given too
    names = {"no_weight_decay_name": ".bias", "one_dim_param_no_weight_decay": True}
    spared = {} if spec.decay_norm_and_bias else names
    decay = {"regularizer": {"name": "L2", "coeff": spec.weight_decay}}
    match sheet.recipe.regularisation.clipping:
        case training.NoClipping():
            pass
        case training.NormClipping() | training.AdaptiveClipping():
            sheet.cannot(
                "regularisation.clipping", "PaddleClas shortens the gradient of each weight by itself"
            )
    match spec:
        case optimizers.SGD():
            own: dict[str, Any] = {
                "name": "Momentum",
                "momentum": spec.momentum,
                "use_nesterov": spec.nesterov,
                **decay,
            }
        case optimizers.RMSProp():
            own = {
                "name": "RMSProp",
                "momentum": spec.momentum,
                "rho": spec.alpha,
                "epsilon": spec.eps,
                **decay,
            }
        case optimizers.Adam():
            own = {"name": "Adam", "beta1": spec.beta1, "beta2": spec.beta2, "epsilon": spec.eps, **decay}
            sheet.only("optimizer.decay_norm_and_bias", True, "PaddleClas' Adam lets every weight decay")
            spared = {}
        case optimizers.AdamW():
            own = {"name": "AdamW", "beta1": spec.beta1, "beta2": spec.beta2, "epsilon": spec.eps}
            own["weight_decay"] = spec.weight_decay
        case optimizers.LARS():
            own = {"name": "Momentum", "momentum": spec.momentum, "use_nesterov": spec.nesterov, **decay}
            sheet.cannot("optimizer", "PaddleClas has no LARS; the file has SGD, which needs another rate")
        case optimizers.Adadelta() | optimizers.LAMB() | optimizers.AdamThenSGD() | optimizers.Timm():
            own = {"name": "AdamW", "weight_decay": spec.weight_decay}
            sheet.cannot("optimizer", "PaddleClas has no such optimizer; the file has AdamW")
        case _:
            assert_never(spec)
    return {**own, **spared, "lr": rate}


def _rate(sheet: Sheet, lr: float) -> dict[str, Any]:
    spec, epochs = sheet.recipe.schedule, sheet.recipe.loop.epochs
    length = epochs - spec.warmup_epochs
    rising = {"warmup_epoch": spec.warmup_epochs, "warmup_start_lr": 0.0} if spec.warmup_epochs else {}
    if rising:
        sheet.cannot("schedule.warmup_epochs", "the warm-up of PaddleClas begins a step lower, at 0")
    common = {"learning_rate": lr, **rising}
    match spec:
        case schedules.Constant():
            return {"name": "ConstLR", **common}
        case schedules.Cosine(final_factor=final):
            return {"name": "Cosine", "eta_min": final * lr, **common}
        case schedules.Step(every=every, gamma=gamma):
            return {"name": "Step", "step_size": every * length, "gamma": gamma, **common}
        case schedules.Poly(power=power):
            return {"name": "Linear", "power": power, "end_lr": 0.0, **common}
        case schedules.Exponential() | schedules.SGDR() | schedules.OneCycle() | schedules.Cyclic():
            sheet.cannot("schedule", "PaddleClas has no such schedule that we know; the file has one cosine")
            return {"name": "Cosine", **common}
        case _:
            assert_never(spec)


def _part(
    winner: Winner, file: str, operations: list[Any], batch_operations: list[Any], batch: int
) -> dict[str, Any]:
    training_part = file == LISTS[0]
    root = winner.images or winner.recipe.data.path
    together = {"batch_transform_ops": batch_operations} if batch_operations else {}
    return {
        "dataset": {
            "name": "ImageNetDataset",
            "image_root": root,
            "cls_label_path": str(Path(root) / file),
            "delimiter": "\t",
            "transform_ops": operations,
            **together,
        },
        "sampler": {
            "name": "DistributedBatchSampler",
            "batch_size": batch,
            "drop_last": training_part,
            "shuffle": training_part,
        },
        "loader": {"num_workers": winner.recipe.loop.workers or 4, "use_shared_memory": True},
    }


def _training_operations(sheet: Sheet, winner: Winner) -> list[Any]:
    side = winner.info.image_size
    flips = {"horizontal": 1, "vertical": 0}
    mirrored = [{"RandFlipImage": {"flip_code": flips[name]}} for name in sheet.recipe.data.flips or ()]
    sheet.only("augmentation.flip_probability", 0.5, "PaddleClas mirrors half of the images")
    return [
        _decoded(),
        *_crop(sheet, side, winner),
        *mirrored,
        *_policy(sheet),
        _normalised(winner),
        *_masking(sheet),
    ]


def _scoring_operations(sheet: Sheet, winner: Winner) -> list[Any]:
    side, how = winner.info.image_size, {"interpolation": winner.info.interpolation, "backend": "pil"}
    match sheet.recipe.evaluation.resize:
        case training.Stretch():
            square: list[Any] = [{"ResizeImage": {"size": side, **how}}]
        case training.CenterCrop(ratio=ratio):
            sheet.only(
                "evaluation.resize.ratio", side / round(side / ratio), "the file has the nearest whole size"
            )
            square = [
                {"ResizeImage": {"resize_short": round(side / ratio), **how}},
                {"CropImage": {"size": side}},
            ]
    return [_decoded(), *square, _normalised(winner)]


def _decoded() -> dict[str, Any]:
    return {"DecodeImage": {"to_rgb": True, "channel_first": False}}


def _normalised(winner: Winner) -> dict[str, Any]:
    mean, std = statistics_of(winner.recipe.data, winner.info)
    return {"NormalizeImage": {"scale": "1.0/255.0", "mean": list(mean), "std": list(std), "order": ""}}


def _crop(sheet: Sheet, side: int, winner: Winner) -> list[Any]:
    how = {"size": side, "interpolation": winner.info.interpolation, "backend": "pil"}
    spec = sheet.recipe.augmentation
    if not isinstance(spec.size, augmentations.FixedSize):
        sheet.cannot("augmentation.size", NO_HELP)
    match spec.crop:
        case augmentations.NoCrop():
            return [{"ResizeImage": how}]
        case augmentations.PadCrop(fraction=fraction):
            border = max(1, round(fraction * side))
            sheet.only("augmentation.crop.fraction", border / side, "the file has the border in whole pixels")
            return [
                {"ResizeImage": {**how, "return_numpy": False}},
                {"Pad": {"padding": border}},
                {"RandCropImageV2": {"size": side}},
            ]
        case augmentations.ResizedCrop() as crop:
            scale, ratio = [crop.scale_min, crop.scale_max], [crop.ratio_min, crop.ratio_max]
            sheet.cannot(
                "augmentation.crop", "PaddleClas cuts from the stored image, here the cut is from its square"
            )
            return [{"RandCropImage": {**how, "scale": scale, "ratio": ratio, "use_log_aspect": True}}]
        case augmentations.ScaledCrop():
            raise ValueError(augmentations.SCALED_NEEDS_MASKS)
        case _:
            assert_never(spec.crop)


def _policy(sheet: Sheet) -> list[Any]:
    spec = sheet.recipe.augmentation.policy
    match spec:
        case augmentations.NoPolicy():
            return []
        case augmentations.RandAugment(num_ops=count, magnitude=magnitude):
            sheet.cannot("augmentation.policy", "PaddleClas has magnitudes of 0 to 10, and fills with grey")
            return [{"RandAugment": {"num_layers": count, "magnitude": magnitude / 3}}]
        case augmentations.AutoAugment(policy="imagenet"):
            sheet.cannot(
                "augmentation.policy", "the same 25 pairs; PaddleClas fills with grey, here it is black"
            )
            return [{"AutoAugment": None}]
        case augmentations.AutoAugment() | augmentations.TrivialAugment():
            sheet.cannot("augmentation.policy", "PaddleClas has no such policy")
            return []
        case _:
            assert_never(spec)


def _masking(sheet: Sheet) -> list[Any]:
    spec = sheet.recipe.augmentation.masking
    match spec:
        case augmentations.NoMasking():
            return []
        case augmentations.RandomErasing():
            sheet.only("augmentation.masking.ratio_max", 1 / spec.ratio_min, "PaddleClas has 1 / ratio_min")
            areas = {
                "EPSILON": spec.probability,
                "sl": spec.area_min,
                "sh": spec.area_max,
                "r1": spec.ratio_min,
            }
            return [{"RandomErasing": {**areas, "attempt": 10, "use_log_aspect": True, "mode": "const"}}]
        case augmentations.Cutout() | augmentations.GridMask() | augmentations.HideAndSeek():
            sheet.cannot(
                "augmentation.masking", "PaddleClas has it with other sizes and before it normalises"
            )
            return []
        case _:
            assert_never(spec)


def _mixing(sheet: Sheet) -> list[Any]:
    spec = sheet.recipe.augmentation.mixing
    match spec:
        case augmentations.NoMixing():
            return []
        case augmentations.Mixup() | augmentations.CutMix():
            name = "MixupOperator" if spec.kind == "mixup" else "CutmixOperator"
            if not sheet.recipe.regularisation.label_smoothing:
                why = "without epsilon PaddleClas' CELoss takes the softmax of mixed labels"
                sheet.cannot("augmentation.mixing", why)
            return [{"OpSampler": {name: {"alpha": spec.alpha, "prob": spec.probability}}}]
        case augmentations.ClassMix():
            sheet.cannot("augmentation.mixing", OF_MASKS)
            return []
        case _:
            assert_never(spec)


def _averaging(sheet: Sheet) -> None:
    match sheet.recipe.regularisation.averaging:
        case training.NoAveraging():
            pass
        case training.ExponentialAveraging(decay=decay):
            sheet.say(EMA={"decay": decay})
            sheet.cannot("regularisation.averaging", "PaddleClas has the whole decay from the first step on")


def _precision(sheet: Sheet) -> None:
    kind = sheet.recipe.precision.kind
    half = kind in ("fp16", "bf16", "auto")
    sheet.say(AMP={"use_amp": half, "level": "O1", "scale_loss": 128.0, "use_dynamic_loss_scaling": True})
    sheet.only(
        "precision.kind", "fp16" if half else "fp32", "PaddleClas computes in fp16 with AMP, else in fp32"
    )
    sheet.only("precision.channels_last", False, NO_HELP)


def _rest(sheet: Sheet, winner: Winner) -> None:
    loop, cut = sheet.recipe.loop, winner.cut
    if winner.images is None:
        sheet.only_parts(
            "PaddleClas reads lists of images: --images DIR writes these parts, with their lists"
        )
    if winner.info.channels != 3:
        sheet.cannot("data.channels", "PaddleClas reads colour images")
    if cut.batch != loop.batch_size:
        sheet.cannot("loop.batch_size", f"{cut.gpus} GPUs with equal parts make a batch of {cut.batch}")
    if loop.micro_batch not in (None, cut.at_once):
        sheet.cannot("loop.micro_batch", f"the file has equal parts, of {cut.at_once} images")
    sheet.only("loop.sampling", "natural", "PaddleClas shows each image once an epoch")
    for path in ("sync_norm", "bf16_gradients", "checkpoint_activations", "compile"):
        sheet.only(f"loop.{path}", False, NO_HELP)
    sheet.only("evaluation.flip", False, NO_HELP)
    sheet.only("evaluation.scales", [1.0], NO_HELP)
    if not sheet.recipe.model.freeze_norm:
        sheet.only("evaluation.norm_batches", 0, "PaddleClas scores with the statistics of the last steps")
    sheet.only("evaluation.metrics", [], "PaddleClas measures accuracy and top-5 accuracy")
