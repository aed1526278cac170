"""Makes the script of a bundle, `predict.py`, which needs nothing of ours."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from trainable.bundle import predict, predict_masks, whole_images
from trainable.data.decode import Form, enough_pixels, upright
from trainable.errors import visible
from trainable.tasks.segmentation import predicted as predicted_masks

OURS = "from trainable."
"""A line that begins so imports what is ours."""
LAST_IMPORT = "import numpy as np\n"


def predict_script(dense: bool = False) -> str:
    """Return `predict.py`, of a network for masks if `dense`, with the source of what it imports of ours."""
    if not dense:
        return _with(predict, inspect.getsource(upright), inspect.getsource(visible))
    ours = (upright, visible, predicted_masks.png_of, predicted_masks.voc_colours)
    return _with(predict_masks, body_of(whole_images), *(inspect.getsource(each) for each in ours))


def body_of(module: ModuleType) -> str:
    """Return the source of a module after its imports."""
    return inspect.getsource(module).partition(LAST_IMPORT)[2].strip("\n") + "\n"


def _with(script: ModuleType, *sources: str) -> str:
    """Return a script with sources in the place of what it imports of ours."""
    return embedded(inspect.getsource(script), *sources)


def embedded(text: str, *sources: str) -> str:
    """Return a program with sources in the place of its lines that import what is ours."""
    lines = text.splitlines(keepends=True)
    ours = [number for number, line in enumerate(lines) if line.startswith(OURS)]
    body = "\n" + "\n\n".join(sources)
    return "".join([*lines[: ours[0]], body, *lines[ours[-1] + 1 :]])


def about(classes: tuple[str, ...], form: Form) -> dict[str, Any]:
    """Return what the script must know of a model: its classes, and how images are decoded for it."""
    return {"classes": list(classes), "channels": form.channels, "enough": enough_pixels(form)}
