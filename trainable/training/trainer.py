"""Trains an epoch, step by step: with its pace, its pauses, and what it came to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import size_at
from trainable.data.batch import Batch
from trainable.models.groups import freeze_body, set_training, unfreeze
from trainable.recipe import Recipe
from trainable.stages import stage, track
from trainable.training import schedule, seeds
from trainable.training.batches import Batches, MicroBatches, Order, Window
from trainable.training.optim import Phase
from trainable.training.seeds import Use
from trainable.training.step import TrainingStep
from trainable.training.totals import EpochTotals, Running, Stopwatch, Totals

CHECK_EVERY = 32  # steps: so rarely the host looks at the loss that it costs nothing on a GPU

# An epoch has segments of so many steps. All randomness is drawn anew for each, and ranks average their
# running statistics between two: so a run can be resumed there, and is the run that never stopped.
SEGMENT_STEPS = 250

NORM_EVERY = 8  # steps, where only the record needs the gradient's norm: one takes 1 % of a small net's step

LOST_FACTOR = 1e3  # times the loss of guessing: beyond recovery, long before numbers overflow


@final
class Trainer:
    """The loop over an epoch's steps: each on a window, which is one effective batch."""

    def __init__(self, recipe: Recipe, step: TrainingStep, order: Order, image_size: int) -> None:
        self._recipe, self.step, self._order, self._image_size = recipe, step, order, image_size
        self._task, self._batch = step.task, recipe.loop.batch_size
        self._device, self._ranks = step.compute.device, step.compute.ranks
        self.steps = order.steps  # of an epoch
        self._norm_every = 1 if step.scales or step.clips_norm else NORM_EVERY
        self._compiles = recipe.loop.compiles  # until the first step
        self._running: Running | None = None  # how far the epoch has come, while one is trained

    @property
    def micro_batches(self) -> int:
        """Into how many micro-batches each rank cuts a window."""
        return self.step.micro_batches.count

    @property
    def micro_batch(self) -> int:
        """The most images that this rank trains on at once."""
        return math.ceil(math.ceil(self._batch / self._ranks.world) / self.micro_batches)

    @property
    def steps_into_epoch(self) -> int:
        """How many steps of the running epoch are done, as of its last pause."""
        return 0 if self._running is None else self._running.step

    def order(self, epoch: int, first: int = 0) -> list[Tensor]:
        """Return this rank's micro-batches of an epoch from window `first` on, as positions in the training
        part."""
        windows = self._order.windows(epoch)[first:, self._ranks.share(self._batch)]
        return [part for window in windows for part in window.tensor_split(self.micro_batches)]

    def epoch(
        self,
        epoch: int,
        open_at: Callable[[int], Iterator[Batch]],
        at_pause: Callable[[], None] = lambda: None,
        *,
        head: nn.Module | None = None,
        began: float | None = None,
    ) -> EpochTotals:
        """Train one epoch, counted from 0, or the rest of one that a loaded state has begun.

        `open_at` returns its micro-batches from a window on: of images, or of features that go through `head`
        alone. `at_pause` is called between two segments of the epoch, where `state_dict` is that of a run
        which can be resumed. The epoch's time counts from now, or from when its preparation `began`; pauses
        are no part of it.
        """
        running = self._running = self._running or Running(Totals(self._device))
        totals, first = running.totals, running.step
        batches = Batches(open_at, first, running.waited_seconds)
        clock = Stopwatch(batches, began, running.seconds)
        self.begin(epoch, head)
        generator = self._begin_segment(epoch, first)
        weights = self._order.weights(epoch, self._task, self._device)
        clock.begin_steps()
        for step in track(range(first, self.steps), "step", self.steps, done=first):
            if step > first and step % SEGMENT_STEPS == 0:
                running.step, running.seconds = step, clock.seconds
                running.waited_seconds = batches.waited_seconds
                totals.gather(self._ranks)
                with clock.stopped():
                    at_pause()
                generator = self._begin_segment(epoch, step)
            phase, factor = self._paced(epoch + step / self.steps)
            size, cut = self._size(epoch, step), self.step.micro_batches
            window = Window(batches, step, cut, weights[step], size, generator)
            with self._first_of_compiled():
                measured = self.step.take(window, phase, measure_norm=step % self._norm_every == 0)
            totals.add_step(*measured)
            clock.count_step()
            if (step + 1) % CHECK_EVERY == 0 and self._is_lost(self._mean_loss(totals, step + 1)):
                break
        self._running = None
        return self._trained(totals, step + 1, phase.lr * factor, clock)

    def begin(self, epoch: int, head: nn.Module | None = None) -> None:
        """Put the model into training mode for an epoch, with what is frozen then."""
        spec, model = self._recipe.model, self.step.model
        body_frozen = epoch < spec.freeze_epochs
        if body_frozen:
            freeze_body(model)
        else:
            unfreeze(model)
        set_training(model, freeze_norm=spec.freeze_norm, body_frozen=body_frozen)
        self.step.head = head

    def train_on(
        self,
        window: Sequence[Batch],
        *,
        epoch: int,
        generator: torch.Generator,
        lr: float | None = None,
        size: int | None = None,
    ) -> Tensor:
        """Take one optimizer step on a window of your own, as it would be taken in an epoch.

        The rate (as applied) and the size of the images are yours, or the run's own. Return the mean loss,
        on the device. It catches nothing: the caller sees it if memory runs out.
        """
        self.begin(epoch)
        phase, uncut = self.step.phases[0], MicroBatches(len(window), most=len(window))
        phase.set(1.0 if lr is None else lr / phase.lr)
        weight = sum(self._task.weight(labels) for _, labels in window)
        size = size or self._size(epoch, 0)
        whole = Window(Batches(lambda _: iter(window)), 0, uncut, weight, size, generator)
        return torch.stack(self.step.take(whole, phase, measure_norm=self.step.clips_norm).losses).sum()

    def mixing_generator(self, epoch: int, first: int = 0) -> torch.Generator:
        """Return the generator of an epoch's mixing from a segment's first step on.

        It is the same on every rank: a batch is mixed in one way.
        """
        return seeds.generator(self._recipe.loop.seed, Use.MIXING, *seeds.of_segment(epoch, first))

    def state_dict(self) -> dict[str, Any]:
        running = self._running.state_dict() if self._running is not None else None
        return {**self.step.state_dict(), "running": running}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step.load_state_dict(state)
        running = state.get("running")  # None between epochs, and before version 0.2.0
        self._running = Running.from_state(running, self._device, self._ranks) if running else None

    # --- pace -----------------------------------------------------------------------------------------

    def _begin_segment(self, epoch: int, first: int) -> torch.Generator:
        """Seed what layers draw from, if the epoch's beginning has not. Return the mixing's generator."""
        if first:
            parts = (epoch, self._ranks.rank, first)
            seeds.reseed(self._device, seeds.derive(self._recipe.loop.seed, Use.LAYERS, *parts))
        return self.mixing_generator(epoch, first)

    def _first_of_compiled(self) -> AbstractContextManager[None]:
        """Name the first step of a network that is compiled, which takes as long as compiling."""
        waits, self._compiles = self._compiles, False
        return stage("compiling the network") if waits else nullcontext()

    def _paced(self, progress: float) -> tuple[Phase, float]:
        """Return the optimizer whose turn it is, set to the schedule's rate and momentum;
        and the rate's factor."""
        spec, epochs, step = self._recipe.schedule, self._recipe.loop.epochs, 1.0 / self.steps
        done = progress / epochs + 1e-9  # 0.7 * 10 is 7.000000000000001
        phase = [each for each in self.step.phases if each.start <= done][-1]
        factor = schedule.factor(spec, progress, epochs, step)
        phase.set(factor, schedule.momentum(spec, progress, epochs, step))
        return phase, factor

    def _size(self, epoch: int, step: int) -> int:
        """Return the side in pixels of a step's images."""
        return size_at(
            self._recipe.augmentation.size,
            self._image_size,
            seed=self._recipe.loop.seed,
            done=epoch * self.steps + step,
            steps=self._recipe.loop.epochs * self.steps,
        )

    # --- what it came to ------------------------------------------------------------------------------

    def _mean_loss(self, totals: Totals, steps: int) -> float:
        """Return the mean loss, one number read from the device; it is the same on every rank."""
        return self._ranks.reduce(totals.of_images()[0]).item() / steps

    def _is_lost(self, loss: float) -> bool:
        return not loss <= LOST_FACTOR * self._task.guessing  # also true of nan

    def _trained(self, totals: Totals, steps: int, lr: float, clock: Stopwatch) -> EpochTotals:
        """Return what the epoch measured; its time ends when the device is read, which only queues steps."""
        images = steps * self._batch
        loss, right = self._ranks.reduce(totals.of_images()).tolist()
        norms, measured, overflowed = totals.of_steps().tolist()
        seconds = clock.seconds
        return EpochTotals(
            loss=loss / steps,
            accuracy=right / images,
            grad_norm=norms / measured if measured else 0.0,
            skipped_steps=int(overflowed) if self.step.scales else 0,
            lr=lr,
            images=images,
            seconds=seconds,
            data_seconds=clock.waited_seconds,
            first_step_extra_seconds=clock.first_step_extra,
            micro_batch=self.micro_batch,
            lost=self._is_lost(loss / steps),
        )
