"""Opens, shows and exports a search that exists."""

from search.results.search import Search

__all__ = ["Search"]
