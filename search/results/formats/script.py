"""A recipe as one training loop in PyTorch, in which only what this recipe uses appears.

The arguments of this format are the variables of its templates, in `script_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from search.results.formats.sheet import Sheet
from search.results.formats.table import (
    LABELS_ALONE,
    FieldRow,
    compiles_whole,
    filled,
    folder,
    lost,
    only,
    only_each,
    parts,
    says,
)
from search.results.formats.winner import Winner
from trainable.augmentation.geometry import cell_sides, padding
from trainable.data.loading import statistics_of
from trainable.errors import UserError
from trainable.models.libraries import RGB, timm_options, torchvision_options
from trainable.models.timm_names import located
from trainable.models.weights import weights_file
from trainable.recipe import augmentations, models, optimizers, schedules
from trainable.training.evaluate import make_views
from trainable.training.imbalance import adjustments, class_weights, shown_shares
from trainable.training.optim import applied_lr
from trainable.training.schedule import leg_momenta, leg_rates, legs

NOT_HERE = "the script leaves it out"
FILE_WORKERS = 4  # they read images that do not fit into memory, if the recipe does not say how many


def script_sheet(winner: Winner) -> Sheet:
    """Return what the script is filled with, and what of the recipe it leaves out.

    Raises UserError for a network of a person's own, which exists in Python alone.
    """
    if isinstance(winner.recipe.model, models.OwnModel):
        name = winner.recipe.model.name
        raise UserError(f"--format script: {name} is a network of your own, and no recipe holds its code")
    return filled(TABLE, winner)


def _images(_: object, winner: Winner) -> dict[str, Any]:
    info = winner.info
    mean, std = statistics_of(winner.recipe.data, info)
    return {
        "classes": len(info.classes),
        "channels": info.channels,
        "side": info.image_size,
        "mean": tuple(mean),
        "std": tuple(std),
        "interpolation": info.interpolation,
        "cached": info.in_memory,
    }


def _colours(_: object, winner: Winner) -> dict[str, Any]:
    mean, std = statistics_of(winner.recipe.data, winner.info)
    three = {"mean": tuple(mean), "std": tuple(std)}
    if winner.info.channels != RGB:
        three = {name: values * RGB for name, values in three.items()}
    return {"channels": RGB, **three}


def _workers(workers: int | None, winner: Winner) -> int:
    if winner.info.in_memory:
        return 0
    return FILE_WORKERS if workers is None else workers


# --- the network -----------------------------------------------------------------------------------------


def _network(spec: models.Model, winner: Winner) -> dict[str, Any]:
    rates = {} if isinstance(spec.layer_rates, models.UniformRates) else short(winner.network.rates)
    small = isinstance(spec, models.ResNetSmall)
    return {
        "model": spec,
        "small": small,
        "stochastic_depth": spec.stochastic_depth if small else None,
        "new_head": spec.weights is not None and not small,
        "head": winner.network.head,
        "rates": {name: float(f"{rate:.6g}") for name, rate in rates.items()},
    }


def _weights(weights: str | None, winner: Winner) -> dict[str, Any]:
    has_file = weights is not None and not models.is_published(weights)
    file = weights_file(winner.recipe.model) if has_file else None
    return {
        "weights_file": None if file is None else str(file),
        "safetensors": file is not None and file.suffix == ".safetensors",
    }


def _torchvision_network(spec: models.TorchvisionModel, winner: Winner) -> str:
    own: dict[str, Any] = {"num_classes": len(winner.info.classes)}
    if spec.weights is not None and models.is_published(spec.weights):
        own = {"weights": spec.weights.upper() if spec.weights == models.OWN_WEIGHTS else spec.weights}
    own |= torchvision_options(spec.name, winner.info.image_size)
    return _call("models.get_model", spec.name, **own)


def _timm_network(spec: models.TimmModel, winner: Winner) -> str:
    info = winner.info
    own = timm_options(
        located(spec.name), classes=len(info.classes), channels=info.channels, image_size=info.image_size
    )
    pretrained = spec.weights is not None and models.is_published(spec.weights)
    drops = {"drop_rate": spec.dropout, "drop_path_rate": spec.stochastic_depth}
    chosen = {name: rate for name, rate in drops.items() if rate is not None}
    return _call("timm.create_model", spec.name, pretrained=pretrained, **own, **chosen)


def _call(function: str, *arguments: Any, **named: Any) -> str:
    """Return a call in Python."""
    given = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())]
    return f"{function}({', '.join(given)})"


def short(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the factors of the rate by the beginnings of names that all weights below have in common."""
    shortest: dict[str, float] = {}
    for name, rate in rates.items():
        names = name.split(".")
        starts = [".".join(names[:end]) for end in range(1, len(names) + 1)]
        shared = next(
            start
            for start in starts
            if all(other == rate for below, other in rates.items() if f"{below}.".startswith(f"{start}."))
        )
        shortest[shared] = rate
    return shortest


