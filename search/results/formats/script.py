"""Writes a recipe as one training loop in PyTorch, in which only what this recipe uses appears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from search.results.formats.network import Network, build
from search.results.formats.sheet import Sheet
from search.results.formats.winner import Winner, no_segmentation
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
FILE_WORKERS = 4
"""So many processes read images that do not fit into memory, if the recipe does not say how many."""


def script_sheet(winner: Winner) -> Sheet:
    """Return what the script is filled with, and what of the recipe it leaves out.

    Raises UserError for a network of a person's own, which exists in Python alone.
    """
    if isinstance(winner.recipe.model, models.OwnModel):
        name = winner.recipe.model.name
        raise UserError(f"--format script: {name} is a network of your own, and no recipe holds its code")
    sheet, network = Sheet(winner.recipe), build(winner)
    _data(sheet, winner)
    _network(sheet, winner, network)
    _augmentation(sheet, winner)
    _optimizer(sheet, winner)
    _schedule(sheet, winner)
    _loss(sheet, winner)
    _loop(sheet, winner)
    _evaluation(sheet, winner)
    sheet.only_labels()
    return sheet


def _data(sheet: Sheet, winner: Winner) -> None:
    data, info = winner.recipe.data, winner.info
    mean, std = statistics_of(data, info)
    resize = winner.recipe.evaluation.resize
    held = info.in_memory
    workers = 0 if held else winner.recipe.loop.workers
    sheet.say(
        folder=winner.images or data.path,
        classes=len(info.classes),
        channels=info.channels,
        side=info.image_size,
        mean=tuple(mean),
        std=tuple(std),
        interpolation=info.interpolation,
        crop_ratio=resize.ratio if resize.kind == "center_crop" else None,
        detail=info.detail_size if winner.recipe.augmentation.crop.kind == "resized" else None,
        cached=held,
        workers=FILE_WORKERS if workers is None else workers,
    )
    if winner.images is None:
        sheet.only_parts(
            "the script reads train/, val/ and test/ of class folders: --images DIR writes these parts so"
        )


def _network(sheet: Sheet, winner: Winner, network: Network) -> None:
    spec, info = winner.recipe.model, winner.info
    small, published = (
        isinstance(spec, models.ResNetSmall),
        spec.weights is not None and models.is_published(spec.weights),
    )
    file = weights_file(spec) if spec.weights is not None and not published else None
    sheet.say(
        model=spec,
        small=small,
        network_call=_network_call(sheet, winner),
        weights_file=None if file is None else str(file),
        safetensors=file is not None and file.suffix == ".safetensors",
        new_head=spec.weights is not None and not small,
        stochastic_depth=spec.stochastic_depth if small else None,
        freeze_norm=spec.freeze_norm,
        head=network.head,
        rates={} if isinstance(spec.layer_rates, models.UniformRates) else _rounded(short(network.rates)),
    )
    sheet.only("model.initialisation", "default", "the script draws weights as the library does")
    if not small:
        sheet.only("model.zero_init_residual", None, NOT_HERE)
    if isinstance(spec, models.TorchvisionModel):
        sheet.only("model.dropout", None, NOT_HERE)
        sheet.only("model.stochastic_depth", None, NOT_HERE)
        sheet.only("data.channels", RGB, "the script repeats grey images in three channels")
        sheet.say(channels=RGB, mean=_three(sheet.arguments["mean"]), std=_three(sheet.arguments["std"]))
    sheet.only("model.frozen_views", None, "the script augments images anew in each epoch")
    if info.image_size != (winner.recipe.data.image_size or info.image_size):
        sheet.cannot("data.image_size", NOT_HERE)


def _three(values: tuple[float, ...]) -> tuple[float, ...]:
    return values if len(values) == RGB else values * RGB


def _network_call(sheet: Sheet, winner: Winner) -> str:
    spec, info = winner.recipe.model, winner.info
    published = spec.weights is not None and models.is_published(spec.weights)
    match spec:
        case models.ResNetSmall() | models.OwnModel():
            return "Network()"
        case models.UNetSmall() | models.SmpModel():
            raise no_segmentation("script")
        case models.TorchvisionModel():
            weights = (
                spec.weights.upper() if published and spec.weights == models.OWN_WEIGHTS else spec.weights
            )
            own: dict[str, Any] = {"weights": weights} if published else {"num_classes": len(info.classes)}
            return _call("models.get_model", spec.name, own | torchvision_options(spec.name, info.image_size))
        case models.TimmModel():
            own = timm_options(
                located(spec.name),
                classes=len(info.classes),
                channels=info.channels,
                image_size=info.image_size,
            )
            drops = {"drop_rate": spec.dropout, "drop_path_rate": spec.stochastic_depth}
            chosen = {name: rate for name, rate in drops.items() if rate is not None}
            return _call("timm.create_model", spec.name, {"pretrained": published, **own, **chosen})
        case _:
            assert_never(spec)


def _call(function: str, *arguments: Any) -> str:
    """Return a call in Python; mappings among the arguments are given by name."""
    plain = [repr(each) for each in arguments if not isinstance(each, Mapping)]
    named = [
        f"{name}={value!r}" for each in arguments if isinstance(each, Mapping) for name, value in each.items()
    ]
    return f"{function}({', '.join([*plain, *named])})"


def short(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the factors of the rate by the beginnings of names that all weights below have in common."""
    found: dict[str, float] = {}
    for name, rate in rates.items():
        parts = name.split(".")
        starts = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        found[next(each for each in starts if _all_below(rates, each) == {rate})] = rate
    return found


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{rate:.6g}") for name, rate in rates.items()}


