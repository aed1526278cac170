"""Finds out what one machine of a cluster is like: it runs there, asked by the head, before any trial."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from search.record.lock import is_locked
from trainable.data.sample import DataSample, ReadThere
from trainable.errors import UserError, first_line
from trainable.files.host_memory import available_bytes
from trainable.files.paths import cache_root, free_bytes
from trainable.files.store import Store, StoreError, is_uri
from trainable.tune.carried import NOTHING, OURS, PROJECT, PickledCode

TOKEN = "token"  # the file that the head has written
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Question:
    """What a machine needs to know to answer."""

    storage: str  # the folder or the URI where searches are
    shared: str  # below it, with a token that the head has written; a folder is locked by the head
    token: str
    device: str  # "cpu" or "cuda"
    code: PickledCode = NOTHING


@dataclass(frozen=True)
class Look:
    """What a machine is like."""

    shared: str  # what is wrong with STORAGE as it sees it; nothing is
    device: str  # why it cannot train on the device
    compiler: str  # why networks cannot be compiled there
    code: str  # why a person's own functions cannot be used there
    packages: Mapping[str, str]  # by name, their versions
    files: str  # a digest of tunebook's own files
    written: str  # the file that it wrote back into STORAGE
    free: Mapping[str, int] = field(default_factory=dict)  # bytes: memory, shared memory, disks of folders


def look(question: Question, node: str) -> Look:
    """Answer a question on this machine; `node` is its name in the folder, where it writes the token back."""
    from search.facts.installed import versions
    from trainable.training.devices import problem_here

    unable = problem_here(question.device, may_compile=False)
    return Look(
        shared=_wrong_with_shared(question, node),
        device=unable or "",
        compiler=(unable is None and problem_here(question.device, may_compile=True)) or "",
        code=_wrong_with_code(question.code),
        packages=versions(),
        files=digest_of_ours(),
        written=node,
        free={
            "memory": available_bytes(),
            "/dev/shm": free_bytes(SHARED_MEMORY),
            "temporary files": free_bytes(_folder_of_ray()),
            "cache": free_bytes(cache_root()),
        },
    )


def _folder_of_ray() -> Path:
    """Return where Ray keeps its files on this machine, images that do not fit into memory among them."""
    import ray

    node = ray._private.worker._global_node
    if node is None:  # there is no Ray
        return Path(tempfile.gettempdir())
    return Path(node.get_temp_dir_path())


class Looker:
    """An actor on one machine, which answers questions and ends with them."""

    def look(self, question: Question, node: str) -> Look:
        return look(question, node)

    def clock(self) -> float:
        """Return the seconds since 1970 by this machine's clock."""
        return time.time()

    def read(self, sample: DataSample) -> ReadThere:
        return sample.read()


def digest_of_ours(root: Path = PROJECT) -> str:
    """Return a digest of the names and contents of tunebook's modules."""
    found = hashlib.blake2b(digest_size=8)
    for package in OURS:
        for file in sorted((root / package).rglob("*.py")):
            found.update(f"{file.relative_to(root)}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def _wrong_with_shared(question: Question, node: str) -> str:
    """Read the token, write it back under the machine's name, and ask whether the head's lock is seen."""
    try:
        if is_uri(question.shared):
            store = Store(question.shared)
            seen = store.read(TOKEN)
            store.write(node, question.token.encode())
        else:
            folder = Path(question.shared)
            if not folder.is_dir():
                return "another folder lies there" if Path(question.storage).is_dir() else "it is not there"
            seen = (folder / TOKEN).read_bytes()
            (folder / node).write_bytes(question.token.encode())
            if not is_locked(folder):
                return "locks of the head are not seen there: mount it with locks (NFS 4, Lustre -o flock)"
    except (OSError, StoreError, UserError) as error:
        return first_line(error)
    return "" if seen == question.token.encode() else "it has another token there"


def _wrong_with_code(code: PickledCode) -> str:
    try:
        for each in (code.model, *code.metrics.values()):
            if each is not None:
                each.load()
    except UserError as error:
        return str(error)
    return ""
