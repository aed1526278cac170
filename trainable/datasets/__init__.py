"""Data sets by format: each module reads one form into a Collection. None imports torch at its head."""
