"""Training on a CPU: Run against other loops, the data paths, and what each technique costs.

    python benchmarks/throughput.py [--data FOLDER] [--rounds 31] [--parts step loader techniques]
    python benchmarks/throughput.py --rounds 11 --parts frozen --name throughput-frozen-cpu [--busy]

The first three parts use ResNet-8 on 28 x 28 grey images held in memory as uint8 (Fashion-MNIST's IDX files
where `--data` names them, else noise of the same shape), batch 128, SGD with Nesterov momentum, cosine,
channels_last, fp32.

* step: Run against a bare loop, timm's pieces and torchvision's reference steps, on the same batches.
* loader: batches with crop, flip and erasing from memory, and from a DataLoader with v2 transforms; then
  whole epochs of each.
* techniques: an epoch with each technique over an epoch without.
* frozen: epochs of EfficientNet-Lite0's head alone, on 64 x 64 noise, with features computed once and anew,
  and epochs of all layers. They take as long with any weights.

Arms take turns within a round; a figure is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from loops import Epoch, bare_loop, file_loop, our_run, timm_pieces, torchvision_steps, v2_loader
from report import (
    Slice,
    described,
    environment,
    in_rounds,
    plain,
    portable,
    ratio,
    refuse_busy_machine,
    write,
)
from trainable.bench import ON_CPU
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.kits import make_loader

BATCH = 128
CLASSES = 10
FROZEN_BATCH = 32
CPU = torch.device("cpu")
AUGMENTED = {  # crops, flips horizontally (the data allow it), and erases half of the images
    "augmentation.crop.kind": "pad",
    "augmentation.masking.kind": "erasing",
}

TECHNIQUES: dict[str, dict[str, Any]] = {
    "padded crop": {"augmentation.crop.kind": "pad"},
    "resized crop": {"augmentation.crop.kind": "resized"},
    "flip": {"augmentation.flip_probability": 0.5},
    "RandAugment": {"augmentation.policy.kind": "randaugment"},
    "TrivialAugment": {"augmentation.policy.kind": "trivialaugment"},
    "AutoAugment": {"augmentation.policy.kind": "autoaugment"},
    "RandomErasing": {"augmentation.masking.kind": "erasing"},
    "Cutout": {"augmentation.masking.kind": "cutout"},
    "GridMask": {"augmentation.masking.kind": "gridmask", "augmentation.masking.ramp": 0.0},
    "Hide-and-Seek": {"augmentation.masking.kind": "hide_and_seek"},
    "mixup": {"augmentation.mixing.kind": "mixup"},
    "CutMix": {"augmentation.mixing.kind": "cutmix"},
    "label smoothing": {"regularisation.label_smoothing": 0.1},
    "clipping by norm": {"regularisation.clipping.kind": "norm"},
    "adaptive clipping": {"regularisation.clipping.kind": "adaptive"},
    "EMA": {"regularisation.averaging.kind": "ema", "regularisation.averaging.decay": 0.999},
    "AdamW": {"optimizer.kind": "adamw"},
    "RMSProp": {"optimizer.kind": "rmsprop"},
    "Adadelta": {"optimizer.kind": "adadelta"},
    "LARS": {"optimizer.kind": "lars"},
    "LAMB": {"optimizer.kind": "lamb"},
    "4 micro-batches": {"loop.micro_batch": BATCH // 4},
    "checkpointed activations": {"loop.checkpoint_activations": True},
    "stochastic depth": {"model.stochastic_depth": 0.2},
    "head dropout": {"model.dropout": 0.5},
    "measured BatchNorm": {"evaluation.norm_batches": 4},
    "frozen BatchNorm": {"model.freeze_norm": True},
    "multi-scale": {"augmentation.size.kind": "multi_scale", "augmentation.size.every": 1},
    "contiguous layout": {"precision.channels_last": False},
    "bf16": {"precision.kind": "bf16"},
}


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    if not options.busy:
        refuse_busy_machine(options.threads)
    where = environment(options.threads)
    data = images_of(options)
    parts = {"step": steps, "loader": loaders, "techniques": techniques, "frozen": frozen}
    record: dict[str, Any] = {"environment": where, "data": portable(data.info.path)}
    pages = []
    for name in options.parts:
        record[name], page = parts[name](data, options)
        pages.append(page)
    write(
        options.name,
        record,
        "# Training throughput on a CPU\n\n" + "\n".join(pages) + "\n" + described(where),
    )


# --- the step -----------------------------------------------------------------------------------------


def steps(data: DataSet, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Compare Run with loops that do the same work on the same batches."""
    recipe = make_recipe({})
    arms = {
        "Run": our_run(recipe, data, CPU),
        "bare loop": bare_loop(recipe, data, CPU),
        "timm's pieces": timm_pieces(recipe, data, CPU),
        "torchvision's reference steps": torchvision_steps(recipe, data, CPU),
    }
    slices = in_rounds(arms, options.rounds)
    return _compared(
        "The step",
        "Run",
        slices,
        "No augmentation; each arm trains one epoch a slice, ratios are Run's rate over it.",
    )


