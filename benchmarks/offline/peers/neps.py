"""A search by NePS: Hyperband, or PriorBand on top of it (arXiv 2306.12370), by `neps.AskAndTell`.

    python -m offline.peers.neps hyperband | priorband

NePS chooses Hyperband for a space with a fidelity, and PriorBand where there are priors too. Their likeliest
values are the first trial, and are trained to the end, as in our own arms. NePS knows no conditions: it
always draws all dimensions, and what does not exist with the others is left out of the training. Its rungs
are the longest training divided by eta as often as the shortest one allows: 5, 17 and 52 epochs.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from typing import Any

import neps
import numpy as np
import torch

from offline.peers.serving import Asked, Dimension, Piece, Promoting, serve

EPOCHS = "epochs"
# NePS's words for the same widths: its priors' deviations are 0.75, 0.5 and 0.25 of a range, those of this
# benchmark 0.5, 0.25 (PriorBand's in its paper) and 0.125
CONFIDENCES = {"low": "medium", "medium": "high", "high": "high"}


class Neps(Promoting):
    """A search by one of the two."""

    def __init__(self, algorithm: str, asked: Asked) -> None:
        super().__init__()
        random.seed(asked.seed)
        np.random.seed(asked.seed)
        torch.manual_seed(asked.seed)
        self._search = neps.AskAndTell(_optimizer(algorithm, asked))

    def next_piece(self) -> Piece:
        trial = self._search.ask()
        values = {name: value for name, value in trial.config.items() if name != EPOCHS}
        number = int(trial.metadata.id.partition("_rung_")[0])
        return Piece(number, values, trial.config[EPOCHS], trial.metadata.id)

    def tell(self, handle: Any, score: float | None) -> None:
        self._search.tell(handle, RuntimeError("diverged") if score is None else -score)


def _optimizer(algorithm: str, asked: Asked) -> Any:
    if algorithm == "hyperband":
        return neps.algorithms.hyperband(_space(asked), eta=asked.factor)
    believed = any(each.prior is not None for each in asked.dimensions)
    first = "highest_fidelity" if believed else False
    return neps.algorithms.priorband(_space(asked), eta=asked.factor, sample_prior_first=first)


def _space(asked: Asked) -> neps.PipelineSpace:
    fields = {each.name: _domain(each, asked.confidence) for each in asked.dimensions}
    fields[EPOCHS] = neps.IntegerFidelity(asked.grace, asked.epochs)
    space: neps.PipelineSpace = type("Space", (neps.PipelineSpace,), fields)()
    return space


def _domain(dimension: Dimension, confidence: str) -> Any:
    prior: dict[str, Any] = {}
    if dimension.prior is not None:
        prior = {"prior": dimension.prior, "prior_confidence": CONFIDENCES[confidence]}
    match dimension.kind:
        case "float":
            return neps.Float(dimension.low, dimension.high, log=dimension.log, **prior)
        case "integer":
            return neps.Integer(int(dimension.low), int(dimension.high), log=dimension.log, **prior)
        case "choice":  # the prior is an index, and so is every option
            return neps.Categorical(dimension.options, **prior)


if __name__ == "__main__":
    serve(partial(Neps, sys.argv[1]))
