"""Takes training steps, and loops over them for an epoch: nothing in it waits for the device."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from trainable.augmentation.sizes import size_at
from trainable.data.batch import Batch
from trainable.models.ema import make_average
from trainable.models.freezing import freeze_body, freeze_norm, set_training, unfreeze
from trainable.models.groups import rate_factors
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.speeds import Format
from trainable.recipe.training import AdaptiveClipping, NormClipping
from trainable.stages import stage
from trainable.training import precision, schedule, seeds
from trainable.training.devices import give_back, ran_out
from trainable.training.evaluate import full_precision, main_output
from trainable.training.gradients import Agreement, Reduction, below_head, clip
from trainable.training.optim import Phase, make_phases
from trainable.training.order import Order, parts_of
from trainable.training.seeds import Use
from trainable.training.task import Task, TrainingBatch, Weight
from trainable.training.totals import Batches, Running, Stopwatch, Totals, Trained

CHECK_EVERY = 32
"""The host looks at the loss once in so many steps: rarely enough to cost nothing on a GPU."""

SEGMENT_STEPS = 250
"""An epoch has segments of so many steps. All randomness is drawn anew for each, and ranks average their
running statistics between two: so a run can be resumed there, and is the run that never stopped."""

NORM_EVERY = 8
"""A norm of the gradient that only the record needs is measured once in so many steps: one takes 1 % of a
small net's step."""

LOST_FACTOR = 1e3
"""A mean loss that is so many times that of guessing is beyond recovery, long before numbers overflow."""


