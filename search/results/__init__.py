"""What a search has found: exported, verified, made simpler, finalized."""

from search.results.search import Search

__all__ = ["Search"]
