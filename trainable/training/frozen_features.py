"""Remembers what a frozen body makes of images that epochs show it again, so that it computes it once.

While `model.freeze_epochs` trains the head alone, the features of an image change only if the image does. So
they are computed once for the validation part, and once for each view of the training part: there is one view
where nothing random touches the images, else there are `model.frozen_views`.

They take images * views * features * 4 bytes on the host, half of it in fp16 and bf16: 1,000 images make 5 MB
for EfficientNet-Lite0's 1,280 features.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from trainable.augmentation.draws import moved
from trainable.data.batch import Batch
from trainable.data.info import DataInfo
from trainable.files.host_memory import fits_on_host
from trainable.models.groups import HeadCut, cut_before_head, set_training
from trainable.recipe import Recipe
from trainable.training import seeds
from trainable.training.devices import give_back, ran_out
from trainable.training.evaluate import BatchLimit, in_parts
from trainable.training.images import Images
from trainable.training.precision import Compute

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Features:
    """The features of a part's images and their labels, on the host."""

    values: Tensor  # [N, F]
    labels: Tensor  # int64 [N]
    device: torch.device
    on_batch: Callable[[], None]

    def batches(self, positions: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield features [B, F] and labels [B] on the device, and call `on_batch` before each.

        Position p + N is image p again.
        """
        for each in positions:
            self.on_batch()
            rows = each % len(self.labels)
            yield moved(self.values[rows], self.device), moved(self.labels[rows], self.device)


@final
class FrozenFeatures:
    """The features of a run's images, computed when they are first needed and forgotten when the body thaws.

    They are a function of the recipe and the data alone, so that resuming equals never stopping: images are
    read in fixed blocks, whatever the order in which an epoch shows them. Nothing is remembered where it
    would not be used twice, or is not certain to be the same: images of changing sizes or mixed, more than
    one rank, a compiled network, and one whose body needs other images or chance. Where memory is short, the
    run goes on without, and says so in the log.
    """

    def __init__(
        self,
        recipe: Recipe,
        info: DataInfo,
        model: nn.Module,
        *,
        images: Images,
        compute: Compute,
        views: int | None,
    ) -> None:
        self._recipe, self._info, self._model, self._images = recipe, info, model, images
        self._device, self._autocast = compute.device, compute.autocast()
        whole = not recipe.task.windowed  # features of windows take more than their images
        alone = compute.ranks.world == 1 and not recipe.loop.compiles and whole
        self._epochs = min(recipe.model.freeze_epochs, recipe.loop.epochs) if alone else 0  # may use features
        self._views_shown, self._views = views, self._views_used_twice(views)
        plain = not recipe.evaluation.flip and set(recipe.evaluation.scales) == {1.0}
        self._validates = plain and self._epochs > 1
        self._limit = BatchLimit(pads=compute.device.type == "cuda")
        self._cut: HeadCut | None = None
        self._train: dict[int, Features] = {}
        self._validation: Features | None = None

    def train(self, epoch: int) -> Features | None:
        """Return the features of the training images as an epoch, counted from 0, shows them; or None."""
        if epoch >= self._epochs:
            self.forget()
            return None
        if self._views == 0:
            return None
        view = epoch % self._views
        if view not in self._train:
            count = self._info.train_images
            blocks = torch.arange(count).tensor_split(math.ceil(count / self._recipe.evaluation.batch_size))
            found = self._tried(lambda: self._images.train(blocks, view), count)
            self._train |= {} if found is None else {view: found}
        return self._train.get(view)

    @property
    def remembered_epochs(self) -> int:
        """How many epochs are shown features that earlier ones have computed, where memory suffices."""
        return max(0, self._epochs - self._views) if self._views else 0

    def shown(self, batches: list[Tensor], epoch: int) -> tuple[list[Tensor], int]:
        """Return the positions and the epoch by which an epoch, counted from 0, augments its images.

        With k views, frozen epoch e augments as epoch e mod k does, and shows an image that is drawn more
        than once the same way each time. Other epochs are returned as they are.
        """
        if self._views_shown is None or epoch >= self._recipe.model.freeze_epochs:
            return batches, epoch
        return [each % self._info.train_images for each in batches], epoch % self._views_shown

    def validation(self, epoch: int) -> Iterator[Batch] | None:
        """Return the validation part's batches of features after an epoch, those of scoring; or None."""
        if epoch >= self._epochs or not self._validates:
            return None
        if self._validation is None:
            read, count = self._images.evaluate, self._info.validation_images
            self._validation = self._tried(lambda: read("validation"), count)
        if self._validation is None:
            return None
        positions = torch.arange(self._info.validation_images)
        return self._validation.batches(positions.split(self._recipe.evaluation.batch_size))

    def forget(self) -> None:
        """Free all features; they are computed again when they are needed."""
        self._cut, self._validation = None, None
        self._train.clear()

    # --- computing ------------------------------------------------------------------------------------

    def _views_used_twice(self, views: int | None) -> int:
        """Return how many views of the training images are remembered; 0 if none is shown twice."""
        augmentation = self._recipe.augmentation
        as_read = augmentation.mixing.kind == "none" and augmentation.size.kind == "fixed"
        return views if as_read and views is not None and views < self._epochs else 0

    def _tried(self, read: Callable[[], Iterator[Batch]], count: int) -> Features | None:
        """Return the features of `count` images; None, now and later, if body or memory forbids it."""
        try:
            self._cut = self._cut or self._checked_cut()
            if self._cut is not None:
                return self._computed(self._cut, read(), count)
        except Exception as error:
            if not ran_out(error):
                raise
            logger.warning("features of the frozen body are not remembered: memory ran out: %s", error)
        self.forget()
        self._epochs = 0
        give_back(self._device)  # here, since the exception held the frames that hold the memory
        return None

    @torch.no_grad()
    def _computed(self, cut: HeadCut, batches: Iterator[Batch], count: int) -> Features:
        values, labels, done = torch.empty(0), torch.empty(count, dtype=torch.int64), 0
        self._model.eval()
        for images, truth in batches:
            with self._autocast:
                found = in_parts(cut.features, images, self._limit)
            if done == 0:
                values = torch.empty(count, found.shape[1], dtype=found.dtype)
            rows = slice(done, done + len(truth))
            values[rows], labels[rows] = found, truth
            done = rows.stop
        return Features(values, labels, self._device, self._images.on_batch)

    @torch.no_grad()
    def _checked_cut(self) -> HeadCut | None:
        """Return the network cut before its head, if features may stand for images, and fit in memory."""
        first = next(self._model.parameters())
        shape = (3, self._info.channels, self._info.image_size, self._info.image_size)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self._device, first.dtype)
        with self._autocast:
            cut = steady_cut(self._model, noise, freeze_norm=self._recipe.model.freeze_norm)
            if cut is not None:
                shown = self._info.train_images * self._views
                scored = self._info.validation_images * self._validates
                needed = (shown + scored) * cut.features(noise[:1]).nbytes
                return cut if fits_on_host("features of the frozen body", needed) else None
        if self._recipe.model.frozen_views is not None:
            logger.warning(
                "model.frozen_views: features are not remembered: the frozen body draws random numbers "
                "(model.dropout, model.stochastic_depth), changes buffers, or mixes images"
            )
        return None


