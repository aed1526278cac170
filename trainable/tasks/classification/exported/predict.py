"""Prints the likeliest class of each image and its probability: python predict.py IMAGE...

It needs model.onnx beside it, and onnxruntime, Pillow and numpy. The exit code is 1 if an image cannot be
read.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

from trainable.data.decode import upright
from trainable.errors import visible


def main(files: list[str]) -> int:
    if not files:
        print("usage: python predict.py IMAGE...", file=sys.stderr)
        return 2
    model = Path(__file__).with_name("model.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["tunebook"])
    return max([predict(session, about, file) for file in files])


def predict(session: Any, about: dict[str, Any], file: str) -> int:
    try:
        with Image.open(file) as image:
            pixels = stored_pixels(image, about)
    except Exception as error:  # Pillow's plug-ins raise nearly anything
        reason = getattr(error, "strerror", None) or str(error)
        print(f"{visible(file)}: cannot be read: {visible(reason)}", file=sys.stderr)
        return 1
    (probabilities,) = session.run(None, {"images": pixels[None]})[0]
    likeliest = int(probabilities.argmax())
    print(f"{visible(file)}\t{visible(about['classes'][likeliest])}\t{probabilities[likeliest]:.4f}")
    return 0


def stored_pixels(image: Image.Image, about: dict[str, Any]) -> Any:
    """Return what the model takes of an image that is opened and not decoded: uint8 [H, W, channels].

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where `enough` pixels remain on both sides, as it was in
    training.
    """
    image.draft("L" if about["channels"] == 1 else "RGB", (about["enough"], about["enough"]))
    pixels = np.asarray(upright(image, about["channels"]))
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # for letters that it has not
    sys.exit(main(sys.argv[1:]))
