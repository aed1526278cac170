"""A recipe as the arguments of timm's train.py: `python train.py -c FILE`.

Arguments are those of timm 1.0. What timm's own factories make of them is compared with the recipe here, by
making both: so a difference of rates or parameter groups is measured, not guessed.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from search.results.formats.network import Network
from search.results.formats.sheet import Sheet
from search.results.formats.table import (
    EQUAL_PARTS,
    LABELS_ALONE,
    NEUTRAL,
    PARTS_AT_ONCE,
    FieldRow,
    compiles_whole,
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
from search.results.formats.timm_schedule import ROUNDING, largest_distance, schedule_arguments, updates, why
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.models.weights import weights_file
from trainable.recipe import models, optimizers
from trainable.training.optim import parameter_groups

NO_HELP = "timm's train.py has no argument for it"
FILL = "timm fills with the mean colour, here with black"
USUAL_MOMENTUM = 0.9  # timm asks for one, also where the optimizer has none
ALIKE = 0.1  # a new head whose spread is within a tenth of the recipe's is left as timm draws it
NAMED_OPTIONS = {"betas": "opt_betas", "eps": "opt_eps", "momentum": "momentum"}


def usage(winner: Winner) -> str:
    """Return in a line what the file is and how it is used; each GPU has a process of its own."""
    start = "python" if winner.gpus == 1 else f"torchrun --nproc_per_node={winner.gpus}"
    return f"Arguments of timm's train.py (timm 1.0): {start} train.py -c THIS_FILE"


def timm_sheet(winner: Winner) -> Sheet:
    """Return timm's arguments for a recipe, and what they cannot say."""
    network = winner.network
    sheet = filled(TABLE, winner)
    if updates(winner) == winner.steps:
        apart = largest_distance(sheet.arguments, winner)
        if apart.share > ROUNDING:
            sheet.cannot("schedule", f"{why(winner.recipe.schedule)}; {apart}")
    _compare_groups(sheet, winner, network)
    return sheet


def _compare_groups(sheet: Sheet, winner: Winner, network: Network) -> None:
    """List the parameters that decay, or whose rates are scaled, in another way by timm's own factory."""
    spec = winner.recipe.optimizer
    if network.model is None or isinstance(spec, optimizers.AdamThenSGD):
        return
    from timm.optim import create_optimizer_v2, optimizer_kwargs

    cfg = Namespace(**sheet.arguments)
    made = create_optimizer_v2(network.model, **optimizer_kwargs(cfg), **cfg.opt_kwargs)
    ours = parameter_groups(network.model, spec.weight_decay, spec.decay_norm_and_bias, network.rates)
    theirs = [{"rate_factor": group.get("lr_scale", 1.0), **group} for group in made.param_groups]
    names = {parameter: name for name, parameter in network.model.named_parameters()}
    for key, path in (("weight_decay", "optimizer.weight_decay"), ("rate_factor", "model.layer_rates")):
        our_values, their_values = _by_parameter(ours, key), _by_parameter(theirs, key)
        apart = [
            name
            for parameter, name in names.items()
            if not math.isclose(our_values[parameter], their_values.get(parameter, 0.0), rel_tol=1e-6)
        ]
        if apart:
            some = ", ".join(apart[:3])
            sheet.cannot(path, f"timm treats {len(apart)} parameters in another way, such as {some}")


def _by_parameter(groups: Sequence[Mapping[str, Any]], key: str) -> dict[Any, float]:
    return {parameter: group[key] for group in groups for parameter in group["params"]}


def _images(_: object, winner: Winner) -> dict[str, Any]:
    info = winner.info
    mean, std = statistics_of(winner.recipe.data, info)
    return {
        "num_classes": len(info.classes),
        "input_size": [info.channels, info.image_size, info.image_size],
        "mean": list(mean),
        "std": list(std),
        "interpolation": info.interpolation,
        "train_interpolation": info.interpolation,
    }


def _weights(weights: str | None, winner: Winner) -> dict[str, Any]:
    spec, head = winner.recipe.model, {}
    if weights is None:
        return {}
    if _has_another_head(winner):
        head = {"head_init_scale": winner.network.head_spread}
    if weights == models.OWN_WEIGHTS and spec.kind == "timm":
        return {"pretrained": True, **head}
    if models.is_published(weights):
        return head
    return {"pretrained": True, "pretrained_path": str(weights_file(spec)), **head}


def _has_another_head(winner: Winner) -> bool:
    spread = winner.network.head_spread
    return bool(spread and abs(spread - 1.0) > ALIKE)


def _has_timm_s_weights(weights: str | None, winner: Winner) -> bool:
    own = weights == models.OWN_WEIGHTS and winner.recipe.model.kind == "timm"
    return weights is None or own or not models.is_published(weights)


def _named_options(options: Mapping[str, Any], _: Winner) -> dict[str, Any]:
    return {NAMED_OPTIONS[name]: _plain(value) for name, value in options.items() if name in NAMED_OPTIONS}


