"""A recipe as a configuration of PaddleClas: `python tools/train.py -c FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_never

from search.results.formats.sheet import Sheet
from search.results.formats.table import (
    EQUAL_PARTS,
    LABELS_ALONE,
    NEUTRAL,
    PARTS_AT_ONCE,
    UNTOUCHED,
    WHOLE_SIZE,
    FieldRow,
    colours,
    filled,
    folder,
    lost,
    measured_norms,
    only,
    only_each,
    parts,
    rate,
    says,
    where,
)
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.recipe import augmentations, models, schedules
from trainable.recipe.models import network_name

NETWORKS = {  # that PaddleClas has too, by the names of torchvision and timm
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
NO_HELP = "PaddleClas has no field for it"
OTHER_NAMES = "its name differs from network to network of PaddleClas"
TRAIN, EVAL = "DataLoader.Train", "DataLoader.Eval"
SHOWN, SCORED = f"{TRAIN}.dataset.transform_ops+", f"{EVAL}.dataset.transform_ops+"
MIXED = f"{TRAIN}.dataset.batch_transform_ops"


def _part(drop_last: bool) -> dict[str, Any]:
    return {
        "dataset": {
            "name": "ImageNetDataset",
            "image_root": None,
            "cls_label_path": None,
            "delimiter": "\t",
            "transform_ops": [{"DecodeImage": {"to_rgb": True, "channel_first": False}}],
        },
        "sampler": {
            "name": "DistributedBatchSampler",
            "batch_size": None,
            "drop_last": drop_last,
            "shuffle": drop_last,
        },
        "loader": {"num_workers": None, "use_shared_memory": True},
    }


SKELETON: dict[str, Any] = {  # a configuration of PaddleClas; the table fills what is None
    "Global": {
        "output_dir": "./output/",
        "device": None,
        "checkpoints": None,
        "pretrained_model": None,
        "save_interval": 1,
        "eval_during_train": True,
        "eval_interval": 1,
        "epochs": None,
        "print_batch_step": 10,
        "use_visualdl": False,
        "save_inference_dir": "./inference",
        "seed": None,
        "update_freq": None,
        "image_shape": None,
    },
    "Arch": {"name": None, "class_num": None, "pretrained": False},
    "Loss": {"Train": None, "Eval": [{"CELoss": {"weight": 1.0}}]},
    "Optimizer": {},
    "DataLoader": {"Train": _part(drop_last=True), "Eval": _part(drop_last=False)},
    "Metric": None,
}


def usage(winner: Winner) -> str:
    """Return in a line what the file is and how it is used; each GPU has a process of its own."""
    gpus = ",".join(map(str, range(winner.gpus)))
    start = "python" if winner.gpus == 1 else f"python -m paddle.distributed.launch --gpus={gpus}"
    return f"A configuration of PaddleClas 2.6: {start} tools/train.py -c THIS_FILE"


def paddleclas_sheet(winner: Winner) -> Sheet:
    """Return the sections of PaddleClas for a recipe, and what they cannot say."""
    return filled(TABLE, winner, SKELETON)


def _network(winner: Winner) -> str | None:
    """Return PaddleClas' name of the network, if it is known to have it."""
    spec = winner.recipe.model
    own = isinstance(spec, models.OwnModel)
    return None if own else NETWORKS.get(network_name(spec).partition(".")[0])


def _lists(_: object, winner: Winner) -> dict[str, Any]:
    root = folder(None, winner)
    return {
        f"{part}.dataset.{name}": value
        for part, file in ((TRAIN, "train_list.txt"), (EVAL, "val_list.txt"))
        for name, value in (("image_root", root), ("cls_label_path", str(Path(root) / file)))
    }


def _classes(_: object, winner: Winner) -> dict[str, Any]:
    classes = len(winner.info.classes)
    return {
        "Arch.class_num": classes,
        "Metric": {"Eval": [{"TopkAcc": {"topk": [1, 5] if classes > 4 else [1]}}]},
    }


