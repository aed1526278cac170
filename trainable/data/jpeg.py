"""Decodes JPEG files with torchcodec, which is faster than Pillow and gives the same pixels: both use
libjpeg-turbo in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import ExifTags, Image

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor


def jpeg_pixels(image: Image.Image, channels: int) -> Tensor | None:
    """Return the pixels, uint8 [channels, H, W], of a JPEG file that Pillow has opened but not decoded.

    Return None for what Pillow must read: other formats, CMYK, images that EXIF turns, and files that
    torchcodec refuses, of which Pillow then says what is wrong.
    """
    stream = getattr(image, "fp", None)
    if image.format != "JPEG" or stream is None or image.mode not in ("L", "RGB"):
        return None
    from trainable.data.jpeg_decoder import decode  # with torch, which takes seconds to import

    if decode is None or image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        return None
    stream.seek(0)
    try:
        pixels: Tensor = decode(stream.read(), mode="GRAY" if channels == 1 else "RGB")
    except (RuntimeError, ValueError):
        return None
    return pixels
