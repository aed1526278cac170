"""Compares rates, batches, shapes of the rate, crops and losses in short runs of a segmentation.

    TUNEBOOK_DATA=FOLDER python benchmarks/mask_rules.py [--parts rates batches others pretrained]

Two sets: the middles, 96 px wide, of 60 microscope images of nuclei, and 120 made images, 32 px wide, of dark
discs, and bright squares and triangles, on noise. unet_small learns both in windows of `SETS` from scratch;
smp's U-Net learns the first, as a whole, from ImageNet's weights of its encoder.
Results are written after each run, and runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from report import described, measure_missing
from tests.lite_weights import LITE0, write_weights
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.training.run import Run

NAME = "mask-rules"
SEEDS = (1, 2, 3)
SETS: dict[str, dict[str, Any]] = {
    "nuclei": {"side": 48, "epochs": 12, "flips": ["horizontal", "vertical"], "values": "binary"},
    "shapes": {"side": 32, "epochs": 12, "flips": ["horizontal"], "values": "index"},
}
CLASSES = ("ground", "disc", "square", "triangle")
LEVELS = (110, 50, 170, 200)
"""The greys of the ground and of the shapes, which vary from image to image."""
SHAPES, MIDDLE = 120, 96
"""So many images are made; and so many pixels of the nuclei's images are used, from the middle."""
OPTIMIZERS: dict[str, tuple[dict[str, Any], Sequence[float]]] = {
    "SGD": ({"kind": "sgd", "momentum": 0.9}, (0.1, 0.3, 1.0, 3.0, 10.0)),
    "AdamW": ({"kind": "adamw"}, (0.001, 0.003, 0.01, 0.03, 0.1)),
    "Muon": ({"kind": "timm", "name": "muon"}, (0.003, 0.01, 0.03, 0.1, 0.3)),
}
"""The fields of each optimizer, and its rates at batch 256."""
PLAIN: dict[str, Any] = {"optimizer": "AdamW", "lr": 0.03, "batch": 8}
LOSS, CROP = "task.loss", "augmentation.crop"
ARMS: dict[str, dict[str, Any]] = {
    "none": {},
    "poly, 0.9": {"schedule.kind": "poly", "schedule.power": 0.9},
    "crop none": {f"{CROP}.kind": "none"},
    "crop pad": {f"{CROP}.kind": "pad"},
    "crop scaled, 0.8 to 1.25": {f"{CROP}.scale_min": 0.8, f"{CROP}.scale_max": 1.25},
    "dice 0.5": {f"{LOSS}.dice": 0.5},
    "dice 1": {f"{LOSS}.dice": 1.0},
    "lovasz 1": {f"{LOSS}.lovasz": 1.0},
    "class weights": {"regularisation.class_weights.kind": "inverse"},
    "logit adjustment 1": {"regularisation.logit_adjustment": 1.0},
    "smoothing 0.1": {"regularisation.label_smoothing": 0.1},
    "cutmix": {"augmentation.mixing.kind": "cutmix"},
    "classmix": {"augmentation.mixing.kind": "classmix"},
}
"""What one run changes of the plain recipe: cosine, crops scaled by 0.5 to 2, cross-entropy alone."""

TUNED_RATES = (0.0024, 0.007, 0.024)
"""AdamW's rates at batch 256 from pretrained weights, of the layers above the encoder."""
FACTORS = {"a tenth": 0.1, "the same": 1.0}
"""The rate of the encoder over that of the layers above it."""

HEAD = """# Segmentation in short runs from scratch

unet_small of width 8 and three levels (0.12 million parameters): mean IoU on the validation part at the end,
in percent, mean ± standard deviation over n seeds. Rates are at batch 256, linear for SGD and by the root for
the others; the plain recipe is AdamW at 0.03, batch 8, a cosine, crops scaled by 0.5 to 2, cross-entropy.

"""


