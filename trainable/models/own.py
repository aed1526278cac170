"""Calls a person's own function that builds a network, and says in one message what went wrong in it."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from torch import nn

from trainable.errors import ModelError, code_named, listed, quoted
from trainable.recipe.models import GIVEN_ARGUMENTS, Model, OwnModel

# Builds a network, [B, channels, image_size, image_size] -> logits [B, classes]. It receives, by name, the
# arguments of the recipe, and those of `classes`, `channels` and `image_size` that it has parameters for.
BuildModel = Callable[..., nn.Module]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, a class or another callable, for people."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return str(name).strip("<>")


def source_digest(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function's or a class's source, without comments; None if it is not known.

    What it calls in turn is not in the digest.
    """
    while isinstance(function, functools.partial):
        function = function.func
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
    with suppress(SyntaxError):  # of a lambda in the midst of a line
        source = ast.dump(ast.parse(source))
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def build_own(
    spec: OwnModel, build: BuildModel | None, *, classes: int, channels: int, image_size: int
) -> nn.Module:
    """Return the network that a person's function builds. It draws from torch's global generator.

    Raises ModelError if there is no function, if it does not take the recipe's arguments, if it raises an
    error, which is named with its line, and if it returns something else.
    """
    if build is None:
        raise ModelError(
            f"model.kind: own: {spec.name} is code of yours, and a file names no code: give it from Python, "
            f"as train(recipe, model={spec.name}), make_run(recipe, model={spec.name}) or "
            f"search(study, model={spec.name})"
        )
    check_takes(build, list(spec.arguments))
    given = {"classes": classes, "channels": channels, "image_size": image_size}
    taken = {name: value for name, value in given.items() if takes(build, name)}
    with own_code_named(spec):
        network = build(**taken, **spec.arguments)
    if not isinstance(network, nn.Module):
        raise ModelError(
            f"model={spec.name}: expected it to return a torch.nn.Module, got {type(network).__name__}"
        )
    return network.cpu()


def check_takes(build: BuildModel, arguments: Sequence[str]) -> None:
    """Raise ModelError if a function lacks a parameter for one of the arguments, or needs one more."""
    name, parameters = name_of(build), _parameters(build)
    if parameters is None:
        return
    known = [each for each in parameters if each not in GIVEN_ARGUMENTS]
    for each in arguments:
        if not takes(build, each):
            got = listed(known, most=20) or "none"
            raise ModelError(f"model={name}: has no parameter {each!r}; it has: {got}")
    missing = [
        each.name
        for each in parameters.values()
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and (each.name not in (*arguments, *GIVEN_ARGUMENTS) or each.kind is each.POSITIONAL_ONLY)
    ]
    if missing:
        raise ModelError(
            f"model={name}: its parameter {missing[0]!r} has no default and receives no value: arguments are "
            f"given by name, from space or model.arguments, and {', '.join(GIVEN_ARGUMENTS)} from the data"
        )


def takes(build: BuildModel, argument: str) -> bool:
    """Return whether a function can be called with an argument of this name."""
    parameters = _parameters(build)
    if parameters is None:
        return True
    found = parameters.get(argument)
    if found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY):
        return True
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def default_of(build: BuildModel, argument: str) -> Any:
    """Return the default of a function's parameter, or None if it has none."""
    found = (_parameters(build) or {}).get(argument)
    return None if found is None or found.default is found.empty else found.default


@contextmanager
def own_code_named(spec: Model) -> Iterator[None]:
    """Turn what a person's own network raises into a ModelError with its line; other networks' pass."""
    if not isinstance(spec, OwnModel):
        yield
        return
    values = "".join(f", {name} {quoted(value)}" for name, value in spec.arguments.items())
    with code_named(f"model={spec.name}{values}", ModelError):
        yield


def _parameters(build: BuildModel) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function by name, or None if Python cannot say them."""
    try:
        return inspect.signature(build).parameters
    except (TypeError, ValueError):
        return None
