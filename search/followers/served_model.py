"""Answers images with labels. MLflow copies this file into a model and runs it where the model is loaded.

It needs MLflow, torch, numpy and pandas there, and nothing of tunebook.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import torch
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel


class ImageClassifier(PythonModel):
    """A model that answers uint8 images [N, height, width, channels] with the label and the probability of
    each class."""

    def load_context(self, context: Any) -> None:
        self._network = torch.export.load(context.artifacts["network"]).module()
        self._classes = context.model_config["classes"]

    def predict(
        self,
        context: Any,
        model_input: np.ndarray,  # MLflow warns of other hints
        params: dict[str, Any] | None = None,
    ) -> pandas.DataFrame:
        """Return a row for each image: its label, the label's probability, and those of all classes."""
        images = torch.from_numpy(np.array(model_input, dtype=np.uint8))
        with torch.inference_mode():
            probabilities = self._network(images)
        highest, labels = probabilities.max(1)
        return pandas.DataFrame(
            {
                "label": [self._classes[label] for label in labels.tolist()],
                "probability": highest.tolist(),
                "probabilities": probabilities.tolist(),
            }
        )


set_model(ImageClassifier())
