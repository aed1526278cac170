"""Measures the peak memory of a computation's tensors, for the CPU, whose allocator does not count it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that are made inside its `with` and are alive at once;
    `peak` is the most there were.

    Backward passes and recomputed activations are counted as well. What a kernel uses itself, a convolution's
    re-ordered copies for one, is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def restart(self) -> int:
        """Return the peak since the last call, and start to count the peak again."""
        peak, self.peak = self.peak, self._live
        return peak

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = {_storage_address(each) for each in _tensors((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for each in _tensors(result):
            storage = each.untyped_storage()
            if id(storage) not in self._known and storage.data_ptr() not in inputs:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def drop(_: Any) -> None:
            self._live -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, drop)
        self._live += size
        self.peak = max(self.peak, self._live)


def held_bytes(tree: Any) -> int:
    """Return the bytes of the tensors in nested containers, each storage once."""
    sizes = {_storage_address(each): each.untyped_storage().nbytes() for each in _tensors(tree)}
    return sum(sizes.values())


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
