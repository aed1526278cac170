"""One training run: a Recipe in, an EpochResult after every step().

    run = Run(Recipe())
    while not run.finished:
        print(run.step().val_accuracy)

Everything random in an epoch follows from (loop.seed, epoch): a run that is stopped and resumed is the same
run.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainable import precision, seeds
from trainable.data import DataSet, load, resolve
from trainable.errors import DataError, UserError
from trainable.evaluate import Scores, evaluate, worst_scores
from trainable.loading import make_loader
from trainable.metrics import EpochResult
from trainable.models.make import make_model
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.seeds import Use
from trainable.trainer import Trained, Trainer

Part = Literal["train", "validation", "test"]
PREFIXES: dict[Part, str] = {"train": "train", "validation": "val", "test": "test"}
STATE_VERSION = 1


class RunError(Exception):
    """A run that crashed; the message carries the recipe's digest, the cause is what was raised."""


class StateError(UserError):
    """A saved state that belongs to another recipe or other data."""


class Run:
    """One recipe being trained on one device, as one of `ranks`.

    Args:
        recipe: what to train; `run.recipe` is it with every open field of `data` filled in.
        data: the images, where they are at hand; else they are loaded as the recipe says.
        model: a network of your own, [B, C, H, W] -> logits [B, classes], in place of `recipe.model`. It is
            moved to the device and trained in its own number format.
        ranks: the other processes of a data-parallel run. Every rank makes its Run with the same recipe and
            data; the weights of rank 0 are used.
        device: the first CUDA device, or the CPU, by default.
        gpu_share: the part of the GPU's memory that this run may count as its own, in (0, 1]; images are held
            there only where they take little of it.

    The caller's random generators are left as they were. Raises UserError for what the recipe, the data or
    the model make impossible, before any training.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        data: DataSet | None = None,
        model: nn.Module | None = None,
        ranks: Ranks = ALONE,
        device: torch.device | None = None,
        gpu_share: float = 1.0,
    ) -> None:
        self.device = device or default_device()
        self.data = data if data is not None else load_data(recipe, self.device)
        self.recipe = recipe.model_copy(update={"data": resolve(recipe.data, self.data.info)})
        _check_batch(self.recipe, self.data.info.train_images, ranks)
        self.precision = precision.resolve(self.recipe.precision, self.device)
        self._ranks = ranks
        with self._generators(Use.WEIGHTS):
            self.model = self._place(model if model is not None else self._make_model())
        self._trainer = self._make_trainer()
        self._loader = make_loader(self.data, self.recipe, self.device, gpu_share)
        self._history: tuple[EpochResult, ...] = ()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def history(self) -> tuple[EpochResult, ...]:
        """The results so far, first to last, those from before a resume included."""
        return self._history

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self._history)

    @property
    def diverged(self) -> bool:
        return bool(self._history) and self._history[-1].diverged

    @property
    def finished(self) -> bool:
        """True after the last epoch, and once the run has diverged."""
        return self.epoch >= self.recipe.loop.epochs or self.diverged

    @property
    def micro_batch(self) -> int:
        """The most images that this rank trains on at once."""
        share = len(range(self.recipe.loop.batch_size)[self._ranks.share(self.recipe.loop.batch_size)])
        return -(-share // self._trainer.micro_batches)

    def step(self) -> EpochResult:
        """Train one epoch and score the validation part.

        A loss that is not finite, or a training loss far beyond recovery (`trainer.LOST_FACTOR`), ends the
        run with a result that says `diverged`. Raises RunError for a crash, UserError for faulty images,
        ValueError when the run has finished.
        """
        if self.finished:
            raise ValueError(f"the run has finished after {self.epoch} epochs; see Run.finished")
        with self._guarded(f"epoch {self.epoch + 1}"), self._computing():
            result = self._one_epoch()
        self._history = (*self._history, result)
        return result

    def score(self, part: Part, *, confusion: bool = False) -> Scores:
        """Score the weights that `evaluation.weights` names on a whole part.

        Raises DataError where there is no such part. Scores that are not finite are replaced by the worst.
        """
        if part == "test" and self.data.test is None:
            raise DataError(f"data.path {self.recipe.data.path}: there is no test part to score")
        with self._guarded(f"scoring the {part} part"), self._computing():
            scores = self._score(part, confusion)
        return scores if scores.finite else worst_scores(self._classes, scores.images)

    def evaluate(self, part: Part) -> dict[str, float]:
        """The scores of a part by name, such as `test_accuracy`."""
        return self.score(part).metrics(PREFIXES[part])

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resume needs: tensors and plain values, which `weights_only=True` can read.

        The tensors are the run's own, as torch's are: save or copy them before the next step.
        """
        return {
            "version": STATE_VERSION,
            "recipe": self.recipe.digest(),
            "data": self.data.info.digest,
            "epoch": self.epoch,
            "history": [result.tree() for result in self._history],
            "model": self.model.state_dict(),
            **self._trainer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state as if the run had never stopped. Raises StateError for another run's state."""
        expected = {"version": STATE_VERSION, "recipe": self.recipe.digest(), "data": self.data.info.digest}
        for name, value in expected.items():
            if state.get(name) != value:
                raise StateError(f"this state is of {name} {state.get(name)!r}, the run is of {value!r}")
        self.model.load_state_dict(state["model"])
        self._trainer.load_state_dict(state)
        self._history = tuple(EpochResult.from_tree(tree) for tree in state["history"])

    def weights(self) -> dict[str, Tensor]:
        """The weights that `evaluation.weights` names, by name, on their device."""
        return self._scored_model().state_dict()

    def close(self) -> None:
        """End the loader's processes; the run cannot go on afterwards."""
        self._loader.close()

    # --- one epoch ------------------------------------------------------------------------------------

    def _one_epoch(self) -> EpochResult:
        started = time.perf_counter()
        trained = self._train()
        trained_at = time.perf_counter()
        scores = None if trained.lost else self._score("validation", confusion=False)
        now = time.perf_counter()
        return self._result(trained, scores, seconds=now - started, evaluation_seconds=now - trained_at)

    def _train(self) -> Trained:
        batches = self._loader.train(self._trainer.order(self.epoch), self.epoch)
        return self._trainer.epoch(self.epoch, self._converted(batches))

    def _score(self, part: Part, confusion: bool) -> Scores:
        self._average_buffers()
        batches = islice(self._loader.evaluate(part), self._ranks.rank, None, self._ranks.world)
        return evaluate(
            self._scored_model(),
            self._converted(batches),
            self._classes,
            device=self.device,
            autocast=precision.autocast(self.precision, self.device),
            ranks=self._ranks,
            confusion=confusion,
        )

    def _result(
        self, trained: Trained, scores: Scores | None, *, seconds: float, evaluation_seconds: float
    ) -> EpochResult:
        worst = worst_scores(self._classes)
        diverged = scores is None or not scores.finite
        validation = worst if scores is None or not scores.finite else scores
        return EpochResult(
            epoch=self.epoch + 1,
            train_loss=worst.loss if diverged else trained.loss,
            train_accuracy=worst.accuracy if diverged else trained.accuracy,
            val_loss=validation.loss,
            val_accuracy=validation.accuracy,
            val_balanced_accuracy=validation.balanced_accuracy,
            val_top5_accuracy=validation.top5_accuracy,
            lr=trained.lr,
            grad_norm=trained.grad_norm,
            skipped_steps=trained.skipped_steps,
            epoch_seconds=seconds,
            data_seconds=trained.data_seconds,
            evaluation_seconds=evaluation_seconds,
            images_per_second=trained.images / trained.seconds,
            peak_memory_bytes=_peak_memory_bytes(self.device),
            diverged=diverged,
        )

    def _average_buffers(self) -> None:
        """Ranks see different images, so their running statistics differ: from here on they are the mean."""
        if self._ranks.world == 1:
            return
        models = [self.model] if self._trainer.ema is None else [self.model, self._trainer.ema.model]
        buffers = [each for model in models for each in model.buffers() if each.is_floating_point()]
        self._ranks.sum_in_place(buffers)
        for each in buffers:
            each.div_(self._ranks.world)

    # --- making and placing ---------------------------------------------------------------------------

    @property
    def _classes(self) -> int:
        return len(self.data.info.classes)

    def _make_model(self) -> nn.Module:
        info = self.data.info
        return make_model(
            self.recipe.model, classes=self._classes, channels=info.channels, image_size=info.image_size
        )

    def _place(self, model: nn.Module) -> nn.Module:
        """On the device, in the memory layout, with rank 0's weights."""
        memory_format = torch.channels_last if self.recipe.precision.channels_last else torch.preserve_format
        placed: nn.Module = model.to(self.device, memory_format=memory_format)  # type: ignore[call-overload]
        if self._ranks.world > 1:
            self._ranks.copy_from_first([each.detach() for each in placed.state_dict().values()])
        self._dtype = next((each.dtype for each in model.parameters()), torch.float32)
        self._memory_format = memory_format
        return placed

    def _make_trainer(self) -> Trainer:
        return Trainer(
            self.recipe,
            self.model,
            classes=self._classes,
            train_images=self.data.info.train_images,
            device=self.device,
            number_format=self.precision,
            ranks=self._ranks,
        )

    def _scored_model(self) -> nn.Module:
        ema = self._trainer.ema
        return ema.model if ema is not None and self.recipe.evaluation.weights == "ema" else self.model

    def _converted(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in batches:
            yield images.to(self.device, self._dtype, memory_format=self._memory_format), labels

    # --- around every computation ---------------------------------------------------------------------

    def _generators(self, use: Use, *parts: int) -> AbstractContextManager[None]:
        return seeds.global_generators(self.device, seeds.derive(self.recipe.loop.seed, use, *parts))

    def _computing(self) -> AbstractContextManager[Any]:
        """The run's own generators and number formats, and the caller's again afterwards."""
        stack = ExitStack()
        stack.enter_context(self._generators(Use.LAYERS, self.epoch, self._ranks.rank))
        stack.enter_context(precision.switches(self.precision, self.device))
        return stack

    def _guarded(self, what: str) -> AbstractContextManager[Any]:
        return _Guard(f"recipe {self.recipe.digest()}, {what}")


class _Guard(AbstractContextManager[None]):
    """Turns a crash into a RunError that says which run and where; UserErrors say enough themselves."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, UserError):
            raise RunError(f"{self._where}: {type(error).__name__}: {error}") from error


def _check_batch(recipe: Recipe, train_images: int, ranks: Ranks) -> None:
    batch = recipe.loop.batch_size
    if batch > train_images:
        raise DataError(
            f"loop.batch_size {batch} is above the {train_images} training images of {recipe.data.path}: "
            f"there is no whole batch to train on; set loop.batch_size to {train_images} or less"
        )
    if batch < ranks.world:
        raise DataError(f"loop.batch_size {batch} is below the {ranks.world} ranks that share it")


def load_data(recipe: Recipe, device: torch.device, *, download: bool = False) -> DataSet:
    """The images of a recipe, made square as its evaluation wants them, for a run on a device."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    return load(recipe.data, resize=recipe.evaluation.resize, device_kind=kind, download=download)


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """What a provenance calls a device: `cpu`, or `cuda` with the model, as in `cuda (NVIDIA H200)`.

    The first word is the kind, and alone is a name too: of a device whose model is not known.
    """
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def _peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
