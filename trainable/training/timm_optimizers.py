"""Makes timm's optimizers by name, and says before any training which of them cannot train here, and why."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn, optim

from trainable.errors import Fault, RecipeError, first_line, quoted
from trainable.recipe.optimizers import OptimizerOption, Timm

# timm lists optimizers of these packages, which are not installed with this project.
OTHER_PACKAGES = {"apex": "NVIDIA's apex", "bitsandbytes": "bitsandbytes"}
OURS = {"params", "lr", "weight_decay"}  # from the recipe's own fields

# Arguments that change what a step computes on or prints, or turn training around.
NOT_OFFERED = {
    "deterministic",
    "maximize",
    "differentiable",
    "capturable",
    "fused",
    "foreach",
    "verbose",
    "adamw_lr",
}


def make_timm_optimizer(spec: Timm, groups: list[dict[str, Any]], lr: float) -> optim.Optimizer:
    """Return timm's optimizer of this name over parameter groups. Raises RecipeError, naming the field."""
    from timm.optim import create_optimizer_v2

    _check(spec)
    options: dict[str, Any] = dict(spec.options)
    try:
        return create_optimizer_v2(groups, spec.name, lr=lr, **options)
    except (AssertionError, TypeError, ValueError) as error:
        message = f"timm's {spec.name} refuses {_shown(spec.options)}: {first_line(error)}"
        raise RecipeError([Fault("optimizer.options", message)]) from error


def check_timm_optimizer(spec: Timm) -> None:
    """Raise RecipeError for an optimizer that does not exist or cannot train here, or for its options.

    A small weight takes one step, since some classes look at their options there first.
    """
    weight = nn.Parameter(torch.ones(8, 8))
    weight.grad = torch.ones_like(weight)
    optimizer = make_timm_optimizer(spec, [{"params": [weight]}], spec.lr)
    try:
        optimizer.step()
    except Exception as error:  # whatever a class does with an option that it did not look at before
        message = f"timm's {spec.name} cannot step with {_shown(spec.options)}: {first_line(error)}"
        raise RecipeError([Fault("optimizer.options", message)]) from error


def names() -> list[str]:
    """Return timm's names of the optimizers that can train here."""
    from timm.optim import list_optimizers

    return [str(name) for name in list_optimizers() if _obstacle(str(name)) is None]


def _check(spec: Timm) -> None:
    from timm.optim import list_optimizers

    if spec.name not in list_optimizers():
        raise RecipeError([Fault("optimizer.name", _unknown(spec.name))])
    if (obstacle := _obstacle(spec.name)) is not None:
        raise RecipeError([Fault("optimizer.name", obstacle)])
    if faults := list(_option_faults(spec)):
        raise RecipeError(faults)


def _unknown(name: str) -> str:
    if name.startswith("lookahead_"):
        return f"lookahead is not offered, as regularisation.averaging averages weights; write {name[10:]}"
    known = names()
    near = get_close_matches(name, known, n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"timm has no optimizer {quoted(name)}{meant} (known: {', '.join(known)})"


def _obstacle(name: str) -> str | None:
    """Return why an optimizer of timm's cannot train here; None if it can."""
    from timm.optim import get_optimizer_info

    info = get_optimizer_info(name)
    if isinstance(info.opt_class, str):
        package = info.opt_class.partition(".")[0]
        return (
            f"{name} is of {OTHER_PACKAGES.get(package, package)}, which is not installed with this project"
        )
    if info.second_order:
        return f"{name} needs second derivatives, which the training step does not compute"
    if name.startswith("kron"):
        return (
            f"{name} draws from a generator that differs from rank to rank, and needs opt_einsum to be fast"
        )
    return None


def _option_faults(spec: Timm) -> Iterator[Fault]:
    known = _options_of(spec.name)
    for name in spec.options:
        if name in OURS:
            yield Fault(f"optimizer.options.{name}", f"write optimizer.{name}")
        elif name not in known:
            yield Fault(
                f"optimizer.options.{name}", f"timm's {spec.name} takes none such; known: {', '.join(known)}"
            )


def _options_of(name: str) -> list[str]:
    """Return what a class takes besides the recipe's own fields."""
    from timm.optim import get_optimizer_class

    parameters = inspect.signature(get_optimizer_class(name, bind_defaults=False)).parameters
    return [each for each in parameters if each not in OURS | NOT_OFFERED]


def _shown(options: Mapping[str, OptimizerOption]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in options.items()) or "its defaults"