TUNED = """EfficientNet-Lite0 below smp's U-Net (5.2 million parameters), AdamW, windows of 96 px, which are
whole images; from scratch, unet_small of width 16.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what the rules for a segmentation say.")
    parser.add_argument("--parts", nargs="+", default=["rates", "batches", "others", "pretrained"])
    parts = parser.parse_args().parts
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _write_sets(Path(folder), Path(os.environ["TUNEBOOK_DATA"]))
        write_weights(Path(folder) / "weights")
        runs = ((each, partial(trained, each, folder)) for part in parts for each in settings(part))
        measure_missing(NAME, runs, page)


def settings(part: str) -> Iterator[dict[str, Any]]:
    """Yield what the runs of a part are: every setting with the first seed, then with the next."""
    if part == "pretrained":
        yield from ({**each, "seed": seed} for seed in SEEDS for each in tuned_settings())
        return
    for seed in SEEDS:
        for data in SETS:
            common = {**PLAIN, "data": data, "seed": seed}
            if part == "rates":
                for optimizer, (_, rates) in OPTIMIZERS.items():
                    yield from ({**common, "optimizer": optimizer, "lr": rate} for rate in rates)
            elif part == "batches":
                yield from ({**common, "batch": batch} for batch in (4, 16))
            else:
                yield from ({**common, "arm": arm} for arm in ARMS if arm != "none")


def tuned_settings() -> Iterator[dict[str, Any]]:
    """Yield what is compared from pretrained weights, and a run from scratch of the same windows."""
    for frozen in (False, True):
        for rate in TUNED_RATES:
            yield {"start": "pretrained", "lr": rate, "frozen": frozen, "encoder": "a tenth"}
    yield {"start": "pretrained", "lr": 0.007, "frozen": False, "encoder": "the same"}
    yield {"start": "scratch", "lr": 0.01, "frozen": False, "encoder": "the same"}


def tuned(setting: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the mean IoU at the end of one run of windows that are whole images."""
    pretrained = setting["start"] == "pretrained"
    weights = f"{folder}/weights/{LITE0}.safetensors" if pretrained else None
    smp = {"kind": "smp", "name": "unet", "encoder": LITE0, "weights": weights}
    recipe = _recipe("nuclei", folder).with_values(
        {
            "data.image_size": MIDDLE,
            "model": smp if pretrained else {"kind": "unet_small"},
            "optimizer": {"kind": "adamw", "lr": setting["lr"]},
            "model.freeze_norm": setting["frozen"],
            "model.layer_rates": {"kind": "backbone", "factor": FACTORS[setting["encoder"]]},
            "loop.batch_size": PLAIN["batch"],
            "loop.seed": setting["seed"],
        }
    )
    return _result(make_run(recipe, device=torch.device("cpu")))


def _result(run: Run) -> dict[str, Any]:
    while not run.finished:
        last = run.step()
    run.close()
    return {"val_mean_iou": last.extra_metrics["val_mean_iou"], "seconds": last.epoch_seconds}


