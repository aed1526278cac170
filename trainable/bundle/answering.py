"""Opens the files of a bundle as the functions that they are: images in, probabilities or logits out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainable.bundle.programs import INPUT

Answer = Callable[[NDArray[Any]], NDArray[np.float32]]
"""Takes images uint8 [N, H, W, C], and returns probabilities [N, classes]. For masks it takes windows float32
[N, side, side, C], and returns logits [N, classes, side, side]."""


def answer_of_onnx(file: Path) -> Answer:
    """Return the function in an ONNX file, on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {INPUT: images})[0]


def answer_of_pt2(file: Path) -> Answer:
    """Return the function in a `.pt2` file, on the CPU."""
    module: Any = torch.export.load(file).module()

    def answer(images: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            found: NDArray[np.float32] = module(torch.from_numpy(images)).numpy()
        return found

    return answer
