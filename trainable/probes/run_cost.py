"""Measures what a run takes, by a few steps, a scoring and a checkpoint: what a forecast is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from statistics import fmean

import numpy as np

from trainable.checkpoints import checkpoint
from trainable.data.batch import Batch
from trainable.files.folders import temporary_folder
from trainable.recipe.network_cost import RunCost
from trainable.training.devices import wait_for
from trainable.training.run import Run

LEAST_SECONDS = 0.2  # steps are timed for so long
MOST_SCORING_SECONDS = 1.0  # a part that takes longer to score is not scored: a step says what it takes
FORWARD = 1 / 3  # of a step's time, without the gradients: they take twice as many operations
HEAD = 0.05  # of a step's time, where a frozen body's features are remembered; our estimate


def measure_run_cost(make: Callable[[], Run]) -> RunCost:
    """Return what a run takes on its device, which is made for this and closed.

    Steps are timed in the first and in the last epoch, which differ where a body is frozen first or images
    grow; between them the time changes evenly. Raises what making the run raises, and torch.OutOfMemoryError.
    """
    began = time.perf_counter()
    run = make()
    starting = time.perf_counter() - began
    try:
        recipe, steps = run.recipe, run.steps_of_an_epoch
        epochs, frozen = recipe.loop.epochs, min(recipe.model.freeze_epochs, recipe.loop.epochs)
        changes = recipe.augmentation.size.kind != "fixed"
        last = _step_seconds(run, epochs - 1)
        first = _step_seconds(run, 0) if changes or 0 < frozen < epochs else last
        training = (
            np.interp(np.arange(epochs), [0, epochs - 1], [first, last]) if changes else np.full(epochs, last)
        )
        training[:frozen] = first
        training[frozen - run.remembered_epochs : frozen] *= HEAD
        spent = _Checkpoint.of(run)
        return RunCost(
            training_seconds=tuple(float(each) * steps for each in training),
            scoring_seconds=_scoring_seconds(run, last / recipe.loop.batch_size),
            checkpoint_seconds=spent.seconds,
            checkpoint_bytes=spent.bytes,
            starting_seconds=starting,
        )
    finally:
        run.close()


def _step_seconds(run: Run, epoch: int) -> float:
    """Return the mean time of an epoch's steps, after a first one, which prepares kernels.

    Epochs count from 0. Images of a portion are augmented together, when its first batch is read, which takes
    longer than reading the others: each step gets its share of it.
    """
    windows, steps = _windows(run, epoch), run.steps_of_an_epoch
    portion = min(run.steps_of_a_portion, steps)
    reading: dict[bool, list[float]] = {True: [], False: []}  # of a portion's first step, of the others
    training: list[float] = []
    with run.probing(epoch):
        began = time.perf_counter()
        for step, window in enumerate(windows):
            wait_for(run.device)
            read = time.perf_counter()
            run.train_on(window)
            wait_for(run.device)
            done = time.perf_counter()
            if step or portion > 1:
                reading[step % steps % portion == 0].append(read - began)
            if step:
                training.append(done - read)
            if sum(training) >= LEAST_SECONDS:
                break
            began = time.perf_counter()
    first, others = reading[True], reading[False]
    share = fmean(first[1:] or first) / portion if first else 0.0
    return fmean(training) + share + (fmean(others) * (portion - 1) / portion if others else 0.0)


def _windows(run: Run, epoch: int) -> Iterator[list[Batch]]:
    """Yield effective batches of one epoch after the other, from `epoch` on, without an end."""
    return chain.from_iterable(map(run.windows, count(epoch)))


def _scoring_seconds(run: Run, image_seconds: float) -> float:
    """Return what it takes to score the validation part, where a step takes so long an image."""
    evaluation = run.recipe.evaluation
    views = len(evaluation.scales) * (2 if evaluation.flip else 1)
    expected = run.info.validation_images * views * image_seconds * FORWARD
    if expected > MOST_SCORING_SECONDS:
        return expected
    began = time.perf_counter()
    run.score("validation")
    return time.perf_counter() - began


@dataclass(frozen=True)
class _Checkpoint:
    seconds: float
    bytes: int

    @classmethod
    def of(cls, run: Run) -> _Checkpoint:
        with temporary_folder() as folder:
            began = time.perf_counter()
            saved = checkpoint.save(folder, run.state_dict(), (), step=1)
            seconds = time.perf_counter() - began
            return cls(seconds, sum(each.stat().st_size for each in saved.folder.iterdir()))
