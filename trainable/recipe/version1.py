"""Reads recipes of version 1, which tunebook 0.1.0 wrote, as recipes of version 2, which train alike.

Version 1 had `clip_norm` and `clip_factor` beside each other, one of them null, and a decay of averaged
weights apart from the word that had them scored. A decay without that word kept an average that nothing read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainable.errors import Fault, RecipeError, quoted

_CLIPPING, _AVERAGING = "regularisation.clipping", "regularisation.averaging"
# Fields that no longer exist in version 2, and what to write instead
INSTEAD = {
    "regularisation.clip_norm": f"{_CLIPPING}.kind: norm and {_CLIPPING}.max_norm",
    "regularisation.clip_factor": f"{_CLIPPING}.kind: adaptive and {_CLIPPING}.factor",
    "regularisation.ema_decay": f"{_AVERAGING}.kind: ema and {_AVERAGING}.decay",
    "evaluation.weights": f"{_AVERAGING}.kind: ema, or none",
}
_CAME_FROM = {
    f"{_CLIPPING}.max_norm": "regularisation.clip_norm",
    f"{_CLIPPING}.factor": "regularisation.clip_factor",
    f"{_AVERAGING}.decay": "regularisation.ema_decay",
}


def with_advice(fault: Fault) -> Fault:
    """Return the fault, or for a field of version 1 what to write instead."""
    if fault.path not in INSTEAD:
        return fault
    return Fault(fault.path, f"only recipes of version 1 have it; write {INSTEAD[fault.path]}")


def as_written(fault: Fault) -> Fault:
    """Return a fault of a converted recipe with the field's name in version 1."""
    return Fault(_CAME_FROM.get(fault.path, fault.path), fault.message)


def is_version_1(tree: Mapping[str, Any]) -> bool:
    """Say whether a recipe's tree is of version 1."""
    return type(tree.get("version")) is int and tree["version"] == 1


def converted(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe's tree of version 1 as one of version 2, and every other tree as it is.

    Raises RecipeError for what version 1 refuses of the fields that are converted; version 2 checks the rest.
    """
    if not is_version_1(tree):
        return tree
    regularisation, evaluation = tree.get("regularisation", {}), tree.get("evaluation", {})
    if not isinstance(regularisation, Mapping) or not isinstance(evaluation, Mapping):
        return {**tree, "version": 2}
    old, scored = dict(regularisation), dict(evaluation)
    clipping = _clipping(old.pop("clip_norm", None), old.pop("clip_factor", None))
    averaging = _averaging(scored.pop("weights", "raw"), old.pop("ema_decay", None))
    if newer := old.keys() & {"clipping", "averaging"}:
        message = "version 1 of recipes has no such field; write version: 2"
        raise RecipeError([Fault(f"regularisation.{name}", message) for name in sorted(newer)])
    new = {**old, "clipping": clipping, "averaging": averaging}
    return {**tree, "version": 2, "regularisation": new, "evaluation": scored}


def _clipping(norm: Any, factor: Any) -> dict[str, Any]:
    if norm is not None and factor is not None:
        raise RecipeError([Fault("regularisation", "clip by clip_norm or by clip_factor, not both")])
    if norm is not None:
        return {"kind": "norm", "max_norm": norm}
    return {"kind": "none"} if factor is None else {"kind": "adaptive", "factor": factor}


def _averaging(weights: Any, decay: Any) -> dict[str, Any]:
    if weights not in ("raw", "ema"):
        raise RecipeError([Fault("evaluation.weights", f"expected 'raw' or 'ema', got {quoted(weights)}")])
    if decay is not None and (type(decay) is not float or not 0.0 < decay < 1.0):
        message = f"expected a number between 0 and 1, got {quoted(decay)}"
        raise RecipeError([Fault("regularisation.ema_decay", message)])
    if weights == "raw":
        return {"kind": "none"}
    if decay is None:
        needed = "evaluation.weights is ema, so regularisation.ema_decay must be a number"
        raise RecipeError([Fault("", needed)])
    return {"kind": "ema", "decay": decay}
