"""Networks are ranked by linear heads on their frozen features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import data_set, plain_net, small_recipe
from trainable.bench import ON_CPU
from trainable.data.assembly import from_arrays
from trainable.errors import ModelError
from trainable.probes.backbones import (
    HeadFeatures,
    best_head,
    chances_to_be_best,
    features_of,
    training_bytes,
)
from trainable.training.pixels import resolved

CPU = torch.device("cpu")


def drawn(separation: float, *, seed: int = 0, train: int = 200, validation: int = 200) -> HeadFeatures:
    """Return features of three classes whose means are so far apart, among noise of deviation 1."""
    random = np.random.default_rng(seed)
    labels = np.arange(train) % 3, np.arange(validation) % 3
    features = []
    for each in labels:
        noise = random.standard_normal((len(each), 20))
        noise[np.arange(len(each)), each] += separation
        features.append(noise.astype(np.float32))
    return HeadFeatures(features[0], labels[0], features[1], labels[1])


def test_features_that_tell_classes_apart_score_higher() -> None:
    scores = [best_head(drawn(separation)).accuracy for separation in (0.0, 1.5, 8.0)]
    assert scores[0] < 0.45 < scores[1] < 0.95 < scores[2]


def test_a_feature_of_one_value_does_no_harm() -> None:
    features = drawn(8.0)
    features.train[:, 5] = features.validation[:, 5] = 3.0
    assert best_head(features).accuracy > 0.95


def test_the_chance_to_be_best_follows_the_images_that_are_right() -> None:
    right = np.arange(100) < 50
    better = np.arange(100) < 60
    assert chances_to_be_best([right, right]) == [0.5, 0.5]
    low, high = chances_to_be_best([right, better])
    assert low < 0.01 < 0.99 < high
    swapped = np.roll(better, 50)  # as many, but others: images drawn anew decide
    assert chances_to_be_best([better, swapped])[0] == pytest.approx(0.5, abs=0.05)


def test_features_are_those_of_the_images_as_they_are_scored() -> None:
    class Brightness(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(images.mean((1, 2)))
            return logits

    data = data_set()
    recipe = resolved(small_recipe(), data)
    found = features_of(Brightness(), data, recipe, ON_CPU)
    assert found.train.shape == (48, 8)
    assert found.validation.shape == (20, 8)
    np.testing.assert_array_equal(found.validation_labels, data.validation.labels)
    assert best_head(found).accuracy == 1.0


def test_heads_are_fitted_to_images_of_every_class_of_a_large_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.probes.backbones.TRAIN", 20)
    images = np.random.default_rng(0).integers(0, 256, (1003, 4, 4), dtype=np.uint8)
    labels = np.repeat([0, 1, 2], [1000, 2, 1])
    data = from_arrays((images, labels), (images[-3:], np.arange(3)))
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 3))
    found = features_of(network, data, resolved(small_recipe(), data), ON_CPU)
    assert np.bincount(found.train_labels).tolist() == [18, 1, 1]
    assert best_head(found).right.shape == (3,)


def test_a_network_that_cannot_be_cut_is_refused() -> None:
    data = data_set()
    with pytest.raises(ModelError, match="Flatten: its features cannot be told from its head"):
        features_of(nn.Flatten(), data, resolved(small_recipe(), data), ON_CPU)


def test_memory_grows_with_images_and_weights() -> None:
    small, large = (
        plain_net().float(),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10_000), nn.Linear(10_000, 3)),
    )
    few, more = (training_bytes(small, (1, 8, 8), images) for images in (2, 32))
    activations = 4 * 8 * 8 * 4
    assert more - few >= 30 * activations
    weights = sum(each.numel() * 4 for each in large.parameters())
    assert training_bytes(large, (1, 8, 8), 2) >= 4 * weights
