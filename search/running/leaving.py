"""Leaves Ray without ending this process."""

from __future__ import annotations

import gc


def leave_ray() -> None:
    """Shut Ray down in this process, in a moment in which nothing of Ray is collected as garbage.

    Ray ends the process, with all that it had to say, where a reference of Ray's is collected while Ray shuts
    down (ray-project/ray, src/ray/core_worker/core_worker_process.cc, `GetCoreWorker`). Another thread
    collects garbage at any time, and Ray Tune leaves references in cycles.
    """
    import ray

    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()