def trained(setting: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the mean IoU at the end of one run."""
    if "start" in setting:
        return tuned(setting, folder)
    fields, _ = OPTIMIZERS[setting["optimizer"]]
    recipe = _recipe(setting["data"], folder).with_values(
        {
            "optimizer": {**fields, "lr": setting["lr"]},
            "loop.batch_size": setting["batch"],
            "loop.seed": setting["seed"],
            **ARMS[setting.get("arm", "none")],
        }
    )
    return _result(make_run(recipe, data=_loaded(setting["data"], folder), device=torch.device("cpu")))


@cache
def _loaded(data: str, folder: str) -> DataSet:
    return load_for(_recipe(data, folder), torch.device("cpu"))


def _recipe(data: str, folder: str) -> Recipe:
    spec = SETS[data]
    masks = {"values": spec["values"]}
    if spec["values"] == "index":
        masks["classes"] = f"{folder}/{data}/classes.txt"
    return Recipe.from_tree(
        {
            "task": {"kind": "segmentation", "masks": masks, "overlap": 0.0},
            "data": {"path": f"{folder}/{data}", "image_size": spec["side"], "flips": spec["flips"]},
            "model": {"kind": "unet_small", "width": 8},
            "augmentation": {"crop": {"kind": "scaled"}},
            "schedule": {"warmup_epochs": 1.0},
            "loop": {"epochs": spec["epochs"], "workers": 0},
            "precision": {"kind": "fp32"},
        }
    )


# --- the images -------------------------------------------------------------------------------------------


def _write_sets(folder: Path, data: Path) -> None:
    for path in sorted((data / "nuclei" / "images").iterdir()):
        for kind, mode in (("images", "RGB"), ("masks", "L")):
            whole = Image.open(data / "nuclei" / kind / path.name).convert(mode)
            left, top = ((each - MIDDLE) // 2 for each in whole.size)
            _save(whole.crop((left, top, left + MIDDLE, top + MIDDLE)), folder / "nuclei" / kind / path.name)
    for number in range(SHAPES):
        image, mask = drawn(np.random.default_rng(number), SETS["shapes"]["side"])
        _save(Image.fromarray(image), folder / "shapes" / "images" / f"{number:03}.png")
        _save(Image.fromarray(mask), folder / "shapes" / "masks" / f"{number:03}.png")
    (folder / "shapes" / "classes.txt").write_text("\n".join(CLASSES) + "\n")


def _save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def drawn(random: np.random.Generator, side: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return an image uint8 [side, side, 3] with a shape of each class, and its mask."""
    mask = Image.new("L", (side, side))
    for label in random.permutation(np.arange(1, len(CLASSES))).tolist():
        radius = random.uniform(side / 10, side / 5)
        x, y = random.uniform(radius, side - radius, 2)
        box = (x - radius, y - radius, x + radius, y + radius)
        pen = ImageDraw.Draw(mask)
        match CLASSES[label]:
            case "disc":
                pen.ellipse(box, fill=label)
            case "square":
                pen.rectangle(box, fill=label)
            case _:
                pen.polygon([(x, box[1]), (box[2], box[3]), (box[0], box[3])], fill=label)
    labels = np.asarray(mask)
    levels = np.array(LEVELS) + random.normal(0.0, 15.0, len(LEVELS))
    noisy = levels[labels][:, :, None] + random.normal(0.0, 15.0, (side, side, 3))
    return noisy.clip(0, 255).astype(np.uint8), labels


# --- the page ---------------------------------------------------------------------------------------------


def page(runs: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    tables = [_rates(runs), _others(runs), _tuned(runs)]
    return f"{HEAD}{chr(10).join(tables)}\n{described(where)}"


def _rates(runs: Sequence[dict[str, Any]]) -> str:
    rows = [
        f"| {optimizer} | {rate:g} | {' | '.join(_cell(_of(runs, data, optimizer, rate)) for data in SETS)} |"
        for optimizer, (_, rates) in OPTIMIZERS.items()
        for rate in rates
    ]
    return f"## Rates\n\n| optimizer | rate | {' | '.join(SETS)} |\n|-|-|-|-|\n{chr(10).join(rows)}\n"


def _others(runs: Sequence[dict[str, Any]]) -> str:
    """Return the other settings, each with its gain over the plain recipe of the same seed."""
    named: dict[str, dict[str, Any]] = {f"batch {batch}": {"batch": batch} for batch in (4, 16)}
    named |= {arm: {"arm": arm} for arm in ARMS if arm != "none"}
    rows = [
        f"| {name} | {' | '.join(_gain(runs, data, changes) for data in SETS)} |"
        for name, changes in {"plain": {}, **named}.items()
    ]
    return f"## Other settings\n\n| setting | {' | '.join(SETS)} |\n|-|-|-|\n{chr(10).join(rows)}\n"


def _tuned(runs: Sequence[dict[str, Any]]) -> str:
    rows = [
        f"| {each['start']} | {each['lr']:g} | {each['encoder']} | {'yes' if each['frozen'] else 'no'} | "
        f"{_cell(_found(runs, each))} |"
        for each in tuned_settings()
    ]
    columns = "| from | rate | encoder's rate | BatchNorm frozen | nuclei, whole |\n|-|-|-|-|-|"
    return f"## From pretrained weights\n\n{TUNED}\n{columns}\n{chr(10).join(rows)}\n"


def _of(runs: Sequence[dict[str, Any]], data: str, optimizer: str, rate: float) -> dict[int, float]:
    return _found(runs, {**PLAIN, "data": data, "optimizer": optimizer, "lr": rate})


def _gain(runs: Sequence[dict[str, Any]], data: str, changes: dict[str, Any]) -> str:
    found, plain = (_found(runs, {**PLAIN, "data": data, **each}) for each in (changes, {}))
    both = [100.0 * (found[seed] - plain[seed]) for seed in found if seed in plain]
    if not changes or not both:
        return _cell(found)
    error = statistics.stdev(both) / len(both) ** 0.5 if len(both) > 1 else 0.0
    return f"{_cell(found)}: {statistics.fmean(both):+.1f} ± {error:.1f}"


def _found(runs: Sequence[dict[str, Any]], wanted: dict[str, Any]) -> dict[int, float]:
    """Return the mean IoU by seed."""
    return {
        each["setting"]["seed"]: each["val_mean_iou"]
        for each in runs
        if {name: value for name, value in each["setting"].items() if name != "seed"} == wanted
    }


def _cell(found: dict[int, float]) -> str:
    if not found:
        return ""
    points = [100.0 * each for each in found.values()]
    spread = statistics.stdev(points) if len(points) > 1 else 0.0
    return f"{statistics.fmean(points):.1f} ± {spread:.1f} ({len(points)})"


if __name__ == "__main__":
    main()