def _loss(smoothing: float, _: Winner) -> list[Any]:
    return [{"CELoss": {"weight": 1.0, **({"epsilon": smoothing} if smoothing else {})}}]


def _rate(spec: schedules.Schedule, winner: Winner) -> dict[str, Any]:
    lr = rate(None, winner)
    length = winner.recipe.loop.epochs - spec.warmup_epochs
    rising = {"warmup_epoch": spec.warmup_epochs, "warmup_start_lr": 0.0} if spec.warmup_epochs else {}
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
            return {"name": "Cosine", **common}
        case _:
            assert_never(spec)


def _resized(winner: Winner, **others: Any) -> dict[str, Any]:
    return {"interpolation": winner.info.interpolation, "backend": "pil", **others}


def _border(fraction: float, winner: Winner) -> int:
    return max(1, round(fraction * winner.info.image_size))


def _pad_crop(fraction: float, winner: Winner) -> list[Any]:
    side = winner.info.image_size
    return [
        {"ResizeImage": {"size": side, **_resized(winner, return_numpy=False)}},
        {"Pad": {"padding": _border(fraction, winner)}},
        {"RandCropImageV2": {"size": side}},
    ]


def _resized_crop(crop: augmentations.ResizedCrop, winner: Winner) -> list[Any]:
    cut = {"scale": [crop.scale_min, crop.scale_max], "ratio": [crop.ratio_min, crop.ratio_max]}
    how = _resized(winner, **cut, use_log_aspect=True)
    return [{"RandCropImage": {"size": winner.info.image_size, **how}}]


def _stretched(_: object, winner: Winner) -> list[Any]:
    return [{"ResizeImage": {"size": winner.info.image_size, **_resized(winner)}}]


def _center_crop(ratio: float, winner: Winner) -> list[Any]:
    side = winner.info.image_size
    return [
        {"ResizeImage": {"resize_short": round(side / ratio), **_resized(winner)}},
        {"CropImage": {"size": side}},
    ]


def _flips(flips: tuple[str, ...] | None, _: Winner) -> list[Any]:
    codes = {"horizontal": 1, "vertical": 0}
    return [{"RandFlipImage": {"flip_code": codes[name]}} for name in flips or ()]


def _normalised(_: object, winner: Winner) -> list[Any]:
    mean, std = statistics_of(winner.recipe.data, winner.info)
    return [{"NormalizeImage": {"scale": "1.0/255.0", "mean": list(mean), "std": list(std), "order": ""}}]


def _erasing(spec: augmentations.RandomErasing, _: Winner) -> list[Any]:
    areas = {"EPSILON": spec.probability, "sl": spec.area_min, "sh": spec.area_max, "r1": spec.ratio_min}
    return [{"RandomErasing": {**areas, "attempt": 10, "use_log_aspect": True, "mode": "const"}}]


def _mixed(operator: str) -> Any:
    def operators(spec: augmentations.Mixup | augmentations.CutMix, _: Winner) -> list[Any]:
        return [{"OpSampler": {operator: {"alpha": spec.alpha, "prob": spec.probability}}}]

    return operators


