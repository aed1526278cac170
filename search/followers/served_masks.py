"""Answers images with masks. MLflow copies this file into a model and runs it where the model is loaded.

It needs MLflow, torch, numpy and pandas there, and nothing of tunebook: the source of what it imports of ours
is put in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from trainable.tasks.segmentation.exported.whole_images import class_logits


class ImageSegmenter(PythonModel):
    """A model that answers uint8 images [N, height, width, channels] with masks of their size."""

    def load_context(self, context: Any) -> None:
        self._network = torch.export.load(context.artifacts["network"]).module()
        self._about = context.model_config

    def predict(
        self,
        context: Any,
        model_input: np.ndarray,  # MLflow warns of other hints
        params: dict[str, Any] | None = None,
    ) -> np.ndarray:
        """Return masks, uint8 [N, height, width]: a class has its value in the training masks."""
        values = np.array(self._about["values"], np.uint8)
        images = np.array(model_input, dtype=np.uint8)
        return np.stack([values[class_logits(self._answer, each, self._about).argmax(0)] for each in images])

    def _answer(self, windows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found: np.ndarray = self._network(torch.from_numpy(windows)).numpy()
        return found


set_model(ImageSegmenter())
