"""A search that exists: opened, shown, exported."""

from search.results.search import Search

__all__ = ["Search"]