TABLE: tuple[FieldRow, ...] = (
    says("data.path", _lists),
    says("data", _classes),
    says(
        "data.image_size",
        {"Global.image_shape": lambda _, winner: [winner.info.channels, *2 * [winner.info.image_size]]},
    ),
    parts("PaddleClas reads lists of images: --images DIR writes these parts, with their lists"),
    colours("PaddleClas reads colour images"),
    # --- the network
    *where(
        lambda winner: _network(winner) is None,
        lost("model", "PaddleClas has no network of this name that we know; write one into Arch"),
    ),
    *where(
        lambda winner: _network(winner) is not None,
        says(
            "model",
            {
                "Arch.name": lambda _, winner: _network(winner),
                "Arch.pretrained": lambda spec, _: spec.weights == models.OWN_WEIGHTS,
            },
        ),
        lost("model.kind", "PaddleClas has the network, made and drawn its own way"),
        *only_each("model", OTHER_NAMES, dropout=None, stochastic_depth=None),
        only("model.weights", None, "PaddleClas has weights of its own: pretrained: True takes those"),
        *only_each("model", NO_HELP, **UNTOUCHED),
        lost(
            "model.layer_rates[geometric|decayed|backbone]",
            "PaddleClas has them in AdamWDL alone, for a few transformers",
        ),
    ),
    # --- the loss
    says("regularisation.label_smoothing", {"Loss.Train": _loss}),
    lost("regularisation.class_weights[inverse|effective_number]", NO_HELP),
    only("regularisation.logit_adjustment", 0.0, NO_HELP),
    # --- the optimizer
    says("optimizer[sgd|lars]", {"Optimizer.name": "Momentum"}),
    says("optimizer[rmsprop]", {"Optimizer.name": "RMSProp"}),
    says("optimizer[adam]", {"Optimizer.name": "Adam"}),
    says("optimizer[adamw|adadelta|lamb|adam_then_sgd|timm]", {"Optimizer.name": "AdamW"}),
    lost("optimizer[lars]", "PaddleClas has no LARS; the file has SGD, which needs another rate"),
    lost(
        "optimizer[adadelta|lamb|adam_then_sgd|timm]",
        "PaddleClas has no such optimizer; the file has AdamW",
    ),
    says("optimizer[sgd|rmsprop|lars].momentum", "Optimizer.momentum"),
    says("optimizer[sgd|lars].nesterov", "Optimizer.use_nesterov"),
    says("optimizer[rmsprop].alpha", "Optimizer.rho"),
    says("optimizer[adam|adamw].beta1", "Optimizer.beta1"),
    says("optimizer[adam|adamw].beta2", "Optimizer.beta2"),
    says("optimizer[rmsprop|adam|adamw].eps", "Optimizer.epsilon"),
    says(
        "optimizer[sgd|rmsprop|adam|lars].weight_decay",
        {"Optimizer.regularizer": lambda decay, _: {"name": "L2", "coeff": decay}},
    ),
    says("optimizer[adamw|adadelta|lamb|adam_then_sgd|timm].weight_decay", "Optimizer.weight_decay"),
    only("optimizer[adam].decay_norm_and_bias", True, "PaddleClas' Adam lets every weight decay"),
    says(
        "optimizer[sgd|rmsprop|adamw|adadelta|lars|lamb|adam_then_sgd|timm].decay_norm_and_bias",
        lambda all_decay, _: (
            {}
            if all_decay
            else {  # PaddleClas looks at vectors only where a name is given too
                "Optimizer.no_weight_decay_name": ".bias",
                "Optimizer.one_dim_param_no_weight_decay": True,
            }
        ),
    ),
    says("schedule", {"Optimizer.lr": _rate}),
    lost(
        "schedule[exp|sgdr|onecycle|cyclic]",
        "PaddleClas has no such schedule that we know; the file has one cosine",
    ),
    only("schedule.warmup_epochs", 0.0, "the warm-up of PaddleClas begins a step lower, at 0"),
    lost(
        "regularisation.clipping[norm|adaptive]",
        "PaddleClas shortens the gradient of each weight by itself",
    ),
    # --- images, in the order of the operations
    says("augmentation.crop[none]", {SHOWN: _stretched}),
    says(
        "augmentation.crop[pad].fraction",
        {SHOWN: _pad_crop},
        but="the file has the border in whole pixels",
        unless=lambda fraction, winner: fraction == _border(fraction, winner) / winner.info.image_size,
    ),
    says(
        "augmentation.crop[resized]",
        {SHOWN: _resized_crop},
        but="PaddleClas cuts from the stored image, here the cut is from its square",
    ),
    lost("augmentation.size[multi_scale|progressive]", NO_HELP),
    says("data.flips", {SHOWN: _flips}),
    only("augmentation.flip_probability", 0.5, "PaddleClas mirrors half of the images"),
    says(
        "augmentation.policy[randaugment]",
        {
            SHOWN: lambda spec, _: [
                {"RandAugment": {"num_layers": spec.num_ops, "magnitude": spec.magnitude / 3}}
            ]
        },
        but="PaddleClas has magnitudes of 0 to 10, and fills with grey",
    ),
    says(
        "augmentation.policy[autoaugment].policy",
        {SHOWN: lambda policy, _: [{"AutoAugment": None}] if policy == "imagenet" else []},
    ),
    lost(
        "augmentation.policy[autoaugment]",
        lambda spec, _: (
            "the same 25 pairs; PaddleClas fills with grey, here it is black"
            if spec.policy == "imagenet"
            else "PaddleClas has no such policy"
        ),
    ),
    lost("augmentation.policy[trivialaugment]", "PaddleClas has no such policy"),
    says("data.normalisation", {SHOWN: _normalised}),
    says("augmentation.masking[erasing]", {SHOWN: _erasing}),
    lost(
        "augmentation.masking[erasing].ratio_max",
        "PaddleClas has 1 / ratio_min",
        unless=lambda ratio, winner: ratio == 1 / winner.recipe.get("augmentation.masking.ratio_min"),
    ),
    lost(
        "augmentation.masking[cutout|gridmask|hide_and_seek]",
        "PaddleClas has it with other sizes and before it normalises",
    ),
    says("augmentation.mixing[mixup]", {MIXED: _mixed("MixupOperator")}),
    says("augmentation.mixing[cutmix]", {MIXED: _mixed("CutmixOperator")}),
    lost(
        "augmentation.mixing[mixup|cutmix]",
        "without epsilon PaddleClas' CELoss takes the softmax of mixed labels",
        unless=lambda _, winner: winner.recipe.regularisation.label_smoothing > 0,
    ),
    *NEUTRAL,
    says("evaluation.resize[stretch]", {SCORED: _stretched}),
    says("evaluation.resize[center_crop].ratio", {SCORED: _center_crop}),
    WHOLE_SIZE,
    says("data.normalisation", {SCORED: _normalised}),
    # --- averages and number formats
    says(
        "regularisation.averaging[ema]",
        {"EMA": lambda spec, _: {"decay": spec.decay}},
        but="PaddleClas has the whole decay from the first step on",
    ),
    says("loop", {"Global.device": lambda _, winner: "gpu" if winner.device == "cuda" else "cpu"}),
    says(
        "precision.kind",
        {
            "AMP": lambda kind, _: {
                "use_amp": kind in ("fp16", "bf16", "auto"),
                "level": "O1",
                "scale_loss": 128.0,
                "use_dynamic_loss_scaling": True,
            }
        },
        but="PaddleClas computes in fp16 with AMP, else in fp32",
        unless=lambda kind, _: kind in ("fp16", "fp32"),
    ),
    only("precision.channels_last", False, NO_HELP),
    # --- the loop
    says("loop.epochs", "Global.epochs"),
    says("loop.seed", "Global.seed"),
    says(
        "loop.batch_size",
        {
            "Global.update_freq": lambda _, winner: winner.cut.parts,
            f"{TRAIN}.sampler.batch_size": lambda _, winner: winner.cut.at_once,
        },
    ),
    says("evaluation.batch_size", f"{EVAL}.sampler.batch_size"),
    says(
        "loop.workers",
        lambda workers, _: {f"{part}.loader.num_workers": workers or 4 for part in (TRAIN, EVAL)},
    ),
    EQUAL_PARTS,
    PARTS_AT_ONCE,
    only("loop.sampling", "natural", "PaddleClas shows each image once an epoch"),
    *only_each("loop", NO_HELP, sync_norm=False, bf16_gradients=False),
    *only_each("loop", NO_HELP, checkpoint_activations=False, compile=False),
    # --- evaluation
    only("evaluation.flip", False, NO_HELP),
    only("evaluation.scales", (1.0,), NO_HELP),
    measured_norms("PaddleClas scores with the statistics of the last steps"),
    only("evaluation.metrics", (), "PaddleClas measures accuracy and top-5 accuracy"),
    LABELS_ALONE,
)
