"""Runs steps and epochs on paper, and prints what each recorded: python -m tests.gpu.on_paper.cases"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from tests.gpu.on_paper.ddp import Sum
from tests.gpu.on_paper.device import on_paper
from tests.gpu.on_paper.paper import Paper
from tests.trainable.lessons import LESSONS, Lesson, asked
from tests.trainable.small_runs import CLASSES, SIZE, data_set, small_recipe
from tests.trainable.training.test_synchronisation import CASES
from tests.trainable.tune.in_process import InProcess
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.data.assembly import from_arrays
from trainable.models.small_networks import SmallResNet
from trainable.probes.speed import measure_speeds
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.training import Precision
from trainable.run import make_run
from trainable.tune.worker import Worker
from trainable.tune.worker_setup import WorkerSetup

CHANNELS_LAST = torch.channels_last
STEPS = 2  # a case takes so many steps after its first, in which optimizers make their state


@dataclass(frozen=True)
class Case:
    """What is run: steps outside an epoch, then so many epochs."""

    values: Mapping[str, Any]
    epochs: int = 1
    world: int = 1
    side: int = SIZE  # images have one channel of so many pixels a side, and three channels above SIZE
    images: int = 48  # so many images train, if they are larger than SIZE
    memory: int = 80 * 2**30  # the device has so many bytes; images stay on it if they take a quarter or less
    steps: int = STEPS  # it takes so many steps after its first
    lesson: Lesson | None = None  # says what is learnt where it is not the classes of small images


@dataclass(frozen=True)
class Record:
    """What a case recorded: what failed, what waited (how often), and launches a step."""

    fault: str = ""
    step_waits: dict[str, int] = field(default_factory=dict)
    epoch_waits: dict[str, int] = field(default_factory=dict)
    launches: float = 0.0


BF16 = {"precision.kind": "bf16"}
FP16 = {"precision.kind": "fp16"}

EPOCHS: dict[str, Case] = {
    "an epoch of bf16": Case(BF16),
    "an epoch of fp16": Case(FP16),
    "EMA, clipping, views": Case(
        {
            **BF16,
            "regularisation.averaging.kind": "ema",
            "regularisation.averaging.decay": 0.9,
            "regularisation.clipping.kind": "norm",
            "regularisation.clipping.max_norm": 1.0,
            "evaluation.scales": [1.0, 2.0],
        }
    ),
    "extra metrics": Case({**BF16, "evaluation.metrics": ["macro_f1", "auroc"]}),
    "sync_norm in two ranks": Case({**BF16, "loop.sync_norm": True}, world=2),
    "two ranks": Case(BF16, world=2),
    "frozen, then thawed": Case({**BF16, "model.freeze_epochs": 1}, epochs=2),
    "micro-batches, checkpointed": Case({**FP16, "loop.micro_batch": 8, "loop.checkpoint_activations": True}),
    "compiled": Case({**BF16, "loop.compile": True}),
    "compiled by blocks": Case({**BF16, "loop.compile": "blocks", "model.depth": 14}),
    "images in the host's memory": Case(BF16, side=64, memory=2**10),
    "ResNet-18": Case({**BF16, "model.kind": "torchvision", "model.name": "resnet18"}, side=32),
    "ViT": Case(
        {
            **BF16,
            "model.kind": "timm",
            "model.name": "test_vit",
            "augmentation.policy.kind": "randaugment",
        },
        side=160,
    ),
}

MASKS = {
    name: Case(
        {**BF16, "loop.batch_size": 512, "augmentation.masking.kind": kind, **more}, 0, side=64, images=1536
    )
    for name, kind, more in (
        ("erasing in large batches", "erasing", {}),
        ("gridmask in large batches", "gridmask", {"augmentation.masking.ramp": 0.0}),
        ("hide and seek in large batches", "hide_and_seek", {}),
    )
}

TECHNIQUES = {
    "augmentation.crop.kind": "pad",
    "augmentation.policy.kind": "randaugment",
    "augmentation.mixing.kind": "cutmix",
    "augmentation.masking.kind": "erasing",
    "regularisation.averaging.kind": "ema",
    "regularisation.averaging.decay": 0.9,
    "regularisation.clipping.kind": "norm",
    "regularisation.clipping.max_norm": 1.0,
}

# A portion of images is 32 batches, over which launches are averaged
PORTIONS = {
    name: Case(
        {**BF16, "model.depth": 8, "model.width": 16, "loop.batch_size": 128, **values},
        epochs=0,
        side=32,
        images=33 * 128,
        steps=32,
    )
    for name, values in (
        ("a small network", {"augmentation.crop.kind": "none", "augmentation.flip_probability": 0.0}),
        ("a small network, every technique", TECHNIQUES),
    )
}

LAMB = {"fp16, lamb": Case({**FP16, "optimizer.kind": "lamb"}, epochs=0)}
TAUGHT = {name: Case({}, lesson=lesson) for name, lesson in LESSONS.items()}


def cases() -> dict[str, Case]:
    """Return the steps that a watch on the CPU looks at, too, and whole epochs."""
    return {
        **{name: Case(values, epochs=0) for name, values in CASES.items()},
        **MASKS,
        **PORTIONS,
        **LAMB,
        **EPOCHS,
        **TAUGHT,
    }


Plant = Callable[[Tensor], Tensor]

# Faults in a network's forward pass, of which nothing is none; each must be seen
PLANTED: dict[str, Plant] = {
    "nothing": lambda logits: logits,
    "a tensor left on the CPU": lambda logits: logits + torch.ones(CLASSES),
    "a state left on the CPU": lambda logits: _stepped(logits, torch.zeros(logits.shape)),
    "a number read": lambda logits: logits * (1.0 + logits.sum().item()),
    "a tensor read": lambda logits: logits * float(logits.detach().cpu().sum()),
    "a copy that blocks": lambda logits: logits + torch.tensor([0.0] * CLASSES, device=logits.device),
    "a large pageable copy": lambda logits: logits + _zeros(2**15).to(logits.device, non_blocking=True).sum(),
    "a stream waited for": lambda logits: _waited(logits),
    "an index by a mask": lambda logits: logits + logits[logits > 0].sum(),
    "an index on the host": lambda logits: logits[:, torch.arange(CLASSES)],
    "a kernel for each image": lambda logits: torch.stack([2.0 * each for each in logits]),
}


def _zeros(count: int) -> Tensor:
    return torch.zeros(count)


def _waited(logits: Tensor) -> Tensor:
    torch.cuda.current_stream().synchronize()
    return logits


def _stepped(logits: Tensor, gradient: Tensor) -> Tensor:
    """Return the logits after a fused step whose gradient is where it is."""
    torch._fused_sgd_(
        [logits.detach()],
        [gradient],
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    )
    return logits


class Faulty(nn.Module):
    """A small network, and then what is planted."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self.head = nn.Linear(SIZE * SIZE, CLASSES)
        self.plant = plant

    def forward(self, images: Tensor) -> Tensor:
        return self.plant(self.head(images.flatten(1)))


