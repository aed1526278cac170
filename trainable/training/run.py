"""Trains one recipe: a Recipe goes in, and an EpochResult comes out of every step().

    run = Run(Recipe())
    while not run.finished:
        print(run.step().val_accuracy)

Everything random in an epoch follows from (loop.seed, epoch): a run that is stopped and resumed is the same
run.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from trainable.data import DataSet, Split
from trainable.data.arrays import as_tensor
from trainable.data.loaders import make_loader
from trainable.data.loading import PORTION_BATCHES, Batch
from trainable.errors import StateError, crashes_named
from trainable.models.cut import head_layers
from trainable.models.norm_statistics import SMALLEST, average_buffers, measure_norm
from trainable.models.own import BuildModel
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.training import precision, seeds
from trainable.training.compiling import compile_in_place, eagerly, forget_compiled, while_training
from trainable.training.devices import default_device, peak_memory_bytes
from trainable.training.distilled import Distilled, distilled
from trainable.training.epoch_result import epoch_result
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import Own, make_extra_metrics
from trainable.training.frozen_features import FrozenFeatures, shown
from trainable.training.lessons import Lessons
from trainable.training.metrics import EpochResult
from trainable.training.network import (
    as_taken,
    given_or_made,
    layout_of,
    placed,
    stands_alone,
    with_loop_layers,
)
from trainable.training.order import Order
from trainable.training.pixels import load_for, resolved
from trainable.training.preflight import check_recipe, check_sizes, fewest_at_once
from trainable.training.scoring import Scoring, Take
from trainable.training.seeds import Use
from trainable.training.task import Task
from trainable.training.tasks import task_of
from trainable.training.totals import Trained
from trainable.training.trainer import Trainer

PREFIXES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
STATE_VERSION = 2
KERNEL_SEARCH_STEPS = 10_000
"""A run of fewer steps does not win back cuDNN's search for kernels, which takes some ten seconds a shape
in each process, and may gain a few percent of a step, which was not measured (docs/decisions/0057)."""


class Run:
    """Trains one recipe on one device, as one of `ranks`.

    Args:
        recipe: what to train; `run.recipe` is the same recipe, with every open field of `data` filled in.
        data: the images, if they are loaded already; else they are loaded, and decoded as `data.cache` says.
        model: a network of your own, [B, C, H, W] -> logits [B, classes], instead of `recipe.model`, or the
            function that builds it. It is moved to the device and trained in its own number format.
        task: what is learnt, instead of `recipe.task`: docs/tasks.md says how one is written.
        ranks: the other processes of a data-parallel run. Every rank makes its Run with the same recipe and
            data; the weights of rank 0 are used.
        device: the first CUDA device, or the CPU, by default.
        gpu_share: the part of the GPU's memory, in (0, 1], that this run may count as its own.
        download: whether weights that a library publishes may be fetched.
        metrics: functions that score the validation part beside `evaluation.metrics`, by name. Each takes
            probabilities [N, classes] and labels [N] of the whole part, on the CPU, and every rank calls it;
            `{"f_beta": f}` gives `val_f_beta`. Higher is better, unless it is a `Metric` that says otherwise.
        on_batch: called for each micro-batch, as a sign of progress.
        on_pause: called in long epochs, every `trainer.SEGMENT_STEPS` steps: a state saved then is whole.

    The caller's random generators do not change. Raises UserError, before any training, for what the recipe,
    the data or the model make impossible.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        data: DataSet | None = None,
        model: nn.Module | BuildModel | None = None,
        task: Task | None = None,
        ranks: Ranks = ALONE,
        device: torch.device | None = None,
        gpu_share: float = 1.0,
        download: bool = False,
        metrics: Own | None = None,
        on_batch: Callable[[], None] = lambda: None,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_batch, self._on_pause, self._ranks = on_batch, on_pause, ranks
        self.device = device or default_device()
        is_own = self.own_network = stands_alone(model, recipe.model)
        self.data = data or load_for(recipe, self.device, own_model=is_own, download=download)
        self.recipe = resolved(recipe, self.data, own_model=is_own, download=download)
        check_recipe(self.recipe, info := self.data.info, ranks)
        self.precision = precision.resolve(self.recipe.precision, self.device)
        self.extra_metrics = make_extra_metrics(self.recipe.evaluation.metrics, metrics or {}, info.classes)
        self._task = task or task_of(self.recipe, info, self.device, self.extra_metrics)
        if not self._task.measures_itself:
            self.extra_metrics.check_fits(max(info.validation_images, info.test_images), self.device)
        with self._generators(Use.WEIGHTS):
            network = given_or_made(model, recipe.model, info, download=download)
            network = with_loop_layers(network, self.recipe, ranks)
            if is_own:
                network = network.to(self.device)  # it may compute there alone
            # on the host, if it can be: a GPU would prepare kernels for these single images
            check_sizes(network, self.recipe, info)
            fewest = fewest_at_once(network, self.recipe, info, ranks)
            self.model = placed(network, self.recipe, ranks, self.device)
        self._as_taken = partial(
            as_taken, model=self.model, layout=layout_of(self.recipe), device=self.device, on_batch=on_batch
        )
        student = (self.recipe, self.model, info, self.precision)
        self._task = distilled(self._task, *student, given=model)
        self._trainer = self._make_trainer(fewest)
        one_size = self.recipe.augmentation.size.kind == "fixed"
        self.compiled = compile_in_place(self.model, self.recipe.loop.compile, one_size=one_size)
        if data is None:  # else it is the caller's choice: a probe reads a few images of millions
            self.data.refuse_leaks(recipe.data)
            self.data.be_here()
        self._loader = make_loader(self.data, self.recipe, self.device, gpu_share)
        self._scoring, self._frozen = self._make_scoring(), self._make_frozen()
        if (taught := self.distilled) is not None:
            read = self._frozen.read_train
            taught.remember(
                Lessons(self.recipe, info, taught.ask, device=self.device, ranks=ranks, read=read)
            )
        self._history, self._name = tuple[EpochResult, ...](), f"recipe {self.recipe.digest()}"
        self._first_epoch = 0  # the first that is trained in this process
        self._probe: tuple[int, torch.Generator] | None = None
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def distilled(self) -> Distilled | None:
        """The task with its teacher; None where the run learns from labels alone."""
        return self._task if isinstance(self._task, Distilled) else None

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
        batches = min(PORTION_BATCHES, self._loader.portion_images // self.micro_batch)
        return max(1, batches // self._trainer.micro_batches)

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
        self, part: Split, *, confusion: bool = False, answers: bool = False, take: Take | None = None
    ) -> Scores:
        """Score the weights, averaged if `regularisation.averaging` says so, on a whole part.

        With `answers` the scores hold what was answered for each image; `take` is shown it by batches. Scores
        that are not finite are replaced by the worst, without answers. Raises DataError without such a part.
        """
        self.data.check_has(part)
        with crashes_named(f"{self._name}, scoring the {part} part"), self._computing():
            self._settle_norm(self.epoch - 1)
            scores = self._scoring.part(
                self._scored_model(), part, confusion=confusion, answers=answers, take=take
            )
        return scores if scores.finite else self.extra_metrics.worst_of(self._task.worst(scores.images))

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
        return {"version": STATE_VERSION, "recipe": self.recipe.digest(), "data": self.data.info.digest}

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name, averaged if `regularisation.averaging` says so, on their device."""
        return self._scored_model().state_dict()

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
        self._loader.close()
        self._trainer.close()
        if self.compiled:
            forget_compiled()

    # --- one epoch ------------------------------------------------------------------------------------

    def _one_epoch(self) -> EpochResult:
        trained = self._train()
        trained_at = time.perf_counter()
        if not trained.lost:
            self._settle_norm(self.epoch)
        scores = None if trained.lost else self._validated()
        clean = self._clean_train_scores(diverged=scores is None or not scores.finite)
        return epoch_result(
            self.epoch + 1,
            trained,
            scores,
            worst=self.extra_metrics.worst_of(self._task.worst()),
            clean=clean,
            evaluation=time.perf_counter() - trained_at,
            memory=peak_memory_bytes(self.device),
            teacher_seconds=self._task.take_teacher_seconds(),
            is_first=self.epoch == self._first_epoch,
        )

    def _train(self) -> Trained:
        epoch, began = self.epoch, time.perf_counter()
        features = self._frozen.train(epoch) if self._task.takes_features(epoch) else None
        head = None if features is None else head_layers(self.model)

        def opened(first: int) -> Iterator[Batch]:
            order = self._trainer.order(epoch, first)
            batches = self._opened(epoch, order) if features is None else features.batches(order)
            return self._task.beside(batches, order, epoch)

        with precision.kernel_search(self._searches_kernels()):
            return self._trainer.epoch(epoch, opened, self._pause, head=head, began=began)

    def _pause(self) -> None:
        """Make rank 0's state that of all ranks, and let the caller save it."""
        self._average_norms()
        self._on_pause()

    def _opened(self, epoch: int, order: list[Tensor]) -> Iterator[Batch]:
        """Yield an epoch's micro-batches, whose positions are `order`."""
        return self._as_taken(self._loader.train(*shown(self.recipe, self.data.info, order, epoch)))

    def _validated(self) -> Scores:
        features = self._frozen.validation(self.epoch)
        return self._scoring.part(self._scored_model(), "validation", features=features)

    def _clean_train_scores(self, diverged: bool) -> Scores | None:
        """Return, at the end of a run, the scores of training images shown as validation images are."""
        if diverged or self.epoch + 1 < self.recipe.loop.epochs:
            return None
        scores = self._scoring.some(self._scored_model())
        return scores if scores.finite else None

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
        positions = seeds.sample(seed, self.data.info.train_images, wanted)
        at_once = max(self.micro_batch, SMALLEST)
        mine = self._ranks.shares_of(positions, at_once, SMALLEST)
        batches = self._as_taken(self._loader.unchanged(mine.numpy(), at_once))
        autocast = precision.autocast(self.precision, self.device)
        with eagerly(self.recipe.loop.compiles):
            measure_norm(self._scored_model(), (images for images, _ in batches), autocast, self._ranks)

    def _average_norms(self) -> None:
        average_buffers(list(dict.fromkeys([self.model, self._scored_model()])), self._ranks)

    # --- making and placing ---------------------------------------------------------------------------

    def _make_trainer(self, fewest: int) -> Trainer:
        return Trainer(
            self.recipe,
            self.model,
            task=self._task,
            order=Order(as_tensor(self.data.train.labels), self.recipe.loop),
            image_size=self.data.info.image_size,
            device=self.device,
            number_format=self.precision,
            ranks=self._ranks,
            fewest_at_once=fewest,
        )

    def _make_scoring(self) -> Scoring:
        """What reads does not hold the run, so that a run is freed with its last name."""
        loader, as_taken = self._loader, self._as_taken
        return Scoring(
            self.recipe,
            self.data,
            task=self._task,
            extra_metrics=self.extra_metrics,
            ranks=self._ranks,
            device=self.device,
            number_format=self.precision,
            read=lambda part, positions, size: as_taken(loader.evaluate(part, positions, size)),
        )

    def _make_frozen(self) -> FrozenFeatures:
        loader, as_taken = self._loader, self._as_taken
        return FrozenFeatures(
            self.recipe,
            self.data.info,
            self.model,
            device=self.device,
            number_format=self.precision,
            ranks=self._ranks,
            read_train=lambda blocks, epoch: as_taken(loader.train(blocks, epoch)),
            read_validation=lambda: as_taken(loader.evaluate("validation")),
            on_batch=self._on_batch,
        )

    def _scored_model(self) -> nn.Module:
        return self.model if self._trainer.ema is None else self._trainer.ema.model

    # --- around every computation ---------------------------------------------------------------------

    def _generators(self, use: Use, *parts: int) -> AbstractContextManager[None]:
        return seeds.global_generators(self.device, seeds.derive(self.recipe.loop.seed, use, *parts))

    def _computing(self) -> AbstractContextManager[Any]:
        """Use the run's own generators and number formats in the context, and restore the caller's."""
        stack = ExitStack()
        stack.enter_context(self._generators(Use.LAYERS, self.epoch, self._ranks.rank))
        stack.enter_context(while_training(self.recipe.loop.compile))
        stack.enter_context(precision.switches(self.precision, self.device))
        stack.enter_context(precision.kernel_search(False))
        return stack

    def _searches_kernels(self) -> bool:
        """Whether enough steps follow at one shape to earn cuDNN's search."""
        steps = self._trainer.steps * self.recipe.loop.epochs
        return self.recipe.augmentation.size.kind == "fixed" and steps >= KERNEL_SEARCH_STEPS
