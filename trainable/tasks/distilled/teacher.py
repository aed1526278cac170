"""Loads the network that teaches a run, and asks it about the very images that the student sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import resized
from trainable.data.info import DataInfo
from trainable.data.loading import statistics_of
from trainable.errors import ModelError, first_line, listed
from trainable.models.groups import HeadCut, head_layers, head_parameters
from trainable.models.own import BuildModel
from trainable.models.pretrained_input import pretrained_input
from trainable.models.published_weights import as_timm_reads
from trainable.models.weights import file_digest, read_weights, statistics_in
from trainable.models.widths import make_narrow, read_widths
from trainable.recipe import Recipe
from trainable.recipe.data import ChannelStatistics
from trainable.recipe.distillation import MODEL, SECTION, TEACHER, FeaturesTaught, Taught
from trainable.recipe.models import TimmModel
from trainable.recipe.trained_files import PRUNED_FILE, TrainedFiles, teacher_files
from trainable.training.evaluate import full_precision, main_output
from trainable.training.network import layout_of, make_network
from trainable.training.precision import Compute

GREY = 1
# The shares of red, green and blue in a grey image (ITU-R BT.601), as files are decoded as grey
LUMA = (0.299, 0.587, 0.114)
NAMES_SHOWN = 8

Shape = tuple[int, ...]
Statistics = tuple[Sequence[float], Sequence[float]]  # the mean and the deviation of each channel, on [0, 1]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Teacher:
    """A frozen network in evaluation mode, on the run's device."""

    network: nn.Module
    as_known: Callable[[Tensor], Tensor]  # makes the teacher's own images of the student's
    classes: Tensor | None  # where each class of the student stands among the logits; None: in the same order
    autocast: torch.autocast
    cut: HeadCut | None  # before the head, where the features are what is learnt
    digest: str  # of the file of weights
    recipe_digest: str | None  # of the recipe, if one stands beside them

    @torch.no_grad()
    def answers(self, inputs: Tensor) -> Tensor:
        """Return the logits [B, K, ...] in the order of the student's classes, or the features before the
        head, for images [B, C, H, W] as the student takes them."""
        with self.autocast:
            known = self.as_known(inputs)
            found = main_output(self.network(known)) if self.cut is None else self.cut.features(known)
        found = full_precision(found)
        return found if self.classes is None else found.index_select(1, self.classes)


def load_teacher(
    spec: Taught,
    student: Recipe,
    info: DataInfo,
    compute: Compute,
    build: BuildModel | None = None,
) -> Teacher:
    """Return the teacher of a run of the recipe `student`, whose `data` are resolved, on images of `info`.

    `compute` is what the student computes on and in; `build` makes a network of a person's own. Raises
    ModelError where it cannot be found or made, and where its classes are not those of the images, unless
    features alone are learnt from it.
    """
    with _teacher_named(spec):
        return _load(teacher_files(spec), spec, student, info, compute, build)


def _load(
    files: TrainedFiles,
    spec: Taught,
    student: Recipe,
    info: DataInfo,
    compute: Compute,
    build: BuildModel | None,
) -> Teacher:
    if files.recipe is not None and files.recipe.task.kind != student.task.kind:
        raise ModelError(
            f"{TEACHER}: {spec.teacher}: expected a teacher of task.kind {student.task.kind}, got one of "
            f"{files.recipe.task.kind}"
        )
    own = files.recipe.provenance.class_names if files.recipe and files.recipe.provenance else ()
    hints = isinstance(spec, FeaturesTaught)
    order = None if hints else class_order(own, info.classes, str(files.weights))
    known = _info_of(files, info, own)
    network = _loaded(files, known, build, body_alone=hints and not own)
    network = network.to(compute.device, memory_format=layout_of(student))  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    side = None if student.task.windowed else known.image_size
    theirs, ours = _statistics(files, student, info, known.channels), statistics_of(student.data, info)
    return Teacher(
        network=network,
        as_known=conversion(theirs, ours, side, network),
        classes=None if order is None else torch.tensor(order).to(compute.device),
        autocast=compute.autocast(),
        cut=HeadCut(network, head_layers(network)) if hints else None,
        digest=file_digest(files.weights),
        recipe_digest=None if files.recipe is None else files.recipe.digest(),
    )


@contextmanager
def _teacher_named(spec: Taught) -> Iterator[None]:
    """Let a fault of the teacher's files say that it is theirs: messages name the fields of a recipe."""
    try:
        yield
    except ModelError as error:
        message = str(error)
        raise ModelError(
            message if message.startswith(TEACHER) else f"{TEACHER}: {spec.teacher}: {message}"
        ) from error


def class_order(teacher: Sequence[str], student: Sequence[str], where: str) -> list[int] | None:
    """Return at which of the teacher's logits each class of the student stands; None if the order is the
    same, or if nothing names the teacher's classes. Raises ModelError for other classes."""
    if not teacher or tuple(teacher) == tuple(student):
        return None
    if set(teacher) != set(student):
        missing = listed(sorted(set(student) - set(teacher)), NAMES_SHOWN) or "none"
        more = listed(sorted(set(teacher) - set(student)), NAMES_SHOWN) or "none"
        raise ModelError(
            f"{TEACHER}: {where}: expected a teacher of the {len(student)} classes of these images; it lacks "
            f"{missing}, and has others: {more}; distillation.kind features needs no equal classes"
        )
    return [list(teacher).index(name) for name in student]


