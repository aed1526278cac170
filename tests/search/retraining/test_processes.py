"""Tests work on recipes in processes of their own: some are killed, some fail, some are not waited for."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from search.retraining.processes import in_processes
from tests.integration.processes import has_ended
from tests.waiting import wait_until
from trainable.bench import Bench
from trainable.processes import ended_by_signals
from trainable.recipe import Recipe
from trainable.stages import Stage, counting, shown_by

LONG = 600.0  # so many seconds are never waited for in a test


def recipes(count: int) -> list[Recipe]:
    return [Recipe().with_values({"loop.seed": seed}) for seed in range(count)]


def seed_of(recipe: Recipe, test: bool, bench: Bench) -> int:
    return recipe.loop.seed


def killed_with_seed_0(recipe: Recipe, test: bool, bench: Bench) -> int:
    if recipe.loop.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return recipe.loop.seed


def faulty_with_seed_0(recipe: Recipe, test: bool, bench: Bench) -> int:
    if recipe.loop.seed == 0:
        raise ValueError("no such thing")
    Path(os.environ["BEGUN"]).write_text(str(os.getpid()))
    time.sleep(LONG)
    return recipe.loop.seed


def is_deaf_to_interrupts(recipe: Recipe, test: bool, bench: Bench) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def interrupts_its_parent(recipe: Recipe, test: bool, bench: Bench) -> None:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(LONG)


def counts_until_that_is_shown(recipe: Recipe, test: bool, bench: Bench) -> None:
    with counting("epoch", 20) as epochs, counting("step", 100):
        epochs.done = 2
        wait_until(Path(os.environ["SHOWN"]).exists, every=0.05)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a process writes its id when it begins to work."""
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    return tmp_path / "begun"


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Fail a test that waits for a long run."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONG / 4


@pytest.mark.slow("starts processes")
def test_a_process_that_is_killed_is_that_runs_fault_and_the_others_are_done() -> None:
    found = [(each.result, each.fault) for each in in_processes(killed_with_seed_0, recipes(3))]
    assert found == [(None, "its process was killed; out of memory?"), (1, None), (2, None)]


@pytest.mark.slow("starts processes")
def test_more_recipes_than_processors_are_all_done_in_their_order() -> None:
    count = len(os.sched_getaffinity(0)) + 2
    assert [each.result for each in in_processes(seed_of, recipes(count))] == list(range(count))


@pytest.mark.slow("starts processes")
def test_how_far_the_next_one_is_can_be_seen_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOWN", str(tmp_path / "shown"))
    seen: list[Stage] = []

    class Looks:
        def began(self, stage: Stage) -> None:
            seen.append(stage)

        def ended(self, stage: Stage) -> None: ...

    def note() -> None:
        wait_until(lambda: "2 of 20 epochs" in [each.progress for each in seen], every=0.05)
        (tmp_path / "shown").touch()

    noting = threading.Thread(target=note, daemon=True)
    noting.start()
    with shown_by(Looks()):
        (done,) = in_processes(counts_until_that_is_shown, recipes(1))
    noting.join()
    assert done.fault is None, "the process saw that it was shown"


@pytest.mark.slow("starts processes")
def test_who_stops_after_a_fault_waits_for_no_other_run(begun: Path) -> None:
    with closing(in_processes(faulty_with_seed_0, recipes(10))) as runs:
        assert next(runs).fault == "ValueError: no such thing"
    if begun.exists() and begun.read_text():
        with pytest.raises(ProcessLookupError):
            os.kill(int(begun.read_text()), 0)


def test_a_process_leaves_an_interrupt_to_the_one_that_started_it() -> None:
    assert [each.result for each in in_processes(is_deaf_to_interrupts, recipes(1))] == [True]


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """Set Python's handler of Ctrl-C, which a process that was started in the background lacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def works_long(recipe: Recipe, test: bool, bench: Bench) -> None:
    begun = Path(os.environ["BEGUN"])
    begun.with_suffix(".coming").write_text(str(os.getpid()))
    begun.with_suffix(".coming").rename(begun)
    time.sleep(LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_a_process_is_started_ends_that_too(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def signalled(process: BaseProcess) -> None:
        start(process)
        assert process.pid is not None
        started.append(process.pid)
        signal.raise_signal(number)

    start = BaseProcess.start
    monkeypatch.setattr(BaseProcess, "start", signalled)
    with pytest.raises(SystemExit), ended_by_signals(), closing(in_processes(seed_of, recipes(1))) as runs:
        next(runs)
    assert has_ended(*started)


TRAINS = """
from search.retraining.processes import in_processes
from tests.search.retraining.test_processes import recipes, works_long
from trainable.processes import ended_by_signals

if __name__ == "__main__":
    with ended_by_signals():
        next(in_processes(works_long, recipes(1)))
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_runs_end_with_the_process_that_trains_them_and_leave_nothing(
    number: int, code: int, begun: Path, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "trains.py").write_text(TRAINS)
    variables = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.getcwd()}
    trains = subprocess.Popen([sys.executable, tmp_path / "trains.py"], env=variables)
    wait_until(begun.exists)
    trains.send_signal(number)
    assert trains.wait() == code
    wait_until(lambda: has_ended(int(begun.read_text())))
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow("starts processes")
@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_ends_the_runs_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), closing(in_processes(interrupts_its_parent, recipes(10))) as runs:
        next(runs)
