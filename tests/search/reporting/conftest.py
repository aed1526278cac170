"""The reports that tests of the report's parts share."""

import pytest

from search.reporting.content import Report
from tests.search.reporting.small_reports import planted_report, whole_report


@pytest.fixture(scope="session")
def planted_24(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report of 24 trials with invented curves."""
    return planted_report(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="session")
def whole() -> Report:
    """Return a report with every part."""
    return whole_report()