def conversion(
    teacher: Statistics, student: Statistics, side: int | None, network: nn.Module
) -> Callable[[Tensor], Tensor]:
    """Return the function that makes of images [B, C, H, W], normalised for the student, the teacher's own:
    its normalisation, its channels, its number type, and squares of `side` pixels unless that is None."""
    first = next(network.parameters())
    numbers = [torch.tensor(tuple(each), dtype=first.dtype) for each in (*student, *teacher, LUMA)]
    mean, deviation, own_mean, own_deviation = numbers[:4]
    same = mean.tolist() == own_mean.tolist() and deviation.tolist() == own_deviation.tolist()
    mean, deviation, own_mean, own_deviation, luma = (
        each.view(1, -1, 1, 1).to(first.device) for each in numbers
    )

    def converted(images: Tensor) -> Tensor:
        known = images.to(first.dtype)
        if not same:
            pixels = _with_channels(known * deviation + mean, own_mean.shape[1], luma)
            known = (pixels - own_mean) / own_deviation
        return known if side is None else resized(known, side)

    return converted


def _with_channels(pixels: Tensor, channels: int, luma: Tensor) -> Tensor:
    """Return pixels of so many channels; grey ones are the sum of colours times `luma` [1, 3, 1, 1]."""
    if pixels.shape[1] == channels:
        return pixels
    if pixels.shape[1] == GREY:
        return pixels.expand(-1, channels, -1, -1)
    return (pixels * luma).sum(1, keepdim=True)


def _info_of(files: TrainedFiles, info: DataInfo, classes: Sequence[str]) -> DataInfo:
    """Return what the teacher knew of its images, as far as its network depends on it."""
    data = None if files.recipe is None else files.recipe.data
    counts = info.class_counts if not classes else (1,) * len(classes)
    channels = info.channels if data is None or data.channels is None else data.channels
    values = info.mean[:1] * channels, info.std[:1] * channels
    return replace(
        info,
        classes=tuple(classes) or info.classes,
        class_counts=counts,
        channels=channels,
        mean=values[0],
        std=values[1],
        image_size=info.image_size if data is None or data.image_size is None else data.image_size,
    )


def _loaded(files: TrainedFiles, known: DataInfo, build: BuildModel | None, *, body_alone: bool) -> nn.Module:
    """Return the network with its weights, narrowed where `pruned.json` stands beside them; of a network of
    unknown classes with those of its body alone."""
    widths = read_widths(files.weights.parent)
    if widths is not None and files.recipe is None:
        raise ModelError(
            f"{TEACHER}: {files.weights}: {PRUNED_FILE} stands beside these weights: the network was pruned, "
            f"and its own recipe says of which it was made; give its folder, without {SECTION}.{MODEL}"
        )
    if body_alone:
        spec = files.model.model_copy(update={"weights": str(files.weights.absolute())})
        return make_network(spec, known, build=build)
    network = make_network(files.model.model_copy(update={"weights": None}), known, build=build)
    if widths is not None:
        make_narrow(network, widths)
    state = read_weights(files.weights)
    if isinstance(files.model, TimmModel):
        state = as_timm_reads(state, network)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        why = misfit(network, state) or first_line(error)
        raise ModelError(f"{TEACHER}: the weights in {files.weights} do not fit its network: {why}") from None
    return network


def misfit(network: nn.Module, state: Mapping[str, Tensor]) -> str | None:
    """Return in words the first tensor of a network that a state lacks or has in another shape, or else the
    first that the network has not; None where they fit. Other classes in the head are named as such."""
    own = {name: tuple(each.shape) for name, each in network.state_dict().items()}
    given = {name: tuple(each.shape) for name, each in state.items()}
    differing = [name for name in (*own, *given) if own.get(name) != given.get(name)]
    if not differing:
        return None
    name = differing[0]
    expected, got = (each.get(name, "no such tensor") for each in (own, given))
    found = f"{name}: expected {expected}, got {got}"
    if not _other_classes(network, differing, own, given):
        return found
    return (
        f"its head has {given[name][0]:,} classes, the images have {own[name][0]:,} ({found}); "
        f"{SECTION}.kind features needs no equal classes"
    )


def _other_classes(
    network: nn.Module, differing: Sequence[str], own: Mapping[str, Shape], given: Mapping[str, Shape]
) -> bool:
    """Return whether shapes differ in the head alone, and there in the number of classes alone."""
    try:
        head = head_parameters(network)
    except ModelError:
        return False
    return head.issuperset(differing) and all(
        len(given.get(name, ())) > 0 and given[name][1:] == own[name][1:] for name in differing
    )


def _statistics(files: TrainedFiles, student: Recipe, info: DataInfo, channels: int) -> Statistics:
    """Return by what the teacher's images were normalised: as its file of weights says, its recipe, its
    library, or, where nothing is known, as the student's are."""
    if (written := statistics_in(files.weights)) is not None:
        return written
    told = None if files.recipe is None else files.recipe.data.normalisation
    if isinstance(told, ChannelStatistics):
        return told.mean, told.std
    spec = files.model.model_copy(update={"weights": str(Path(files.weights).absolute())})
    if (known := pretrained_input(spec)) is None:
        return statistics_of(student.data, info)
    found = known.statistics(channels)
    return found.mean, found.std
