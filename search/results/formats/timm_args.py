"""Writes a recipe as the arguments of timm's train.py: `python train.py -c FILE`.

Arguments are those of timm 1.0. What timm's own factories make of them is compared with the recipe here, by
making both: so a difference of rates or parameter groups is measured, not guessed.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, assert_never

from search.results.formats.network import Network, build
from search.results.formats.sheet import OF_MASKS, Sheet
from search.results.formats.timm_schedule import say_schedule
from search.results.formats.winner import Winner
from trainable.data.loading import statistics_of
from trainable.models.weights import weights_file
from trainable.recipe import augmentations, models, optimizers, training
from trainable.training.optim import applied_lr, parameter_groups

ERASED = {"area_min": 0.02, "area_max": 1 / 3, "ratio_min": 0.3, "ratio_max": 1 / 0.3}
"""timm erases rectangles of these areas and ratios, whatever its arguments."""
NO_HELP = "timm's train.py has no argument for it"
USUAL_MOMENTUM = 0.9
"""timm gives it to every optimizer that takes a momentum."""
ALIKE = 0.1
"""A new head whose spread is within a tenth of the recipe's is left as timm draws it."""


def usage(winner: Winner) -> str:
    """Return in a line what the file is and how it is used; each GPU has a process of its own."""
    start = "python" if winner.gpus == 1 else f"torchrun --nproc_per_node={winner.gpus}"
    return f"Arguments of timm's train.py (timm 1.0): {start} train.py -c THIS_FILE"


def timm_sheet(winner: Winner) -> Sheet:
    """Return timm's arguments for a recipe, and what they cannot say."""
    sheet = Sheet(winner.recipe)
    network = build(winner)
    _data(sheet, winner)
    _model(sheet, winner, network)
    _optimizer(sheet, winner)
    say_schedule(sheet, winner)
    _regularisation(sheet)
    _crop(sheet)
    _policy(sheet)
    _masking(sheet)
    _mixing(sheet)
    _precision(sheet, winner)
    _loop(sheet, winner)
    _evaluation(sheet)
    _compare_groups(sheet, winner, network)
    sheet.only_labels()
    return sheet


def _data(sheet: Sheet, winner: Winner) -> None:
    data, info = winner.recipe.data, winner.info
    mean, std = statistics_of(data, info)
    sheet.say(
        data_dir=winner.images or data.path,
        train_split="train",
        val_split="validation",
        num_classes=len(info.classes),
        input_size=[info.channels, info.image_size, info.image_size],
        mean=list(mean),
        std=list(std),
        interpolation=info.interpolation,
        train_interpolation=info.interpolation,
    )
    if winner.images is None:
        sheet.only_parts(
            "timm takes folders of class folders as they are; --images DIR writes these parts so, upright"
        )


def _model(sheet: Sheet, winner: Winner, network: Network) -> None:
    spec = winner.recipe.model
    match spec:
        case models.TimmModel():
            sheet.say(model=spec.name)
        case models.TorchvisionModel() if network.in_timm:
            sheet.say(model=spec.name)
            sheet.cannot(
                "model.kind", "timm's network of this name has the same layers, made and drawn its own way"
            )
        case (
            models.ResNetSmall()
            | models.UNetSmall()
            | models.TorchvisionModel()
            | models.SmpModel()
            | models.OwnModel()
        ):
            sheet.cannot("model", "timm has no such network; name one with --model")
        case _:
            assert_never(spec)
    _weights(sheet, spec, network)
    sheet.say(drop=spec.dropout or 0.0, drop_path=spec.stochastic_depth)
    sheet.only("model.initialisation", "default", "timm draws weights its own way")
    sheet.only(
        "model.zero_init_residual", None, f"{NO_HELP}; some networks take --model-kwargs zero_init_last="
    )
    for path, value in (("freeze_epochs", 0), ("frozen_views", None), ("freeze_norm", False)):
        sheet.only(f"model.{path}", value, NO_HELP)
    _layer_rates(sheet, spec, network)


