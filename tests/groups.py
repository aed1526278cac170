"""Which tests one process of pytest-xdist runs one after another, since they share what takes long to start.

(The `loadgroup` of pytest-xdist 3.8 finds no group under pytest 9.2.)
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Their tests share one S3 server, and one cluster
SERVICES = (
    "tests/integration/test_bad_services.py",
    "tests/integration/test_cluster.py",
    "tests/integration/test_jobs.py",
    "tests/integration/test_machines.py",
    "tests/integration/test_object_store.py",
    "tests/integration/test_own_code_on_nodes.py",
    "tests/trainable/tasks/segmentation/data/test_masked_manifest.py",
    "tests/trainable/data/test_remote_data.py",
    "tests/trainable/files/test_store.py",
)
# There can be one network of hosts
HOSTS = (
    "tests/clusters/test_ray_up.py",
    "tests/clusters/test_slurm.py",
    "tests/clusters/test_unfit_machines.py",
)


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """A scheduler that hands out the groups in the order of their first tests (`--no-loadscope-reorder`)."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The group of a test: `services`, `hosts`, or its file, whose tests share what was trained or searched
    once."""
    file = nodeid.partition("::")[0]
    if file in HOSTS:
        return "hosts"
    return "services" if file in SERVICES else file
