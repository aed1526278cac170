"""Two ranks are one: the seam for data-parallel training, proved with gloo and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.multiprocessing.spawn import spawn

from tests.trainable.data_forms import labelled, write_csv
from tests.trainable.small_runs import (
    CLASSES,
    SIZE,
    curve,
    data_set,
    finished,
    plain_net,
    small_recipe,
    unequal_set,
)
from tests.trainable.training.small_metrics import EVERY
from tests.trainable.tune.planted_memory import Limited
from trainable.checkpoints import checkpoint
from trainable.data.batch import Batch
from trainable.models.norm_statistics import measure_norm
from trainable.ranks import ALONE, Ranks, of_process_group
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.training import trainer
from trainable.training.extra_metrics import Own
from trainable.training.run import Run

WORLD = 2
PHASES = ("loader", "forward", "backward")
TIGHT: dict[str, Any] = {
    "regularisation.clipping.kind": "norm",
    "regularisation.clipping.max_norm": 0.5,
    "regularisation.averaging.kind": "ema",
    "regularisation.averaging.decay": 0.9,
}
FAILURES = [(phase, rank, step) for phase in PHASES for rank in range(WORLD) for step in (0, 1, 4)]
UNUSED_FAILURES = [(phase, rank) for phase in ("forward", "backward") for rank in range(WORLD)]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}
CASES: list[dict[str, Any]] = [
    {},
    {
        "optimizer.kind": "adamw",
        "loop.batch_size": 15,  # shares of 7 and 8
        "loop.micro_batch": 3,
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 0.3,
        "regularisation.label_smoothing": 0.1,
        "regularisation.averaging.kind": "ema",
        "regularisation.averaging.decay": 0.9,
        "evaluation.batch_size": 8,  # batches of 8, 8 and 4: two for rank 0, one for rank 1
        "augmentation.crop.kind": "pad",
    },
    {  # every rank has the same size at a step
        "augmentation.size.kind": "multi_scale",
        "augmentation.size.smallest": 0.5,
        "augmentation.size.largest": 1.5,
        "augmentation.size.every": 1,
        "loop.batch_size": 4,
    },
    {  # ranks have images of other weights
        "loop.sampling": "sqrt",
        "loop.micro_batch": 3,
        "regularisation.class_weights.kind": "inverse",
        "regularisation.logit_adjustment": 1.0,
    },
    {"optimizer.lr": 1e6, "loop.batch_size": WORLD},
]


def histories(ranks: Ranks) -> list[list[dict[str, Any]]]:
    """Each case trained to its end; rank 1 begins with other weights, which rank 0's replace."""
    return [_history(values, ranks) for values in CASES]


def _history(values: dict[str, Any], ranks: Ranks, model: nn.Module | None = None) -> list[dict[str, Any]]:
    of_any_size = nn.Sequential(nn.AdaptiveAvgPool2d(8), plain_net(seed=ranks.rank))
    data = unequal_set() if "loop.sampling" in values else data_set()
    run = make_run(small_recipe(values), data=data, model=model or of_any_size, ranks=ranks)
    finished(run)
    return curve(run.history)


def equivalent(ranks: Ranks, dtype: torch.dtype, micro_batch: int | None = None) -> list[float]:
    """Losses of ten steps without BatchNorm and augmentation: one an epoch, for the record."""
    values = {"loop.batch_size": 256, "loop.micro_batch": micro_batch, "loop.epochs": 10}
    model = plain_net(seed=0).to(dtype)
    run = make_run(small_recipe(values), data=data_set(train=256), model=model, ranks=ranks)
    return [run.step().train_loss for _ in range(10)]


def cut_together(ranks: Ranks) -> list[tuple[int, list[dict[str, Any]]]]:
    """Run in which one rank alone has too little memory for its share: in every phase, on either rank, and
    in steps before and after torch has arranged its buckets anew."""
    return [_cut(ranks, *failure) for failure in FAILURES]


