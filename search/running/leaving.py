"""Leaves Ray without ending this process."""

from __future__ import annotations

import gc

from trainable.collector import paused


def leave_ray() -> None:
    """Shut Ray down in this process, while Python collects no garbage in cycles.

    Ray ends the process, with all that it had to say, where a reference of Ray's is collected while Ray shuts
    down (ray-project/ray, src/ray/core_worker/core_worker_process.cc, `GetCoreWorker`). Ray Tune leaves
    references in cycles, and another thread may collect them at any time.
    """
    import ray

    gc.collect()
    with paused():
        ray.shutdown()  # noqa: TID251 - this is the place