def _weights(sheet: Sheet, spec: models.Model, network: Network) -> None:
    if spec.weights is None or isinstance(spec, models.ResNetSmall | models.OwnModel):
        return
    if spec.weights == models.OWN_WEIGHTS and isinstance(spec, models.TimmModel):
        sheet.say(pretrained=True)
    elif models.is_published(spec.weights):
        sheet.cannot("model.weights", "timm has weights of its own; pretrained: true takes those")
    else:
        sheet.say(pretrained=True, pretrained_path=str(weights_file(spec)))
    if network.head_spread and abs(network.head_spread - 1.0) > ALIKE:
        sheet.say(head_init_scale=network.head_spread)
        sheet.cannot(
            "model.weights", "the new head has the recipe's spread here, with the shape that timm draws"
        )


def _layer_rates(sheet: Sheet, spec: models.Model, network: Network) -> None:
    match spec.layer_rates:
        case models.UniformRates():
            pass
        case models.DecayedRates(factor=factor):
            sheet.say(layer_decay=factor)
        case models.GeometricRates(lowest=lowest):
            sheet.say(layer_decay=lowest ** (1.0 / max(network.layers - 1, 1)))
        case models.BackboneRates():
            sheet.cannot("model.layer_rates", "timm's rates fall from layer to layer, not below a decoder")
        case _:
            assert_never(spec.layer_rates)


def _optimizer(sheet: Sheet, winner: Winner) -> None:
    spec = winner.recipe.optimizer
    extra: dict[str, Any] = {}
    sheet.say(momentum=USUAL_MOMENTUM)  # timm asks for one, also where the optimizer has none
    match spec:
        case optimizers.SGD():
            sheet.say(opt="sgd" if spec.nesterov else "momentum", momentum=spec.momentum)
        case optimizers.RMSProp():
            sheet.say(opt="rmsprop", momentum=spec.momentum, opt_eps=spec.eps)
            extra = {"alpha": spec.alpha}
        case optimizers.Adam() | optimizers.AdamW():
            sheet.say(opt=spec.kind, opt_betas=[spec.beta1, spec.beta2], opt_eps=spec.eps)
        case optimizers.Adadelta():
            sheet.say(opt="adadelta", opt_eps=spec.eps)
            extra = {"rho": spec.rho}
        case optimizers.LARS():
            sheet.say(opt="lars", momentum=spec.momentum, opt_eps=1e-8)
            extra = {"trust_coeff": spec.trust, "nesterov": spec.nesterov}
        case optimizers.LAMB():
            sheet.say(opt="lamb", opt_betas=[spec.beta1, spec.beta2], opt_eps=spec.eps)
            extra = {"max_grad_norm": 1.0}
        case optimizers.Timm():
            extra = _options_of(sheet, spec)
        case optimizers.AdamThenSGD():
            sheet.say(opt="adamw", opt_betas=[spec.beta1, spec.beta2], opt_eps=spec.eps)
            sheet.cannot(
                "optimizer", "timm does not change the optimizer in a run; the file has Adam throughout"
            )
        case _:
            assert_never(spec)
    if spec.decay_norm_and_bias:
        extra |= {"filter_bias_and_bn": False}
    sheet.say(lr=applied_lr(spec, winner.cut.batch), weight_decay=spec.weight_decay, opt_kwargs=extra)


def _options_of(sheet: Sheet, spec: optimizers.Timm) -> dict[str, Any]:
    """Say the options that have an argument of their own, and return the others."""
    named = {"betas": "opt_betas", "eps": "opt_eps", "momentum": "momentum"}
    options = {
        name: list(value) if isinstance(value, tuple) else value for name, value in spec.options.items()
    }
    sheet.say(opt=spec.name, **{named[name]: value for name, value in options.items() if name in named})
    return {name: value for name, value in options.items() if name not in named}


