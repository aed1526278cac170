"""What a test does on a machine that lacks a program which is no package of Python's."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def stop_without(program: str, package: str) -> NoReturn:
    """Skip the test that runs; fails it where TUNEBOOK_ALL_SERVERS is set, as in `.ci/run`."""
    message = f"{program} is not installed (Debian: apt-get install {package})"
    if os.environ.get("TUNEBOOK_ALL_SERVERS"):
        pytest.fail(message)
    pytest.skip(message)