def _cut(ranks: Ranks, phase: str, rank: int, step: int) -> tuple[int, list[dict[str, Any]]]:
    model = Limited(plain_net(), room=16, late=phase == "backward")
    run = make_run(small_recipe(TIGHT), data=data_set(), model=model, ranks=ranks)
    if ranks.rank == rank:
        _tighten(run, model, phase, step)
    finished(run)
    return run.micro_batch, curve(run.history)


def _tighten(run: Run, model: Limited, phase: str, step: int) -> None:
    """Let memory run out from a step on, until micro-batches have two images."""
    loader, steps = run.images.loader, 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += model.training
        model.room = 2 if steps > step else 16

    if phase != "loader":
        model.register_forward_pre_hook(count)
        return
    open_batches = loader.train

    def train(batches: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        nonlocal steps
        for images, labels in open_batches(batches, epoch):
            steps += 1
            if steps > step and len(images) > 2:
                raise torch.OutOfMemoryError("planted: out of memory while loading")
            yield images, labels

    loader.train = train  # type: ignore[method-assign]


def cut_with_unused(ranks: Ranks) -> list[tuple[int, list[dict[str, Any]]]]:
    """Run of a net with unused parameters, in which memory runs out on one rank after its first epoch."""
    return [_cut_with_unused(ranks, phase, rank) for phase, rank in UNUSED_FAILURES]


def _cut_with_unused(ranks: Ranks, phase: str, rank: int) -> tuple[int, list[dict[str, Any]]]:
    model = Limited(Switching(), room=16, late=phase == "backward")
    run = make_run(small_recipe(TIGHT), data=data_set(), model=model, ranks=ranks)
    run.step()
    if ranks.rank == rank:
        model.room = 2
    finished(run)
    return run.micro_batch, curve(run.history)


def varied(ranks: Ranks) -> list[list[dict[str, Any]]]:
    """Run of nets whose trained or used parameters change, whose activations are computed twice, or with
    norms over all ranks, which are measured on batches of several sizes."""
    return [_varied(ranks, values, model()) for values, model in VARIED]


def _varied(ranks: Ranks, values: dict[str, Any], model: nn.Module) -> list[dict[str, Any]]:
    run = make_run(small_recipe(values), data=data_set(), model=model, ranks=ranks)
    while not run.finished:
        if isinstance(model, Switching):
            model.turn = run.epoch % 2
        run.step()
    return curve(run.history)


class Switching(nn.Module):
    """A network of three branches: one is never used, and the others by turns, epoch by epoch."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = plain_net(dropout=dropout)
        self.branches = nn.ModuleList(nn.Linear(CLASSES, CLASSES).double() for _ in range(3))
        self.turn = 0

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.branches[self.turn](self.body(images))
        return logits


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bend = nn.Linear(16, 16), nn.Tanh()

    def forward(self, features: Tensor) -> Tensor:
        bent: Tensor = self.bend(self.linear(features))
        return bent


def blocks() -> nn.Module:
    """Return a net in fp64 with repeated blocks."""
    torch.manual_seed(4)
    middle = nn.Sequential(*(Block() for _ in range(3)))
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 16), middle, nn.Linear(16, CLASSES)).double()


def normed() -> nn.Module:
    """Return a net in fp64 with BatchNorm."""
    torch.manual_seed(6)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * (SIZE - 4) ** 2, CLASSES)).double()


def compiled() -> nn.Module:
    net = plain_net()
    net.compile(backend="aot_eager")
    return net


VARIED: list[tuple[dict[str, Any], Callable[[], nn.Module]]] = [
    ({"model.freeze_epochs": 2, "loop.micro_batch": 4}, plain_net),  # one rank remembers features
    ({"loop.checkpoint_activations": True, "loop.micro_batch": 4}, blocks),
    ({}, compiled),
    ({}, Switching),
    ({"loop.sync_norm": True, "loop.batch_size": 32}, normed),  # 48 images: no whole number of batches
]


def exchanged(ranks: Ranks) -> list[tuple[int, list[float]]]:
    """Return the bytes of gradients that ranks exchange in an epoch, and its loss: of whole windows, of
    micro-batches, and in bf16."""
    return [
        _exchanged(ranks, values) for values in ({}, {"loop.micro_batch": 2}, {"loop.bf16_gradients": True})
    ]


def _exchanged(ranks: Ranks, values: dict[str, Any]) -> tuple[int, list[float]]:
    sent: list[int] = []

    def start(tensor: Tensor) -> Future[Tensor]:
        sent.append(tensor.nbytes)
        return ranks.start_reduce(tensor)

    counting = replace(ranks, start_reduce=start)
    run = make_run(small_recipe(values), data=data_set(), model=plain_net().float(), ranks=counting)
    losses = [run.step().train_loss for _ in range(3)]
    return sum(sent), losses


def measured(ranks: Ranks) -> list[float]:
    """Return the running statistics that ranks measure together on batches of several sizes."""
    torch.manual_seed(5)
    batches = [torch.rand(count, 3, 4, 4).double() for count in (4, 4, 4, 4, 3)]
    norm = nn.Sequential(nn.BatchNorm2d(3)).double()
    measure_norm(norm, batches[ranks.rank :: ranks.world], torch.autocast("cpu", enabled=False), ranks)
    return [number for each in norm.buffers() if each.is_floating_point() for number in each.tolist()]


def resumed(ranks: Ranks) -> list[list[list[dict[str, Any]]]]:
    """Return runs with dropout, of a net with BatchNorm and one with unused parameters, and the same resumed
    from the midst of their second epoch with rank 0's state."""
    own = small_recipe({"model.dropout": 0.3, "loop.batch_size": 8, "augmentation.mixing.kind": "mixup"})
    nets: list[Callable[[], nn.Module | None]] = [lambda: None, lambda: Switching(dropout=0.3)]
    return [_resumed(ranks, own, net) for net in nets]


def _resumed(ranks: Ranks, recipe: Recipe, net: Callable[[], nn.Module | None]) -> list[list[dict[str, Any]]]:
    states: list[bytes] = []

    def save() -> None:
        content = checkpoint.to_bytes(whole.state_dict()) if ranks.rank == 0 else b""
        states.append(ranks.bytes_from_first(content))

    whole = make_run(recipe, data=data_set(), model=net(), ranks=ranks, on_pause=save)
    part = make_run(recipe, data=data_set(), model=net(), ranks=ranks)
    finished(whole)
    part.load_state_dict(checkpoint.from_bytes(states[2]))
    finished(part)
    return [curve(whole.history), curve(part.history)]


def scored(ranks: Ranks) -> list[dict[str, float]]:
    """Return what a net scores by every metric and by a function of the caller's, with batches for both
    ranks, of several sizes, and with one batch, so that rank 1 has none."""
    return [_scored(ranks, batch) for batch in (8, 512)]


def _scored(ranks: Ranks, batch: int) -> dict[str, float]:
    recipe = small_recipe({"evaluation.metrics": EVERY, "evaluation.batch_size": batch})
    own: Own = {"weighted": lambda probabilities, labels: float(probabilities[:, 0] @ labels.double())}
    run = make_run(recipe, data=data_set(validation=28), model=plain_net(), ranks=ranks, metrics=own)
    return run.evaluate("validation")


def statistics(ranks: Ranks) -> list[float]:
    """The running means of a net with BatchNorm, after an epoch."""
    run = make_run(small_recipe(), data=data_set(), ranks=ranks)
    run.step()
    return [float(each) for each in run.weights()["stem_norm.running_mean"]]


def write_manifest(folder: Path) -> Path:
    """Write images of three classes, and a list of them with their parts."""
    images = labelled({"train": (16, 16, 16), "validation": (6, 7, 7)})
    for each in images:
        (folder / each.path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each.pixels).save(folder / each.path)
    rows = [{"path": each.path, "label": each.label, "split": each.part} for each in images]
    return write_csv(folder / "images.csv", rows)


def from_manifest(ranks: Ranks, manifest: Path) -> list[dict[str, Any]]:
    """Return the curve of a run on images that each rank reads from the files of a manifest."""
    listed = {
        "data.path": str(manifest),
        "data.in_memory": False,
        "data.channels": 1,
        "data.image_size": SIZE,
    }
    run = make_run(small_recipe(listed), model=plain_net(), ranks=ranks)
    finished(run)
    return curve(run.history)


def work(rank: int, folder: str) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)

    trainer.SEGMENT_STEPS = 2  # these are small runs
    ranks = of_process_group()
    results = {
        "histories": histories(ranks),
        "statistics": statistics(ranks),
        "cut": cut_together(ranks),
        "cut_with_unused": cut_with_unused(ranks),
        "varied": varied(ranks),
        "exchanged": exchanged(ranks),
        "measured": measured(ranks),
        "scored": scored(ranks),
        "resumed": resumed(ranks),
        "manifest": from_manifest(ranks, Path(folder) / "images.csv"),
        **{str(dtype): equivalent(ranks, dtype) for dtype in TOLERANCES},
    }
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    distributed.barrier()  # where one leaves while the other works, gloo aborts at exit (2 of 10 times)
    distributed.destroy_process_group()


