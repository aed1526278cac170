"""Keeps the processes that read a data set's files from one run to the next: starting them takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from trainable.data.readers import FileImages, Readers, Reading


@final
class IdleReaders:
    """The readers that no run uses. A pickle of it is empty: processes stay where they are."""

    def __init__(self) -> None:
        self._idle: list[Readers] = []

    def take(self, images: FileImages, how: Reading) -> Readers:
        """Return idle readers of these images, or new ones; idle ones that read otherwise end."""
        from trainable.data.readers import Readers

        fitting = [each for each in self._idle if each.how == how and each.images.are(images)]
        self._idle = fitting[1:]
        return fitting[0] if fitting else Readers(images, how)

    def give_back(self, readers: Readers) -> None:
        """Keep readers for the next run, unless one of their processes may have died."""
        if readers.how.workers and not readers.failed:
            self._idle.append(readers)

    def end(self) -> None:
        """End the idle readers' processes."""
        self._idle.clear()

    def __getstate__(self) -> dict[str, object]:
        return {"_idle": []}
