"""What the tests of the search's pure parts share."""

import pytest

from spaces.space import Space
from tests.search.small_spaces import conditional_space


@pytest.fixture
def small_space() -> Space:
    """Built anew for each test."""
    return conditional_space()