class Trainer:
    """Holds a model's optimizer, gradient scaler and weight average, and loops over an epoch's steps.

    An effective batch, a window, is cut into equal micro-batches on each rank (`parts_of`). Each loss is
    weighted by its share of the effective batch, so gradients add up to those of one large batch.

    If a window does not fit into the device's memory, it is cut into twice as many, of `fewest_at_once`
    images or more, and trained again from its beginning; later windows are cut alike. Effective batch and
    rate never change. (BatchNorm's running statistics have then seen the window's first part twice.)
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        *,
        task: Task,
        order: Order,
        image_size: int,
        device: torch.device,
        number_format: Format,
        ranks: Ranks,
        fewest_at_once: int = 1,
    ) -> None:
        self._recipe, self._model, self._task = recipe, model, task
        self._ranks, self._device = ranks, device
        self._order, self._image_size, self._batch = order, image_size, recipe.loop.batch_size
        self.steps = order.steps
        self.share = self._batch // ranks.world
        """Each rank has at least this many images of a window:
        all ranks cut alike, and no rank has an empty part."""
        self._most_parts = self.share // fewest_at_once
        self.micro_batches = parts_of(recipe.loop, ranks.world)
        self._mixing = task.mixing(recipe.augmentation.mixing)
        self._autocast = precision.autocast(number_format, device)
        self._scaled = number_format == "fp16"
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._scaled)
        self._clipping = recipe.regularisation.clipping
        self._clips_norm = isinstance(self._clipping, NormClipping)
        self._norm_every = 1 if self._scaled or self._clips_norm else NORM_EVERY
        if recipe.model.freeze_norm:
            freeze_norm(model)
        learner = task.learner(model)
        self._reduction = Reduction(learner, ranks, in_bf16=recipe.loop.bf16_gradients)
        self._parameters = [each for each in learner.parameters() if each.requires_grad]
        self._below_head = below_head(model) if isinstance(self._clipping, AdaptiveClipping) else []
        names = {parameter: name for name, parameter in learner.named_parameters()}
        of_layers = rate_factors(recipe.model.layer_rates, model).items()
        factors = {names[model.get_parameter(name)]: factor for name, factor in of_layers}
        self._phases = make_phases(recipe.optimizer, learner, batch_size=self._batch, rate_factors=factors)
        self.ema = make_average(recipe.regularisation.averaging, model)
        self._compiles = recipe.loop.compiles  # until the first step
        self._head: nn.Module | None = None
        """What features go through, in an epoch that is given features of images instead of images."""
        self._running: Running | None = None
        """How far the epoch has come, while one is trained."""

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
    ) -> Trained:
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
        for step in range(first, self.steps):
            if step > first and step % SEGMENT_STEPS == 0:
                running.step, running.seconds = step, clock.seconds
                running.waited_seconds = batches.waited_seconds
                totals.gather(self._ranks)
                with clock.stopped():
                    at_pause()
                generator = self._begin_segment(epoch, step)
            phase, factor = self._paced(epoch + step / self.steps)
            with self._first_of_compiled():
                losses, right = self._gradients(
                    phase, batches, step, weights[step], self._size(epoch, step), generator
                )
            totals.add_step(losses, right, self._update(phase, measured=step % self._norm_every == 0))
            clock.count_step()
            if (step + 1) % CHECK_EVERY == 0 and self._is_lost(self._mean_loss(totals, step + 1)):
                break
        self._running = None
        return self._trained(totals, step + 1, phase.lr * factor, clock)

    def _first_of_compiled(self) -> AbstractContextManager[None]:
        """Name the first step of a network that is compiled, which takes as long as compiling."""
        waits, self._compiles = self._compiles, False
        return stage("compiling the network") if waits else nullcontext()

    def mixing_generator(self, epoch: int, first: int = 0) -> torch.Generator:
        """Return the generator of an epoch's mixing from a segment's first step on.

        It is the same on every rank: a batch is mixed in one way.
        """
        return seeds.generator(self._recipe.loop.seed, Use.MIXING, *seeds.of_segment(epoch, first))

    def _begin_segment(self, epoch: int, first: int) -> torch.Generator:
        """Seed what layers draw from, if the epoch's beginning has not. Return the mixing's generator."""
        if first:
            parts = (epoch, self._ranks.rank, first)
            seeds.reseed(self._device, seeds.derive(self._recipe.loop.seed, Use.LAYERS, *parts))
        return self.mixing_generator(epoch, first)

    def begin(self, epoch: int, head: nn.Module | None = None) -> None:
        """Put the model into training mode for an epoch, with what is frozen then."""
        spec, self._head = self._recipe.model, head
        body_frozen = epoch < spec.freeze_epochs
        if body_frozen:
            freeze_body(self._model)
        else:
            unfreeze(self._model)
        set_training(self._model, freeze_norm=spec.freeze_norm, body_frozen=body_frozen)

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
        phase = self._phases[0]
        phase.set(1.0 if lr is None else lr / phase.lr)
        weight = sum(self._task.weight(labels) for _, labels in window)
        size = size or self._size(epoch, 0)
        agreed = Agreement.AGAIN
        while agreed is Agreement.AGAIN:
            self._begin_window(phase)
            parts = self._backward(iter(window), len(window), size, generator, weight)
            agreed = self._reduction.agree(out_of_memory=False)
        self._update(phase, measured=self._clips_norm)
        return torch.stack([loss for loss, _ in parts]).sum()

    def close(self) -> None:
        """Free what ranks exchange gradients with."""
        self._reduction.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizers": [phase.optimizer.state_dict() for phase in self._phases],
            "scaler": self._scaler.state_dict(),
            "ema": self.ema.state_dict() if self.ema is not None else None,
            "micro_batches": self.micro_batches,
            "finds_unused": self._reduction.finds_unused,
            "running": self._running.state_dict() if self._running is not None else None,
            "teaching": self._task.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for phase, each in zip(self._phases, state["optimizers"], strict=True):
            phase.optimizer.load_state_dict(copy.deepcopy(each))  # torch would share its tensors
        if self._scaled and state["scaler"]:  # empty where the state comes from a device that did not scale
            self._scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        if (of_task := state.get("teaching")) is not None:  # missing before version 0.2.0
            self._task.load_state_dict(of_task)
        self.micro_batches = state["micro_batches"]
        self._reduction.finds_unused |= state.get("finds_unused", False)  # missing before version 0.2.0
        running = state.get("running")  # None between epochs, and before version 0.2.0
        self._running = Running.from_state(running, self._device, self._ranks) if running else None

    # --- one step -------------------------------------------------------------------------------------

    def _paced(self, progress: float) -> tuple[Phase, float]:
        """Return the optimizer whose turn it is, set to the schedule's rate and momentum;
        and the rate's factor."""
        spec, epochs, step = self._recipe.schedule, self._recipe.loop.epochs, 1.0 / self.steps
        done = progress / epochs + 1e-9  # 0.7 * 10 is 7.000000000000001
        phase = [each for each in self._phases if each.start <= done][-1]
        factor = schedule.factor(spec, progress, epochs, step)
        phase.set(factor, schedule.momentum(spec, progress, epochs, step))
        return phase, factor

    def _size(self, epoch: int, step: int) -> int:
        """Return the side in pixels of a step's images."""
        return size_at(
            self._recipe.augmentation.size,
            self._image_size,
            seed=self._recipe.loop.seed,
            epoch=epoch,
            step=step,
            steps=self.steps,
            epochs=self._recipe.loop.epochs,
        )

    def _gradients(
        self,
        phase: Phase,
        batches: Batches,
        window: int,
        weight: Weight,
        size: int,
        generator: torch.Generator,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Compute the gradients of a window of this weight over all ranks, in as many parts as needed.
        Return its shares of the loss, and how right it was.

        Ranks agree before any of the gradients are used: if a part does not fit on one rank, all ranks cut
        further.
        """
        drawn = generator.get_state()
        while True:
            self._begin_window(phase)
            parts = self._tried(batches, size, generator, weight)
            if parts is None:
                phase.optimizer.zero_grad(set_to_none=True)
                give_back(self._device)
            agreed = self._reduction.agree(out_of_memory=parts is None)
            if agreed is Agreement.SUMMED:
                assert parts is not None
                return [loss for loss, _ in parts], [right for _, right in parts]
            parts = None
            phase.optimizer.zero_grad(set_to_none=True)
            give_back(self._device)
            if agreed is Agreement.OUT_OF_MEMORY:
                self.micro_batches = min(2 * self.micro_batches, self._most_parts)
            generator.set_state(drawn)
            batches.back_to(window)

    def _begin_window(self, phase: Phase) -> None:
        phase.optimizer.zero_grad(set_to_none=True)
        self._reduction.begin()

    def _tried(
        self, batches: Batches, size: int, generator: torch.Generator, weight: Weight
    ) -> list[tuple[Tensor, Tensor]] | None:
        """Train a window's parts on this rank. Return None if memory ran out and they can be cut further.

        The memory is free after this returns: the exception held the frames that hold it.
        """
        try:
            return self._backward(batches, self.micro_batches, size, generator, weight)
        except Exception as error:
            if not (ran_out(error) and self._may_cut()):
                raise
            return None

    def _may_cut(self) -> bool:
        """Return whether parts can be cut further. With synchronised BatchNorm the other ranks wait inside a
        layer, where they cannot be told to cut."""
        synced = self._recipe.loop.sync_norm and self._ranks.world > 1
        return self.micro_batches < self._most_parts and not synced

    def _backward(
        self, batches: Iterator[Batch], count: int, size: int, generator: torch.Generator, weight: Weight
    ) -> list[tuple[Tensor, Tensor]]:
        """Add the gradients of the next `count` micro-batches, which ranks sum in the last one's backward
        pass. Return the loss of each and how right its answers were."""
        parts = []
        for number in range(count):
            batch = next(batches)
            with self._reduction.part(last=number == count - 1):
                parts.append(self._backward_part(batch, size, generator, weight))
        return parts

    def _backward_part(
        self, batch: Batch, size: int, generator: torch.Generator, window: Weight
    ) -> tuple[Tensor, Tensor]:
        """Add a micro-batch's gradients. Return its share of the window's loss, and how right it was."""
        (inputs, targets), network = batch, self._head
        if network is None:
            (inputs, targets), network = self._task.resized(*batch, size), self._reduction.model
            if self._mixing is not None:
                inputs, targets = self._mixing(inputs, targets, generator)
        shown = self._task.prepared(TrainingBatch(batch, inputs, targets))
        with self._autocast:
            outputs = network(inputs)
        outputs = full_precision(outputs)
        loss = self._task.loss_of(shown, outputs)
        share = self._task.weight(batch[1]) / window
        if not isinstance(share, float) or share != 1.0:
            loss = loss * share
        self._scaler.scale(loss).backward()
        return loss.detach(), self._task.right(main_output(outputs).detach(), targets)

    def _update(self, phase: Phase, measured: bool) -> Tensor | None:
        """Take one optimizer step on the window's gradients.
        Return their norm over all ranks, before clipping."""
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        self._scaler.unscale_(phase.optimizer)
        norm = get_total_norm(gradients) if measured else None
        clip(self._clipping, self._parameters, self._below_head, norm)
        self._scaler.step(phase.optimizer)
        self._scaler.update()
        if self.ema is not None:
            self.ema.update()
        return norm

    # --- what it came to ------------------------------------------------------------------------------

    def _mean_loss(self, totals: Totals, steps: int) -> float:
        """Return the mean loss, one number read from the device; it is the same on every rank."""
        return self._ranks.reduce(totals.of_images()[0]).item() / steps

    def _is_lost(self, loss: float) -> bool:
        return not loss <= LOST_FACTOR * self._task.guessing  # also true of nan

    def _trained(self, totals: Totals, steps: int, lr: float, clock: Stopwatch) -> Trained:
        """Return what the epoch measured; its time ends when the device is read, which only queues steps."""
        images = steps * self._batch
        loss, right = self._ranks.reduce(totals.of_images()).tolist()
        norms, measured, overflowed = totals.of_steps().tolist()
        seconds = clock.seconds
        return Trained(
            loss=loss / steps,
            accuracy=right / images,
            grad_norm=norms / measured if measured else 0.0,
            skipped_steps=int(overflowed) if self._scaled else 0,
            lr=lr,
            images=images,
            seconds=seconds,
            data_seconds=clock.waited_seconds,
            first_step_extra_seconds=clock.first_step_extra,
            micro_batch=self.micro_batch,
            lost=self._is_lost(loss / steps),
        )
