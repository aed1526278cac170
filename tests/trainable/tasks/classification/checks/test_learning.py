"""Tests the statistics behind the checks that train: what is known by chance, by luck and in truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.check import make_subject
from trainable.checks.short_training import train
from trainable.checks.unseen import taught_images, unseen_images
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays
from trainable.data.groups import Series, SharedGroups
from trainable.data.source import Flip
from trainable.recipe.data import Split
from trainable.tasks.classification.checks.association import LUCK, Association, associate
from trainable.tasks.classification.checks.learning import (
    LEAKED_GAIN,
    LabelLesson,
    MirrorScore,
    check_flips,
    check_learning,
    check_shuffled,
    in_memory,
    largest_classes,
    logits,
    lost_skill,
    shuffled_finding,
    shuffled_labels,
    small_copy,
    teach,
)

CPU = torch.device("cpu")


def known(accuracy: float = 0.9, *, images: int = 300, score: float = 40.0, gain: float = 0.7) -> Association:
    return Association(images, 10, accuracy, 0.1, score, gain)


GUESSING = known(0.1, score=0.3, gain=-0.1)


def lesson(
    validation: Association,
    *,
    train: Association | None = None,
    horizontal: float = 0.9,
    steps: int = 240,
    hurried: bool = False,
) -> LabelLesson:
    images = torch.arange(validation.images)
    right, still = images < validation.accuracy * len(images), images < horizontal * len(images)
    turned = replace(validation, accuracy=horizontal)
    mirrored = MirrorScore(turned, lost_skill(validation, turned, right, still), ("2", "5", 0.4))
    scores: dict[Flip, MirrorScore] = {"horizontal": mirrored, "vertical": mirrored}
    return LabelLesson(
        train or known(), validation, validation, validation.images, validation, scores, steps, 12.0, hurried
    )


# --- the permutation test -----------------------------------------------------------------------------


@pytest.mark.slow("deals labels out many times")
def test_the_score_is_that_of_the_labels_dealt_out_anew_many_times() -> None:
    generator = torch.Generator().manual_seed(0)
    answers = 3 * torch.randn(40, 4, generator=generator)
    labels = torch.randint(0, 3, (40,), generator=generator)
    probabilities = answers.double().softmax(1)
    sums = torch.stack(
        [
            probabilities[range(40), labels[torch.randperm(40, generator=generator)]].sum()
            for _ in range(20_000)
        ]
    )
    expected = (probabilities[range(40), labels].sum() - sums.mean()) / sums.std()
    assert associate(answers, labels).score == pytest.approx(float(expected), abs=0.03)


def test_answers_that_know_nothing_are_never_sure_even_where_one_class_is_large() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        labels = (torch.rand(150, generator=generator) < 0.1).long()
        assert not associate(torch.randn(150, 2, generator=generator), labels).is_sure


def test_what_is_known_shows_where_all_answers_are_the_largest_class() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(500, generator=generator) < 0.1).long()
    answers = torch.stack([torch.full((500,), 3.0), labels + torch.randn(500, generator=generator)], 1)
    found = associate(answers, labels)
    assert found.accuracy - found.chance < 0.02
    assert found.is_sure


def test_gain_is_1_for_perfect_answers_and_0_for_guessing_by_frequency() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    perfect = 50.0 * torch.nn.functional.one_hot(labels, 2).double()
    assert associate(perfect, labels).gain == pytest.approx(1.0)
    frequencies = torch.tensor([[0.75, 0.25]]).log().repeat(4, 1)
    assert associate(frequencies, labels).gain == pytest.approx(0.0, abs=1e-6)
    assert associate(-perfect, labels).gain < 0.0


def test_one_answer_a_class_by_lot_is_within_luck() -> None:
    random = np.random.default_rng(0)
    labels = torch.arange(600)
    for classes in (2, 3, 10):
        for _ in range(50):
            lots = torch.from_numpy(random.integers(0, classes, classes))
            answers = torch.nn.functional.one_hot(lots[labels % classes], classes).double()
            assert not associate(answers, labels % classes).is_beyond_luck


# --- shuffled labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_shuffled_labels_are_the_same_labels_and_come_in_proportion_within_every_class(classes: int) -> None:
    labels = np.random.default_rng(0).permutation(np.arange(600) % classes)
    mixed = shuffled_labels(labels, seed=1)
    assert np.array_equal(np.sort(mixed), np.sort(labels))
    for label in range(classes):
        held = np.bincount(mixed[labels == label], minlength=classes)
        assert np.ptp(held) <= 3
    assert not np.array_equal(mixed, shuffled_labels(labels, seed=2))


@pytest.mark.parametrize("seed", range(4))
def test_nets_that_learn_shuffled_labels_gain_less_than_luck(seed: int) -> None:
    """More seeds, and digits and Fashion-MNIST, were measured for the constants in `association`."""
    data = data_set(240, 120)
    assert isinstance(data.train, ArrayPart)
    mixed = replace(data, train=replace(data.train, labels=shuffled_labels(data.train.labels, seed)))
    subject = make_subject(small_recipe({"loop.seed": seed}), mixed, None, ON_CPU)
    run = subject.plain_run(32, {"optimizer.kind": "adam", "optimizer.scaling": "none"})
    with run.probing():
        train(run, steps=60, lr=1e-3, seconds=3600.0)
        found = associate(*logits(run, "validation"))
    assert found.gain < max(LUCK / 3, LEAKED_GAIN)
    assert shuffled_finding(found, 60).level == "passed"


@pytest.mark.parametrize(
    ("what", "level"),
    [
        (known(0.9), "error"),
        (known(0.58, gain=0.1), "error"),  # a net that knew, and is unlearning it
        (known(0.2, gain=0.01, score=6.0), "passed"),
        (GUESSING, "passed"),
    ],
)
def test_true_labels_that_are_known_after_learning_shuffled_ones_are_an_error(
    what: Association, level: str
) -> None:
    assert shuffled_finding(what, 60).level == level


def test_few_steps_are_no_proof_of_innocence() -> None:
    assert shuffled_finding(GUESSING, 3).level == "note"


# --- lessons ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learnt", "level"),
    [
        (lesson(known()), "passed"),
        (lesson(known(0.25, gain=0.05)), "passed"),
        (lesson(GUESSING), "error"),
        (lesson(GUESSING, train=GUESSING), "warning"),
        (lesson(replace(GUESSING, images=30)), "note"),
        (lesson(GUESSING, steps=20), "note"),
    ],
)
def test_what_is_learnt_must_hold_for_validation_images(learnt: LabelLesson, level: str) -> None:
    assert check_learning(learnt).level == level


def test_what_is_learnt_in_part_is_not_called_nothing() -> None:
    in_part = replace(known(0.6, gain=-0.1), classes=3)
    assert "learns only some of the labels" in check_learning(lesson(in_part)).means
    nothing = lesson(GUESSING, train=GUESSING)
    assert "learns almost nothing of the labels" in check_learning(nothing).means


@pytest.mark.parametrize(
    ("allowed", "mirrored", "level"),
    [
        (("horizontal",), 0.9, "passed"),
        (("horizontal",), 0.75, "passed"),  # photographs of things that mostly look one way
        (("horizontal",), 0.4, "warning"),
        ((), 0.4, "passed"),
        ((), 0.75, "passed"),
        ((), 0.89, "note"),
        (("horizontal",), 0.6, "note"),  # a third of what it knows is lost, give or take
    ],
)
def test_a_flip_is_safe_where_mirror_images_are_known_too(
    allowed: tuple[str, ...], mirrored: float, level: str
) -> None:
    (found,) = check_flips(lesson(known(), horizontal=mirrored), allowed)  # type: ignore[arg-type]
    assert (found.check, found.level) == ("horizontal flip", level)
    assert ("2 mirrored is taken for 5 in 40%" in found.what) == (level == "warning")


def test_a_net_that_knows_little_says_nothing_about_flips() -> None:
    (found,) = check_flips(lesson(known(0.2, gain=0.05)), ("horizontal",))
    assert "cannot tell: the small net knows too little" in found.what
    assert found.level == "note"
    assert list(check_flips(lesson(known(0.2, gain=0.05)), ())) == []


@pytest.mark.parametrize("mirrored", [0.9, 0.4])
@pytest.mark.parametrize("allowed", [(), ("horizontal",)])
def test_a_lesson_that_the_clock_cut_short_says_nothing_of_mirrors(
    allowed: tuple[Flip, ...], mirrored: float
) -> None:
    (found,) = check_flips(lesson(known(), horizontal=mirrored, steps=60, hurried=True), allowed)
    assert (found.check, found.level) == ("horizontal flip", "note")
    assert "time for 60 of the 240 steps of the lesson: this machine is slow, or busy" in found.what
    assert (
        found.do == "type the same command with --seconds 360"
    )  # it had 60, of which the lesson has a fifth


@pytest.mark.parametrize("allowed", [(), ("horizontal",)])
def test_images_that_are_known_by_heart_say_nothing_of_mirrors(allowed: tuple[Flip, ...]) -> None:
    by_heart = replace(lesson(known()), known=None, mirrored={}, unseen=12)
    (found,) = check_flips(by_heart, allowed)
    assert found.level == "note"
    assert found.what.startswith("cannot tell: training has the series or a near-copy of all but 12 ")


def test_few_images_that_differ_leave_it_open_what_a_mirror_does() -> None:
    few, many = (lost_skill(*pairs(images)) for images in (60, 6_000))
    assert few.share == pytest.approx(many.share)
    assert (few.changes, many.changes) == (None, True)


def pairs(images: int) -> tuple[Association, Association, torch.Tensor, torch.Tensor]:
    """Return what is known of so many images and of their mirrors, of which four in ten are lost."""
    at = torch.arange(images)
    right, still = at < 0.9 * images, at < 0.56 * images
    return known(images=images), known(0.56, images=images), right, still


def test_the_skill_that_is_lost_has_the_error_that_samples_of_images_show() -> None:
    generator = np.random.default_rng(0)
    right, still = generator.random(4_000) < 0.9, generator.random(4_000) < 0.6
    shares = []
    for _ in range(400):
        at = generator.integers(0, 4_000, 400)
        shares.append((right[at].mean() - still[at].mean()) / 0.8)
    before, after = known(float(right.mean()), images=400), known(float(still.mean()), images=400)
    lost = lost_skill(before, after, torch.from_numpy(right[:400]), torch.from_numpy(still[:400]))
    assert lost.error == pytest.approx(np.std(shares), rel=0.15)


def test_a_training_says_whether_the_clock_had_a_hand_in_it() -> None:
    run = make_subject(small_recipe(), data_set(64, 64), None, ON_CPU).plain_run(8)
    with run.probing():
        assert train(run, steps=2, lr=1e-3, seconds=3600.0) == (2, False)
        assert train(run, steps=2_000, lr=1e-3, seconds=0.05).hurried
    run.close()


def test_images_are_new_whose_series_and_near_copies_were_not_taught() -> None:
    data = data_set(240, 120)
    everything = np.arange(240), np.arange(120)
    sample = in_memory(data, train=240, validation=120)
    assert unseen_images(data, *everything, sample).mean() > 0.9
    images = sample.validation.images.copy()  # type: ignore[attr-defined]
    images[:50] = sample.train.images[:50]  # type: ignore[attr-defined]
    copied = replace(sample, validation=ArrayPart(images, sample.validation.labels))
    assert not unseen_images(data, *everything, copied)[:50].any()


def test_of_series_that_are_in_both_parts_every_second_is_taught_and_the_others_are_new() -> None:
    data = data_set(240, 120)
    groups: dict[Split, np.ndarray] = {"train": np.arange(240) // 10, "validation": np.arange(120) // 5}
    shared = (SharedGroups("train", "validation", 24, ("a",), 120),)
    in_series = replace(data, in_series=Series("(.+)_[0-9]+", groups, shared, ("train", "validation")))
    taught = taught_images(in_series)
    assert set((taught // 10).tolist()) == set(range(0, 24, 2))
    assert taught_images(data).size == 240
    scored = np.arange(120)
    sample = small_copy(in_series, taught, scored, np.arange(len(data.info.classes)))
    new = unseen_images(in_series, taught, scored, sample)
    assert not new[(scored // 5) % 2 == 0].any()
    assert new[(scored // 5) % 2 == 1].mean() > 0.9


@pytest.mark.slow("trains for its checks")
def test_a_lesson_is_the_same_twice_and_knows_which_classes_a_mirror_swaps() -> None:
    data = data_set(240, 120)
    subject = make_subject(small_recipe(), data, None, ON_CPU)
    first, second = teach(subject, 1000.0), teach(subject, 1000.0)  # its steps end it, on a busy machine too
    assert first == second
    assert first.validation.accuracy > 0.95
    mirrored, before = first.mirrored["horizontal"], first.known
    assert before is not None
    assert mirrored.known.accuracy < before.accuracy - 0.2
    assert mirrored.confused is not None


# --- samples ----------------------------------------------------------------------------------------------


def test_a_sample_to_learn_from_keeps_images_and_labels_together() -> None:
    data = data_set(48)
    sample = in_memory(data, train=10, validation=5, classes=np.array([0, 2]))
    assert isinstance(sample.train, ArrayPart)
    assert isinstance(data.train, ArrayPart)
    labels = {
        image.tobytes(): label for image, label in zip(data.train.images, data.train.labels, strict=True)
    }
    assert sample.info.classes == ("0", "2")
    for image, label in zip(sample.train.images, sample.train.labels, strict=True):
        assert labels[image.tobytes()] == (0, 2)[label]


def test_the_classes_of_a_sample_are_the_largest_that_both_parts_have() -> None:
    data = data_set(60)
    assert isinstance(data.train, ArrayPart)
    labels = data.train.labels.copy()
    labels[:9] = 2
    skewed = replace(data, train=replace(data.train, labels=labels))
    assert 2 in largest_classes(skewed, 1)
    assert isinstance(data.validation, ArrayPart)
    only = replace(skewed, validation=replace(data.validation, labels=data.validation.labels % 2))
    assert largest_classes(only, 3).tolist() == [0, 1]


def of_classes(counts: list[int], side: int = 4) -> DataSet:
    """Noise of classes with so many training images, and one to validate."""
    labels = np.repeat(np.arange(len(counts)), counts)
    random = np.random.default_rng(0)
    images, others = (
        random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        for count in (len(labels), len(counts))
    )
    return from_arrays((images, labels), (others, np.arange(len(counts))))


def test_a_sample_keeps_a_class_of_few_images_among_many() -> None:
    sample = in_memory(of_classes([600, 600, 3]), train=100, validation=3)

    assert (len(sample.train), len(sample.info.class_counts)) == (100, 3)
    assert min(sample.info.class_counts) >= 1
    assert sorted(sample.validation.labels.tolist()) == [0, 1, 2]


def test_a_sample_of_more_classes_than_images_has_no_counts() -> None:
    sample = in_memory(of_classes([1] * 30), train=20, validation=10)

    assert (len(sample.train), sample.info.class_counts, len(sample.info.classes)) == (20, (), 30)


def test_shuffled_labels_are_checked_with_more_classes_than_sampled_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainable.tasks.classification.checks.learning.SHUFFLED_TRAIN", 40)
    data = of_classes([1] * 60, side=8)
    subject = make_subject(small_recipe(), data, None, ON_CPU)

    assert check_shuffled(subject, 60.0).check == "shuffled labels"
