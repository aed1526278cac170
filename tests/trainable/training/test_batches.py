"""Tests into how many micro-batches windows are cut, and what ends an attempt at one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn, optim

from trainable.data.batch import Batch
from trainable.ranks import ALONE, Ranks
from trainable.recipe.training import Loop
from trainable.training.batches import Batches, MicroBatches, Window, attempts
from trainable.training.gradients import Reduction

CPU = torch.device("cpu")
SHORT = torch.OutOfMemoryError("CUDA out of memory")


def window(micro_batches: MicroBatches) -> Window:
    """Return the third window of an epoch, whose micro-batches are of size 8 together."""

    def opened(number: int) -> Iterator[Batch]:
        labels = torch.full((8,), number)
        return ((each[:, None].float(), each) for each in labels.tensor_split(micro_batches.count))

    return Window(Batches(opened, 2), 2, micro_batches, 8.0, 1, torch.Generator().manual_seed(0))


def test_a_cut_doubles_micro_batches_until_each_has_the_fewest_images() -> None:
    cuts = MicroBatches.of(Loop(batch_size=20), Ranks(0, 2), fewest_at_once=2)
    counts = [cuts.count]
    while cuts.may_be_cut:
        cuts.cut()
        counts.append(cuts.count)
    assert counts == [1, 2, 4, 5]


def test_ranks_that_wait_for_each_other_inside_a_layer_are_not_cut() -> None:
    loop = Loop(batch_size=20, micro_batch=5, sync_norm=True)
    synced = MicroBatches.of(loop, Ranks(0, 2))
    assert not synced.may_be_cut
    synced.count = 1  # a checkpoint of more ranks has a smaller one
    assert not synced.may_be_cut
    assert MicroBatches.of(loop, ALONE).may_be_cut


def test_a_window_that_runs_out_of_memory_is_read_and_drawn_again_from_its_beginning() -> None:
    model, cuts = nn.Linear(1, 1), MicroBatches(1, most=8)
    tried, optimizer, sizes, draws = window(cuts), optim.SGD(model.parameters()), [], []
    for attempt in attempts(tried, Reduction(model, ALONE), optimizer, CPU):
        with attempt:
            for inputs, labels in attempt:
                assert labels.unique().tolist() == [2]
                sizes.append(len(labels))
                draws.append(torch.rand((), generator=tried.generator).item())
                model(inputs).sum().backward()
                if len(labels) > 2:
                    raise SHORT
    assert sizes == [8, 4, 2, 2, 2, 2]
    assert draws[0] == draws[1] == draws[2] != draws[3]
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 16.0, "the gradients of the attempts before are forgotten"


@pytest.mark.parametrize(
    ("error", "most"), [(SHORT, 1), (ValueError("x"), 8)], ids=["cannot be cut", "another error"]
)
def test_what_smaller_micro_batches_do_not_help_is_raised(error: Exception, most: int) -> None:
    model = nn.Linear(1, 1)
    optimizer = optim.SGD(model.parameters())
    attempt = next(attempts(window(MicroBatches(1, most=most)), Reduction(model, ALONE), optimizer, CPU))
    with pytest.raises(type(error)), attempt:
        raise error