def _regularisation(sheet: Sheet) -> None:
    spec = sheet.recipe.regularisation
    sheet.say(smoothing=spec.label_smoothing)
    if not isinstance(spec.class_weights, training.NoClassWeights):
        sheet.cannot("regularisation.class_weights", NO_HELP)
    sheet.only("regularisation.logit_adjustment", 0.0, NO_HELP)
    match spec.clipping:
        case training.NoClipping():
            pass
        case training.NormClipping(max_norm=norm):
            sheet.say(clip_grad=norm, clip_mode="norm")
        case training.AdaptiveClipping(factor=factor):
            sheet.say(clip_grad=factor, clip_mode="agc")
        case _:
            assert_never(spec.clipping)
    match spec.averaging:
        case training.NoAveraging():
            pass
        case training.ExponentialAveraging(decay=decay):
            sheet.say(model_ema=True, model_ema_decay=decay, model_ema_warmup=True)
        case _:
            assert_never(spec.averaging)


def _crop(sheet: Sheet) -> None:
    spec, data = sheet.recipe.augmentation, sheet.recipe.data
    flips = {
        name: spec.flip_probability if name in (data.flips or ()) else 0.0
        for name in ("horizontal", "vertical")
    }
    sheet.say(hflip=flips["horizontal"], vflip=flips["vertical"], color_jitter=None)
    whole: dict[str, Any] = {"scale": [1.0, 1.0], "ratio": [1.0, 1.0]}
    match spec.crop:
        case augmentations.NoCrop():
            sheet.say(**whole)
        case augmentations.PadCrop():
            sheet.say(**whole)
            sheet.cannot(
                "augmentation.crop", "timm does not shift images with a border; the file has whole images"
            )
        case augmentations.ResizedCrop() as crop:
            sheet.say(scale=[crop.scale_min, crop.scale_max], ratio=[crop.ratio_min, crop.ratio_max])
            sheet.cannot(
                "augmentation.crop", "timm cuts from the stored image, here the cut is from its square"
            )
        case augmentations.ScaledCrop():
            raise ValueError(augmentations.SCALED_NEEDS_MASKS)
        case _:
            assert_never(spec.crop)
    sheet.only("augmentation.size.kind", "fixed", NO_HELP)
    if spec.size.kind != "fixed":
        sheet.cannot("augmentation.size", NO_HELP)


def _policy(sheet: Sheet) -> None:
    spec = sheet.recipe.augmentation.policy
    fill = "timm fills with the mean colour, here with black"
    match spec:
        case augmentations.NoPolicy():
            pass
        case augmentations.RandAugment(num_ops=count, magnitude=magnitude):
            sheet.say(aa=f"rand-m{magnitude / 3:.4g}-n{count}-p1.0-inc1")
            why = "timm's has 15 operations, three of them others, and magnitudes of 0 to 10"
            sheet.cannot("augmentation.policy", f"{why}; {fill}")
        case augmentations.AutoAugment(policy="imagenet"):
            sheet.say(aa="original")
            sheet.cannot("augmentation.policy", f"the same 25 pairs; {fill}")
        case augmentations.AutoAugment() | augmentations.TrivialAugment():
            sheet.cannot("augmentation.policy", "timm has no such policy")
        case _:
            assert_never(spec)


def _masking(sheet: Sheet) -> None:
    spec = sheet.recipe.augmentation.masking
    match spec:
        case augmentations.NoMasking():
            pass
        case augmentations.RandomErasing():
            sheet.say(reprob=spec.probability, remode="const", recount=1)
            for name, value in ERASED.items():
                sheet.only(f"augmentation.masking.{name}", value, f"timm has {value:.3g} always")
        case augmentations.Cutout() | augmentations.GridMask() | augmentations.HideAndSeek():
            sheet.cannot("augmentation.masking", "timm erases rectangles alone")
        case _:
            assert_never(spec)


def _mixing(sheet: Sheet) -> None:
    spec = sheet.recipe.augmentation.mixing
    match spec:
        case augmentations.NoMixing():
            return
        case augmentations.Mixup():
            sheet.say(mixup=spec.alpha)
        case augmentations.CutMix():
            sheet.say(cutmix=spec.alpha)
        case augmentations.ClassMix():
            sheet.cannot("augmentation.mixing", OF_MASKS)
            return
        case _:
            assert_never(spec)
    # without the prefetcher images are mixed after they are normalised and erased, as in the recipe
    sheet.say(mixup_prob=spec.probability, mixup_mode="batch", no_prefetcher=True)
    sheet.cannot(
        "augmentation.mixing", "timm pairs a batch's first image with its last; here neighbours are pairs"
    )