# --- how it is trained -----------------------------------------------------------------------------------


def _made(name: str, *arguments: Any, **named: Any) -> str:
    """Return a call that makes an optimizer."""
    given = [*map(repr, arguments), "lr=LR", *(f"{key}={value!r}" for key, value in named.items())]
    return f"{name}(parameter_groups(model), {', '.join(given)})"


def _optimizer(spec: optimizers.Optimizer, _: Winner) -> str:
    match spec:
        case optimizers.SGD():
            return _made("torch.optim.SGD", momentum=spec.momentum, nesterov=spec.nesterov)
        case optimizers.RMSProp():
            return _made("torch.optim.RMSprop", alpha=spec.alpha, eps=spec.eps, momentum=spec.momentum)
        case optimizers.Adam():
            return _made("torch.optim.Adam", betas=(spec.beta1, spec.beta2), eps=spec.eps)
        case optimizers.AdamW() | optimizers.AdamThenSGD():
            return _made("torch.optim.AdamW", betas=(spec.beta1, spec.beta2), eps=spec.eps)
        case optimizers.Adadelta():
            return _made("torch.optim.Adadelta", rho=spec.rho, eps=spec.eps)
        case optimizers.LARS():
            momenta = {"momentum": spec.momentum, "nesterov": spec.nesterov}
            return _made("Lars", **momenta, trust_coeff=spec.trust, eps=1e-8)
        case optimizers.LAMB():
            return _made("Lamb", betas=(spec.beta1, spec.beta2), eps=spec.eps, max_grad_norm=1.0)
        case optimizers.Timm():
            return _made("create_optimizer_v2", spec.name, **spec.options)
        case _:
            assert_never(spec)


def _momentum_field(spec: optimizers.Optimizer, _: Winner) -> str:
    return "betas" if hasattr(spec, "beta1") or isinstance(spec, optimizers.Timm) else "momentum"


def _rate(_: object, winner: Winner) -> float:
    return applied_lr(winner.recipe.optimizer, winner.recipe.loop.batch_size)


def _legs(spec: schedules.OneCycle, winner: Winner) -> dict[str, Any]:
    ends = legs(spec, winner.recipe.loop.epochs - spec.warmup_epochs, 1.0 / winner.steps)
    return {
        "legs": list(zip(ends, leg_rates(spec), strict=True)),
        "momenta": list(zip(ends, leg_momenta(spec), strict=True)) if spec.cycle_momentum else [],
    }


def _imbalance(_: object, winner: Winner) -> dict[str, Any]:
    spec, sampling = winner.recipe.regularisation, winner.recipe.loop.sampling
    names, counts = winner.info.classes, np.array(winner.info.class_counts)
    order = sorted(range(len(names)), key=lambda label: names[label])  # as ImageFolder numbers them
    return {
        "class_weights": _listed(class_weights(spec.class_weights, counts, sampling), order),
        "adjustments": _listed(adjustments(spec, counts, sampling), order),
        "shown": _listed(shown_shares(counts, sampling) / counts * counts.sum(), order),
    }


def _listed(values: Any, order: Sequence[int]) -> list[float]:
    return [] if values is None else [float(f"{values[label]:.6g}") for label in order]


def _periods(grid: augmentations.GridMask, winner: Winner) -> tuple[int, int]:
    low = max(2, round(grid.period_min * winner.info.image_size))
    return low, max(low, round(grid.period_max * winner.info.image_size))


def _parts(winner: Winner) -> int:
    return winner.cut.parts * winner.cut.gpus


def _views(_: object, winner: Winner) -> list[tuple[int, bool]]:
    side = winner.info.image_size
    return [(view.size or side, view.mirrored) for view in make_views(winner.recipe.evaluation, side)]


