"""Checks in a minute what can be known before hours are spent on a search or a run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from trainable.checks.duplicates import Comparison, check_duplicates
from trainable.checks.finding import CheckName, Finding, unchecked
from trainable.checks.flips import check_flips
from trainable.checks.gradients import check_model_gradients
from trainable.checks.groups import check_groups
from trainable.checks.images import check_decoding, check_normalisation, check_pixels
from trainable.checks.imbalance import check_accuracy
from trainable.checks.label_shares import check_label_shares
from trainable.checks.labels import check_labels
from trainable.checks.learning import check_learning, teach
from trainable.checks.loader import check_loader
from trainable.checks.mask_lessons import check_mask_lessons
from trainable.checks.mask_networks import check_initial_mask_loss, check_mask_outputs, check_resolution
from trainable.checks.masks import check_masks
from trainable.checks.networks import check_construction, check_initial_loss, check_outputs
from trainable.checks.one_batch import check_one_batch
from trainable.checks.parts_alike import KnownImages, check_parts_alike, known_images
from trainable.checks.sharing import check_sharing
from trainable.checks.shuffled_labels import check_shuffled
from trainable.checks.shuffled_masks import check_shuffled_masks
from trainable.checks.steps import FirstSteps, check_first_steps, check_step, first_steps
from trainable.checks.subject import Subject, make_subject
from trainable.data import DataSet
from trainable.data.decode import REPAIR
from trainable.data.loading import readers_of
from trainable.errors import BrokenImages, UserError, first_line
from trainable.models.pretrained_input import pretrained_input
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.training.debug import Tool as RunTool
from trainable.training.debug import chosen
from trainable.training.devices import default_device, wait_for
from trainable.training.evaluate import main_output
from trainable.training.run import Run

Tool = Literal["gradcheck"]

SECONDS = 60.0
"""The checks together have this time;
each part that trains or computes features has a share of it, and stops when its share is used up."""
ALIKE, LESSON, SHUFFLED, ONE_BATCH, FIRST = 0.1, 0.2, 0.1, 0.2, 0.1
"""These are shares of that time;
the check of one batch tries twice, and three times if the tries are short."""

IMAGES = 32
"""The small batches of the checks of single steps have this many images."""

MOST, FEWEST = 16, 8
"""The one batch that is to be learnt by heart has this many images: fewer if a step would take too long."""
BATCH_STEPS = 150
"""In most cases one batch is learnt in this many steps."""


def check(
    recipe: Recipe,
    *,
    data: DataSet | None = None,
    model: nn.Module | None = None,
    device: torch.device | None = None,
    full: bool = False,
    debug: Sequence[str] = (),
    seconds: float = SECONDS,
    cpus: int | None = None,
    download: bool = False,
) -> list[Finding]:
    """Check a recipe, its images and its network; it writes nothing, and all draws are seeded.

    Args:
        data, model: as `Run` takes them; both stay unchanged. The checks use copies of the model, and hooks
            on single parameters are not copied.
        full: decode every image, if that is not done anyway.
        debug: `gradcheck` compares gradients with differences: minutes for a large network.
        seconds: for all checks together, except `full` and `debug`; slow networks get fewer steps, and a
            check that had too few says so.
        cpus: processors that a run will have, for the advice on loader processes.

    A check that fails is an error among the findings of the others. What follows from pixels that show
    nothing is not looked for. Raises UserError where the images cannot be read, or the network not be made.
    """
    tools = tools_named(debug)
    device = device or default_device()
    images = data
    if images is None:
        images = load_for(recipe, device, own_model=model is not None, download=download)
    subject = make_subject(recipe, images, model, device, download=download)
    return _decoding_once([*_findings(subject, seconds, tools, full=full, cpus=cpus)])


def _findings(
    subject: Subject, seconds: float, tools: Sequence[Tool], *, full: bool, cpus: int | None
) -> Iterator[Finding]:
    show = yield from check_data(subject, seconds, full=full)
    if show:
        yield from guarded("learning", lambda: check_lessons(subject, seconds))
    yield from check_network(subject, seconds, cpus, learns=show)
    if "gradcheck" in tools:
        yield from guarded("gradients", lambda: check_model_gradients(subject))
    if subject.device.type == "cuda":
        yield from guarded("GPU sharing", lambda: [check_sharing()])


def guarded(name: CheckName, findings: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; if it fails, yield that, so that the findings of others are not lost."""
    try:
        yield from findings()
    except Exception as error:
        yield from _failed(name, error)


