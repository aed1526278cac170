"""What is checked: a recipe with its images and its network, and what the checks ask of its task."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from trainable.array_types import Integers
from trainable.bench import HERE, Bench
from trainable.checks.finding import Finding
from trainable.checks.sampling import NamedImage
from trainable.data import DataSet, Split
from trainable.data.loading import Loader
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.distillation import SECTION
from trainable.training.run import Run

# With these values nothing makes training images or labels harder, or only costs time here
PLAIN: Mapping[str, Any] = {
    SECTION: None,  # a teacher's share of the loss does not vanish
    "regularisation.label_smoothing": 0.0,
    "regularisation.class_weights.kind": "none",
    "regularisation.logit_adjustment": 0.0,
    "regularisation.clipping.kind": "none",
    "regularisation.averaging.kind": "none",
    "augmentation.crop.kind": "none",
    "augmentation.flip_probability": 0.0,
    "augmentation.policy.kind": "none",
    "augmentation.masking.kind": "none",
    "augmentation.mixing.kind": "none",
    "augmentation.size.kind": "fixed",
    "model.freeze_epochs": 0,
    "schedule.kind": "constant",
    "schedule.warmup_epochs": 0.0,
    "loop.sampling": "natural",
    "loop.micro_batch": None,
    "loop.workers": 0,
    "loop.sync_norm": False,
    "loop.checkpoint_activations": False,
    "loop.compile": False,
    "evaluation.flip": False,
    "evaluation.scales": [1.0],
    "evaluation.norm_batches": 0,
}

# A second opinion on rates: at its paper's rate (1412.6980, section 2) Adam learns a batch with any net
EASY: Mapping[str, Any] = {
    "optimizer.kind": "adam",
    "optimizer.lr": 1e-3,
    "optimizer.scaling": "none",
    "model.layer_rates.kind": "uniform",
    "model.freeze_norm": False,
}


class MakeRun(Protocol):
    """What makes the run of a recipe, as `trainable.run.make_run` does."""

    def __call__(
        self,
        recipe: Recipe,
        *,
        data: DataSet | None = None,
        model: nn.Module | None = None,
        bench: Bench = HERE,
    ) -> Run: ...


MakeLoader = Callable[[DataSet, Recipe, Bench], Loader]


@dataclass(frozen=True)
class Subject:
    """A recipe resolved for its images, and its network as it is before training: every check uses a new
    copy of that."""

    recipe: Recipe
    data: DataSet
    checks: TaskChecks
    untrained: nn.Module
    without_drops: nn.Module  # the same network, but it leaves nothing out at random
    bench: Bench
    is_own: bool  # the network is a person's own, rather than the recipe's
    make_run: MakeRun
    make_loader: MakeLoader

    def network(self) -> nn.Module:
        """Return a copy of the network, to be trained or not."""
        return copy.deepcopy(self.untrained)

    def plain_run(
        self, batch_size: int, values: Mapping[str, Any] | None = None, data: DataSet | None = None
    ) -> Run:
        """Return a run of the network without dropout on images without augmentation."""
        return self.make_run(
            self.recipe.with_values({**PLAIN, "loop.batch_size": batch_size, **(values or {})}),
            data=data or self.data,
            model=copy.deepcopy(self.without_drops),
            bench=self.bench,
        )

    def loader(self) -> Loader:
        """Return a loader of the images that starts no processes."""
        return self.make_loader(self.data, self.recipe.with_values({"loop.workers": 0}), self.bench)


class TaskChecks(abc.ABC):
    """What the checks ask of what is learnt: an implementation for each kind of task.

    `trainable.check.checks_of` says which one a recipe has.
    """

    logits: str  # the shape of the network's outputs, in words
    at_once: int | None  # so many images fit into one batch of evaluation; None: as many as the recipe says
    by_heart: float  # one batch is learnt by heart from this score on

    # --- of the data -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def of_targets(self, data: DataSet, recipe: Recipe) -> Iterator[Finding]:
        """Yield findings about what is to be learnt, without a network; guarded."""

    @abc.abstractmethod
    def contradictions(self, data: DataSet, groups: Sequence[Sequence[NamedImage]]) -> Finding:
        """Return the finding about equal images, in groups, of which not the same is to be learnt."""

    @abc.abstractmethod
    def check_split(self, data: DataSet, groups: Mapping[Split, Integers], spec: Data) -> None:
        """Raise DataError if the images of some parts cannot be split with these groups, [N] of each part,
        whole."""

    # --- of networks -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def lessons(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        """Yield what a small net learns from the images, whatever the recipe's network is."""

    @abc.abstractmethod
    def outputs(self, run: Run, images: Tensor) -> Iterator[Finding]:
        """Yield whether outputs for images [B, C, H, W] are the logits that the task takes; it is called in
        `probing`."""

    @abc.abstractmethod
    def initial_loss(self, run: Run) -> Finding:
        """Compare the loss before any step with that of guessing; it is called in `probing`."""

    @abc.abstractmethod
    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """Return how well a batch is known, in [0, 1], from the logits of the network's main head."""

    @abc.abstractmethod
    def score_in_words(self, score: float) -> str: ...

    @abc.abstractmethod
    def shuffled(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        """Yield whether a network knows what is true after learning what belongs to other images; guarded."""
