"""Tests the search for a micro-batch: memory that runs out at a known size, and bytes counted by hand."""

from __future__ import annotations

import copy
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, SIZE, data_set, numbers, small_recipe
from trainable.bench import Bench
from trainable.errors import UserError
from trainable.files.host_memory import available_bytes
from trainable.probes.batch_find import BatchFound, Tried, batch_find, search, sizes
from trainable.probes.memory_estimate import KERNELS, LiveBytes, draw_line, tensor_bytes
from trainable.run import make_run
from trainable.training.run import Run

IMAGES = 240
PLENTY = 2**34


def small_run(model: nn.Module | None = None, device: str = "cpu", **values: Any) -> Run:
    recipe = small_recipe({path.replace("__", "."): value for path, value in values.items()})
    return make_run(recipe, data=data_set(IMAGES), model=model, bench=Bench(device_name=device))


class Greedy(nn.Module):
    """A network that runs out of memory with more than `most` images, with CUDA's own error."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.head = nn.Linear(SIZE * SIZE, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        answer: Tensor = self.head(images.flatten(1))
        return answer


# --- sizes ----------------------------------------------------------------------------------------------


def test_sizes_are_the_powers_of_two_and_the_eighths_between() -> None:
    assert sizes(20) == [*range(1, 17), 18, 20]
    assert sizes(300)[-3:] == [240, 256, 288]
    assert {2**power for power in range(13)} <= set(sizes(4096))
    assert sizes(1) == [1]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 16, 17, 37, 100, 239, 240, 1000])
def test_the_largest_size_that_fits_is_found_in_few_attempts(most: int) -> None:
    grid = sizes(IMAGES)

    def attempt(size: int) -> Tried:
        return Tried(size, size <= most, None, None)

    tried = search(grid, attempt)
    assert max(each.images for each in tried if each.fits) == max(size for size in grid if size <= most)
    assert [each.images for each in tried] == sorted({each.images for each in tried})
    assert len(tried) <= 13


def test_where_nothing_fits_nothing_is_found() -> None:
    tried = search(sizes(64), lambda size: Tried(size, False, None, None))
    assert [each.images for each in tried] == [1, 2]


# --- memory that runs out -------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 16, 37, 100, 240])
def test_the_largest_micro_batch_is_the_last_before_memory_runs_out(most: int) -> None:
    found = batch_find(small_run(Greedy(most)), limit_bytes=PLENTY)
    assert found.largest == max(size for size in sizes(IMAGES) if size <= most)
    assert found.bound == ("memory" if most < IMAGES else "images")
    assert found.micro_batch == (found.largest if most < 16 else None)
    assert all(each.fits == (each.images <= most) for each in found.tried)


def test_where_not_even_one_image_fits_there_is_no_micro_batch() -> None:
    found = batch_find(small_run(Greedy(0)))
    assert not found.found
    assert found.largest == 0
    assert found.micro_batch is found.flat is None


def test_any_other_error_is_no_lack_of_memory() -> None:
    class Faulty(Greedy):
        def forward(self, images: Tensor) -> Tensor:
            raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        batch_find(small_run(Faulty(1)))


@pytest.mark.slow("trains for a probe")
def test_no_more_images_are_tried_than_asked_for() -> None:
    found = batch_find(small_run(), largest=24)
    assert found.largest == max(each.images for each in found.tried) == 24
    assert found.bound == "largest"


# --- memory that is reckoned ----------------------------------------------------------------------------


@pytest.mark.slow("trains for a probe")
def test_on_a_cpu_the_limit_is_respected_and_used() -> None:
    free = batch_find(small_run(), limit_bytes=PLENTY)
    reckoned = {each.images: each.peak_bytes for each in free.tried}
    limit = (reckoned[64] or 0) + 1
    found = batch_find(small_run(), limit_bytes=limit)
    assert found.largest == 64
    assert found.bound == "limit"
    assert all((each.peak_bytes or PLENTY) <= limit for each in found.tried)
    assert max(each.images for each in found.tried) == 64


def test_a_limit_below_one_image_is_the_bound() -> None:
    found = batch_find(small_run(), limit_bytes=1)
    assert not found.found
    assert found.bound == "limit"


@pytest.mark.slow("trains for a probe")
def test_what_is_reckoned_grows_by_the_same_bytes_with_every_image() -> None:
    tried = [each for each in batch_find(small_run(), limit_bytes=PLENTY).tried if each.images >= 16]
    slopes = {
        ((more.peak_bytes or 0) - (less.peak_bytes or 0)) / (more.images - less.images)
        for less, more in pairwise(tried)
    }
    assert max(slopes) == pytest.approx(min(slopes), rel=0.01)


def test_a_line_through_small_steps_meets_a_large_one() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9)

    def take(size: int) -> None:
        optimizer.zero_grad()
        net(torch.ones(size, 1, 8, 8)).sum().backward()
        optimizer.step()

    take(2)
    line = draw_line(take, held=0, limit=PLENTY)
    with LiveBytes() as live:
        take(1000)
    assert line.bytes(1000) == pytest.approx(KERNELS * live.peak, rel=0.02)
    activations = 4 * (64 + 3 * 512)  # the image and what three layers put out; flattening is a view
    assert activations < line.image_bytes < 2 * activations


def test_no_step_over_the_limit_is_taken_to_draw_the_line() -> None:
    taken = []

    def take(size: int) -> None:
        taken.append(size)
        torch.ones(size, 1000, requires_grad=True).exp().sum().backward()

    draw_line(take, held=0, limit=100_000)
    assert max(taken) * 4000 < 100_000


def test_live_bytes_are_those_of_storages_that_live_at_once() -> None:
    from_before = torch.ones(1000)
    with LiveBytes() as live:
        one = torch.ones(1000)
        view = one[10:]
        del one
        other = torch.ones(500)
        del view, other
        last = torch.ones(1000)
        from_before.add_(last)
        from_before.view(10, 100)
    assert live.peak == 6000


def test_a_storage_is_held_once_however_often_it_is_named() -> None:
    one = torch.ones(100)
    assert tensor_bytes({"a": one, "b": [one[:5], torch.ones(10)], "c": 3}) == 440


def test_free_memory_is_the_least_of_the_machines_and_its_groups(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    write("proc/self/cgroup", "0::/job/step\n")
    write("sys/fs/cgroup/job/step/memory.max", "max\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    write("sys/fs/cgroup/job/memory.max", "5000\n")
    write("sys/fs/cgroup/job/memory.current", "4000\n")
    assert available_bytes(tmp_path) == 1000
    write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 500\n")
    assert available_bytes(tmp_path) == 1500


def test_free_memory_is_that_of_a_group_of_the_first_version(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup/memory/docker"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("3000\n")
    (folder / "memory.usage_in_bytes").write_text("1000\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu:/docker\n4:memory:/docker\n")
    assert available_bytes(tmp_path) == 2000


def test_this_machine_has_some_memory_free() -> None:
    assert 2**20 < available_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# --- what is reported -----------------------------------------------------------------------------------


def found_with(*speeds: tuple[int, float], largest: int = 64, batch_size: int = 128) -> BatchFound:
    tried = tuple(Tried(size, True, 1000 * size, speed) for size, speed in speeds)
    return BatchFound((*tried, Tried(128, False, None, None)), largest, "memory", batch_size, None)


def test_the_smallest_size_within_a_twentieth_of_the_best_is_as_fast() -> None:
    assert found_with((8, 90.0), (16, 96.0), (32, 100.0), (64, 94.0)).flat == 16


def test_the_micro_batch_is_the_largest_that_fits_unless_all_does() -> None:
    assert found_with((64, 1.0)).micro_batch == 64
    assert found_with((64, 1.0), batch_size=64).micro_batch is None


def test_one_more_images_bytes_are_those_between_the_largest_sizes() -> None:
    assert found_with((32, 1.0), (64, 1.0)).image_bytes == 1000


def test_what_is_found_is_plain_finite_data() -> None:
    found = batch_find(small_run(), largest=8)
    tree = json.loads(json.dumps(found.tree(), allow_nan=False))
    assert tree["largest"] == 8
    assert tree["flat"] in (2, 4, 8)
    assert [each["images"] for each in tree["tried"]] == [2, 4, 8]


# --- the run --------------------------------------------------------------------------------------------


@pytest.mark.slow("trains for a probe")
def test_a_run_is_afterwards_what_it_was() -> None:
    values: dict[str, Any] = {
        "regularisation__averaging__kind": "ema",
        "model__dropout": 0.3,
        "loop__micro_batch": 8,
    }
    run, twin = small_run(**values), small_run(**values)
    run.step()
    twin.step()
    before = copy.deepcopy(run.state_dict()["model"])
    drawn = torch.get_rng_state()
    batch_find(run, largest=64)
    assert torch.equal(drawn, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in run.state_dict()["model"].items())
    assert run.micro_batch == 8
    assert numbers((run.step(),)) == numbers((twin.step(),))


def test_steps_of_the_search_leave_the_weights_alone() -> None:
    run = small_run(optimizer__lr=1e6)
    found = batch_find(run, largest=32)
    assert found.largest == 32


@pytest.mark.parametrize("asked", [{"limit_bytes": 0}, {"largest": 0}])
def test_what_cannot_be_searched_is_refused(asked: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(asked))):
        batch_find(small_run(), **asked)


@pytest.mark.gpu
def test_on_cuda_a_limit_is_respected_and_memory_is_released() -> None:
    run = small_run(device="cuda", model__width=64)
    free = batch_find(run)
    assert free.largest == max(sizes(IMAGES))
    peaks = [each.peak_bytes or 0 for each in free.tried]
    limit = (peaks[0] + peaks[-1]) // 2
    held = torch.cuda.memory_allocated()
    found = batch_find(run, limit_bytes=limit)
    assert 0 < found.largest < free.largest
    assert found.bound == "limit"
    assert torch.cuda.memory_allocated() <= held + 2**20


@pytest.mark.gpu
def test_on_cuda_memory_that_really_runs_out_is_caught() -> None:
    torch.cuda.set_per_process_memory_fraction(2**29 / torch.cuda.get_device_properties(0).total_memory)
    try:
        run = small_run(device="cuda", model__width=256)
        found = batch_find(run)
        assert 0 < found.largest < IMAGES
        assert found.bound == "memory"
        run.step()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
