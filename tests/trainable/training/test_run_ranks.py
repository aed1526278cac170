"""Two ranks are one: the seam for data-parallel training, proved with gloo and nothing else."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn

from tests.trainable.small_runs import curve, data_set, plain_net, small_recipe
from tests.trainable.tune.planted_memory import Limited
from trainable.errors import DataError
from trainable.ranks import ALONE, Ranks
from trainable.training.run import Run

WORLD = 2
TIGHT: dict[str, Any] = {
    "regularisation.clipping.kind": "norm",
    "regularisation.clipping.max_norm": 0.5,
    "regularisation.averaging.kind": "ema",
    "regularisation.averaging.decay": 0.9,
}
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
    {"optimizer.lr": 1e6, "loop.batch_size": WORLD},
]


def histories(ranks: Ranks) -> list[list[dict[str, Any]]]:
    """Each case trained to its end; rank 1 begins with other weights, which rank 0's replace."""
    return [_history(values, ranks) for values in CASES]


def _history(values: dict[str, Any], ranks: Ranks) -> list[dict[str, Any]]:
    of_any_size = nn.Sequential(nn.AdaptiveAvgPool2d(8), plain_net(seed=ranks.rank))
    run = Run(small_recipe(values), data=data_set(), model=of_any_size, ranks=ranks)
    while not run.finished:
        run.step()
    return curve(run.history)


def equivalent(ranks: Ranks, dtype: torch.dtype, micro_batch: int | None = None) -> list[float]:
    """Losses of ten steps without BatchNorm and augmentation: one an epoch, for the record."""
    values = {"loop.batch_size": 256, "loop.micro_batch": micro_batch, "loop.epochs": 10}
    model = plain_net(seed=0).to(dtype)
    run = Run(small_recipe(values), data=data_set(train=256), model=model, ranks=ranks)
    return [run.step().train_loss for _ in range(10)]


def cut_together(ranks: Ranks) -> tuple[int, list[dict[str, Any]]]:
    """A run in which the last rank alone has too little memory for its share."""
    room = 2 if ranks.rank == ranks.world - 1 else 16
    run = Run(small_recipe(TIGHT), data=data_set(), model=Limited(plain_net(), room), ranks=ranks)
    while not run.finished:
        run.step()
    return run.micro_batch, curve(run.history)


def statistics(ranks: Ranks) -> list[float]:
    """The running means of a net with BatchNorm, after an epoch."""
    run = Run(small_recipe(), data=data_set(), ranks=ranks)
    run.step()
    means: list[float] = run.weights()["stem_norm.running_mean"].tolist()
    return means


def work(rank: int, folder: str) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)

    def reduce(tensor: Tensor) -> Tensor:
        distributed.all_reduce(tensor)
        return tensor

    ranks = Ranks(rank, WORLD, reduce)
    results = {
        "histories": histories(ranks),
        "statistics": statistics(ranks),
        "cut": cut_together(ranks),
        **{str(dtype): equivalent(ranks, dtype) for dtype in TOLERANCES},
    }
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    distributed.barrier()  # where one leaves while the other works, gloo aborts at exit (2 of 10 times)
    distributed.destroy_process_group()


@pytest.mark.integration
def test_two_ranks_give_the_curve_of_one(tmp_path: Path) -> None:
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
    micro_batch, cut = first["cut"]
    assert micro_batch == 2, "what does not fit on one rank is cut on both"
    assert_same(cut, _history(TIGHT, ALONE))


def assert_same(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        assert their == pytest.approx(our, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("batch", "world"), [(16, 2), (15, 2), (10, 4), (3, 3)])
def test_shares_cover_a_batch_once_and_evenly(batch: int, world: int) -> None:
    shares = [list(range(batch)[Ranks(rank, world).share(batch)]) for rank in range(world)]
    assert list(chain.from_iterable(shares)) == list(range(batch))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_outside_its_world_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank must be in \[0, world = 2\), got 2"):
        Ranks(2, 2)


def test_a_batch_that_leaves_a_rank_without_images_is_refused() -> None:
    with pytest.raises(DataError, match=r"loop\.batch_size 1\b.*\b2 ranks"):
        Run(small_recipe({"loop.batch_size": 1}), data=data_set(), ranks=Ranks(0, 2))


def test_tensors_of_several_types_are_summed_in_place() -> None:
    ranks = Ranks(0, 2, reduce=lambda tensor: 2 * tensor)
    tensors = [torch.ones(2, 3), torch.tensor(4), torch.full((2,), 0.5, dtype=torch.float64)]
    ranks.sum_in_place(tensors)
    assert [each.tolist() for each in tensors] == [[[2.0] * 3] * 2, 8, [1.0, 1.0]]


def test_ranks_take_over_the_tensors_of_the_first() -> None:
    mine, theirs = torch.full((3,), 7.0), torch.full((3,), 2.0)
    Ranks(1, 2, reduce=lambda tensor: tensor + theirs).copy_from_first([mine])
    assert torch.equal(mine, theirs)


def test_ranks_mix_a_batch_in_one_way_and_each_epoch_in_another() -> None:
    runs = [Run(small_recipe(), data=data_set(), ranks=Ranks(rank, WORLD)) for rank in range(WORLD)]
    drawn = [[run._trainer.mixing_generator(epoch).initial_seed() for epoch in range(3)] for run in runs]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_ranks_take_over_what_the_first_says() -> None:
    said = bytes(range(256)) * 3

    def first(tensor: Tensor) -> Tensor:
        mine = torch.tensor(list(said), dtype=torch.uint8) if len(tensor) > 1 else torch.tensor([len(said)])
        return tensor + mine.to(tensor.dtype)

    assert Ranks(1, 2, reduce=first).bytes_from_first(b"else") == said
    assert Ranks(0, 2, reduce=lambda tensor: tensor).bytes_from_first(said) == said
    assert Ranks(0, 2, reduce=lambda tensor: tensor).bytes_from_first(b"") == b""
    assert ALONE.bytes_from_first(said) == said


@pytest.mark.parametrize(("batch", "micro_batch"), [(15, 1), (15, 3), (9, 2), (16, 7)])
def test_ranks_cut_alike_and_no_part_is_empty(batch: int, micro_batch: int) -> None:
    values = {"loop.batch_size": batch, "loop.micro_batch": micro_batch}
    runs = [Run(small_recipe(values), data=data_set(), ranks=Ranks(rank, WORLD)) for rank in range(WORLD)]
    parts = [[len(part) for part in run._trainer.order(0)] for run in runs]
    assert len(parts[0]) == len(parts[1])
    assert min(min(each) for each in parts) >= 1
    assert max(max(each) for each in parts) <= max(micro_batch, 2)
