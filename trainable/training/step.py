"""The training step: what every effective batch goes through, from its images to the averaged weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from trainable.data.batch import Batch
from trainable.models.ema import make_average
from trainable.models.groups import freeze_norm, rate_factors
from trainable.recipe import Recipe
from trainable.recipe.training import AdaptiveClipping, NormClipping
from trainable.training.batches import MicroBatches, Window, attempts
from trainable.training.evaluate import full_precision, main_output
from trainable.training.gradients import Reduction, below_head, clip
from trainable.training.optim import Phase, make_phases
from trainable.training.precision import Compute
from trainable.training.task import Task, TrainingBatch


class StepResult(NamedTuple):
    """What a step measured, on the device."""

    losses: list[Tensor]  # each micro-batch's share of the window's mean loss
    right: list[Tensor]  # how right the answers to each are, [B]
    norm: Tensor | None  # the gradients' over all ranks, before they are clipped


@final
class TrainingStep:
    """A network's training step, with its optimizers, gradient scaler and averaged weights."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, task: Task, compute: Compute, micro_batches: MicroBatches
    ) -> None:
        self.model, self.task, self.compute, self.micro_batches = model, task, compute, micro_batches
        self.mixing = task.mixing(recipe.augmentation.mixing)
        self.autocast = compute.autocast()
        self.scales = compute.number_format == "fp16"
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=self.scales)
        if recipe.model.freeze_norm:
            freeze_norm(model)
        learner = task.learner(model)  # the model, or that with what learns beside it
        self.reduction = Reduction(learner, compute.ranks, in_bf16=recipe.loop.bf16_gradients)
        self.parameters = [each for each in learner.parameters() if each.requires_grad]
        self.clipping = recipe.regularisation.clipping
        self.clips_norm = isinstance(self.clipping, NormClipping)
        self.below_head = below_head(model) if isinstance(self.clipping, AdaptiveClipping) else []
        factors = _in_learner(rate_factors(recipe.model.layer_rates, model), model, learner)
        self.phases = make_phases(
            recipe.optimizer, learner, batch_size=recipe.loop.batch_size, rate_factors=factors
        )
        self.average = make_average(recipe.regularisation.averaging, model)
        self.head: nn.Module | None = None  # what features go through, where these take the place of images

    def take(self, window: Window, phase: Phase, *, measure_norm: bool) -> StepResult:
        """Take one optimizer step on a window. Nothing in it waits for the device."""
        optimizer = phase.optimizer
        # once, unless memory runs out on a rank: then again, in smaller micro-batches
        for attempt in attempts(window, self.reduction, optimizer, self.compute.device):
            optimizer.zero_grad(set_to_none=True)
            with attempt:
                parts = [self.backward(raw, window) for raw in attempt]

        # now every rank has the gradients of the whole window
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        self.scaler.unscale_(optimizer)  # they are measured and clipped as they are
        norm = get_total_norm(gradients) if measure_norm else None
        clip(self.clipping, self.parameters, self.below_head, norm)
        self.scaler.step(optimizer)  # the scaler leaves it out where gradients overflowed
        self.scaler.update()
        if self.average is not None:
            self.average.update()
        return StepResult([loss for loss, _ in parts], [right for _, right in parts], norm)

    def backward(self, raw: Batch, window: Window) -> tuple[Tensor, Tensor]:
        """Add a micro-batch's gradients to the window's. Return its share of the loss, and how right its
        answers are, [B].

        It is a function of its own because its frame holds the images and activations, which are free again
        when it ends, also by running out of memory.
        """
        batch = self.batch_for(raw, window)
        network = self.reduction.model if self.head is None else self.head
        with self.autocast:
            outputs = network(batch.inputs)
        outputs = full_precision(outputs)  # a loss in half precision would lose digits, or overflow
        loss = self.task.loss_of(batch, outputs)
        # shares of micro-batches and ranks add up to the mean over the window, and so do their gradients
        share = self.task.weight(raw[1]) / window.weight
        if not isinstance(share, float) or share != 1.0:  # a whole window in one saves a kernel
            loss = loss * share
        self.scaler.scale(loss).backward()
        return loss.detach(), self.task.right(main_output(outputs).detach(), batch.targets)

    def batch_for(self, raw: Batch, window: Window) -> TrainingBatch:
        """Return a micro-batch as the network is shown it: resized, mixed, with a teacher's answers."""
        inputs, targets = raw
        if self.head is None:  # features are those of images that were shown before
            inputs, targets = self.task.resized(inputs, targets, window.size)
            if self.mixing is not None:
                inputs, targets = self.mixing(inputs, targets, window.generator)
        return self.task.prepared(TrainingBatch(raw, inputs, targets))

    @property
    def scored_model(self) -> nn.Module:
        """The network that is scored: with averaged weights, where `regularisation.averaging` says so."""
        return self.model if self.average is None else self.average.model

    def close(self) -> None:
        """Free what ranks exchange gradients with."""
        self.reduction.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizers": [phase.optimizer.state_dict() for phase in self.phases],
            "scaler": self.scaler.state_dict(),
            "ema": self.average.state_dict() if self.average is not None else None,
            "micro_batches": self.micro_batches.count,
            "finds_unused": self.reduction.finds_unused,
            "teaching": self.task.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for phase, each in zip(self.phases, state["optimizers"], strict=True):
            phase.optimizer.load_state_dict(copy.deepcopy(each))  # torch would share its tensors
        if self.scales and state["scaler"]:  # empty where the state comes from a device that did not scale
            self.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["ema"])
        if (of_task := state.get("teaching")) is not None:  # missing before version 0.2.0
            self.task.load_state_dict(of_task)
        self.micro_batches.count = state["micro_batches"]
        self.reduction.finds_unused |= state.get("finds_unused", False)  # missing before version 0.2.0


def _in_learner(factors: Mapping[str, float], model: nn.Module, learner: nn.Module) -> dict[str, float]:
    """Return factors of a model's parameters by the names that these have in its learner."""
    names = {each: name for name, each in learner.named_parameters()}
    return {names[each]: factors[name] for name, each in model.named_parameters() if name in factors}