TABLE: tuple[FieldRow, ...] = (
    says("model", _network),
    says("data.path", {"folder": folder}),
    says("data", _images),
    parts("the script reads train/, val/ and test/ of class folders: --images DIR writes these parts so"),
    lost(
        "data.image_size",
        NOT_HERE,
        unless=lambda side, winner: winner.info.image_size == (side or winner.info.image_size),
    ),
    says("loop.workers", {"workers": _workers}),
    # --- the network
    says("model.weights", _weights),
    says("model[resnet_small]", {"network_call": "Network()"}),
    says("model[torchvision]", {"network_call": _torchvision_network}, _colours),
    says("model[timm]", {"network_call": _timm_network}),
    lost("model[own|unet_small|smp]", "export refuses it"),
    says("model.freeze_norm", "freeze_norm"),
    only("model.initialisation", "default", "the script draws weights as the library does"),
    *only_each("model[torchvision]", NOT_HERE, zero_init_residual=None, dropout=None, stochastic_depth=None),
    only("model[timm].zero_init_residual", None, NOT_HERE),
    lost(
        "data.channels",
        "the script repeats grey images in three channels",
        unless=lambda channels, winner: winner.recipe.model.kind != "torchvision" or channels == RGB,
    ),
    only("model.frozen_views", None, "the script augments images anew in each epoch"),
    says("model.layer_rates[uniform|geometric|decayed|backbone]"),  # as rates, with the network
    # --- augmentation
    says("augmentation.crop[none|pad|resized]", "crop"),
    says(
        "augmentation.crop[pad].fraction",
        {"border": lambda fraction, winner: padding(fraction, winner.info.image_size)},
    ),
    says(
        "augmentation.crop",
        {"detail": lambda crop, winner: winner.info.detail_size if crop.kind == "resized" else None},
    ),
    says(
        "augmentation.flip_probability",
        "flip",
        {"flips": lambda probability, winner: winner.info.flips if probability else ()},
    ),
    says("augmentation.policy[none|randaugment|trivialaugment|autoaugment]", "policy"),
    says("augmentation.masking[none|erasing|cutout|gridmask|hide_and_seek]", "masking"),
    says(
        "augmentation.masking[cutout].side",
        {"cutout_side": lambda side, winner: max(1, round(side * winner.info.image_size))},
    ),
    says(
        "augmentation.masking[gridmask]",
        {
            "periods": _periods,
            "ramp_epochs": lambda grid, winner: grid.ramp * winner.recipe.loop.epochs,
        },
    ),
    only("augmentation.masking[gridmask].rotation", 0.0, "the script's grids are not turned"),
    says(
        "augmentation.masking[hide_and_seek]",
        {"cells": lambda _, winner: cell_sides(winner.info.image_size).tolist()},
    ),
    says("augmentation.mixing[none|mixup|cutmix]", "mixing"),
    says("augmentation.size[fixed]"),
    lost("augmentation.size[multi_scale|progressive]", "the script trains at one size"),
    # --- the optimizer
    says("optimizer", {"optimizer_call": _optimizer, "momentum_field": _momentum_field}),
    lost("optimizer[adam_then_sgd]", "the script has AdamW throughout"),
    says("optimizer.lr", {"lr": _rate}),
    says("optimizer.weight_decay", "weight_decay"),
    says("optimizer.decay_norm_and_bias", "decay_all"),
    # --- the schedule
    says("loop.epochs", "epochs"),
    says("schedule[constant|cosine|step|poly|exp|sgdr|cyclic|onecycle]", "schedule"),
    says("schedule", {"legs": [], "momenta": []}),
    says("schedule[onecycle]", _legs),
    says("schedule.warmup_epochs", "warmup"),
    # --- the loss
    says("regularisation.label_smoothing", "smoothing"),
    says("regularisation", _imbalance),
    says("regularisation.class_weights[none|inverse|effective_number]"),
    says("regularisation.clipping[none|norm|adaptive]", "clipping"),
    says("regularisation.averaging[none]", {"ema": None}),
    says("regularisation.averaging[ema].decay", "ema"),
    says("loop.sampling", "sampling"),
    only("loop.sampling", "natural", "the script draws each image by chance, so that shares vary a little"),
    # --- the loop
    says(
        "loop.batch_size",
        "batch",
        {"parts": lambda _, winner: _parts(winner)},
        but=lambda _, winner: f"the script trains on one device, which computes it in {_parts(winner)} parts",
        unless=lambda _, winner: winner.cut.gpus == 1,
    ),
    lost(
        "loop.micro_batch",
        lambda _, winner: f"the script has {_parts(winner)} equal parts",
        unless=lambda images, winner: images is None or winner.recipe.loop.batch_size % images == 0,
    ),
    says("precision[fp32|tf32]", {"half": None}),
    says("precision[bf16]", {"half": "bfloat16"}),
    says("precision[fp16]", {"half": "float16"}),
    says("precision[auto]", {"half": lambda _, winner: "bfloat16" if winner.device == "cuda" else None}),
    lost("precision[auto].kind", "the script has bf16 for a GPU and fp32 for a CPU"),
    says("precision.kind", {"tf32": lambda kind, _: kind == "tf32"}),
    says("precision.channels_last", "channels_last"),
    says("loop", {"compiled": lambda loop, _: loop.compiles}),
    compiles_whole("the script"),
    says("loop.seed", "seed"),
    *only_each("loop", NOT_HERE, sync_norm=False, bf16_gradients=False, checkpoint_activations=False),
    # --- evaluation
    says("evaluation.resize[stretch]", {"crop_ratio": None}),
    says("evaluation.resize[center_crop].ratio", "crop_ratio"),
    says("evaluation", {"views": _views}),
    says(
        "evaluation.norm_batches",
        {"norm_batches": lambda batches, winner: 0 if winner.recipe.model.freeze_norm else batches},
    ),
    only("evaluation.metrics", (), "the script measures accuracy alone"),
    LABELS_ALONE,
)
