"""Compiles a model for training, alone and anew in every run of a process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def eagerly(compiled: bool) -> AbstractContextManager[Any]:
    """Returns a context in which a compiled model computes as if it was not compiled.

    Scoring and measuring have other batch sizes and modes, and each would be compiled for itself: a minute,
    to save less than that.
    """
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def forget_compiled() -> None:
    """Frees all that this process has compiled.

    torch compiles a function, of whatever model, 8 times in a process; afterwards it runs it as it is, and
    only a warning tells. A worker's third model would train at the speed of one that is not compiled.
    """
    torch._dynamo.reset()
