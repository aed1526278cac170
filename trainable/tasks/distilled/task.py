"""Learns a task from a teacher, too.

The teacher answers to the same pixels that the student sees, after all augmentation and mixing: consistent
teaching (Beyer et al., arXiv 2106.05237, section 3.1).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, assert_never, final

import torch
from torch import Tensor, nn

from trainable.data.batch import Batch
from trainable.data.info import DataInfo
from trainable.errors import RecipeError
from trainable.models.own import BuildModel
from trainable.recipe import Recipe
from trainable.recipe import distillation as specs
from trainable.recipe.augmentations import Mixing
from trainable.recipe.network_cost import Format
from trainable.tasks.distilled import losses
from trainable.tasks.distilled.losses import Learner, alike, with_features
from trainable.tasks.distilled.teacher import Teacher, load_teacher
from trainable.tasks.distilled.teacher_answers import TaughtBatch, TeacherAnswers
from trainable.training import seeds
from trainable.training.answers import RankRows
from trainable.training.evaluate import Outputs, Scores, Tally, View, main_output
from trainable.training.precision import Compute
from trainable.training.seeds import Use
from trainable.training.task import BatchMixing, BatchWeight, Compared, Comparison, Read, Task, TrainingBatch

TRIED = 2  # so many blank images show which features the two networks have


@final
class Distilled(Task):
    """A task that is learnt from a teacher, too: it wraps the task of the labels.

    What a run trains is the student, or with hints the student and a map of its features. What the teacher
    answers to images that epochs show again is remembered (`TeacherAnswers`).
    """

    def __init__(
        self,
        task: Task,
        spec: specs.Distillation,
        teacher: Teacher,
        learner: nn.Module,
        info: DataInfo,
    ) -> None:
        self.task, self.spec, self._learner, self._info = task, spec, learner, info
        self.classes, self.weighted = task.classes, task.weighted
        self.most_at_once, self.measures_itself = task.most_at_once, task.measures_itself
        self.compared = task.compared
        self.ask = TimedTeacher(teacher, next(learner.parameters()).device)
        self._remembered: TeacherAnswers | None = None

    @property
    def teacher(self) -> Teacher:
        return self.ask.teacher

    def learner(self, model: nn.Module) -> nn.Module:
        return self._learner

    def read_ahead(self, recipe: Recipe, compute: Compute, read: Read) -> None:
        self._remembered = TeacherAnswers(recipe, self._info, self.ask, compute, read)

    def takes_features(self, epoch: int) -> bool:
        """Return whether the teacher has answered to the epoch's images before, and no features of the
        student are compared with its own."""
        hints = isinstance(self.spec, specs.FeaturesTaught)
        return not hints and self._remembered is not None and self._remembered.of(epoch) is not None

    def beside(self, batches: Iterator[Batch], order: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        return batches if self._remembered is None else self._remembered.beside(batches, order, epoch)

    def prepared(self, batch: TrainingBatch) -> TrainingBatch:
        """Return the batch with the teacher's answers: it is asked before the student takes memory."""
        raw = batch.raw
        return batch._replace(answers=raw.answers if isinstance(raw, TaughtBatch) else self.ask(batch.inputs))

    def loss_of(self, batch: TrainingBatch, outputs: Outputs) -> Tensor:
        """Return the loss, in which the teacher has its share: an image counts as much in what the teacher
        says as in the loss of the labels."""
        own, distances = self._distances(outputs, batch)
        counts = self.task.weights(batch.raw[1])
        taught = distances.mean() if counts is None else (distances * counts).sum() / counts.sum()
        weight = self.spec.weight
        return (1.0 - weight) * self.task.loss(own, batch.targets) + weight * taught

    @property
    def guessing(self) -> float:
        """The most that a student loses who guesses."""
        return max(self.task.guessing, self.spec.guessing(self.task.guessing))

    def other_weights(self) -> Mapping[str, Tensor]:
        return self.teacher.network.state_dict()

    def teacher_digests(self) -> tuple[str | None, str | None]:
        return self.teacher.digest, self.teacher.recipe_digest

    def take_teacher_seconds(self) -> float:
        """Return how long the teacher has answered since this was last called; it waits for the device."""
        found = self.ask.clock.seconds()
        self.ask.clock.set(0.0)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the time that the teacher has answered in the running epoch, and the weights of the map of
        features, if there is one."""
        learnt = self._learner.regressor.state_dict() if isinstance(self._learner, Learner) else None
        return {"seconds": self.ask.clock.seconds(), "regressor": learnt}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ask.clock.set(state["seconds"])
        if isinstance(self._learner, Learner):
            self._learner.regressor.load_state_dict(state["regressor"])

    def _distances(self, outputs: Outputs, batch: TrainingBatch) -> tuple[Outputs, Tensor]:
        """Return the student's own outputs, and how far it is from the teacher on each image, [B]."""
        assert batch.answers is not None, "the batch is prepared"
        match self.spec:
            case specs.LogitsTaught(temperature=temperature):
                ours, theirs, _, counted = self._compared(outputs, batch.targets, batch.answers)
                return outputs, losses.softened_divergence(ours, theirs, temperature, counted)
            case specs.DecoupledTaught(temperature=temperature, alpha=alpha, beta=beta):
                compared = self._compared(outputs, batch.targets, batch.answers)
                return outputs, losses.decoupled_divergence(compared, temperature, alpha, beta)
            case specs.FeaturesTaught():
                assert isinstance(outputs, tuple)
                *own, hint = outputs
                distances = losses.hint_distance(hint, alike(batch.answers, hint).to(hint.dtype))
                return own[0] if len(own) == 1 else tuple(own), distances
            case _:
                assert_never(self.spec)

    def _compared(self, outputs: Outputs, targets: Tensor, answers: Tensor) -> Compared:
        comparison = self.task.comparison()
        assert comparison is not None, "checked when the task was made"
        return comparison(main_output(outputs), targets, answers)

    # --- as the task of the labels has it -------------------------------------------------------------

    def loss(self, outputs: Outputs, targets: Tensor) -> Tensor:
        return self.task.loss(outputs, targets)

    def weight(self, targets: Tensor) -> BatchWeight:
        return self.task.weight(targets)

    def weights(self, targets: Tensor) -> Tensor | None:
        return self.task.weights(targets)

    def comparison(self) -> Comparison | None:
        return self.task.comparison()

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        return self.task.right(output, targets)

    def mixing(self, spec: Mixing) -> BatchMixing | None:
        return self.task.mixing(spec)

    def resized(self, images: Tensor, targets: Tensor, size: int) -> tuple[Tensor, Tensor]:
        return self.task.resized(images, targets, size)

    def answer(
        self, model: nn.Module, images: Tensor, autocast: torch.autocast, views: Sequence[View]
    ) -> Tensor:
        return self.task.answer(model, images, autocast, views)

    def tally(self, device: torch.device, confusion: bool = False, rows: RankRows | None = None) -> Tally:
        return self.task.tally(device, confusion, rows)

    def worst(self, images: int = 0) -> Scores:
        return self.task.worst(images)