def _failed(name: CheckName, error: Exception) -> Iterator[Finding]:
    unknown = "nothing is known about it; the other findings stand"
    match error:
        case BrokenImages():  # many checks open images, and each meets others of the broken ones
            repair = f"{REPAIR}; check --full names all"
            yield Finding("decoding", "error", str(error), "training stops at the first of them", repair)
            yield unchecked(name, "an image cannot be decoded", "see decoding")
        case UserError():
            what = f"the check cannot be made: {error}"
            yield Finding(name, "error", what, unknown, "mend what is named there, and check again")
        case _:
            what = f"the check fails: {type(error).__name__}: {first_line(error)}"
            own = "if neither the network nor a function is your own, this is a fault of tunebook: report it"
            yield Finding(name, "error", what, unknown, own)


def _decoding_once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the first error alone about images that cannot be decoded: that of `full`,
    which names all, or that of the check which met one first."""
    errors = [each for each in findings if (each.check, each.level) == ("decoding", "error")]
    return [each for each in findings if each not in errors or each is errors[0]]


def tools_named(names: Sequence[str]) -> tuple[Tool, ...]:
    """Return the debug tools with these names, each once. Raises UserError naming the known ones."""
    watching = dict.fromkeys(get_args(RunTool), "watches a run, use `tunebook train`")
    return chosen(names, get_args(Tool), watching)


def check_data(
    subject: Subject, seconds: float = SECONDS, *, full: bool = False
) -> Generator[Finding, None, bool]:
    """Yield findings about images and labels, without training the network; return whether the images show
    anything."""
    data = subject.data
    if data.info.dense:
        yield from guarded("mask values", lambda: check_masks(data, subject.recipe))
    else:
        yield from guarded("class balance", lambda: check_labels(data, subject.recipe.data.unscored))
        yield from guarded("label shares", lambda: check_label_shares(data))
        yield from guarded("accuracy", lambda: [check_accuracy(data)])
    compared = Comparison(data, full=full)
    if full:
        yield from guarded("decoding", lambda: check_decoding(data))
    show = yield from check_images(data, compared, lambda: known_images(subject, ALIKE * seconds))
    if show:
        known = None if subject.is_own else pretrained_input(subject.recipe.model)
        normal = partial(check_normalisation, data, subject.recipe, subject.device, known)
        yield from guarded("normalisation", normal)
    yield from guarded("groups", lambda: check_groups(data, compared, subject.recipe.data))
    return show


def check_images(
    data: DataSet, compared: Comparison, known: Callable[[], KnownImages]
) -> Generator[Finding, None, bool]:
    """Yield findings about the pixels, and about parts that differ in kind or have equal images; return
    whether the images show anything.

    From images that show nothing the rest follows, and is not looked for. `known` is asked for the images to
    compare.
    """
    try:
        show = yield from check_pixels(data, compared.sample)
    except Exception as error:
        show = True  # as far as is known
        yield from _failed("pixel values", error)
    if not show:
        others = "duplicates, normalisation, or what can be learnt"
        yield unchecked("parts alike", f"the images show too little; nor are {others}", "see pixel values")
        return show
    yield from guarded("parts alike", lambda: check_parts_alike(data, *known()))
    yield from guarded("duplicates", lambda: check_duplicates(data, full=compared.full, compared=compared))
    return show


def check_lessons(subject: Subject, seconds: float = SECONDS) -> Iterator[Finding]:
    """Yield findings about what a small net learns from the images, whatever the recipe's network is."""
    if subject.data.info.dense:
        yield from check_mask_lessons(subject, LESSON * seconds)
        return
    train, validation = (set(part.labels.tolist()) for part in (subject.data.train, subject.data.validation))
    if len(train & validation) < 2:
        yield unchecked("learning", "training and validation share fewer than two classes")
        return
    lesson = teach(subject, LESSON * seconds)
    yield check_learning(lesson)
    yield from check_flips(lesson, subject.data.info.flips)


