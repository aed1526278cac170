"""What the tests of the search share."""

from pathlib import Path

import pytest

from search.__main__ import main
from spaces.space import Space
from tests.search.command_line import Refusal, Tunebook
from tests.search.small_spaces import conditional_space
from trainable.imports import SAFE_PATH


@pytest.fixture
def small_space() -> Space:
    return conditional_space()


@pytest.fixture
def refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one attempt to take a lock that another process holds, instead of 50 within a second."""
    monkeypatch.setattr("search.record.lock.ATTEMPTS", 1)


@pytest.fixture
def tunebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tunebook:
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SAFE_PATH, "1")  # the command sets it, for a process of its own
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 1e6)  # a busy machine prints no line more
    for name in ("MOST_WORK", "WORK_SHARE"):  # try one recipe, for a moment
        monkeypatch.setattr(f"search.facts.run_costs.{name}", 0)
    monkeypatch.setattr("search.facts.run_costs._busy_beside", lambda trial, at_once: 0)
    for name in ("search.facts.run_costs.SPIN_SECONDS", "trainable.probes.run_cost.LEAST_SECONDS"):
        monkeypatch.setattr(name, 0.001)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tunebook", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


@pytest.fixture
def refusal(tunebook: Tunebook) -> Refusal:
    """Call the command line with what it refuses as wrong usage, in one message and no traceback."""

    def run(*arguments: str | Path) -> str:
        code, _, err = tunebook(*arguments)
        assert (code, "Traceback" in err) == (2, False), err
        return err

    return run