# --- the data paths -----------------------------------------------------------------------------------


def loaders(data: DataSet, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Compare batches alone, then whole epochs, from memory and through a DataLoader."""
    recipe = make_recipe(AUGMENTED)
    rounds = max(3, options.rounds // 4)
    alone = in_rounds(
        {
            "in memory": our_batches(recipe, data),
            "DataLoader, v2, 0 workers": v2_batches(data, 0),
            "DataLoader, v2, 2 workers": v2_batches(data, 2),
        },
        rounds,
    )
    whole = in_rounds(
        {
            "in memory": our_run(recipe, data, CPU),
            "DataLoader, v2, 0 workers": file_loop(recipe, data, CPU, 0),
            "DataLoader, v2, 2 workers": file_loop(recipe, data, CPU, 2),
        },
        rounds,
    )
    first = _compared(
        "The loader alone", "in memory", alone, "Crop, flip, normalisation and erasing, batch 128."
    )
    second = _compared("Whole epochs", "in memory", whole, "The same, trained on.")
    return {"alone": first[0], "epochs": second[0]}, first[1] + "\n" + second[1]


def our_batches(recipe: Recipe, data: DataSet) -> Epoch:
    loader = make_loader(data, recipe, ON_CPU)
    order = list(
        torch.randperm(data.info.train_images)[: data.info.train_images // BATCH * BATCH].split(BATCH)
    )
    epochs = iter(range(10**9))

    def epoch() -> float:
        return float(sum(len(labels) for _, labels in loader.train(order, next(epochs))))

    return epoch


def v2_batches(data: DataSet, workers: int) -> Epoch:
    loader = v2_loader(data, BATCH, workers)

    def epoch() -> float:
        return float(sum(len(labels) for _, labels in loader))

    return epoch


# --- what each technique costs ------------------------------------------------------------------------


def techniques(data: DataSet, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Measure an epoch's time with each technique over an epoch's without."""
    rounds = max(3, options.rounds // 4)
    figures = {}
    for name, values in TECHNIQUES.items():
        arms: Mapping[str, Callable[[], float]] = {
            "without": our_run(make_recipe({}), data, CPU),
            "with": our_run(make_recipe(values), data, CPU),
        }
        slices = in_rounds(arms, rounds)
        figures[name] = ratio(slices["without"], slices["with"], lambda each: each.thrift)
    rows = "\n".join(f"| {name} | {shown(figure)} |" for name, figure in figures.items())
    page = (
        "## What a technique costs\n\nProcessor time of an epoch with it over one without: median of "
        f"n = {rounds} rounds, with least and most.\n\n| technique | times as long |\n|-|-|\n{rows}\n"
    )
    return {"rounds": rounds, "ratios": figures}, page


# --- a frozen body ------------------------------------------------------------------------------------


def frozen(_: DataSet, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Compare epochs of the head alone with remembered features, with features computed anew in each epoch,
    and epochs of all layers."""
    data = photographs()
    values = {
        "model": {"kind": "timm", "name": "tf_efficientnet_lite0"},
        "augmentation.crop.kind": "resized",
        "loop.batch_size": FROZEN_BATCH,
    }
    arms = {
        "head alone, one view remembered": {"model.freeze_epochs": 10_000, "model.frozen_views": 1},
        "head alone, augmented anew": {"model.freeze_epochs": 10_000},
        "all layers": {},
    }
    slices = in_rounds(
        {name: our_run(make_recipe({**values, **each}), data, CPU) for name, each in arms.items()},
        options.rounds,
    )
    return _compared(
        "A frozen body",
        next(iter(arms)),
        slices,
        f"EfficientNet-Lite0, {data.info.train_images} training and {data.info.validation_images} validation "
        f"images of {data.info.image_size} px, resized crops, batch {FROZEN_BATCH}; a slice is an epoch with "
        "its validation. The first epoch, in which features are computed, is not in it.",
    )


def photographs() -> DataSet:
    """Return noise in the form of 640 small photographs, a fifth of which validate."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (640, 64, 64, 3), dtype=np.uint8)
    labels = np.arange(640, dtype=np.int64) % CLASSES
    return from_arrays(train=(images[:512], labels[:512]), validation=(images[512:], labels[512:]))


# --- what is trained ----------------------------------------------------------------------------------


def make_recipe(values: dict[str, Any]) -> Recipe:
    """Return a recipe of ResNet-8 in fp32, without augmentation except what `values` set."""
    plainly: dict[str, Any] = {
        "augmentation.crop.kind": "none",
        "augmentation.flip_probability": 0.5 if "augmentation.masking.kind" in values else 0.0,
        "precision.kind": "fp32",
        "evaluation.norm_batches": 0,
        "loop.batch_size": BATCH,
        "loop.epochs": 10_000,
        "optimizer.lr": 0.01,
    }
    return Recipe().with_values({**plainly, **values})


def images_of(options: argparse.Namespace) -> DataSet:
    """Return so many training images, which may be flipped, and two of each class to validate on."""
    if options.data is None:
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (options.images + 20, 28, 28), dtype=np.uint8)
        labels = np.arange(options.images + 20, dtype=np.int64) % CLASSES
    else:
        part = load(Data(path=options.data, in_memory=True)).train
        assert isinstance(part, ArrayPart)
        images, labels = part.images[:, 0], part.labels
    validation = np.concatenate([np.flatnonzero(labels == each)[:2] for each in range(CLASSES)])
    train = np.setdiff1d(np.arange(len(labels)), validation)[: options.images]
    return from_arrays(
        train=(images[train], labels[train]),
        validation=(images[validation], labels[validation]),
        classes=tuple(map(str, range(CLASSES))),
        spec=Data(path=options.data or "noise", flips=("horizontal",)),
    )


# --- pages --------------------------------------------------------------------------------------------


def _compared(
    title: str, ours: str, slices: dict[str, list[Slice]], about: str
) -> tuple[dict[str, Any], str]:
    """Return the rates of all arms, and the ratio of one to each other one, as data and as a page."""
    compare = partial(ratio, slices[ours])
    figures = {
        name: {
            "wall": compare(arm, lambda each: each.rate),
            "cpu": compare(arm, lambda each: each.thrift),
        }
        for name, arm in slices.items()
        if name != ours
    }
    rounds = len(slices[ours])
    rates = {name: sorted(each.rate for each in arm) for name, arm in slices.items()}
    rows = "\n".join(
        f"| {name} | {np.median(rate):,.0f} | {rate[0]:,.0f} to {rate[-1]:,.0f} | "
        + (f"{shown(figures[name]['wall'])} | {shown(figures[name]['cpu'])} |" if name != ours else "| |")
        for name, rate in rates.items()
    )
    page = (
        f"## {title}\n\n{about} n = {rounds} rounds.\n\n"
        f"| arm | images/s, median | range | {ours} over it, wall clock | by processor time |\n"
        f"|-|-|-|-|-|\n{rows}\n"
    )
    return {"ratios": figures, "slices": plain(slices)}, page


def shown(figure: Mapping[str, float]) -> str:
    return f"{figure['median']:.3f} ({figure['min']:.3f} to {figure['max']:.3f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare training loops, data paths and techniques on a CPU."
    )
    parser.add_argument("--data", help="Fashion-MNIST's folder of IDX files")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--images", type=int, default=2_560)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--busy", action="store_true", help="measure on a busy machine too: trust ratios of processor time"
    )
    parser.add_argument("--parts", nargs="+", default=["step", "loader", "techniques"])
    parser.add_argument("--name", default="throughput-cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