def _other_options(options: Mapping[str, Any], _: Winner) -> dict[str, Any]:
    others = {name: value for name, value in options.items() if name not in NAMED_OPTIONS}
    return {f"opt_kwargs.{name}": _plain(value) for name, value in others.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _always(value: float) -> str:
    return f"timm has {value:.3g} always"


def _flip(name: str) -> Any:
    return lambda probability, winner: probability if name in (winner.recipe.data.flips or ()) else 0.0


TABLE: tuple[FieldRow, ...] = (
    says("data.path", {"data_dir": folder, "train_split": "train", "val_split": "validation"}),
    says("data", _images),
    parts("timm takes folders of class folders as they are; --images DIR writes these parts so, upright"),
    # --- the network
    says("model[timm].name", "model"),
    *where(
        lambda winner: winner.network.in_timm,
        says("model[torchvision].name", "model"),
        lost(
            "model[torchvision].kind",
            "timm's network of this name has the same layers, made and drawn its own way",
        ),
    ),
    *where(
        lambda winner: not winner.network.in_timm,
        lost(
            "model[resnet_small|unet_small|torchvision|smp|own]",
            "timm has no such network; name one with --model",
        ),
    ),
    says(
        "model[timm|torchvision].weights",
        _weights,
        but="timm has weights of its own; pretrained: true takes those",
        unless=_has_timm_s_weights,
    ),
    lost(
        "model[timm|torchvision].weights",
        "the new head has the recipe's spread here, with the shape that timm draws",
        unless=lambda weights, winner: weights is None or not _has_another_head(winner),
    ),
    says("model.dropout", {"drop": lambda dropped, _: dropped or 0.0}),
    says("model.stochastic_depth", "drop_path"),
    only("model.initialisation", "default", "timm draws weights its own way"),
    only("model.zero_init_residual", None, f"{NO_HELP}; some networks take --model-kwargs zero_init_last="),
    *only_each("model", NO_HELP, freeze_epochs=0, frozen_views=None, freeze_norm=False),
    says("model.layer_rates[decayed].factor", "layer_decay"),
    says(
        "model.layer_rates[geometric].lowest",
        {"layer_decay": lambda lowest, winner: lowest ** (1.0 / max(winner.network.layers - 1, 1))},
    ),
    lost("model.layer_rates[backbone]", "timm's rates fall from layer to layer, not below a decoder"),
    # --- the optimizer
    says("optimizer", {"momentum": USUAL_MOMENTUM}),
    says("optimizer[sgd]", {"opt": lambda spec, _: "sgd" if spec.nesterov else "momentum"}),
    says("optimizer[rmsprop|adam|adamw|adadelta|lars|lamb].kind", "opt"),
    says("optimizer[timm].name", "opt"),
    says("optimizer[timm].options", _named_options),
    says(
        "optimizer[adam_then_sgd]",
        {"opt": "adamw"},
        but="timm does not change the optimizer in a run; the file has Adam throughout",
    ),
    says("optimizer[sgd|rmsprop|lars].momentum", "momentum"),
    says(
        "optimizer[adam|adamw|lamb|adam_then_sgd]",
        {"opt_betas": lambda spec, _: [spec.beta1, spec.beta2]},
    ),
    says("optimizer[rmsprop|adam|adamw|adadelta|lamb|adam_then_sgd].eps", "opt_eps"),
    says("optimizer[lars]", {"opt_eps": 1e-8}),
    says("optimizer.lr", {"lr": rate}),
    says("optimizer.weight_decay", "weight_decay"),
    says("optimizer", {"opt_kwargs": {}}),
    says("optimizer[rmsprop].alpha", "opt_kwargs.alpha"),
    says("optimizer[adadelta].rho", "opt_kwargs.rho"),
    says("optimizer[lars].trust", "opt_kwargs.trust_coeff"),
    says("optimizer[lars].nesterov", "opt_kwargs.nesterov"),
    says("optimizer[lamb]", {"opt_kwargs.max_grad_norm": 1.0}),
    says("optimizer[timm].options", _other_options),
    says(
        "optimizer.decay_norm_and_bias",
        lambda all_decay, _: {"opt_kwargs.filter_bias_and_bn": False} if all_decay else {},
    ),
    # --- the schedule, its rates changing with each step
    says("schedule", {"sched_on_updates": True}, schedule_arguments),
    lost(
        "schedule[onecycle].cycle_momentum",
        "timm leaves the momentum as it is",
        unless=lambda cycles, _: not cycles,
    ),
    # --- regularisation
    says("regularisation.label_smoothing", "smoothing"),
    lost("regularisation.class_weights[inverse|effective_number]", NO_HELP),
    only("regularisation.logit_adjustment", 0.0, NO_HELP),
    says("regularisation.clipping[norm].max_norm", "clip_grad", {"clip_mode": "norm"}),
    says("regularisation.clipping[adaptive].factor", "clip_grad", {"clip_mode": "agc"}),
    says("regularisation.averaging[ema]", {"model_ema": True}),
    says("regularisation.averaging[ema].decay", "model_ema_decay", {"model_ema_warmup": True}),
    # --- augmentation
    says(
        "augmentation.flip_probability",
        {"hflip": _flip("horizontal"), "vflip": _flip("vertical"), "color_jitter": None},
    ),
    says("augmentation.crop[none|pad]", {"scale": [1.0, 1.0], "ratio": [1.0, 1.0]}),
    lost("augmentation.crop[pad]", "timm does not shift images with a border; the file has whole images"),
    says(
        "augmentation.crop[resized]",
        {
            "scale": lambda crop, _: [crop.scale_min, crop.scale_max],
            "ratio": lambda crop, _: [crop.ratio_min, crop.ratio_max],
        },
        but="timm cuts from the stored image, here the cut is from its square",
    ),
    lost("augmentation.size[multi_scale|progressive].kind", NO_HELP),
    lost("augmentation.size[multi_scale|progressive]", NO_HELP),
    says(
        "augmentation.policy[randaugment]",
        {"aa": lambda policy, _: f"rand-m{policy.magnitude / 3:.4g}-n{policy.num_ops}-p1.0-inc1"},
        but=f"timm's has 15 operations, three of them others, and magnitudes of 0 to 10; {FILL}",
    ),
    says(
        "augmentation.policy[autoaugment].policy",
        lambda policy, _: {"aa": "original"} if policy == "imagenet" else {},
    ),
    lost(
        "augmentation.policy[autoaugment]",
        lambda spec, _: (
            f"the same 25 pairs; {FILL}" if spec.policy == "imagenet" else "timm has no such policy"
        ),
    ),
    lost("augmentation.policy[trivialaugment]", "timm has no such policy"),
    says("augmentation.masking[erasing].probability", "reprob", {"remode": "const", "recount": 1}),
    *only_each("augmentation.masking[erasing]", _always, area_min=0.02, area_max=1 / 3),
    *only_each("augmentation.masking[erasing]", _always, ratio_min=0.3, ratio_max=1 / 0.3),
    lost("augmentation.masking[cutout|gridmask|hide_and_seek]", "timm erases rectangles alone"),
    says("augmentation.mixing[mixup].alpha", "mixup"),
    says("augmentation.mixing[cutmix].alpha", "cutmix"),
    # without the prefetcher images are mixed after they are normalised and erased, as in the recipe
    says(
        "augmentation.mixing[mixup|cutmix].probability",
        "mixup_prob",
        {"mixup_mode": "batch", "no_prefetcher": True},
    ),
    lost(
        "augmentation.mixing[mixup|cutmix]",
        "timm pairs a batch's first image with its last; here neighbours are pairs",
    ),
    *NEUTRAL,
    # --- precision
    says("loop", {"device": lambda _, winner: winner.device}),
    says("precision.channels_last", "channels_last"),
    says("precision[bf16]", {"amp": True, "amp_dtype": "bfloat16"}),
    says("precision[fp16]", {"amp": True, "amp_dtype": "float16"}),
    says("precision[tf32|fp32]", {"amp": False}),
    says(
        "precision[auto]",
        {"amp": lambda _, winner: winner.device == "cuda", "amp_dtype": "bfloat16"},
    ),
    lost(
        "precision[fp32].kind",
        "train.py lets GPUs compute in tf32",
        unless=lambda _, winner: winner.device == "cpu",
    ),
    lost("precision[auto].kind", "the file has bf16 for a GPU and fp32 for a CPU"),
    # --- the loop
    says(
        "loop.batch_size",
        {
            "batch_size": lambda _, winner: winner.cut.at_once,
            "grad_accum_steps": lambda _, winner: winner.cut.parts,
        },
    ),
    says("evaluation.batch_size", "validation_batch_size"),
    says("loop.seed", "seed"),
    says("loop.sync_norm", "sync_bn"),
    says("loop.checkpoint_activations", "grad_checkpointing"),
    says("loop.workers", lambda workers, _: {} if workers is None else {"workers": workers}),
    says("loop", lambda loop, _: {"torchcompile": "inductor"} if loop.compiles else {}),
    compiles_whole("train.py"),
    lost(
        "loop",
        lambda _, winner: f"timm takes {updates(winner)} steps an epoch, and the recipe {winner.steps}",
        unless=lambda _, winner: updates(winner) == winner.steps,
    ),
    PARTS_AT_ONCE,
    EQUAL_PARTS,
    only("loop.sampling", "natural", "timm shows each image once an epoch"),
    only("loop.bf16_gradients", False, NO_HELP),
    # --- evaluation
    says(
        "evaluation.resize[stretch]",
        {"crop_pct": 1.0},
        but="of images that are not square timm takes the middle",
    ),
    says("evaluation.resize[center_crop].ratio", "crop_pct"),
    only("evaluation.flip", False, NO_HELP),
    only("evaluation.scales", (1.0,), NO_HELP),
    measured_norms("timm scores with the statistics of the last steps"),
    only("evaluation.metrics", (), "timm measures accuracy and top-5 accuracy"),
    LABELS_ALONE,
)
