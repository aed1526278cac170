"""Tests mixup and CutMix against a loop over images, and the distribution of lambda."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2

from trainable.augmentation.mixing import MixingDraw, cut_box, cutmix, make_mixing, mixup
from trainable.recipe.augmentations import CutMix, Mixup, NoMixing

CLASSES = 5
IMAGES = torch.rand(8, 3, 12, 10, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
TARGETS = torch.nn.functional.one_hot(LABELS, CLASSES).float()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_no_mixing_is_none() -> None:
    assert make_mixing(NoMixing()) is None


def test_mixup_equals_a_loop_over_images_and_their_neighbours() -> None:
    images, targets = mixup(IMAGES, TARGETS, (0.7, 0.0, 0.0))

    for i in range(len(IMAGES)):
        torch.testing.assert_close(images[i], 0.7 * IMAGES[i] + 0.3 * IMAGES[i - 1])
        torch.testing.assert_close(targets[i], 0.7 * TARGETS[i] + 0.3 * TARGETS[i - 1])


@pytest.mark.parametrize("draw", [(0.5, 0.5, 0.5), (0.1, 0.0, 0.99), (0.99, 0.3, 0.3), (0.0, 0.5, 0.5)])
def test_cutmix_equals_a_loop_over_images_and_pixels(draw: MixingDraw) -> None:
    images, targets = cutmix(IMAGES, TARGETS, draw)

    top, bottom, left, right = cut_box(draw, 12, 10)
    for i in range(len(IMAGES)):
        for row in range(12):
            for column in range(10):
                inside = top <= row < bottom and left <= column < right
                assert torch.equal(images[i, :, row, column], IMAGES[i - inside, :, row, column])
        share = 1.0 - (bottom - top) * (right - left) / 120
        torch.testing.assert_close(targets[i], share * TARGETS[i] + (1.0 - share) * TARGETS[i - 1])


@pytest.mark.parametrize("spec", [Mixup(), CutMix()], ids=lambda spec: spec.kind)
def test_a_batch_is_mixed_by_its_generator_and_its_inputs_are_left_alone(spec: Mixup | CutMix) -> None:
    mix = make_mixing(spec)
    assert mix is not None
    before = IMAGES.clone()

    images, targets = mix(IMAGES, LABELS, CLASSES, seeded(1))
    again, _ = mix(IMAGES, LABELS, CLASSES, seeded(1))
    other, _ = mix(IMAGES, LABELS, CLASSES, seeded(2))

    assert torch.equal(images, again)
    assert not torch.equal(images, other)
    assert torch.equal(IMAGES, before)
    assert targets.shape == (8, CLASSES)
    torch.testing.assert_close(targets.sum(1), torch.ones(8))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 4.0])
def test_lambda_follows_the_beta_distribution_of_torchvisions(alpha: float) -> None:
    mix = make_mixing(Mixup(alpha=alpha))
    assert mix is not None
    images, labels = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1), torch.tensor([0, 1])
    generator = seeded(0)

    mixed = [mix(images, labels, 2, generator) for _ in range(2000)]

    rests, weights = np.array([pictures.flatten().tolist() for pictures, _ in mixed]).T
    beta = stats.beta(alpha, alpha)
    # Folded at a half: nearer to 1 than single precision tells, a small alpha has a tenth of its lambdas.
    folded = np.minimum(rests, weights)
    assert stats.kstest(folded, lambda share: 2 * beta.cdf(share)).pvalue > 1e-3
    assert stats.binomtest(int((weights < 0.5).sum()), 2000).pvalue > 1e-3
    assert weights.mean() == pytest.approx(0.5, abs=4 * beta.std() / np.sqrt(2000))
    assert weights.var() == pytest.approx(beta.var(), rel=0.15)
    assert np.array([float(targets[0, 0]) for _, targets in mixed]) == pytest.approx(weights)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_cutmix_pastes_as_much_as_torchvisions_and_its_targets_say_how_much(alpha: float) -> None:
    mix, torchvisions = make_mixing(CutMix(alpha=alpha)), v2.CutMix(alpha=alpha, num_classes=2)
    assert mix is not None
    images = torch.stack([torch.zeros(1, 32, 32), torch.ones(1, 32, 32)])
    labels, generator = torch.tensor([0, 1]), seeded(0)
    torch.manual_seed(0)

    mixed = [mix(images, labels, 2, generator) for _ in range(1500)]

    pasted = np.array([float(pictures[0].mean()) for pictures, _ in mixed])
    assert pasted == pytest.approx([float(targets[0, 1]) for _, targets in mixed], abs=1e-6)
    theirs = [float(torchvisions(images, labels)[0][0].mean()) for _ in range(1500)]
    assert stats.ks_2samp(pasted, theirs).pvalue > 1e-3


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.36, 0.5, 0.84, 0.99, 1.0])
def test_a_box_within_the_image_has_the_area_that_lambda_leaves(weight: float) -> None:
    top, bottom, left, right = cut_box((weight, 0.5, 0.5), 200, 200)

    side = np.sqrt(1.0 - weight) * 200
    assert bottom - top == right - left == pytest.approx(side, abs=2)  # whole pixels on either side
    assert (bottom - top) * (right - left) / 200**2 == pytest.approx(1.0 - weight, abs=0.02)


def test_the_share_of_mixed_batches_is_the_probability() -> None:
    mix = make_mixing(Mixup(alpha=1.0, probability=0.3))
    assert mix is not None
    generator = seeded(0)

    mixed = sum(not torch.equal(mix(IMAGES, LABELS, CLASSES, generator)[0], IMAGES) for _ in range(1000))

    assert stats.binomtest(mixed, 1000, 0.3).pvalue > 1e-3


def test_every_call_takes_one_draw_mixed_or_not() -> None:
    always, never = make_mixing(Mixup(probability=1.0)), make_mixing(Mixup(probability=0.0))
    assert always is not None
    assert never is not None
    first, second = seeded(0), seeded(0)

    always(IMAGES, LABELS, CLASSES, first)
    images, targets = never(IMAGES, LABELS, CLASSES, second)

    assert torch.equal(first.get_state(), second.get_state())
    assert torch.equal(images, IMAGES)
    assert torch.equal(targets, TARGETS)


@pytest.mark.parametrize("spec", [Mixup(), CutMix()], ids=lambda spec: spec.kind)
def test_a_batch_of_one_image_is_mixed_with_itself(spec: Mixup | CutMix) -> None:
    mix = make_mixing(spec)
    assert mix is not None

    for seed in range(20):
        images, targets = mix(IMAGES[:1], LABELS[:1], CLASSES, seeded(seed))

        torch.testing.assert_close(images, IMAGES[:1])
        torch.testing.assert_close(targets, TARGETS[:1])


@pytest.mark.parametrize("alpha", [5e-324, 1e-12, 1e-3, 1e6])
@pytest.mark.parametrize("kind", [Mixup, CutMix])
def test_an_extreme_alpha_still_gives_images_and_targets_that_sum_to_one(
    kind: type[Mixup] | type[CutMix], alpha: float
) -> None:
    mix = make_mixing(kind(alpha=alpha))
    assert mix is not None

    for seed in range(20):
        images, targets = mix(IMAGES, LABELS, CLASSES, seeded(seed))

        assert images.isfinite().all()
        assert (targets >= 0.0).all()
        torch.testing.assert_close(targets.sum(1), torch.ones(8))
