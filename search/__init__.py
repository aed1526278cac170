"""Searches training recipes; from Python `tunebook.search`, `tunebook.extend` and others do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search.from_python import SearchFailed as SearchFailed
    from search.from_python import extend as extend
    from search.from_python import forecast as forecast
    from search.from_python import search as search

__all__ = ["SearchFailed", "extend", "forecast", "search"]


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: the command line imports this package, too, and is fast."""
    if name in __all__:
        from search import from_python

        return getattr(from_python, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