def record(case: Case, model: nn.Module | None = None) -> Record:
    """Run a case on paper. What is raised is part of the record."""
    with TemporaryDirectory() as folder:
        recipe, data = _asked(case, Path(folder))
        return _on_paper(case, recipe, data, model)


def _on_paper(case: Case, recipe: Recipe, data: DataSet, model: nn.Module | None) -> Record:
    with on_paper(case.memory) as paper:
        try:
            return _recorded(case, recipe, data, model, paper)
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__  # type: ignore[assignment]
            return Record(fault=f"{type(error).__name__}: {error}")


def _recorded(case: Case, recipe: Recipe, data: DataSet, model: nn.Module | None, paper: Paper) -> Record:
    ranks = Ranks(0, case.world, start_reduce=Sum)  # type: ignore[arg-type]
    run = make_run(recipe, data=data, ranks=ranks, model=model, bench=Bench(device_name="cuda"))
    with run.probing():
        run.train_on(next(run.windows()))
        paper.clear()
        for _, window in zip(range(case.steps), run.windows(1), strict=False):
            run.train_on(window)
        step_waits, launches = dict(paper.waits), paper.launches / case.steps
    paper.clear()
    for _ in range(case.epochs):
        run.step()
    run.state_dict()
    run.close()
    return Record("", step_waits, dict(paper.waits), launches)


