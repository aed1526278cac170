"""Chooses how many channels each group of a network keeps, so that a share of its operations is left."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainable.errors import ModelError
from trainable.probes.network_cost import Flops
from trainable.shrinking.dependencies import ChannelGroup, LayerEnd, UnitImportance

LEAST_SHARE = 0.1  # of its channels each group keeps (ours), and at least one: none would cut the network
STEPS = 8  # in which a group is cut, or more (ours): a narrow one could not be cut by an eighth otherwise


@dataclass(frozen=True)
class KeptUnits:
    """How many units each group keeps, and the share of the operations that is left with them."""

    kept: tuple[int, ...]
    share: float


def choose(groups: Sequence[ChannelGroup], flops: Flops, share: float, most_step: int) -> KeptUnits:
    """Return the choice that leaves at most the asked share of the operations, and as much as it can.

    The channels that matter least are cut first, until the share is reached; of groups that lose the same
    share of their channels, the first one loses its step first. What a group keeps is rounded up to whole
    steps of channels, each of at most `most_step`. Raises ModelError where the share is below what
    LEAST_SHARE leaves.
    """
    steps = [step_of(group, most_step) for group in groups]
    scores = [
        _scores(group.importance, later=at / len(groups) * step)
        for at, (group, step) in enumerate(zip(groups, steps, strict=True))
    ]
    order = np.sort(np.concatenate(scores))

    def choice(cut: int) -> KeptUnits:
        below = order[cut - 1] if cut else -np.inf
        kept = tuple(
            _rounded(int((score > below).sum()), len(score), step)
            for score, step in zip(scores, steps, strict=True)
        )
        return KeptUnits(kept, share_left(groups, flops, kept))

    least = choice(len(order))
    if least.share > share:
        raise ModelError(
            f"--flops {share:g}: expected at least {least.share:.3f}: so much of the operations is left "
            f"where each layer that can be pruned keeps {LEAST_SHARE:.0%} of its channels"
        )
    cuts = range(len(order) + 1)
    return choice(bisect_left(cuts, True, key=lambda cut: choice(cut).share <= share))


def share_left(groups: Sequence[ChannelGroup], flops: Flops, kept: Sequence[int]) -> float:
    """Return the share of a network's operations that is left if groups keep so many of their units.

    A layer's operations are proportional to the channels that it gives times those that it takes.
    """
    left: Mapping[LayerEnd, float] = defaultdict(lambda: 1.0)
    for group, count in zip(groups, kept, strict=True):
        for end, share in group.shares.items():
            left[end] -= share * (1.0 - count / len(group.units))  # type: ignore[index]
    spared = sum(
        count * (1.0 - left[LayerEnd(layer, "outputs")] * left[LayerEnd(layer, "inputs")])
        for layer, count in flops.layers.items()
    )
    return 1.0 - spared / flops.total


def step_of(group: ChannelGroup, most: int) -> int:
    """Return the units that a group loses or keeps together: the largest power of two of which they are at
    least STEPS, and that makes at most so many channels of its root."""
    largest = min(len(group.units) // STEPS, most // len(group.units[0]))
    return int(2 ** (max(1, largest).bit_length() - 1))


def _scores(importance: UnitImportance, later: float) -> UnitImportance:
    """Return what the channels of all groups are ranked by: the least are cut first, of each group the same
    share. A group's turn comes so many of its channels later."""
    places = importance.argsort(kind="stable").argsort(kind="stable").astype(np.float64)
    return (places + 1.0 + later) / len(places)


def _rounded(kept: int, units: int, step: int) -> int:
    """Return how many units a group keeps: whole steps of them, and at least LEAST_SHARE."""
    least = max(1, int(np.ceil(LEAST_SHARE * units)))
    return min(units, -(-max(kept, least) // step) * step)
