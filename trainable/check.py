"""Checks in a minute what can be known before hours are spent on a search or a run."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import assert_never

from torch import Tensor, nn

from trainable.bench import HERE, Bench
from trainable.checks.duplicates import Fingerprints, check_duplicates
from trainable.checks.finding import Finding, advised, failed, guarded, unchecked
from trainable.checks.gradients import check_model_gradients
from trainable.checks.groups import check_groups
from trainable.checks.images import check_decoding, check_normalisation, check_pixels
from trainable.checks.networks import check_construction
from trainable.checks.one_batch import check_one_batch
from trainable.checks.parts_alike import KnownImages, check_parts_alike, known_images
from trainable.checks.sharing import check_sharing
from trainable.checks.short_training import LESSON
from trainable.checks.steps import FirstSteps, check_first_steps, check_loader, check_step, first_steps
from trainable.checks.subject import Subject, TaskChecks
from trainable.data import DataSet
from trainable.data.loading import readers_of
from trainable.debug_tools import CheckTool, check_tools_named
from trainable.errors import UserError, first_line
from trainable.models.pretrained_input import pretrained_input
from trainable.recipe import Recipe
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.run import make_run
from trainable.stages import stage
from trainable.tasks.classification.checks.label_checks import LabelChecks
from trainable.tasks.kits import load_for, make_loader
from trainable.tasks.segmentation.checks.mask_checks import MaskChecks
from trainable.training import seeds
from trainable.training.devices import wait_for
from trainable.training.evaluate import main_output
from trainable.training.network import make_network
from trainable.training.pixels import resolved
from trainable.training.run import Run
from trainable.training.seeds import Use

# The checks together have this time; each part that trains or computes features has a share of it, and stops
# when its share is used up
SECONDS = 60.0
# Shares of that time; one batch is tried twice, and three times if the tries are short
ALIKE, SHUFFLED, ONE_BATCH, FIRST = 0.1, 0.1, 0.2, 0.1

IMAGES = 32  # in the small batches of the checks of single steps
MOST, FEWEST = 16, 8  # in the one batch that is to be learnt by heart: fewer if a step would take too long
BATCH_STEPS = 150  # in which one batch is learnt in most cases


def check(  # noqa: PLR0913 - a person types these by name
    recipe: Recipe,
    *,
    data: DataSet | None = None,
    model: nn.Module | None = None,
    bench: Bench = HERE,
    full: bool = False,
    debug: Sequence[str] = (),
    seconds: float = SECONDS,
    cpus: int | None = None,
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
    tools = check_tools_named(debug)
    images = data or load_for(recipe, bench, own_model=model is not None)
    subject = make_subject(recipe, images, model, bench)
    found = check_subject(subject, seconds, tools, full=full, cpus=cpus)
    return [advised(each, subject.recipe, images.info) for each in found]


def check_subject(
    subject: Subject,
    seconds: float = SECONDS,
    tools: Sequence[CheckTool] = (),
    *,
    full: bool = False,
    cpus: int | None = None,
) -> Iterator[Finding]:
    """Yield what `check` finds, each finding as soon as it is known, with advice for any recipe.

    Of the errors about images that cannot be decoded only the first is yielded: that of `full`, which names
    all, or that of the check which met one first.
    """
    is_told = False
    for finding in _findings(subject, seconds, tools, full=full, cpus=cpus):
        cannot_decode = (finding.check, finding.level) == ("decoding", "error")
        if not (cannot_decode and is_told):
            yield finding
        is_told |= cannot_decode


def _findings(
    subject: Subject, seconds: float, tools: Sequence[CheckTool], *, full: bool, cpus: int | None
) -> Iterator[Finding]:
    show = yield from check_data(subject, seconds, full=full)
    if show:
        yield from guarded("learning", lambda: check_lessons(subject, seconds))
    yield from check_network(subject, seconds, cpus, learns=show)
    if "gradcheck" in tools:
        yield from guarded("gradients", lambda: check_model_gradients(subject))
    if subject.bench.kind == "cuda":
        yield from guarded("GPU sharing", lambda: [check_sharing()])


def checks_of(task: AnyTask) -> TaskChecks:
    """Return what the checks ask of a recipe's task."""
    match task:
        case Classification():
            return LabelChecks()
        case Segmentation():
            return MaskChecks()
        case _:
            assert_never(task)


def make_subject(recipe: Recipe, data: DataSet, model: nn.Module | None, bench: Bench) -> Subject:
    """Make the subject of the checks. Raises ModelError if the recipe's network cannot be made."""
    whole = resolved(recipe, data, bench, own_model=model is not None)
    if model is not None:
        untrained, bare = copy.deepcopy(model), copy.deepcopy(model)
    else:
        drops = {"dropout": 0.0 if recipe.model.dropout is not None else None, "stochastic_depth": None}
        plain = recipe.model_copy(update={"model": recipe.model.model_copy(update=drops)})
        untrained, bare = (_make_network(each, data, bench) for each in (recipe, plain))
    return Subject(
        whole,
        data,
        checks_of(recipe.task),
        untrained,
        _without_drops(bare),
        bench,
        is_own=model is not None,
        make_run=make_run,
        make_loader=make_loader,
    )