def check_network(
    subject: Subject, seconds: float = SECONDS, cpus: int | None = None, *, learns: bool = True
) -> Iterator[Finding]:
    """Yield findings about the network, its first steps at the recipe's rate, and what it knows already;
    unless it `learns`, as from images that show nothing, not about what it learns."""
    batch, dense = min(IMAGES, len(subject.data.train)), subject.data.info.dense
    try:
        each = yield from _of_outputs(subject, batch)
    except Exception as error:
        yield from _failed("outputs", error)
        return
    if each is None:
        return
    yield from guarded("training step", lambda: _of_one_step(subject, batch))
    yield from guarded("first steps", lambda: _of_first_steps(subject, each, FIRST * seconds, cpus))
    if not learns:
        return
    fitting = int(ONE_BATCH * seconds / (BATCH_STEPS * each))
    images = min(MOST, max(FEWEST, fitting))
    yield from guarded("one batch", lambda: [check_one_batch(subject, images, ONE_BATCH * seconds)])
    if dense:
        yield from guarded("shuffled masks", lambda: [check_shuffled_masks(subject, SHUFFLED * seconds)])
    else:
        yield from guarded("shuffled labels", lambda: [check_shuffled(subject, SHUFFLED * seconds)])


def _of_outputs(subject: Subject, batch: int) -> Generator[Finding, None, float | None]:
    """Yield findings about the network before training; return the seconds that an image takes, None where a
    pass fails."""
    dense = subject.data.info.dense
    plain = subject.plain_run(batch)
    try:
        with plain.probing():
            images, _ = next(plain.windows())[0]
            try:
                each = _seconds_an_image(plain, images)
            except UserError:
                raise
            except Exception as error:
                yield _crash(error, dense=dense)
                return None
            yield from check_construction(subject, images)
            yield from (check_mask_outputs if dense else check_outputs)(plain, images)
            if dense:
                yield check_resolution(plain)
        with plain.probing():
            yield (check_initial_mask_loss if dense else check_initial_loss)(plain)
    finally:
        plain.close()
    return each


def _of_one_step(subject: Subject, batch: int) -> Iterator[Finding]:
    fresh = subject.plain_run(batch)  # a network that stores things has them even after `probing`
    with fresh.probing():
        yield from check_step(fresh)
    fresh.close()


def _of_first_steps(subject: Subject, each: float, seconds: float, cpus: int | None) -> Iterator[Finding]:
    """Yield findings from steps at the recipe's own batch, unless a few steps would take all the time."""
    recipe = subject.recipe.with_values({"loop.workers": 0, "loop.compile": False})
    expected = 2 * recipe.loop.batch_size * each
    if expected > seconds:
        why = (
            f"a step of {recipe.loop.batch_size} images takes about {expected / 2:.1f} s on {subject.device}"
        )
        yield unchecked("first steps", why, "a smaller data.image_size or model, or a GPU")
        return
    run = make_run(recipe, data=subject.data, model=subject.network(), device=subject.device)
    with run.probing():
        steps = first_steps(run, seconds)
    run.close()
    if not isinstance(steps, FirstSteps):
        yield steps
        return
    yield check_first_steps(steps)
    ready = subject.data.info.in_memory or bool(subject.data.decoded_views())
    cached = subject.data.cache is not None
    workers = readers_of(subject.recipe.loop)
    yield check_loader(steps, workers=workers, in_memory=ready, cached=cached, cpus=cpus)


def _seconds_an_image(run: Run, images: Tensor) -> float:
    """Return roughly the seconds of a forward and backward pass, for one image. It is the quickest of a few
    passes, as other programs may use the processors too."""
    few, quickest = images[:FEWEST], math.inf
    for _ in range(4):
        began = time.perf_counter()
        main_output(run.model(few)).float().logsumexp(1).sum().backward()
        run.model.zero_grad(set_to_none=True)
        wait_for(run.device)
        quickest = min(quickest, time.perf_counter() - began)
    return quickest / len(few)


def _crash(error: Exception, *, dense: bool) -> Finding:
    logits = "[B, classes, h, w]" if dense else "[B, classes]"
    return Finding(
        "outputs",
        "error",
        f"a forward and backward pass fails: {type(error).__name__}: {first_line(error)}",
        "no step can be made",
        f"correct the model's forward: it takes images [B, C, H, W] and returns logits {logits}",
    )
