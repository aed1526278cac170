"""What the best trial's weights answer on the validation part: each class, the confusion, what is worst.

It takes one pass over the part, whose result is kept in the search's folder.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import numpy as np
from pydantic import TypeAdapter, ValidationError

from search.learning.search import Search
from search.record.trials import Trial
from search.reporting.content import ClassScore, Mistake, ReportedLabels, ReportedMasks
from search.study.code import NO_CODE, Code
from trainable.array_types import Integers
from trainable.errors import UserError
from trainable.files.regular import read_regular
from trainable.recipe.tasks import Classification, Segmentation
from trainable.recipe.yamlfile import write_whole

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.data import DataSet
    from trainable.data.source import Pixels
    from trainable.training.evaluate import Scores
    from trainable.training.run import Run

ANSWERS_FILE = "answers.json"
LARGEST_ANSWERS = 2**28  # so many bytes are read: the scores of a million classes have fewer
MOST_CONFUSED = 1_000
WORST = 24  # so many of the worst mistakes are shown
THUMBNAIL_PIXELS = 96
# of a part that took longer to score in the search, so many images are scored as take this long there
LONGEST_SECONDS = 60.0
LEAST_SCORED = 24  # but no fewer than these
NOT_FINITE = "the weights of the best trial answer nothing finite"
_EITHER: TypeAdapter[ReportedLabels | ReportedMasks] = TypeAdapter(ReportedLabels | ReportedMasks)


def answers_of(
    search: Search, images: Callable[[], DataSet] | None = None, code: Code = NO_CODE
) -> ReportedLabels | ReportedMasks:
    """Return what the best trial's weights answer, from the search's folder if it is there already.

    `code` is what the search used of a person's own. Of a part that took more than a minute to score in the
    search, some images are scored, evenly spaced. Raises UserError where that cannot be known: where images,
    weights or code of a person's own are not at hand.
    """
    if (best := search.best) is None:
        raise UserError("no trial has finished")
    file = search.folder / ANSWERS_FILE
    if (kept := _kept(file, best)) is not None:
        return kept
    computed = _computed(search, best, images or partial(images_of, search), code)
    with suppress(OSError):  # a folder that cannot be written to is scored again next time
        write_whole(file, computed.model_dump_json().encode())
    return computed


def _kept(file: Path, best: Trial) -> ReportedLabels | ReportedMasks | None:
    """Return the answers in a file; None where they are another trial's, or none."""
    try:
        kept = _EITHER.validate_json(read_regular(file, LARGEST_ANSWERS))
    except (OSError, ValidationError):
        return None
    return kept if kept.trial == best.id else None


def _computed(
    search: Search, best: Trial, load: Callable[[], DataSet], code: Code
) -> ReportedLabels | ReportedMasks:
    if search.code is not None and search.code.lacking(code):
        raise UserError("the search uses code of yours, which is at hand only where Python ran the search")
    if best.id not in search.home.trials_with_checkpoints():
        raise UserError(f"there is no checkpoint of trial {best.id}")
    images = load()
    run = _run(search, best, images, code)
    scored = scored_positions(len(images.validation), best.metrics["evaluation_seconds"])
    with closing(run):
        match run.recipe.task:
            case Classification():
                scores = run.score("validation", confusion=True, answers=True, positions=scored)
                if scores.answers is None:
                    raise UserError(NOT_FINITE)
                return _in_words(best.id, images, scores, scored)
            case Segmentation():
                from search.reporting.mask_answers import mask_answers

                return mask_answers(best.id, run, images, scored)
            case _:
                assert_never(run.recipe.task)


def scored_positions(images: int, seconds: float) -> Integers | None:
    """Return which of a part's images are scored, evenly spaced; None for all, where scoring them took no
    longer than `LONGEST_SECONDS`."""
    if seconds <= LONGEST_SECONDS or images <= LEAST_SCORED:
        return None
    count = max(LEAST_SCORED, int(images * LONGEST_SECONDS / seconds))
    return np.linspace(0, images - 1, count).round().astype(np.int64)


