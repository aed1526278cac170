"""The training step, and the loop of it over an epoch: nothing in it waits for the device."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from trainable import precision, schedule, seeds
from trainable.augmentation.mixing import make_mixing
from trainable.ema import Ema
from trainable.evaluate import full_precision
from trainable.optim import applied_lr, make_optimizer
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.seeds import Use

CHECK_EVERY = 32
"""Steps between two looks at the loss on the host: rare enough to cost nothing on a GPU."""

NORM_EVERY = 8
"""Steps between two norms of the gradient that only the record needs: one takes 1 % of a small net's step."""

LOST_FACTOR = 1e3
"""A mean loss so many times that of guessing is beyond recovery, long before numbers overflow."""


@dataclass(frozen=True)
class Trained:
    """What an epoch of training measured; `lost` where it ended early because the loss is lost."""

    loss: float
    accuracy: float
    grad_norm: float
    skipped_steps: int
    lr: float
    images: int
    seconds: float
    data_seconds: float
    lost: bool


class Trainer:
    """A model's optimizer, gradient scaler and weight average, and the loop over an epoch's steps.

    An effective batch is cut into equal micro-batches, as few as `loop.micro_batch` allows, on each rank.
    Each loss is weighted by its share of the effective batch, so gradients add up to those of one large
    batch, whatever the cut.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        *,
        classes: int,
        train_images: int,
        device: torch.device,
        number_format: precision.Format,
        ranks: Ranks,
    ) -> None:
        self._recipe, self._model, self._ranks, self._device = recipe, model, ranks, device
        self._classes, self._train_images = classes, train_images
        batch = recipe.loop.batch_size
        share = len(range(batch)[ranks.share(batch)])
        self.steps = train_images // batch
        self.micro_batches = math.ceil(share / (recipe.loop.micro_batch or share))
        self._batch, self._smoothing = batch, recipe.regularisation.label_smoothing
        self._lr = applied_lr(recipe.optimizer, batch)
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._mixing = make_mixing(recipe.augmentation.mixing)
        self._autocast = precision.autocast(number_format, device)
        self._scaled = number_format == "fp16"
        self._clip_norm = recipe.regularisation.clip_norm
        self._norm_every = 1 if self._scaled or self._clip_norm is not None else NORM_EVERY
        self._optimizer = make_optimizer(recipe.optimizer, model, batch_size=batch, loss_scaled=self._scaled)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._scaled)
        decay = recipe.regularisation.ema_decay
        self.ema = Ema(model, decay) if decay is not None else None

    def order(self, epoch: int) -> list[Tensor]:
        """This rank's micro-batches of an epoch, as indices into the training part; the rest is dropped."""
        batch = self._batch
        generator = seeds.generator(self._recipe.loop.seed, Use.ORDER, epoch)
        order = torch.randperm(self._train_images, generator=generator)[: self.steps * batch]
        windows = order.view(self.steps, batch)[:, self._ranks.share(batch)]
        return [part for window in windows for part in window.tensor_split(self.micro_batches)]

    def epoch(self, epoch: int, batches: Iterable[tuple[Tensor, Tensor]]) -> Trained:
        """Train on the micro-batches of an epoch, counted from 0: images [b, C, H, W] and labels [b]."""
        generator = seeds.generator(self._recipe.loop.seed, Use.MIXING, epoch, self._ranks.rank)
        totals = Totals(self._device)
        started = time.perf_counter()
        waiting = Waiting(batches)
        self._model.train()
        for step in range(self.steps):
            lr = self._set_rate(epoch * self.steps + step)
            self._optimizer.zero_grad(set_to_none=True)
            for _ in range(self.micro_batches):
                images, labels = next(waiting)
                totals.add_batch(*self._backward(images, labels, generator))
            totals.add_step(self._update(measured=step % self._norm_every == 0))
            if (step + 1) % CHECK_EVERY == 0 and self._is_lost(self._mean_loss(totals, step + 1)):
                break
        return self._trained(totals, step + 1, lr, started, waiting.seconds)

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "ema": self.ema.state_dict() if self.ema is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # torch would share its tensors
        if self._scaled and state["scaler"]:  # empty where the state comes from a device that did not scale
            self._scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])

    def _set_rate(self, step: int) -> float:
        scale = schedule.factor(
            self._recipe.schedule, step / self.steps, self._recipe.loop.epochs, 1.0 / self.steps
        )
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * scale
        return self._lr * scale

    def _backward(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Add a micro-batch's gradients; its share of the mean loss, and how right each answer was."""
        targets = labels
        if self._mixing is not None:
            images, targets = self._mixing(images, labels, self._classes, generator)
        with self._autocast:
            logits = self._model(images)
        logits = full_precision(logits)
        if targets.is_floating_point():
            targets = targets.to(logits.dtype)
        loss = functional.cross_entropy(logits, targets, label_smoothing=self._smoothing)
        if len(images) != self._batch:
            loss = loss * (len(images) / self._batch)
        self._scaler.scale(loss).backward()
        return loss.detach(), right_answers(logits.detach(), targets)

    def _update(self, measured: bool) -> Tensor | None:
        """One optimizer step on the window's gradients; their norm over all ranks, before clipping."""
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        if self._ranks.world > 1:
            self._ranks.sum_in_place(gradients)
        self._scaler.unscale_(self._optimizer)
        norm = get_total_norm(gradients) if measured else None
        if self._clip_norm is not None and norm is not None:
            clip_grads_with_norm_(self._parameters, self._clip_norm, norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        if self.ema is not None:
            self.ema.update()
        return norm

    def _mean_loss(self, totals: Totals, steps: int) -> float:
        """One number read from the device; the same on every rank."""
        return self._ranks.reduce(totals.of_images()[0]).item() / steps

    def _is_lost(self, loss: float) -> bool:
        return not loss <= LOST_FACTOR * math.log(max(self._classes, 2))  # also true of nan

    def _trained(self, totals: Totals, steps: int, lr: float, started: float, waited: float) -> Trained:
        images = steps * self._batch
        loss, right = self._ranks.reduce(totals.of_images()).tolist()
        norms, measured, overflowed = totals.of_steps().tolist()
        return Trained(
            loss=loss / steps,
            accuracy=right / images,
            grad_norm=norms / measured if measured else 0.0,
            skipped_steps=int(overflowed) if self._scaled else 0,
            lr=lr,
            images=images,
            seconds=time.perf_counter() - started,
            data_seconds=waited,
            lost=self._is_lost(loss / steps),
        )


def right_answers(logits: Tensor, targets: Tensor) -> Tensor:
    """How right each answer is, [b]: 0 or 1, or the share of the answered class where labels are mixed."""
    predicted = logits.argmax(1)
    return predicted == targets if targets.ndim == 1 else targets.gather(1, predicted[:, None])


class Totals:
    """An epoch's sums: steps append what they have; adding up, in float64, is left to the few readings."""

    def __init__(self, device: torch.device) -> None:
        self._images = torch.zeros(2, dtype=torch.float64, device=device)
        self._steps = torch.zeros(3, dtype=torch.float64, device=device)
        self._losses: list[Tensor] = []
        self._right: list[Tensor] = []
        self._norms: list[Tensor] = []

    def add_batch(self, loss: Tensor, right: Tensor) -> None:
        """A micro-batch's share of the loss, and how right its answers were."""
        self._losses.append(loss)
        self._right.append(right)

    def add_step(self, norm: Tensor | None) -> None:
        """A step's gradient norm, where it was measured."""
        if norm is not None:
            self._norms.append(norm)

    def of_images(self) -> Tensor:
        """[2], of this rank's images so far: the loss, the right answers. A copy, on the device."""
        if self._losses:
            self._images[0] += torch.stack(self._losses).sum(dtype=torch.float64)
            self._images[1] += torch.cat(self._right).sum(dtype=torch.float64)
            self._losses.clear()
            self._right.clear()
        return self._images.clone()

    def of_steps(self) -> Tensor:
        """[3], of the steps so far, alike on every rank: finite norms, how many, how many not finite."""
        if self._norms:
            norms = torch.stack(self._norms).double()
            finite = norms.isfinite()
            self._steps[0] += norms.where(finite, 0.0).sum()
            self._steps[1] += finite.sum()
            self._steps[2] += (~finite).sum()
            self._norms.clear()
        return self._steps.clone()


class Waiting:
    """An iterator that adds up how long its consumer waited, in seconds."""

    def __init__(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        self._batches = iter(batches)
        self.seconds = 0.0

    def __next__(self) -> tuple[Tensor, Tensor]:
        started = time.perf_counter()
        batch = next(self._batches)
        self.seconds += time.perf_counter() - started
        return batch