def _all_below(rates: Mapping[str, float], start: str) -> set[float]:
    return {rate for name, rate in rates.items() if f"{name}.".startswith(f"{start}.")}


def _augmentation(sheet: Sheet, winner: Winner) -> None:
    spec, side = winner.recipe.augmentation, winner.info.image_size
    sheet.say(
        crop=spec.crop,
        policy=spec.policy,
        masking=spec.masking,
        mixing=spec.mixing,
        flips=winner.info.flips if spec.flip_probability else (),
        flip=spec.flip_probability,
        border=padding(spec.crop.fraction, side) if isinstance(spec.crop, augmentations.PadCrop) else 0,
    )
    if isinstance(spec.size, augmentations.MultiScale | augmentations.Progressive):
        sheet.cannot("augmentation.size", "the script trains at one size")
    match spec.masking:
        case augmentations.GridMask() as grid:
            low = max(2, round(grid.period_min * side))
            sheet.say(
                periods=(low, max(low, round(grid.period_max * side))),
                ramp_epochs=grid.ramp * winner.recipe.loop.epochs,
            )
            sheet.only("augmentation.masking.rotation", 0.0, "the script's grids are not turned")
        case augmentations.Cutout() as cut:
            sheet.say(cutout_side=max(1, round(cut.side * side)))
        case augmentations.HideAndSeek():
            sheet.say(cells=cell_sides(side).tolist())
        case augmentations.NoMasking() | augmentations.RandomErasing():
            pass
        case _:
            assert_never(spec.masking)


def _optimizer(sheet: Sheet, winner: Winner) -> None:
    spec = winner.recipe.optimizer
    match spec:
        case optimizers.SGD():
            call = _made("torch.optim.SGD", momentum=spec.momentum, nesterov=spec.nesterov)
        case optimizers.RMSProp():
            call = _made("torch.optim.RMSprop", alpha=spec.alpha, eps=spec.eps, momentum=spec.momentum)
        case optimizers.Adam():
            call = _made("torch.optim.Adam", betas=(spec.beta1, spec.beta2), eps=spec.eps)
        case optimizers.AdamW() | optimizers.AdamThenSGD():
            call = _made("torch.optim.AdamW", betas=(spec.beta1, spec.beta2), eps=spec.eps)
        case optimizers.Adadelta():
            call = _made("torch.optim.Adadelta", rho=spec.rho, eps=spec.eps)
        case optimizers.LARS():
            call = _made(
                "Lars", momentum=spec.momentum, nesterov=spec.nesterov, trust_coeff=spec.trust, eps=1e-8
            )
        case optimizers.LAMB():
            call = _made("Lamb", betas=(spec.beta1, spec.beta2), eps=spec.eps, max_grad_norm=1.0)
        case optimizers.Timm():
            call = _made("create_optimizer_v2", spec.name, **spec.options)
        case _:
            assert_never(spec)
    if isinstance(spec, optimizers.AdamThenSGD):
        sheet.cannot("optimizer", "the script has AdamW throughout")
    sheet.say(
        optimizer_call=call,
        lr=applied_lr(spec, winner.recipe.loop.batch_size),
        weight_decay=spec.weight_decay,
        decay_all=spec.decay_norm_and_bias,
        momentum_field="betas" if hasattr(spec, "beta1") or isinstance(spec, optimizers.Timm) else "momentum",
    )


