"""What a search has found: exported, verified, made simpler, finalized."""

from search.learning.search import Search

__all__ = ["Search"]