def _asked(case: Case, folder: Path) -> tuple[Recipe, DataSet]:
    if case.lesson is not None:
        return asked(case.lesson, folder)
    return _recipe(case), _data(case)


def _recipe(case: Case) -> Recipe:
    values = {"loop.epochs": 3, **case.values}
    if "model.kind" not in values:
        return small_recipe(values)
    return Recipe().with_values({"data.path": "arrays", "loop.batch_size": 16, **values})


def _data(case: Case) -> DataSet:
    if case.side == SIZE:
        return data_set()
    random = np.random.default_rng(0)

    def part(count: int) -> tuple[Any, Any]:
        pixels = random.integers(0, 256, (count, case.side, case.side, 3), dtype=np.uint8)
        return pixels, np.arange(count) % CLASSES

    spec = Data(path="arrays", image_size=case.side, flips=("horizontal",))
    return from_arrays(part(case.images), part(20), spec=spec)


def _shares() -> dict[str, float]:
    """Return what part of 80 GiB a worker with a part of a GPU may allocate."""
    fractions = {}
    for share in (0.5, 0.25):
        with on_paper() as paper:
            Worker(
                WorkerSetup(
                    InProcess(data_set()),
                    Bench(device_name="cuda", gpu_share=share, threads=1),
                    step_seconds=60.0,
                )
            )
            fractions[str(share)] = paper.memory_fraction
    return fractions


@contextlib.contextmanager
def _batches_shown() -> Iterator[set[str]]:
    """Note the batches, with layout and number format, that any small network is given in the block."""
    shown: set[str] = set()

    def note(network: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(network, SmallResNet) and inputs[0].is_cuda:
            layout = "channels_last" if inputs[0].is_contiguous(memory_format=CHANNELS_LAST) else "contiguous"
            shown.add(f"{tuple(inputs[0].shape)} {layout} {torch.get_autocast_dtype('cuda')}")

    handle = register_module_forward_pre_hook(note)
    try:
        yield shown
    finally:
        handle.remove()


class Placed(SmallResNet):
    """A network that stays where it is: on paper a parameter cannot be moved twice."""

    def to(self, *_: Any, **__: Any) -> Self:
        return self


def _shown() -> dict[str, list[str]]:
    """Return the batches that a network is given while its steps are timed, and in a run that scores a part
    in batches of which the last would be smaller: for each cuDNN prepares kernels."""
    case = Case({**BF16, "evaluation.batch_size": 16, "loop.epochs": 2}, side=16)
    with on_paper(), _batches_shown() as timed:
        network = Placed(depth=8, width=4, stem_stride=1, classes=CLASSES, channels=3)
        nn.Module.to(network, "cuda")
        measure_speeds(network, _data(case).info, torch.device("cuda"), Precision())
    with on_paper(), _batches_shown() as trained:
        run = make_run(small_recipe(dict(case.values)), data=_data(case), bench=Bench(device_name="cuda"))
        run.step()
        run.step()
        run.close()
    return {"timed": sorted(timed), "trained": sorted(trained)}


def main() -> None:
    torch.set_num_threads(1)
    only = sys.argv[1:]
    found = {name: record(case) for name, case in cases().items() if not only or name in only}
    planted = {name: record(Case({}, epochs=0), Faulty(plant)) for name, plant in PLANTED.items()}
    records = {"cases": found, "planted": planted, "shares": _shares(), "shown": _shown()}
    json.dump(records, sys.stdout, default=dataclasses.asdict)


if __name__ == "__main__":
    main()