def images_of(search: Search) -> DataSet:
    """Return the images of a search. Raises UserError where they are others than when it began, and where
    there is no finished trial."""
    from trainable.tasks.kits import load_for

    if search.best is None:
        raise UserError("no trial has finished")
    images, info = load_for(search.best.whole_recipe), search.info
    if info.stored and images.info.files not in (None, info.stored):  # the digest in the state reads some
        raise UserError(
            f"{info.path}: the images have other names, classes or sizes than when the search began (digest "
            f"{info.stored}, now {images.info.files})"
        )
    return images


def _run(search: Search, best: Trial, images: DataSet, code: Code) -> Run:
    """Return the run of the best trial's last checkpoint."""
    from trainable.checkpoints.checkpoint_store import CheckpointStore
    from trainable.run import make_run

    state = CheckpointStore.at(search.home.checkpoints(best.id), search.record.search_id or "").newest_state()
    if state is None:
        raise UserError(f"no checkpoint of trial {best.id} can be read")
    run = make_run(best.whole_recipe, data=images, model=code.model, metrics=code.metrics)
    run.load_state_dict(state)
    return run


def _in_words(trial: int, data: DataSet, scores: Scores, scored: Integers | None) -> ReportedLabels:
    assert scores.answers is not None
    classes = data.info.classes
    labels, predicted = scores.answers.labels.numpy(), scores.answers.predicted.numpy()
    return ReportedLabels(
        trial=trial,
        images=scores.images,
        images_of_part=None if scored is None else len(data.validation),
        accuracy=scores.accuracy,
        classes=class_scores(classes, labels, predicted),
        confusion=scores.confusion or (),
        confused=()
        if scores.confusion is not None
        else tuple(
            (classes[each.true], classes[each.predicted], each.times)
            for each in scores.most_confused(MOST_CONFUSED)
        ),
        mistakes=_mistakes(data, scores, scored),
    )


def class_scores(classes: Sequence[str], labels: Integers, predicted: Integers) -> tuple[ClassScore, ...]:
    """Return the scores of each class, from the true and the predicted class of each image; None where they
    would be a division by 0."""
    right, true, answered = (
        np.bincount(each, minlength=len(classes)).tolist()
        for each in (labels[labels == predicted], labels, predicted)
    )
    return tuple(
        ClassScore(
            name=name,
            images=true[at],
            recall=right[at] / true[at] if true[at] else None,
            precision=right[at] / answered[at] if answered[at] else None,
            f1=2.0 * right[at] / (true[at] + answered[at]) if true[at] + answered[at] else None,
        )
        for at, name in enumerate(classes)
    )


def _mistakes(data: DataSet, scores: Scores, scored: Integers | None) -> tuple[Mistake, ...]:
    """Return the wrong answers whose true class had the least probability, the worst first."""
    from trainable.checks.sampling import pixels

    assert scores.answers is not None
    labels, predicted = scores.answers.labels.numpy(), scores.answers.predicted.numpy()
    losses, sureness = scores.answers.losses.numpy(), scores.answers.sureness.numpy()
    wrong = np.flatnonzero(predicted != labels)
    worst = wrong[np.argsort(-losses[wrong], kind="stable")][:WORST]
    positions = worst if scored is None else scored[worst]
    return tuple(
        Mistake(
            true=data.info.classes[labels[at]],
            predicted=data.info.classes[predicted[at]],
            probability=float(sureness[at]),
            probability_true=float(np.exp(-losses[at])),
            thumbnail=thumbnail(image),
        )
        for at, image in zip(worst, pixels(data, data.validation, positions), strict=True)
    )


def thumbnail(pixels: Pixels) -> str:
    """Return an image [C, H, W] as a data URI, at most `THUMBNAIL_PIXELS` a side: a PNG where it is small,
    since a JPEG blurs it, otherwise a JPEG."""
    from PIL import Image

    array = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
    image = Image.fromarray(np.ascontiguousarray(array))
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    form, out = ("PNG" if max(image.size) <= THUMBNAIL_PIXELS // 2 else "JPEG"), io.BytesIO()
    image.save(out, form, quality=80)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"
