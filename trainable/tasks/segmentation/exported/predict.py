"""Writes the mask of each image to a folder, as a PNG of the image's name: python predict.py DIR IMAGE...

It needs model.onnx beside it, and onnxruntime, Pillow and numpy. The exit code is 1 if an image cannot be
read, or if its mask is there already.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

from trainable.data.decode import upright
from trainable.errors import visible
from trainable.tasks.segmentation.exported.whole_images import class_logits
from trainable.tasks.segmentation.predicted import png_of, voc_colours


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print("usage: python predict.py DIR IMAGE...", file=sys.stderr)
        return 2
    folder, *files = arguments
    file = Path(__file__).with_name("model.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["tunebook"])

    def model(windows: Any) -> Any:
        return session.run(None, {"images": windows})[0]

    Path(folder).mkdir(parents=True, exist_ok=True)
    return max([predict(model, about, file, Path(folder)) for file in files])


def predict(model: Callable[[Any], Any], about: dict[str, Any], file: str, folder: Path) -> int:
    out = folder / f"{Path(file).stem}.png"
    if out.exists() or out.is_symlink():
        print(f"{visible(file)}: its mask {visible(str(out))} is there already", file=sys.stderr)
        return 1
    try:
        with Image.open(file) as image:
            pixels = stored_pixels(image, about)
    except Exception as error:  # Pillow's plug-ins raise nearly anything
        reason = getattr(error, "strerror", None) or str(error)
        print(f"{visible(file)}: cannot be read: {visible(reason)}", file=sys.stderr)
        return 1
    labels = class_logits(model, pixels, about).argmax(0)
    out.write_bytes(png_of(np.array(about["values"], np.uint8)[labels]))
    shares = np.bincount(labels.ravel(), minlength=len(about["classes"])) / labels.size
    classes = map(visible, about["classes"])
    named = [f"{name} {share:.1%}" for name, share in zip(classes, shares, strict=True) if share]
    print(f"{visible(file)}\t{visible(str(out))}\t{', '.join(named)}")
    return 0


def stored_pixels(image: Image.Image, about: dict[str, Any]) -> Any:
    """Return what the model sees of an image that is opened: uint8 [H, W, channels], at its own size."""
    pixels = np.asarray(upright(image, about["channels"]))
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # for letters that it has not
    sys.exit(main(sys.argv[1:]))
