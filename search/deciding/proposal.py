"""Defines the ledger's answers: which trial is trained next, and what a trial does now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from spaces.domains import Value
from trainable.recipe import Recipe


class Decision(Enum):
    """What a trial does after an epoch, or after its network was measured."""

    CONTINUE = "continue"
    PAUSE = "pause"  # the trial frees its worker, and may be proposed again: its checkpoint stays
    STOP = "stop"


@dataclass(frozen=True)
class Proposal:
    """A trial to be trained: a new one, a paused one, or one that a driver left unfinished."""

    trial: int
    values: Mapping[str, Value]  # the values by dotted path
    recipe: Recipe
