"""What each rank reads, mixes and takes over, without other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.trainable.small_runs import data_set, small_recipe
from trainable.array_types import Integers
from trainable.data import Split
from trainable.data.loading import Loader
from trainable.errors import DataError
from trainable.ranks import ALONE, Ranks
from trainable.run import make_run
from trainable.training.run import Run


@pytest.mark.parametrize(("batch", "world"), [(16, 2), (15, 2), (10, 4), (3, 3)])
def test_shares_cover_a_batch_once_and_evenly(batch: int, world: int) -> None:
    shares = [list(range(batch)[Ranks(rank, world).share(batch)]) for rank in range(world)]
    assert list(chain.from_iterable(shares)) == list(range(batch))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(images=st.integers(0, 50), size=st.integers(1, 20), world=st.integers(1, 5))
def test_each_batch_that_is_scored_is_one_rank_s(images: int, size: int, world: int) -> None:
    positions = torch.arange(images)
    shares = [Ranks(rank, world).batches_of(positions, size).split(size) for rank in range(world)]
    batches = sorted((batch.tolist() for share in shares for batch in share if len(batch)), key=max)
    assert batches == [batch.tolist() for batch in positions.split(size) if len(batch)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(images=st.integers(0, 50), size=st.integers(2, 20), world=st.integers(1, 5))
def test_ranks_measure_norms_on_equally_many_batches(images: int, size: int, world: int) -> None:
    positions = torch.arange(images)
    shares = [Ranks(rank, world).shares_of(positions, size, smallest=2).split(size) for rank in range(world)]
    counts = [[len(batch) for batch in share if len(batch)] for share in shares]
    assert len({len(each) for each in counts}) == 1
    assert all(least >= 2 for each in counts for least in each)
    assert sorted(chain.from_iterable(torch.cat(share).tolist() for share in shares)) == list(
        range(sum(map(sum, counts)))
    )
    assert images - sum(map(sum, counts)) < 2 * world


@pytest.mark.parametrize("values", [{}, {"evaluation.norm_batches": 4}])
def test_ranks_share_the_reading_of_what_is_scored_and_measured(values: dict[str, Any]) -> None:
    read = []
    for ranks in (ALONE, Ranks(0, 2), Ranks(1, 2)):
        run = make_run(small_recipe({"evaluation.batch_size": 4, **values}), data=data_set(), ranks=ranks)
        read.append(_images_read(run))
    whole, *shares = read
    assert sum(shares) == whole
    assert max(shares) < whole


def _images_read(run: Run) -> int:
    seen, loader = list[int](), run.images.loader
    assert isinstance(loader, Loader)
    plain = loader._plain

    def counting(name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        seen.extend(map(len, batches))
        return plain(name, batches)

    loader._plain = counting  # type: ignore[method-assign]
    run.score("validation")
    return sum(seen)


def test_a_rank_outside_its_world_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank must be in \[0, world = 2\), got 2"):
        Ranks(2, 2)


def test_a_batch_that_leaves_a_rank_without_images_is_refused() -> None:
    with pytest.raises(DataError, match=r"loop\.batch_size 1\b.*\b2 ranks"):
        make_run(small_recipe({"loop.batch_size": 1}), data=data_set(), ranks=Ranks(0, 2))


def test_tensors_of_several_types_are_summed_in_place() -> None:
    ranks = Ranks(0, 2, reduce=lambda tensor: 2 * tensor)
    tensors = [torch.ones(2, 3), torch.tensor(4), torch.full((2,), 0.5, dtype=torch.float64)]
    ranks.sum_in_place(tensors)
    assert [each.tolist() for each in tensors] == [[[2.0] * 3] * 2, 8, [1.0, 1.0]]


def test_ranks_take_over_the_tensors_of_the_first() -> None:
    mine, theirs = torch.full((3,), 7.0), torch.full((3,), 2.0)
    Ranks(1, 2, broadcast=lambda _: theirs).copy_from_first([mine])
    assert torch.equal(mine, theirs)


def test_ranks_mix_a_batch_in_one_way_and_each_epoch_in_another() -> None:
    runs = [make_run(small_recipe(), data=data_set(), ranks=Ranks(rank, 2)) for rank in range(2)]
    drawn = [[run._trainer.mixing_generator(epoch).initial_seed() for epoch in range(3)] for run in runs]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_ranks_take_over_what_the_first_says() -> None:
    said = bytes(range(256)) * 3

    def first(tensor: Tensor) -> Tensor:
        return torch.tensor(list(said), dtype=torch.uint8) if len(tensor) > 1 else torch.tensor([len(said)])

    assert Ranks(1, 2, broadcast=first).bytes_from_first(b"else") == said
    assert Ranks(0, 2).bytes_from_first(said) == said
    assert Ranks(0, 2).bytes_from_first(b"") == b""
    assert ALONE.bytes_from_first(said) == said


@pytest.mark.parametrize(("batch", "micro_batch"), [(15, 1), (15, 3), (9, 2), (16, 7)])
def test_ranks_cut_alike_and_no_part_is_empty(batch: int, micro_batch: int) -> None:
    values = {"loop.batch_size": batch, "loop.micro_batch": micro_batch}
    runs = [make_run(small_recipe(values), data=data_set(), ranks=Ranks(rank, 2)) for rank in range(2)]
    parts = [[len(part) for part in run._trainer.order(0)] for run in runs]
    assert len(parts[0]) == len(parts[1])
    assert min(min(each) for each in parts) >= 1
    assert max(max(each) for each in parts) <= max(micro_batch, 2)
