"""Trains one recipe: `trainable.run.make_run` makes a Run, and an EpochResult comes out of every step().

Everything random in an epoch follows from (loop.seed, epoch): a run that is stopped and resumed is the same
run.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.data.batch import Batch
from trainable.data.info import DataInfo
from trainable.data.parts import Part
from trainable.errors import StateError, crashes_named
from trainable.models.groups import head_layers
from trainable.models.norm_statistics import SMALLEST, average_buffers, measure_norm
from trainable.recipe import Recipe
from trainable.recipe.data import Split
from trainable.training import precision, seeds
from trainable.training.compiling import eagerly, forget_compiled, while_training
from trainable.training.devices import peak_memory_bytes
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.frozen_features import FrozenFeatures
from trainable.training.images import Images
from trainable.training.metrics import EpochResult
from trainable.training.scoring import Scoring, Take
from trainable.training.seeds import Use
from trainable.training.totals import EpochTotals
from trainable.training.trainer import Trainer

PREFIXES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
STATE_VERSION = 2

# A run of fewer steps does not win back cuDNN's search for kernels, which takes some ten seconds a shape in
# each process, and may gain a few percent of a step, which was not measured (docs/decisions/0057).
KERNEL_SEARCH_STEPS = 10_000


@dataclass(frozen=True)
class Components:
    """What a run works with, all made for one recipe, the same images and the same device."""

    recipe: Recipe  # every open field of its `data` is filled in
    info: DataInfo
    parts: Mapping[Split, Part]
    trainer: Trainer  # with the network on its device, and the task
    images: Images
    scoring: Scoring
    frozen: FrozenFeatures
    extra_metrics: ExtraMetrics
    own_network: bool = False  # a network was given in the place of the recipe's
    compiled: str = ""  # in words, what of the network is compiled


class Run:
    """One recipe's training on one device, as one of its ranks.

    `on_pause` is called in long epochs, every `trainer.SEGMENT_STEPS` steps: a state saved then is whole. The
    caller's random generators do not change.
    """

    def __init__(self, components: Components, on_pause: Callable[[], None] = lambda: None) -> None:
        self.recipe, self.info, self.parts = components.recipe, components.info, components.parts
        self.images, self.extra_metrics = components.images, components.extra_metrics
        self.own_network, self.compiled = components.own_network, components.compiled
        self._trainer, self._scoring, self._frozen = components.trainer, components.scoring, components.frozen
        self._step = step = components.trainer.step
        self.model, self.task, self.compute = step.model, step.task, step.compute
        self.device = step.compute.device
        self._on_pause = on_pause
        self._history, self._name = tuple[EpochResult, ...](), f"recipe {self.recipe.digest()}"
        self._first_epoch = 0  # the first that is trained in this process
        self._probe: tuple[int, torch.Generator] | None = None

    @property
    def history(self) -> tuple[EpochResult, ...]:
        """The results so far, from before a resume too."""
        return self._history

    @property
    def epoch(self) -> int:
        """The number of epochs done."""
        return len(self._history)

    @property
    def steps_into_epoch(self) -> int:
        """How many steps of the next epoch are done, while `on_pause` is called; 0 between epochs."""
        return self._trainer.steps_into_epoch

    @property
    def diverged(self) -> bool:
        return bool(self._history) and self._history[-1].diverged

    @property
    def finished(self) -> bool:
        """True after the last epoch, and after the run has diverged."""
        return self.epoch >= self.recipe.loop.epochs or self.diverged

    @property
    def micro_batch(self) -> int:
        """The most images that this rank trains on at once; fewer after memory ran out."""
        return self._trainer.micro_batch

    @property
    def steps_of_a_portion(self) -> int:
        """The number of steps that share what it takes to augment a portion of images, at least 1."""
        batches = self.images.batches_of_a_portion(self.micro_batch)
        return max(1, batches // self._trainer.micro_batches)

    @property
    def steps_of_an_epoch(self) -> int:
        """The number of optimizer steps in an epoch."""
        return self._trainer.steps

    @property
    def remembered_epochs(self) -> int:
        """In how many epochs a frozen body computes nothing, since its features are remembered."""
        return self._frozen.remembered_epochs

    def step(self) -> EpochResult:
        """Train one epoch and score the validation part.

        A loss that is not finite or far beyond recovery (`trainer.LOST_FACTOR`) ends the run with a result
        that says `diverged`. Raises RunError for a crash, UserError for faulty images, ValueError at the end.
        """
        if self.finished:
            raise ValueError(f"the run has finished after {self.epoch} epochs; see Run.finished")
        with crashes_named(f"{self._name}, epoch {self.epoch + 1}"), self._computing():
            result = self._one_epoch()
        self._history = (*self._history, result)
        return result

    def score(
        self,
        part: Split,
        *,
        confusion: bool = False,
        answers: bool = False,
        take: Take | None = None,
        positions: Integers | None = None,
    ) -> Scores:
        """Score the weights, averaged if `regularisation.averaging` says so, on a whole part, or on its
        images at some rising `positions`.

        With `answers` the scores hold what was answered for each image; `take` is shown it by batches. Scores
        that are not finite are replaced by the worst, without answers. Raises DataError without such a part.
        """
        self._scoring.check_has(part)
        with crashes_named(f"{self._name}, scoring the {part} part"), self._computing():
            self._settle_norm(self.epoch - 1)
            scores = self._scoring.part(
                self._step.scored_model,
                part,
                confusion=confusion,
                answers=answers,
                take=take,
                positions=positions,
            )
        return scores if scores.finite else self.extra_metrics.worst_of(self.task.worst(scores.images))

    def evaluate(self, part: Split) -> dict[str, float]:
        """Return the scores of a part by name, such as `test_accuracy`."""
        return self.score(part).metrics(PREFIXES[part])

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resume needs: tensors and plain values, which `weights_only=True` can read.

        The tensors are the run's own, as torch's are: save or copy them before the next step.
        """
        return {
            **self._identity(),
            "epoch": self.epoch,
            "history": [result.tree() for result in self._history],
            "model": self.model.state_dict(),
            **self._trainer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state as if never stopped. Raises StateError for another run's state."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise StateError(f"this state is of {name} {state.get(name)!r}, the run is of {value!r}")
        self.model.load_state_dict(state["model"])
        self._frozen.forget()
        self._trainer.load_state_dict(state)
        self._history = tuple(EpochResult.from_tree(tree) for tree in state["history"])
        self._first_epoch = self.epoch

    def _identity(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, "recipe": self.recipe.digest(), "data": self.info.digest}

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name, averaged if `regularisation.averaging` says so, on their device."""
        return self._step.scored_model.state_dict()

    @contextmanager
    def probing(self, epoch: int | None = None) -> Iterator[None]:
        """Let the caller try steps (`windows`, `train_on`); afterwards the run is as it was before.

        Steps are taken as in an epoch, counted from 0, which decides what is frozen and how large images are;
        by default it is the next epoch.
        """
        weights, trainer = copy.deepcopy((self.model.state_dict(), self._trainer.state_dict()))
        epoch = self.epoch if epoch is None else epoch
        with self._computing():
            try:
                self._probe = epoch, self._trainer.mixing_generator(epoch)
                yield
            finally:
                self._probe = None
                self.model.load_state_dict(weights)
                self._trainer.load_state_dict(trainer)

    def windows(self, epoch: int = 0) -> Iterator[list[Batch]]:
        """Yield an epoch's effective batches, each as the micro-batches that `train_on` takes."""
        batches = self._opened(epoch, self._trainer.order(epoch))
        while window := list(islice(batches, self._trainer.micro_batches)):
            yield window

    def train_on(self, window: Sequence[Batch], lr: float | None = None, size: int | None = None) -> Tensor:
        """Take one optimizer step in `probing`, at the applied rate `lr` and with images of `size` pixels.

        None means the run's own. Return the mean loss before the step, on the device. Raises
        torch.OutOfMemoryError, and ValueError outside `probing`.
        """
        if self._probe is None:
            raise ValueError("this step is only allowed inside `with run.probing(): ...`")
        epoch, generator = self._probe
        return self._trainer.train_on(window, epoch=epoch, generator=generator, lr=lr, size=size)

    def close(self) -> None:
        """End the loader's processes and free compiled code; the run cannot continue afterwards."""
        self.images.close()
        self._step.close()
        if self.compiled:
            forget_compiled()

    # --- one epoch ------------------------------------------------------------------------------------

    def _one_epoch(self) -> EpochResult:
        trained, scores, clean = self._train(), None, None
        trained_at, scored_model = time.perf_counter(), self._step.scored_model
        if not trained.lost:
            self._settle_norm(self.epoch)
            features = self._frozen.validation(self.epoch)
            scores = (
                self._scoring.part(scored_model, "validation")
                if features is None
                else self._scoring.of_features(scored_model, "validation", features)
            )
        if scores is not None and scores.finite and self.epoch + 1 == self.recipe.loop.epochs:
            # training images, shown as validation images are: a diagnosis compares the two
            clean = self._scoring.some(scored_model)
        return self._result(trained, scores, clean, time.perf_counter() - trained_at)

    def _result(
        self, trained: EpochTotals, scores: Scores | None, clean: Scores | None, evaluation: float
    ) -> EpochResult:
        """Return an epoch's result: the worst scores where there are none, or where they are not finite.

        `clean` are the scores of training images that are treated as validation images are.
        """
        diverged = scores is None or not scores.finite
        worst = self.extra_metrics.worst_of(self.task.worst())
        validation = worst if scores is None or not scores.finite else scores
        clean = clean if clean is not None and clean.finite else None
        is_first = self.epoch == self._first_epoch
        extra = {f"val_{name}": value for name, value in validation.extra.items()}
        if clean is not None:  # a diagnosis compares the two
            compared = [name for name in self.task.compared if name in clean.extra]
            extra |= {f"clean_train_{name}": clean.extra[name] for name in compared}
        return EpochResult(
            epoch=self.epoch + 1,
            train_loss=worst.loss if diverged else trained.loss,
            train_accuracy=worst.accuracy if diverged else trained.accuracy,
            val_loss=validation.loss,
            val_accuracy=validation.accuracy,
            val_balanced_accuracy=validation.balanced_accuracy,
            val_top5_accuracy=validation.top5_accuracy,
            applied_lr=trained.lr,
            grad_norm=trained.grad_norm,
            skipped_steps=trained.skipped_steps,
            epoch_seconds=trained.seconds + evaluation,
            data_seconds=trained.data_seconds,
            evaluation_seconds=evaluation,
            images_per_second=trained.images / trained.seconds,
            peak_memory_bytes=peak_memory_bytes(self.device),
            micro_batch=trained.micro_batch,
            clean_train_accuracy=None if clean is None else clean.accuracy,
            teacher_seconds=self.task.take_teacher_seconds(),
            first_step_extra_seconds=trained.first_step_extra_seconds if is_first else None,
            diverged=diverged,
            extra_metrics=extra,
        )

    def _train(self) -> EpochTotals:
        epoch, began = self.epoch, time.perf_counter()
        features = self._frozen.train(epoch) if self.task.takes_features(epoch) else None
        head = None if features is None else head_layers(self.model)

        def opened(first: int) -> Iterator[Batch]:
            order = self._trainer.order(epoch, first)
            batches = self._opened(epoch, order) if features is None else features.batches(order)
            return self.task.beside(batches, order, epoch)

        steps = self._trainer.steps * self.recipe.loop.epochs
        one_size = self.recipe.augmentation.size.kind == "fixed"
        with precision.kernel_search(one_size and steps >= KERNEL_SEARCH_STEPS):
            return self._trainer.epoch(epoch, opened, self._pause, head=head, began=began)

    def _pause(self) -> None:
        """Make rank 0's state that of all ranks, and let the caller save it."""
        self._average_norms()
        self._on_pause()

    def _opened(self, epoch: int, order: list[Tensor]) -> Iterator[Batch]:
        """Yield an epoch's micro-batches, whose positions are `order`."""
        return self.images.train(*self._frozen.shown(order, epoch))

    def _settle_norm(self, epoch: int) -> None:
        """Set the running statistics with which the weights are scored after an epoch, counted from 0.

        They are the mean over ranks, or are measured for these weights, on batches of the training step's own
        size, which are known to fit into memory.
        """
        self._average_norms()
        count, spec = self.recipe.evaluation.norm_batches, self.recipe.model
        if count == 0 or spec.freeze_norm or epoch < spec.freeze_epochs:
            return
        seed, wanted = self.recipe.loop.seed, count * self.recipe.loop.batch_size
        positions = seeds.sample(seed, self.info.train_images, wanted)
        at_once = max(self.micro_batch, SMALLEST)
        mine = self.compute.ranks.shares_of(positions, at_once, SMALLEST)
        images = (images for images, _ in self.images.unchanged(mine.numpy(), at_once))
        with eagerly(self.recipe.loop.compiles):
            measure_norm(self._step.scored_model, images, self.compute.autocast(), self.compute.ranks)

    def _average_norms(self) -> None:
        models = dict.fromkeys([self.model, self._step.scored_model])  # one, or two
        average_buffers(list(models), self.compute.ranks)

    # --- around every computation ---------------------------------------------------------------------

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Use the run's own generators and number formats in the context, and restore the caller's."""
        seed = seeds.derive(self.recipe.loop.seed, Use.LAYERS, self.epoch, self.compute.ranks.rank)
        with (
            seeds.global_generators(self.device, seed),
            while_training(self.recipe.loop.compile),
            self.compute.switched(),
        ):
            yield