def _made(name: str, *arguments: Any, **named: Any) -> str:
    shown = [
        *(repr(each) for each in arguments),
        "lr=LR",
        *(f"{key}={value!r}" for key, value in named.items()),
    ]
    return f"{name}(parameter_groups(model), {', '.join(shown)})"


def _schedule(sheet: Sheet, winner: Winner) -> None:
    spec, step = winner.recipe.schedule, 1.0 / winner.steps
    length = winner.recipe.loop.epochs - spec.warmup_epochs
    sheet.say(schedule=spec, warmup=spec.warmup_epochs, epochs=winner.recipe.loop.epochs, legs=[], momenta=[])
    if isinstance(spec, schedules.OneCycle):
        ends = legs(spec, length, step)
        sheet.say(legs=list(zip(ends, leg_rates(spec), strict=True)))
        if spec.cycle_momentum:
            sheet.say(momenta=list(zip(ends, leg_momenta(spec), strict=True)))


def _loss(sheet: Sheet, winner: Winner) -> None:
    spec, sampling = winner.recipe.regularisation, winner.recipe.loop.sampling
    names = winner.info.classes
    order = sorted(range(len(names)), key=lambda label: names[label])  # as ImageFolder numbers them
    held = np.array(winner.info.class_counts)
    averaged = spec.averaging.decay if spec.averaging.kind == "ema" else None
    sheet.say(
        smoothing=spec.label_smoothing,
        class_weights=_listed(class_weights(spec.class_weights, held, sampling), order),
        adjustments=_listed(adjustments(spec, held, sampling), order),
        sampling=sampling,
        shown=_listed(shown_shares(held, sampling) / held * held.sum(), order),
        clipping=spec.clipping,
        ema=averaged,
    )
    sheet.only(
        "loop.sampling", "natural", "the script draws each image by chance, so that shares vary a little"
    )


def _listed(values: Any, order: Sequence[int]) -> list[float]:
    return [] if values is None else [float(f"{values[label]:.6g}") for label in order]


def _loop(sheet: Sheet, winner: Winner) -> None:
    spec, cut = winner.recipe.loop, winner.cut
    kind = winner.recipe.precision.kind
    half = {"bf16": "bfloat16", "fp16": "float16"}.get(kind)
    if kind == "auto":
        half = "bfloat16" if winner.device == "cuda" else None
        sheet.cannot("precision.kind", "the script has bf16 for a GPU and fp32 for a CPU")
    parts = cut.parts * cut.gpus
    sheet.say(
        batch=spec.batch_size,
        parts=parts,
        half=half,
        tf32=kind == "tf32",
        channels_last=winner.recipe.precision.channels_last,
        compiled=spec.compiles,
        seed=spec.seed,
    )
    sheet.compiles_whole("the script")
    if cut.gpus > 1:
        sheet.cannot(
            "loop.batch_size", f"the script trains on one device, which computes it in {parts} parts"
        )
    if spec.micro_batch is not None and spec.batch_size % spec.micro_batch:
        sheet.cannot("loop.micro_batch", f"the script has {parts} equal parts")
    for path in ("sync_norm", "bf16_gradients", "checkpoint_activations"):
        sheet.only(f"loop.{path}", False, NOT_HERE)


def _evaluation(sheet: Sheet, winner: Winner) -> None:
    spec, side = winner.recipe.evaluation, winner.info.image_size
    views = [(view.size or side, view.mirrored) for view in make_views(spec, side)]
    norms = 0 if winner.recipe.model.freeze_norm else spec.norm_batches
    sheet.say(views=views, norm_batches=norms)
    sheet.only("evaluation.metrics", [], "the script measures accuracy alone")
