"""Says how large the windows are that images with masks are trained on in, where a recipe leaves it open."""

from __future__ import annotations

LARGEST_WINDOW = {False: 128, True: 512}
"""The side in pixels without and with a GPU: what the device trains in reasonable time. 513 is that of arXiv
1706.05587, section 4.1."""
STRIDE, SMALL_STRIDE = 32, 8
"""The side is a multiple of the first, the stride of common networks; of the second where images are under 64
pixels."""
SMALL = 64


def window_side(longer: int, *, gpu: bool) -> int:
    """Return the side of the windows of images whose longer side is mostly this one: as much, rounded up, at
    most what suits the device.

    Larger windows gain up to the size of the images (000:49).
    """
    stride = STRIDE if longer >= SMALL else SMALL_STRIDE
    return min(-(-longer // stride) * stride, LARGEST_WINDOW[gpu])
