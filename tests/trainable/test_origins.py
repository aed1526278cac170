"""Tests what is said where images, weights, a teacher or code are not those that a recipe was found with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.trainable.small_runs import data_set, small_recipe
from trainable.data.measure import DIGEST_FORM
from trainable.origins import Origins, provenance_of
from trainable.recipe import Recipe
from trainable.recipe.provenance import FreshRuns, Provenance, Verification
from trainable.run import make_run

CLASSES = ("cat", "dog")
KNOWN = Origins("images", "files", "weights", "teacher", "its recipe", {"model": "source"}, CLASSES)
TAUGHT = Recipe().with_values({"data.path": "photos", "distillation.teacher": "/big"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": "x"}, "data.path photos: these are not the images that the recipe was found with"),
        ({"files": "x"}, "data.path photos: the files of the images have other names, classes or sizes"),
        ({"weights": "x"}, "model.weights: these are not the weights that the recipe was trained from"),
        ({"teacher": "x"}, "distillation.teacher: /big: these are not the weights of the teacher"),
        ({"teacher_recipe": "x"}, "distillation.teacher: /big: this is not the recipe of the teacher"),
        ({"code": {"model": "x"}}, "model: the source of this function is not that of the one"),
    ],
)
def test_each_change_is_one_line_with_both_digests(change: dict[str, Any], said: str) -> None:
    (line,) = KNOWN.changes(replace(KNOWN, **change), TAUGHT)
    assert line.startswith(said)
    ((name, _),) = change.items()
    before = KNOWN.code["model"] if name == "code" else getattr(KNOWN, name)
    assert line.endswith(f"(digest {before}, now x)")


def test_classes_that_changed_their_names_are_a_change_and_the_numbers_of_an_array_are_none() -> None:
    (line,) = KNOWN.changes(replace(KNOWN, classes=("dog", "cat")), TAUGHT)
    assert line.startswith("data.path photos: ")
    assert "class 0 was 'cat', and is 'dog' now" in line
    assert not list(KNOWN.changes(replace(KNOWN, classes=("0", "1")), TAUGHT))


def test_a_digest_of_an_earlier_version_is_not_taken_for_other_images() -> None:
    earlier = replace(KNOWN, images="697267636c22f6a4")
    (line,) = earlier.changes(replace(KNOWN, images=f"{DIGEST_FORM}0"), TAUGHT)
    assert "found by an earlier version, whose digest of the images cannot be compared with today's" in line
    assert line.endswith(f"(digest {earlier.images}, now {DIGEST_FORM}0)"), "each command says what to do"


def test_what_is_the_same_or_was_not_known_is_no_change() -> None:
    assert not list(KNOWN.changes(KNOWN, TAUGHT))
    assert not list(Origins().changes(KNOWN, TAUGHT))


def test_files_count_only_where_the_digest_of_the_images_reads_some_of_them() -> None:
    info = replace(data_set().info, digest="images", stored="others")
    known = replace(KNOWN, classes=info.classes)
    (line,) = known.changes(known.with_images(replace(info, whole=False)), TAUGHT)
    assert line.endswith("(digest files, now others)")
    assert not list(known.changes(known.with_images(replace(info, whole=True)), TAUGHT))


def test_a_teacher_that_a_recipe_does_without_is_no_change() -> None:
    assert not list(KNOWN.changes(replace(KNOWN, teacher=None, teacher_recipe=None), Recipe()))


def test_a_provenance_gives_back_the_origins_that_were_written_into_it() -> None:
    assert Origins.of(Provenance(**KNOWN.provenance())) == KNOWN
    assert Origins.of(None) == Origins()


@pytest.mark.parametrize("images", [None, "of other images"])
def test_a_run_with_other_images_leaves_out_what_runs_with_the_former_came_to(images: str | None) -> None:
    verification = Verification(
        verified=True,
        metric="val_accuracy",
        part="test",
        seeds=(),
        scores=(),
        validation_scores=(),
        claimed=1,
        rule="",
    )
    numbers = {"mean": 1, "deviation": 0, "estimate": 1, "low": 1, "high": 1, "gap": 0}
    final = FreshRuns(metric="val_accuracy", seeds=(), scores=(), fresh_splits=False, **numbers)
    known = Provenance(trial=3, data_digest=images, final=final, verification=verification)
    recipe = small_recipe().model_copy(update={"provenance": known})
    run = make_run(recipe, data=data_set())
    found = provenance_of(run, {}, Origins.of_run(run))
    assert (found.data_digest, found.trial) == (run.info.digest, 3)
    kept = (final, verification) if images is None else (None, None)
    assert (found.final, found.verification) == kept
