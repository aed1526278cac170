"""Tests how the place of a rank is named, and what NVIDIA calls its GPUs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pynvml
import pytest

from trainable.tune import place
from trainable.tune.place import Gpu, Place, in_full, in_words, this_process


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    place._name_of_gpu.cache_clear()
    yield
    place._name_of_gpu.cache_clear()


def test_a_machine_with_a_driver_names_gpus_by_number_and_slices_by_their_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {0: "NVIDIA H200", "MIG-5": "NVIDIA H200 MIG 1g.18gb"}
    for ask in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, ask, lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda number: number)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda name: name)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", names.__getitem__)
    found = this_process("node", "10.0.0.4", ["0", "MIG-5"])
    assert [each.name for each in found.gpus] == ["NVIDIA H200", "NVIDIA H200 MIG 1g.18gb"]
    assert (found.machine, found.process) == (socket.gethostname(), os.getpid())
    assert found.kind == "NVIDIA H200 + NVIDIA H200 MIG 1g.18gb"


def test_without_a_driver_a_gpu_has_its_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    found = this_process("node", "10.0.0.4", ["7"])
    assert found.gpus == (Gpu(number="7"),)
    assert found.kind == "a GPU"


def test_a_place_in_words_has_the_machine_once_and_its_gpus() -> None:
    on_gpu = Place(machine="h1", address="10.0.0.4", node="n", process=1, gpus=(Gpu(number="3"),))
    no_name = Place(machine="10.0.0.5", address="10.0.0.5", node="m", process=2)
    assert str(on_gpu) == "h1 (10.0.0.4), GPU 3"
    assert (str(no_name), no_name.kind) == ("10.0.0.5", "no GPU")
    assert in_words([on_gpu, no_name, no_name]) == "h1 (10.0.0.4), GPU 3 and 10.0.0.5"
    assert in_words([]) == ""


def test_a_place_in_full_names_its_gpus_and_each_process() -> None:
    gpus = (Gpu(number="0", name="NVIDIA H200"), Gpu(number="MIG-1"))
    first = Place(machine="h1", address="10.0.0.4", node="n", process=11, gpus=gpus)
    second = Place(machine="h1", address="10.0.0.4", node="n", process=12)
    assert in_full([first, second]) == (
        "h1 (10.0.0.4), GPU 0 (NVIDIA H200), GPU MIG-1, process 11; h1 (10.0.0.4), process 12"
    )
