"""Tables of fine-tuning curves: recipes drawn evenly from `finetune`'s ranges, to be replayed often.

    TUNEBOOK_DATA=FOLDER python benchmarks/finetuning_table.py --resnet18 FILE [--device cuda] [--processes 4]
    python benchmarks/search_quality.py --tasks finetuning --budget 6 --print \\
        --arms auto+asha,documented,random+asha,optuna-gp

There are four tables of 60 recipes each: EfficientNet-Lite0 and torchvision's ResNet-18, with the weights
that were published for ImageNet, on photographs (CIFAR-10's, 2,500 to train on) and signs (1,442 photographs
of hands), at 96 px. The first line of a table is the space that a search of these images would have; each
other one holds a recipe's values by dotted path, and after each of 9 epochs the accuracy and the loss on the
validation part, and the epoch's seconds. A curve is shorter where the run diverged. What was cut short goes
on after the lines written, with the space of the first line.

`--resnet18 default` takes torchvision's weights, and fetches them where they are not at hand.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from offline.finetuning_tables import TABLES
from search.deciding.sampler import RandomSampler
from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.running.prepare import decide, load
from search.study import Study
from spaces.settled import space_from, tree_of
from spaces.space import NOTHING_BELIEVED, Space
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.run import make_run
from trainable.tasks.kits import load_for

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.lite_weights import LITE0, write_weights

EPOCHS, SIDE = 9, 96
NETWORKS = {"lite0": ("timm", LITE0), "resnet18": ("torchvision", "resnet18")}


@dataclass(frozen=True)
class Job:
    """One table: its images, its network, and where both lie on this machine."""

    data: str
    network: str
    images: Path
    weights: str
    device: str
    tables: Path

    @property
    def table(self) -> Path:
        return self.tables / f"finetuning_{self.data}_{self.network}.jsonl"


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    for job in _jobs(options):
        _begin(job, options)
        done = {json.loads(line)["number"] for line in job.table.read_text().splitlines()[1:]}
        missing = [number for number in range(options.recipes) if number not in done]
        with job.table.open("a") as table:
            for line in _trained(job, missing, options):
                table.write(json.dumps(line) + "\n")
                table.flush()
                print(job.table.name, line["number"], line["curve"][-1:], flush=True)


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    write_weights(options.folder)
    weights = {"lite0": str(options.folder / f"{LITE0}.safetensors"), "resnet18": options.resnet18}
    for name, make in SETS.items():
        file = options.folder / f"{name}.npz"
        if not file.exists():
            make(Path(os.environ["TUNEBOOK_DATA"]), file)
        yield from (Job(name, each, file, weights[each], options.device, options.tables) for each in NETWORKS)


def _begin(job: Job, options: argparse.Namespace) -> None:
    """Write the table's first line, the space, unless it is there."""
    if job.table.exists():
        return
    kind, name = NETWORKS[job.network]
    written = {
        "data.image_size": SIDE,
        "budget.epochs": EPOCHS,
        "budget.trials": options.recipes,
        "base.model.kind": kind,
        "base.model.name": name,
        "base.model.weights": job.weights,
        "space.name": "finetune",
    }
    study = Study.from_tree({"data": {"path": str(job.images)}}).with_values(written).resolved("table")
    machine = Hardware((Node(options.threads, int(job.device == "cuda")),))
    space = decide(load(study, Home.of(study), machine, bench=Bench(may_fetch=True))).space
    anywhere = space.base.with_values({"data.path": job.data, "model.weights": "default"})
    with job.table.open("w") as table:
        table.write(json.dumps({"space": tree_of(replace(space, base=anywhere))}) + "\n")


def _trained(job: Job, numbers: list[int], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a line for each of the recipes, as they end."""
    train = partial(line_of, job, seed=options.seed, threads=options.threads)
    if options.processes == 1:
        yield from map(train, numbers)
        return
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for each in as_completed([pool.submit(train, number) for number in numbers]):
            yield each.result()


def line_of(job: Job, number: int, *, seed: int, threads: int) -> dict[str, Any]:
    """Draw a recipe evenly from the ranges and train it; return its line of the table."""
    torch.set_num_threads(threads)
    space, data = _opened(job)
    values = RandomSampler(evenly(space), seed).ask(number)
    run = make_run(space.recipe(values), data=data, bench=Bench(device_name=job.device, may_fetch=True))
    curve, seconds = [], []
    while not run.finished:
        result = run.step()
        if result.diverged:
            break
        curve.append([round(result.val_accuracy, 4), round(result.val_loss, 5)])
        seconds.append(round(result.epoch_seconds, 3))
    run.close()
    return {"number": number, "values": values, "curve": curve, "seconds": seconds}


def space_of(job: Job) -> Space:
    """Return the space that a table begins with, for images and weights of this machine."""
    with job.table.open() as lines:
        space = space_from(json.loads(next(lines))["space"])
    here = {"data.path": str(job.images), "model.weights": job.weights}
    return replace(space, base=space.base.with_values(here))


def evenly(space: Space) -> Space:
    """Return a space of which nothing is believed."""
    dimensions = (replace(each, beliefs=NOTHING_BELIEVED) for each in space.dimensions)
    return replace(space, dimensions=tuple(dimensions))


@cache
def _opened(job: Job) -> tuple[Space, DataSet]:
    """Return a table's space and images, once a process."""
    space = space_of(job)
    return space, load_for(space.base, Bench(device_name=job.device))


# --- images -------------------------------------------------------------------------------------------


def write_signs(folder: Path, out: Path) -> None:
    """Write the photographs of hands, of 100 px."""
    files = sorted((folder / "sign-language-digits" / "Dataset").glob("*/*"))
    labels = np.array([int(file.parent.name) for file in files])
    order = np.random.default_rng(0).permutation(len(labels))
    _write(np.stack([_square(Image.open(file)) for file in files])[order], labels[order], 1_442, 1_442, out)


def write_photographs(folder: Path, out: Path) -> None:
    """Write CIFAR-10's training images, enlarged from 32 px: 2,500 to train on, 1,500 others to score."""
    names, contents = [], []
    with tarfile.open(folder / "cifar10-jpg.tar.xz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and "train" in parts and member.name.endswith(".jpg"):
                file = archive.extractfile(member)
                assert file is not None
                names.append(parts[-2])
                contents.append(file.read())
    classes = sorted(set(names))
    chosen = np.random.default_rng(0).permutation(len(names))[:11_500]
    images = np.stack([_square(Image.open(io.BytesIO(contents[number]))) for number in chosen])
    labels = np.array([classes.index(names[number]) for number in chosen])
    _write(images, labels, 10_000, 2_500, out)


SETS: dict[str, Callable[[Path, Path], None]] = {"photographs": write_photographs, "signs": write_signs}


def _write(images: NDArray[np.uint8], labels: NDArray[np.int64], test: int, train: int, out: Path) -> None:
    """Write `train` images to train on, and those from `test` on in two parts: a third of them validates."""
    third = (len(labels) - test) // 3
    np.savez(
        out,
        train_images=images[:train],
        train_labels=labels[:train],
        val_images=images[test : test + third],
        val_labels=labels[test : test + third],
        test_images=images[test + third :],
        test_labels=labels[test + third :],
    )


def _square(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--resnet18", required=True, help="a file of torchvision's weights, or default")
    parser.add_argument("--folder", type=Path, default=Path("finetuning-sets"), help="for images and weights")
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--recipes", type=int, default=60, help="in each of the four tables")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="so many share the device")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
