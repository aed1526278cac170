"""Tests what Ray is told of a driver, when its start fails, and how it is left; no Ray is started."""

from __future__ import annotations

import gc
import weakref

import pytest
import ray

from search.running.private_ray import RayNotStarted, driver_settings, failing_with_its_processes, leave_ray
from trainable.imports import SAFE_PATH


@pytest.mark.parametrize(("told", "without_the_folder"), [("1", True), ("", False)])
def test_processes_that_train_import_from_the_driver_s_folder_for_a_script_of_one_s_own_alone(
    told: str, without_the_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SAFE_PATH, told)
    assert driver_settings()._client_job is without_the_folder


@pytest.mark.parametrize("kind", ["raylet", "gcs_server"])
def test_a_start_fails_as_soon_as_a_process_that_it_needs_has_ended(kind: str) -> None:
    """Without that, Ray would ask the head that is named here for the node."""
    from ray._private import services
    from ray.experimental import internal_kv

    with failing_with_its_processes():
        services.start_ray_process(["true"], kind, fate_share=False).process.wait()
        services.start_ray_process(["true"], "log_monitor", fate_share=False).process.wait()
        for ask in (services.get_node, internal_kv._internal_kv_get):
            with pytest.raises(RayNotStarted, match=f"^its process {kind} has ended$"):
                ask("127.0.0.1:1", "a node")


class Reference:
    """In a cycle, as references in frames of errors are: only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self


def test_no_reference_is_collected_while_ray_shuts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[str] = []
    seen_in_shutdown: list[list[str]] = []

    def drop(name: str) -> None:
        weakref.finalize(Reference(), collected.append, name)

    def shutdown() -> None:
        drop("late")
        _ = [[each] for each in range(10 * gc.get_threshold()[0])]  # another thread's work
        seen_in_shutdown.append([*collected])

    monkeypatch.setattr(ray, "shutdown", shutdown)
    drop("early")
    leave_ray()
    assert seen_in_shutdown == [["early"]]
    assert gc.isenabled()
    gc.collect()
    assert collected == ["early", "late"]


def test_who_has_disabled_the_collector_finds_it_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    gc.disable()
    try:
        leave_ray()
        assert not gc.isenabled()
    finally:
        gc.enable()
