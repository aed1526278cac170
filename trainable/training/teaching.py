"""Adds to a run's loss what its student learns from a teacher.

The teacher answers to the same pixels that the student sees, after all augmentation and mixing: consistent
teaching (Beyer et al., arXiv 2106.05237, section 3.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, assert_never, final

import torch
from torch import Tensor, nn

from trainable.data import DataInfo
from trainable.errors import RecipeError
from trainable.models.own import BuildModel
from trainable.recipe import Recipe
from trainable.recipe import distillation as specs
from trainable.recipe.speeds import Format
from trainable.training import distillation_losses as losses
from trainable.training import precision, seeds
from trainable.training.evaluate import Outputs, main_output
from trainable.training.hints import Learner, alike, with_features
from trainable.training.seeds import Use
from trainable.training.task import Compared, Task
from trainable.training.teacher import Teacher, load_teacher

Lesson = Callable[[Task, Outputs, Tensor], tuple[Outputs, Tensor]]
"""A lesson maps (task, outputs of the learner, targets) to the student's own outputs, and the batch's mean
loss, in which the teacher has its share."""

TRIED = 2
"""So many blank images show which features the two networks have."""


@final
class TaughtBatch(tuple[Tensor, Tensor]):
    """Is a batch of images and labels, with what the teacher answered to these images before."""

    answers: Tensor

    @classmethod
    def of(cls, batch: tuple[Tensor, Tensor], answers: Tensor) -> TaughtBatch:
        found = cls(batch)
        found.answers = answers
        return found


@final
class Teaching:
    """Holds the teacher of a run, and compares its answers with the student's.

    `learner` is what the run trains: the student, or with hints the student and a map of its features.
    """

    def __init__(
        self, spec: specs.Distillation, teacher: Teacher, student: nn.Module, learner: nn.Module
    ) -> None:
        self.spec, self.teacher, self.learner = spec, teacher, learner
        self.device = next(student.parameters()).device
        self._clock = Clock(self.device)

    def lesson(self, batch: tuple[Tensor, Tensor], inputs: Tensor) -> Lesson:
        """Returns the loss of a batch whose images, as the student sees them, are `inputs`.

        The teacher is asked now, before the student computes anything that takes memory, unless the batch is
        a TaughtBatch. An image counts as much in what the teacher says as in the loss of the task.
        """
        answers = batch.answers if isinstance(batch, TaughtBatch) else self.asked(inputs)
        return partial(self._loss, answers, batch[1])

    def asked(self, inputs: Tensor) -> Tensor:
        """Returns what the teacher says of images [B, C, H, W]."""
        with self._clock.running():
            return self.teacher.answers(inputs)

    def _loss(
        self, answers: Tensor, labels: Tensor, task: Task, outputs: Outputs, targets: Tensor
    ) -> tuple[Outputs, Tensor]:
        """Returns what a Lesson does; `labels` are those of the batch before it was mixed."""
        own, distances = self._distances(task, outputs, targets, answers)
        counts = task.weights(labels)
        taught = distances.mean() if counts is None else (distances * counts).sum() / counts.sum()
        weight = self.spec.weight
        return own, (1.0 - weight) * task.loss(own, targets) + weight * taught

    def guessing(self, of_task: float) -> float:
        """Returns the most that a student loses who guesses, given what it loses of the task."""
        return max(of_task, self.spec.guessing(of_task))

    def take_seconds(self) -> float:
        """Returns how long the teacher has answered since this was last called; it waits for the device."""
        found = self._clock.seconds()
        self._clock.set(0.0)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns the time that the teacher has answered in the running epoch, and the weights of the map of
        features, if there is one."""
        learnt = self.learner.regressor.state_dict() if isinstance(self.learner, Learner) else None
        return {"seconds": self._clock.seconds(), "regressor": learnt}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._clock.set(state["seconds"])
        if isinstance(self.learner, Learner):
            self.learner.regressor.load_state_dict(state["regressor"])

    def _distances(
        self, task: Task, outputs: Outputs, targets: Tensor, answers: Tensor
    ) -> tuple[Outputs, Tensor]:
        """Returns the student's own outputs, and how far it is from the teacher on each image, [B]."""
        match self.spec:
            case specs.LogitsTaught(temperature=temperature):
                ours, theirs, _, counted = _compared(task, outputs, targets, answers)
                return outputs, losses.softened_divergence(ours, theirs, temperature, counted)
            case specs.DecoupledTaught(temperature=temperature, alpha=alpha, beta=beta):
                ours, theirs, truth, counted = _compared(task, outputs, targets, answers)
                found = losses.decoupled_divergence(ours, theirs, truth, temperature, alpha, beta, counted)
                return outputs, found
            case specs.FeaturesTaught():
                assert isinstance(outputs, tuple)
                *own, hint = outputs
                distances = losses.hint_distance(hint, alike(answers, hint).to(hint.dtype))
                return own[0] if len(own) == 1 else tuple(own), distances
            case _:
                assert_never(self.spec)