@pytest.mark.integration
def test_two_ranks_give_the_curve_of_one(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path)
    spawn(work, (str(tmp_path),), nprocs=WORLD)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD))
    assert first == second  # also the statistics of BatchNorm, of which each rank saw its own half
    assert first["histories"][-1][-1]["diverged"]
    for theirs, ours in zip(first["histories"], histories(ALONE), strict=True):
        assert_same(theirs, ours)
    for dtype, tolerance in TOLERANCES.items():
        alone, accumulated = (equivalent(ALONE, dtype, micro_batch) for micro_batch in (None, 128))
        assert first[str(dtype)] == pytest.approx(alone, rel=tolerance)
        assert accumulated == pytest.approx(alone, rel=tolerance)
    assert_little_is_exchanged(first["exchanged"])
    for whole, part in first["resumed"]:
        assert part == whole, "resumed in the midst of an epoch, bit for bit"
    assert_same(first["manifest"], from_manifest(ALONE, manifest))
    assert first["measured"] == pytest.approx(measured(ALONE), rel=1e-12)
    for found, alone_found in zip(first["scored"], scored(ALONE), strict=True):
        assert len(found) == 3 + len(EVERY) + 1
        assert found == pytest.approx(alone_found, rel=1e-12), "of the union of all answers, in order"
    whole = _history(TIGHT, ALONE)
    for failure, (micro_batch, cut) in zip(FAILURES, first["cut"], strict=True):
        assert micro_batch == 2, f"what does not fit on one rank is cut on both: {failure}"
        assert_same(cut, whole)
    whole = _history(TIGHT, ALONE, Switching())
    for unused, (micro_batch, cut) in zip(UNUSED_FAILURES, first["cut_with_unused"], strict=True):
        assert micro_batch == 2, f"so it is with unused parameters: {unused}"
        assert_same(cut, whole)
    for theirs, (values, model) in zip(first["varied"], VARIED, strict=True):
        assert_same(theirs, _varied(ALONE, values, model()))


def assert_little_is_exchanged(exchanged: list[tuple[int, list[float]]]) -> None:
    (whole, losses), (in_parts, parts_losses), (halved, halved_losses) = exchanged
    parameters = sum(each.numel() for each in plain_net().parameters())
    steps = 3 * (len(data_set().train) // small_recipe().loop.batch_size)
    assert whole == in_parts == 4 * parameters * steps, "once a window, however many parts it has"
    assert 2 * halved == whole
    assert parts_losses == pytest.approx(losses, rel=1e-5)
    assert halved_losses == pytest.approx(losses, rel=1e-2)
    assert halved_losses != losses


def assert_same(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        assert their == pytest.approx(our, rel=1e-9, abs=1e-9)
