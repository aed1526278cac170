"""Tests the processes that read image files: where they come from, how long they live, what they leave."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.trainable.small_images import write_noise_jpeg
from tests.waiting import wait_until
from trainable.bench import ON_CPU
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.data.loading import readers_of
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.training import Loop
from trainable.tasks.kits import make_loader
from trainable.training.devices import threads

CPU = torch.device("cpu")


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    for number in range(16):
        path = tmp_path / ("train", "val")[number >= 12] / ("a", "b")[number % 2] / f"{number}.jpg"
        write_noise_jpeg(path, seed=number, size=20)
    return load(Data(path=str(tmp_path), image_size=12, in_memory=False))


def train(data: DataSet, workers: int = 2, seed: int = 0) -> torch.Tensor:
    """Do what a trial does with its images: it makes a loader, reads an epoch and closes it."""
    loader = make_loader(data, Recipe(loop=Loop(workers=workers, seed=seed)), ON_CPU)
    try:
        return torch.cat([images for images, _ in loader.train(torch.arange(12).split(3), 0)])
    finally:
        loader.close()


def descendants(process: int) -> dict[int, str]:
    """Return the command line of every process below one, by its number."""
    found: dict[int, str] = {}
    for task in Path(f"/proc/{process}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or process that has just ended
            for child in map(int, (task / "children").read_text().split()):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found |= descendants(child)
    return found


def test_trials_share_processes_that_are_no_forks_of_theirs(data: DataSet) -> None:
    before = descendants(os.getpid())

    train(data)
    first = descendants(os.getpid()).keys() - before.keys()
    train(data, seed=1)
    second = descendants(os.getpid()).keys() - before.keys()

    assert first == second
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    readers = [number for number in second if str(number) not in children]
    assert len(readers) == 2, "they are children of the server of forks, not of this process"
    data.idle_readers.end()
    wait_until(lambda: not set(readers) & descendants(os.getpid()).keys())


def test_readers_of_other_numbers_or_images_are_not_shared(data: DataSet) -> None:
    before = descendants(os.getpid()).keys()
    expected = train(data, workers=0)

    assert torch.equal(train(data, workers=2), expected)
    assert torch.equal(train(data, workers=1), expected)

    wait_until(lambda: len(descendants(os.getpid()).keys() - before) <= 3)  # one reader, perhaps two servers
    data.idle_readers.end()


@pytest.mark.integration
def test_readers_of_which_one_was_killed_are_not_used_again(data: DataSet) -> None:
    before = descendants(os.getpid()).keys()
    expected = train(data, workers=1)
    servers = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (reader,) = [each for each in descendants(os.getpid()).keys() - before if str(each) not in servers]

    os.kill(reader, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed"):
        train(data, workers=1)

    assert torch.equal(train(data, workers=1), expected)
    data.idle_readers.end()


@pytest.mark.integration
def test_nothing_remains_of_a_killed_process(tmp_path: Path, data: DataSet) -> None:
    """The script has no `if __name__ == "__main__"`: readers must not run it again."""
    (tmp_path / "data.pickle").write_bytes(pickle.dumps(data))
    script = tmp_path / "script.py"
    script.write_text(
        "import pickle, sys, torch\n"
        "from pathlib import Path\n"
        "from trainable.tasks.kits import make_loader\n"
        "from trainable.bench import ON_CPU\n"
        "from trainable.recipe import Recipe\n"
        "from trainable.recipe.training import Loop\n"
        f"data = pickle.loads(Path({str(tmp_path / 'data.pickle')!r}).read_bytes())\n"
        "loader = make_loader(data, Recipe(loop=Loop(workers=2)), ON_CPU)\n"
        "print(len(list(loader.train(torch.arange(12).split(3), 0))), flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"4\n"
    left = descendants(process.pid)
    assert len(left) == 4, "two readers, the server of forks, and the tracker of its resources"

    process.send_signal(signal.SIGKILL)
    process.communicate()

    wait_until(lambda: not any(Path(f"/proc/{number}").exists() for number in left))


def test_a_pickle_takes_no_processes_along(data: DataSet) -> None:
    loader = make_loader(data, Recipe(loop=Loop(workers=1)), ON_CPU)
    loader.close()

    assert pickle.loads(pickle.dumps(data)).idle_readers._idle == []


@pytest.mark.parametrize(("asked", "count", "expected"), [(None, 1, 1), (None, 4, 3), (0, 4, 0), (7, 1, 7)])
def test_one_thread_is_left_to_the_steps_by_default(asked: int | None, count: int, expected: int) -> None:
    with threads(count):
        assert readers_of(Loop(workers=asked)) == expected
