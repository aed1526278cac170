"""Cuts the channels of a network that matter least, down to a share of its operations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from trainable.errors import ModelError, UserError, first_line
from trainable.models.widths import Widths, make_narrow, widths_between
from trainable.probes.flops import Flops, count_flops
from trainable.shrinking.choice import Ranking, choose
from trainable.shrinking.dependencies import Cut, Dependencies
from trainable.shrinking.masked import differs

RANKING: Ranking = "uniform"
STEP = 8
"""docs/decisions/0045 has the measurements by which these are chosen."""
NEAR = 0.005
"""The share that is counted in the cut network is as near to the computed one."""


@dataclass(frozen=True, eq=False)
class Pruned:
    """Holds a narrower network on the CPU, in what it is narrower, and the operations of an image before and
    after."""

    network: nn.Module
    widths: Widths
    before: Flops
    after: Flops

    @property
    def share(self) -> float:
        """The share of the operations that is left."""
        return self.after.total / self.before.total


def prune(
    network: nn.Module,
    shape: tuple[int, int, int],
    share: float,
    *,
    title: str = "the network",
    ranking: Ranking = RANKING,
    step: int = STEP,
) -> Pruned:
    """Return a copy of a network with at most a share, in (0, 1), of its operations for an image [C, H, W].

    The channels with the smallest weights are cut, in steps of at most `step` channels. What the network
    returns keeps its channels. Raises ModelError, with the title of the network, where it cannot be traced or
    has not enough channels to cut, and where it would not compute what the whole network does if the cut
    channels counted nothing.
    """
    if not 0.0 < share < 1.0:
        raise ModelError(f"--flops {share:g}: expected a share of the operations above 0 and below 1")
    whole = copy.deepcopy(network).to("cpu", torch.float32).eval()
    cut_out, narrow = copy.deepcopy(whole), copy.deepcopy(whole)
    before = count_flops(whole, shape)
    with _understood(title):
        promised, cuts = _cut(cut_out, shape, share, before, title=title, ranking=ranking, step=step)
        widths = widths_between(whole, cut_out)
        make_narrow(narrow, widths)
        narrow.load_state_dict(cut_out.state_dict())
        differ = differs(whole, narrow, cuts, shape)
        found = Pruned(narrow, widths, before, count_flops(narrow, shape))
    if differ or abs(found.share - promised) > NEAR:
        got = f"{found.share:.3f} and {'other' if differ else 'these'} answers"
        raise ModelError(
            f"{title}: cannot be pruned: expected {promised:.3f} of its operations to be left, and the "
            f"answers of a network where the cut channels count nothing, got {got}: what it does to "
            "channels is not understood"
        )
    return found


@contextmanager
def _understood(title: str) -> Iterator[None]:
    """Turn whatever goes wrong in a network whose channels are not understood into a ModelError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # torch-pruning, and a network that was cut wrongly, raise nearly anything
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(
            f"{title}: cannot be pruned: what it does to channels is not understood ({reason})"
        ) from error


def _cut(
    network: nn.Module,
    shape: tuple[int, int, int],
    share: float,
    flops: Flops,
    *,
    title: str,
    ranking: Ranking,
    step: int,
) -> tuple[float, list[Cut]]:
    """Cut channels out of a network, in place; return the share of the operations that is left then, and
    what was cut, counted in the whole network."""
    dependencies = Dependencies(network, shape, title)
    chosen = choose(dependencies.groups, flops, share, ranking, step)
    units = [
        _least(group.importance.argsort(kind="stable").tolist(), kept)
        for group, kept in zip(dependencies.groups, chosen.kept, strict=True)
    ]
    pairs = list(zip(dependencies.groups, units, strict=True))
    cuts = [cut for group, each in pairs for cut in dependencies.cuts(group, each)]
    for group, each in pairs:
        dependencies.cut(group, each)
    return chosen.share, cuts


def _least(order: Sequence[int], kept: int) -> list[int]:
    """Return, of units in the order of their importance, those that are not kept."""
    return list(order[: len(order) - kept])