@torch.no_grad()
def steady_cut(network: nn.Module, images: Tensor, *, freeze_norm: bool) -> HeadCut | None:
    """Return the cut before the head of a network whose frozen body makes features [B, F] of each image
    alone, without chance, and the same in training as in evaluation mode; None for any other network.

    This is tried on three images [3, C, H, W]. The network is in evaluation mode afterwards.
    """
    cut = cut_before_head(network, images[:2])
    network.eval()
    if cut is None:
        return None
    features, others = cut.features(images[:2]), cut.features(images[::2])
    alone = features.ndim == 2 and torch.equal(features[0], others[0])
    return cut if alone and _trains_alike(cut, images[:2], features, freeze_norm) else None


def _trains_alike(cut: HeadCut, images: Tensor, features: Tensor, freeze_norm: bool) -> bool:
    """Return whether a body in training mode, but for its frozen layers, gives these features, draws no
    random number and changes no buffer."""
    buffers = list(cut.network.buffers())
    before = [each.clone() for each in buffers]
    with seeds.global_generators(images.device, 0):
        drawn = _generator_states(images.device)
        set_training(cut.network, freeze_norm=freeze_norm, body_frozen=True)
        cut.head.eval()
        answers = cut.network(images)
        steady = all(map(torch.equal, drawn, _generator_states(images.device)))
    steady = steady and all(map(torch.equal, before, buffers))
    for buffer, value in zip(buffers, before, strict=True):
        buffer.copy_(value)
    cut.network.eval()
    return steady and isinstance(answers, Tensor) and torch.equal(answers, cut.head(features))


def _generator_states(device: torch.device) -> list[Tensor]:
    states = [torch.default_generator.get_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states
