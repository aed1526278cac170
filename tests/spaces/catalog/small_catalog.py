"""Makes the space `document` for facts, pins and overrides, and says what is in it."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import SpaceError
from spaces.facts import Facts
from spaces.space import Dimension, Space
from tests.spaces.small_facts import base_recipe

LR = "optimizer.lr"
AVERAGING, DECAY = "regularisation.averaging.kind", "regularisation.averaging.decay"
RATE = {"log": [0.01, 1.0]}


def document(facts: Facts, *pins: str, overrides: dict[str, Any] | None = None, **values: Any) -> Space:
    """Return the space `document`; values by dotted path (`__` for the dot) are pinned."""
    pinned = frozenset(pins) | {path.replace("__", ".") for path in values}
    return make_space("document", base_recipe(facts, **values), pinned, facts, overrides or {})


def names(space: Space) -> list[str]:
    return [each.name for each in space.dimensions]


def of(space: Space, name: str) -> Dimension:
    (found,) = (each for each in space.dimensions if each.name == name)
    return found


def faults(caught: pytest.ExceptionInfo[SpaceError]) -> dict[str, str]:
    return {fault.path: fault.message for fault in caught.value.faults}
