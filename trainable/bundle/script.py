"""Makes the script of a bundle, `predict.py`, which needs nothing of ours."""

from __future__ import annotations

import inspect
from typing import Any

from trainable.bundle import predict
from trainable.data.decode import Form, enough_pixels, upright

IMPORT = "from trainable.data.decode import upright\n"


def predict_script() -> str:
    """Returns `predict.py` with the source of the one function of ours that it imports in that place."""
    return inspect.getsource(predict).replace(IMPORT, f"\n{inspect.getsource(upright)}")


def about(classes: tuple[str, ...], form: Form) -> dict[str, Any]:
    """Returns what the script must know of a model: its classes, and how images are decoded for it."""
    return {"classes": list(classes), "channels": form.channels, "enough": enough_pixels(form)}
