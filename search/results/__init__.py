"""Opens, shows and exports a search that exists."""

from search.learning.search import Search

__all__ = ["Search"]