@final
class TimedTeacher:
    """A teacher and how long it has answered."""

    def __init__(self, teacher: Teacher, device: torch.device) -> None:
        self.teacher, self.clock = teacher, Clock(device)

    def __call__(self, images: Tensor) -> Tensor:
        """Return what the teacher says of images [B, C, H, W]."""
        with self.clock.running():
            return self.teacher.answers(images)


@final
class Clock:
    """How long a device computes something, added up; on CUDA nothing waits for it until the sum is taken."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of what is computed inside."""
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
        """Return the sum in seconds."""
        for began, ended in self._events:
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1e3
        self._events.clear()
        return self._seconds

    def set(self, seconds: float) -> None:
        """Begin again at a sum of so many seconds."""
        self._events.clear()
        self._seconds = seconds


def distilled(
    task: Task,
    recipe: Recipe,
    student: nn.Module,
    info: DataInfo,
    number_format: Format,
    *,
    given: nn.Module | BuildModel | None = None,
) -> Task:
    """Return the task with a run's teacher, whose recipe is resolved and whose student is on its device; the
    task itself where the recipe has none.

    `given` is what the run was given for its network: if it is a function, it makes the teacher's too, where
    that is a person's own. Raises ModelError as `load_teacher` does, and where features cannot be compared;
    RecipeError where the outputs of the task cannot be.
    """
    spec = recipe.distillation
    if spec is None:
        return task
    if task.comparison() is None and not isinstance(spec, specs.FeaturesTaught):
        raise RecipeError.at(
            f"{specs.SECTION}.kind",
            f"expected features, got {spec.kind}: {type(task).__name__} has outputs that are no logits of "
            "classes, or no `comparison` for them (docs/tasks.md)",
        )
    device, build = next(student.parameters()).device, None if isinstance(given, nn.Module) else given
    teacher = load_teacher(spec, recipe, info, Compute(device, number_format), build)
    learner = student
    if isinstance(spec, specs.FeaturesTaught):
        learner = _learner(recipe, student, teacher, info)
    return Distilled(task, spec, teacher, learner, info)


@torch.no_grad()
def _learner(recipe: Recipe, student: nn.Module, teacher: Teacher, info: DataInfo) -> Learner:
    """Return the student with a map of its features, drawn by the seed: alike on all ranks."""
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
