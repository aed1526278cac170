"""Imports torchcodec's decoder of JPEG files, once in a process; without it Pillow decodes the same pixels.

torchcodec requires no version of torch, so pip may put one beside a torch that it was not built for. What
its import raises then is anything, and it must not end the server of forks, which imports this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Decoder = Callable[..., Any]

decode: Decoder | None = None
try:
    from torchcodec.decoders import decode_jpeg  # type: ignore[attr-defined]  # it is not in __all__

    decode = decode_jpeg
except Exception as error:
    first = str(error).strip().partition("\n")[0]
    logging.getLogger(__name__).warning(
        "JPEG files are decoded by Pillow, more slowly, since torchcodec cannot be imported: %s: %s",
        type(error).__name__,
        first,
    )