def _precision(sheet: Sheet, winner: Winner) -> None:
    spec = sheet.recipe.precision
    sheet.say(device=winner.device, channels_last=spec.channels_last)
    match spec.kind:
        case "bf16":
            sheet.say(amp=True, amp_dtype="bfloat16")
        case "fp16":
            sheet.say(amp=True, amp_dtype="float16")
        case "tf32":
            sheet.say(amp=False)
        case "fp32":
            sheet.say(amp=False)
            if winner.device == "cuda":
                sheet.cannot("precision.kind", "train.py lets GPUs compute in tf32")
        case "auto":
            sheet.say(amp=winner.device == "cuda", amp_dtype="bfloat16")
            sheet.cannot("precision.kind", "the file has bf16 for a GPU and fp32 for a CPU")
        case _:
            assert_never(spec.kind)


def _loop(sheet: Sheet, winner: Winner) -> None:
    spec, cut = sheet.recipe.loop, winner.cut
    sheet.say(
        batch_size=cut.at_once,
        grad_accum_steps=cut.parts,
        validation_batch_size=sheet.recipe.evaluation.batch_size,
        seed=spec.seed,
        sync_bn=spec.sync_norm,
        grad_checkpointing=spec.checkpoint_activations,
    )
    if spec.workers is not None:
        sheet.say(workers=spec.workers)
    if spec.compiles:
        sheet.say(torchcompile="inductor")
    sheet.compiles_whole("train.py")
    if spec.micro_batch not in (None, cut.at_once):
        sheet.cannot("loop.micro_batch", f"the file has equal parts, of {cut.at_once} images")
    if cut.batch != spec.batch_size:
        sheet.cannot("loop.batch_size", f"{cut.gpus} GPUs with equal parts make a batch of {cut.batch}")
    sheet.only("loop.sampling", "natural", "timm shows each image once an epoch")
    sheet.only("loop.bf16_gradients", False, NO_HELP)


def _evaluation(sheet: Sheet) -> None:
    spec = sheet.recipe.evaluation
    match spec.resize:
        case training.Stretch():
            sheet.say(crop_pct=1.0)
            sheet.cannot("evaluation.resize", "of images that are not square timm takes the middle")
        case training.CenterCrop(ratio=ratio):
            sheet.say(crop_pct=ratio)
        case _:
            assert_never(spec.resize)
    sheet.only("evaluation.flip", False, NO_HELP)
    sheet.only("evaluation.scales", [1.0], NO_HELP)
    if not sheet.recipe.model.freeze_norm:
        sheet.only("evaluation.norm_batches", 0, "timm scores with the statistics of the last steps")
    sheet.only("evaluation.metrics", [], "timm measures accuracy and top-5 accuracy")


def _compare_groups(sheet: Sheet, winner: Winner, network: Network) -> None:
    """List the parameters that decay, or whose rates are scaled, in another way by timm's own factory."""
    if network.model is None or isinstance(winner.recipe.optimizer, optimizers.AdamThenSGD):
        return
    from timm.optim import create_optimizer_v2, optimizer_kwargs

    spec = winner.recipe.optimizer
    arguments = sheet.arguments
    cfg = Namespace(**arguments)
    made = create_optimizer_v2(network.model, **optimizer_kwargs(cfg), **arguments["opt_kwargs"])
    ours = parameter_groups(network.model, spec.weight_decay, spec.decay_norm_and_bias, network.rates)
    theirs = [{"rate_factor": each.get("lr_scale", 1.0), **each} for each in made.param_groups]
    names = {parameter: name for name, parameter in network.model.named_parameters()}
    for field, path in (("weight_decay", "optimizer.weight_decay"), ("rate_factor", "model.layer_rates")):
        apart = network.differing(names, field, ours, theirs)
        if apart:
            some = ", ".join(apart[:3])
            sheet.cannot(path, f"timm treats {len(apart)} parameters in another way, such as {some}")