@final
class Clock:
    """Adds up how long a device computes something; on CUDA nothing waits for it until the sum is taken."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts the time of what is computed inside."""
        if not self._on_device:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        began_at, ended_at = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began_at.record()
        yield
        ended_at.record()
        self._events.append((began_at, ended_at))

    def seconds(self) -> float:
        """Returns the sum in seconds."""
        for began, ended in self._events:
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1e3
        self._events.clear()
        return self._seconds

    def set(self, seconds: float) -> None:
        """Begins again at a sum of so many seconds."""
        self._events.clear()
        self._seconds = seconds


def make_teaching(
    recipe: Recipe,
    student: nn.Module,
    info: DataInfo,
    number_format: Format,
    *,
    task: Task,
    given: nn.Module | BuildModel | None = None,
) -> Teaching | None:
    """Returns the teaching of a run, whose recipe is resolved and whose student is on its device; None
    without a teacher.

    `given` is what the run was given for its network: if it is a function, it makes the teacher's too, where
    that is a person's own. Raises ModelError as `load_teacher` does, and where features cannot be compared;
    RecipeError where the outputs of the task cannot be.
    """
    spec = recipe.distillation
    if spec is None:
        return None
    if task.comparison() is None and not isinstance(spec, specs.FeaturesTaught):
        raise RecipeError.at(
            f"{specs.SECTION}.kind",
            f"expected features, got {spec.kind}: {type(task).__name__} has outputs that are no logits of "
            "classes, or no `comparison` for them (docs/tasks.md)",
        )
    device, build = next(student.parameters()).device, None if isinstance(given, nn.Module) else given
    autocast = precision.autocast(number_format, device)
    teacher = load_teacher(spec, recipe, info, device=device, autocast=autocast, build=build)
    learner = student
    if isinstance(spec, specs.FeaturesTaught):
        learner = _learner(recipe, student, teacher, info)
    return Teaching(spec, teacher, student, learner)


@torch.no_grad()
def _learner(recipe: Recipe, student: nn.Module, teacher: Teacher, info: DataInfo) -> Learner:
    """Returns the student with a map of its features, drawn by the seed: alike on all ranks."""
    first, training = next(student.parameters()), student.training
    shape = (TRIED, info.channels, info.image_size, info.image_size)
    blank = torch.zeros(shape, device=first.device, dtype=first.dtype)
    student.eval()
    _, features = with_features(student, blank)
    student.train(training)
    with seeds.global_generators(first.device, seeds.derive(recipe.loop.seed, Use.WEIGHTS, 1)):
        learner = Learner(student, features, teacher.answers(blank))
    learner.regressor.to(first.device, first.dtype)
    return learner


def _compared(task: Task, outputs: Outputs, targets: Tensor, answers: Tensor) -> Compared:
    comparison = task.comparison()
    assert comparison is not None, "checked when the teaching was made"
    return comparison(main_output(outputs), targets, answers)
