"""Fine-tunes EfficientNet-Lite0 in a plain loop at many rates: the rules for pretrained weights rest on it.

    python benchmarks/tuning_grid.py --data TUNEBOOK_DATA

The loop is what anybody writes: all layers, one rate, a crop of 35 to 100 % of the area (mirrored where that
keeps the label), cross-entropy, warm-up over a tenth of the steps, a cosine to 0; decay 0.02 for AdamW, 1e-4
for SGD with Nesterov momentum 0.9. Rates are as applied. Each setting changes one thing. Results are written
after each run, and runs that are there are not repeated, so that it may be stopped at any time. It takes some
hours on a core.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from report import described, measure_missing
from tuning_sets import SETS, TuningSet, make_set

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.lite_weights import LITE0, write_weights

NAME = "tuning-grid"
SIDE = 64
EPOCHS = {300: 10, 1_000: 6, 1_442: 6, 2_000: 4, 3_000: 4, 10_000: 2}
"""Epochs by the number of images: 3,000 to 20,000 images are seen."""
RATES = {"adamw": (3e-4, 1e-3, 3e-3, 1e-2), "sgd": (1e-2, 3e-2, 1e-1, 3e-1)}
SIZES = (("photographs", 1_000), ("clothes", 1_000), ("nuclei", 2_000), ("signs", 1_442))
MIRRORED = ("photographs", "clothes", "nuclei")
EVALUATION = 128
TESTED = 800
"""So many test images are scored."""


@dataclass(frozen=True)
class Setting:
    """Describes one run. `frozen_norm` keeps BatchNorm's statistics, `head_first` trains the head alone for
    so many epochs, `middle` is the part of an image's side that is used, and `wide_head` leaves the new head
    as timm draws it."""

    data: str
    images: int
    optimizer: str
    rate: float
    batch: int = 32
    seed: int = 0
    normalisation: str = "pretrained"
    frozen_norm: bool = False
    head_first: int = 0
    middle: float = 1.0
    wide_head: bool = False


def settings() -> Iterator[Setting]:
    """Yield all runs, the most telling first."""
    for data, images in SIZES:
        for optimizer, rates in RATES.items():
            yield from (Setting(data, images, optimizer, rate) for rate in rates)
    for data, images in SIZES:
        for seed in range(3):
            usual = Setting(data, images, "adamw", 1e-3, seed=seed)
            yield usual
            yield from (replace(usual, **change) for change in CHANGES.values())
    for batch in (16, 8, 128):
        for data, images in SIZES:
            if data in ("photographs", "signs"):
                yield from (Setting(data, images, "adamw", rate, batch) for rate in RATES["adamw"])
    for images in (300, 3_000, 10_000):
        for data in SETS:
            if images == 300 or data in ("photographs", "clothes"):
                for optimizer, rates in RATES.items():
                    yield from (Setting(data, images, optimizer, rate) for rate in rates[:3])


CHANGES: dict[str, dict[str, Any]] = {
    "normalised by the data": {"normalisation": "data"},
    "BatchNorm frozen": {"frozen_norm": True},
    "by the data, BatchNorm frozen": {"normalisation": "data", "frozen_norm": True},
    "head first, 1 epoch": {"head_first": 1},
    "middle 7/8 of the image": {"middle": 0.875},
    "head as timm draws it": {"wide_head": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder TUNEBOOK_DATA")
    parser.add_argument(
        "--weights", type=Path, default=Path("lite-weights"), help="where weights are written"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    write_weights(options.weights)
    measure_missing(NAME, ((asdict(each), partial(trained, each, options)) for each in settings()), page)


@cache
def loaded(name: str, folder: Path) -> TuningSet:
    return make_set(name, folder)


def trained(setting: Setting, options: argparse.Namespace) -> dict[str, float]:
    """Return the accuracy on test images after a run; 0 for a loss that is not finite."""
    torch.manual_seed(setting.seed)
    data = loaded(setting.data, options.data)
    network: Any = timm.create_model(LITE0)
    network.load_state_dict(load_file(options.weights / f"{LITE0}.safetensors"))
    network.reset_classifier(data.classes)
    if setting.wide_head:
        network.classifier = timm.create_model(LITE0, num_classes=data.classes).classifier
    network.to(memory_format=torch.channels_last)
    images, labels = _pixels(data.train[: setting.images], setting), torch.from_numpy(data.train_labels)
    mean, std = _statistics(data, setting)
    steps = setting.images // setting.batch
    optimizer = _optimizer(network, setting)
    generator = torch.Generator().manual_seed(setting.seed)
    step, total = 0, steps * EPOCHS[setting.images]
    for epoch in range(EPOCHS[setting.images]):
        _begin(network, setting, epoch)
        order = torch.randperm(setting.images, generator=generator)
        for number in range(steps):
            chosen = order[number * setting.batch : (number + 1) * setting.batch]
            batch = _cropped(_normalised(images[chosen], mean, std), generator, setting.data in MIRRORED)
            for group in optimizer.param_groups:
                group["lr"] = setting.rate * _factor(step, total)
            loss = functional.cross_entropy(network(_laid_out(batch)), labels[chosen])
            if not torch.isfinite(loss):
                return {"accuracy": 0.0}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return {"accuracy": _accuracy(network, data, setting, mean, std)}


def _accuracy(network: nn.Module, data: TuningSet, setting: Setting, mean: Tensor, std: Tensor) -> float:
    network.eval()
    images, labels = _pixels(data.test[:TESTED], setting), torch.from_numpy(data.test_labels[:TESTED])
    with torch.inference_mode():
        answers = [
            network(_laid_out(_normalised(part, mean, std))).argmax(1) for part in images.split(EVALUATION)
        ]
    return (torch.cat(answers) == labels).double().mean().item()


def _pixels(images: Any, setting: Setting) -> Tensor:
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    whole = pixels.shape[-1]
    kept = round(whole * setting.middle)
    first = (whole - kept) // 2
    middle = pixels[:, :, first : first + kept, first : first + kept]
    return functional.interpolate(middle, (SIDE, SIDE), mode="bicubic", antialias=True)


def _statistics(data: TuningSet, setting: Setting) -> tuple[Tensor, Tensor]:
    if setting.normalisation == "pretrained":  # EfficientNet-Lite's mean and std are 0.5
        return torch.full((1, 3, 1, 1), 127.5), torch.full((1, 3, 1, 1), 127.5)
    values = data.train[: setting.images].reshape(-1, 3)
    mean, std = torch.from_numpy(values.mean(0)), torch.from_numpy(values.std(0))
    return mean.float().view(1, 3, 1, 1), std.float().view(1, 3, 1, 1)


def _optimizer(network: nn.Module, setting: Setting) -> torch.optim.Optimizer:
    decayed = [each for each in network.parameters() if each.ndim > 1]
    others = [each for each in network.parameters() if each.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    if setting.optimizer == "adamw":
        return torch.optim.AdamW(groups, setting.rate, weight_decay=0.02)
    return torch.optim.SGD(groups, setting.rate, momentum=0.9, nesterov=True, weight_decay=1e-4)


def _begin(network: nn.Module, setting: Setting, epoch: int) -> None:
    network.train()
    head_alone = epoch < setting.head_first
    for name, each in network.named_parameters():
        each.requires_grad_(name.startswith("classifier") or not head_alone)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and (head_alone or setting.frozen_norm):
            module.eval()


def _factor(step: int, total: int) -> float:
    warmup = max(1, total // 10)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def _normalised(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (images.float() - mean) / std


def _laid_out(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _cropped(images: Tensor, generator: torch.Generator, mirrored: bool) -> Tensor:
    count = len(images)
    side = torch.empty(count).uniform_(0.35, 1.0, generator=generator).sqrt()
    down, right = ((2 * torch.rand(count, generator=generator) - 1) * (1 - side) for _ in range(2))
    width = side
    if mirrored:
        width = side * torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
    boxes = torch.zeros(count, 2, 3)
    boxes[:, 0, 0], boxes[:, 0, 2], boxes[:, 1, 1], boxes[:, 1, 2] = width, right, side, down
    grid = functional.affine_grid(boxes, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def page(runs: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    found = {Setting(**each["setting"]): each["accuracy"] for each in runs}
    lines = [
        "# Rates for pretrained weights",
        "",
        f"EfficientNet-Lite0 from ImageNet at {SIDE} px, fine-tuned in a plain loop: accuracy on up to",
        f"{TESTED} test images at each applied rate, one seed. The best rate of each optimizer is bold.",
        "`signs` are photographs of 100 px; `photographs` (CIFAR-10's, 32 px), `clothes` (28 px) and",
        "`nuclei` (48 px) are enlarged to 96 px before.",
        "",
        *_rates(found),
        "",
        "## One thing changed, AdamW at 0.001, batch 32",
        "",
        "Points of accuracy against the same seed without the change: mean (least to most) over n seeds.",
        "",
        *_changes(found),
        "",
        described(where),
    ]
    return "\n".join(lines)


def _rates(found: dict[Setting, float]) -> Iterator[str]:
    rates = [(optimizer, rate) for optimizer, each in RATES.items() for rate in each]
    yield "| set | images | batch | epochs | " + " | ".join(f"{name} {rate:g}" for name, rate in rates) + " |"
    yield "|-|-|-|-|" + "-|" * len(rates)
    rows = dict.fromkeys((each.data, each.images, each.batch) for each in found)
    for data, images, batch in rows:
        scores = {pair: found.get(Setting(data, images, *pair, batch)) for pair in rates}
        best = {name: max((scores[name, rate] or 0.0) for rate in each) for name, each in RATES.items()}
        cells = [
            "" if score is None else f"**{score:.3f}**" if score == best[name] else f"{score:.3f}"
            for (name, _), score in scores.items()
        ]
        yield f"| {data} | {images:,} | {batch} | {EPOCHS[images]} | " + " | ".join(cells) + " |"


def _changes(found: dict[Setting, float]) -> Iterator[str]:
    yield "| change | " + " | ".join(data for data, _ in SIZES) + " |"
    yield "|-|" + "-|" * len(SIZES)
    for name, change in CHANGES.items():
        cells = []
        for data, images in SIZES:
            usual = [Setting(data, images, "adamw", 1e-3, seed=seed) for seed in range(3)]
            pairs = [(each, replace(each, **change)) for each in usual]
            gains = [100 * (found[b] - found[a]) for a, b in pairs if a in found and b in found]
            cells.append(
                f"{statistics.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f}, n={len(gains)})"
                if gains
                else ""
            )
        yield f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
