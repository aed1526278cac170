"""Makes studies of digits."""

from typing import Any

from search.study import Study


def study_of(**values: Any) -> Study:
    """Return a study of digits, with values by dotted path (`__` for the dot)."""
    written = {path.replace("__", "."): value for path, value in values.items()}
    return Study.from_tree({"data": {"path": "digits"}}).with_values(written)