def _make_network(recipe: Recipe, data: DataSet, bench: Bench) -> nn.Module:
    """Return the recipe's network, drawn as `Run` draws it."""
    with seeds.global_generators(bench.device, seeds.derive(recipe.loop.seed, Use.WEIGHTS)):
        return make_network(recipe.model, data.info, bench=bench)


def _without_drops(model: nn.Module) -> nn.Module:
    """Return the network, with every layer of dropout or stochastic depth set to probability 0."""
    torchvision = sys.modules.get("torchvision.ops")  # a package that is not imported has made no layer
    timm = sys.modules.get("timm.layers.drop")
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or (
            torchvision is not None and isinstance(module, torchvision.StochasticDepth)
        ):
            module.p = 0.0
        elif timm is not None and isinstance(module, timm.DropPath):
            module.drop_prob = 0.0
    return model


def check_data(
    subject: Subject, seconds: float = SECONDS, *, full: bool = False
) -> Generator[Finding, None, bool]:
    """Yield findings about images and labels, without training the network; return whether the images show
    anything."""
    data, checks = subject.data, subject.checks
    yield from checks.of_targets(data, subject.recipe)
    compared = Fingerprints(data, full=full)
    if full:
        yield from guarded("decoding", lambda: check_decoding(data))
    show = yield from check_images(compared, checks, lambda: known_images(subject, ALIKE * seconds))
    if show:
        known = None if subject.is_own else pretrained_input(subject.recipe.model)
        yield from guarded("normalisation", partial(check_normalisation, subject, known))
    yield from guarded("groups", lambda: check_groups(compared, checks, subject.recipe.data))
    return show


def check_images(
    compared: Fingerprints, checks: TaskChecks, known: Callable[[], KnownImages]
) -> Generator[Finding, None, bool]:
    """Yield findings about the pixels, and about parts that differ in kind or have equal images; return
    whether the images show anything.

    From images that show nothing the rest follows, and is not looked for. `known` is asked for the images to
    compare.
    """
    data = compared.data
    try:
        with stage("checking pixel values"):
            show = yield from check_pixels(data, compared.sample)
    except Exception as error:
        show = True  # as far as is known
        yield from failed("pixel values", error)
    if not show:
        others = "duplicates, normalisation, or what can be learnt"
        yield unchecked("parts alike", f"the images show too little; nor are {others}", "see pixel values")
        return show
    yield from guarded("parts alike", lambda: check_parts_alike(data, *known()))
    yield from guarded("duplicates", lambda: check_duplicates(compared, checks))
    return show


def check_lessons(subject: Subject, seconds: float = SECONDS) -> Iterator[Finding]:
    """Yield findings about what a small net learns from the images, whatever the recipe's network is."""
    yield from subject.checks.lessons(subject, LESSON * seconds)


def check_network(
    subject: Subject, seconds: float = SECONDS, cpus: int | None = None, *, learns: bool = True
) -> Iterator[Finding]:
    """Yield findings about the network, its first steps at the recipe's rate, and what it knows already;
    unless it `learns`, as from images that show nothing, not about what it learns."""
    batch = min(IMAGES, len(subject.data.train))
    try:
        with stage("checking outputs"):
            each = yield from _of_outputs(subject, batch)
    except Exception as error:
        yield from failed("outputs", error)
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
    with stage("training with shuffled targets"):
        yield from subject.checks.shuffled(subject, SHUFFLED * seconds)


def _of_outputs(subject: Subject, batch: int) -> Generator[Finding, None, float | None]:
    """Yield findings about the network before training; return the seconds that an image takes, None where a
    pass fails."""
    plain = subject.plain_run(batch)
    try:
        with plain.probing():
            images, _ = next(plain.windows())[0]
            try:
                each = _seconds_an_image(plain, images)
            except UserError:
                raise
            except Exception as error:
                yield _crash(error, subject.checks.logits)
                return None
            yield from check_construction(subject, images)
            yield from subject.checks.outputs(plain, images)
        with plain.probing():
            yield subject.checks.initial_loss(plain)
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
        took = f"{expected / 2:.1f} s on {subject.bench.device}"
        why = f"a step of {recipe.loop.batch_size} images takes about {took}"
        yield unchecked("first steps", why, "a smaller data.image_size or model, or a GPU")
        return
    run = subject.make_run(recipe, data=subject.data, model=subject.network(), bench=subject.bench)
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


def _crash(error: Exception, logits: str) -> Finding:
    return Finding(
        "outputs",
        "error",
        f"a forward and backward pass fails: {type(error).__name__}: {first_line(error)}",
        "no step can be made",
        f"correct the model's forward: it takes images [B, C, H, W] and returns logits {logits}",
    )
