"""The rules for each optimizer at the points that documents and papers name, as tables."""

from typing import Any, get_args

import pytest

from spaces import optimizers
from spaces.domains import Float
from spaces.optimizers import KINDS, OptimizerKind
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts
from trainable.specs.optimizers import Optimizer


def test_every_optimizer_of_a_recipe_has_rules() -> None:
    (union, _) = get_args(Optimizer)
    assert {each.model_fields["kind"].default for each in get_args(union)} == set(KINDS)


@pytest.mark.parametrize(
    ("model", "parameters", "low", "high"),
    [
        ("MobileNetV1 x0.25", 0.47 * MILLION, 2.9e-5, 4e-5),
        ("MobileNetV2", 3.5 * MILLION, 2.9e-5, 4e-5),
        ("MobileNetV3", 5.5 * MILLION, 2.9e-5, 4e-5),
        ("ResNet18", 11.7 * MILLION, 5e-5, 1e-4),
        ("ResNet50", 25.6 * MILLION, 1e-4, 1e-4),
        ("ResNet101", 44.5 * MILLION, 1e-4, 1e-4),
    ],
)
def test_weight_decay_is_the_documents_on_imagenet(
    model: str, parameters: float, low: float, high: float
) -> None:
    decay = optimizers.weight_decay(imagenet_facts(parameters=int(parameters)), "sgd").what
    assert low <= decay <= high, model


def test_strong_augmentation_takes_three_tenths_of_the_weight_decay() -> None:
    assert optimizers.weight_decay(imagenet_facts(), "sgd", strong_augmentation=True).what == 7e-5


def test_weight_decay_rises_with_parameters_and_falls_with_images() -> None:
    sizes = [optimizers.weight_decay(imagenet_facts(parameters=10**n), "sgd").what for n in range(4, 10)]
    images = [optimizers.weight_decay(imagenet_facts(train_images=10**n), "sgd").what for n in range(2, 8)]
    assert sizes == sorted(sizes)
    assert images == sorted(images, reverse=True)
    assert images[0] > images[-1]


@pytest.mark.parametrize(
    ("kind", "changes", "rate"),
    [
        ("sgd", {}, 0.1),
        ("adamw", {}, 1e-3),
        ("sgd", {"pretrained": True, "train_images": 500}, 0.001),
        ("sgd", {"pretrained": True, "train_images": 1_000}, 0.001),
        ("sgd", {"pretrained": True, "train_images": 10_000}, 0.0032),
        ("sgd", {"pretrained": True, "train_images": 100_000}, 0.01),
        ("sgd", {"pretrained": True, "train_images": 1_280_000}, 0.01),
        ("adamw", {"pretrained": True}, 1e-4),
        ("rmsprop", {}, 1e-3),
        ("adam", {}, 1e-3),
        ("lamb", {}, 1e-3),
        ("lamb", {"pretrained": True}, 1e-4),
        ("adam_then_sgd", {}, 1e-3),
        ("lars", {}, 0.3),
        ("lars", {"pretrained": True}, 0.03),
        ("adadelta", {}, 1.0),
    ],
)
def test_the_rate_is_the_documents_at_batch_256(
    kind: OptimizerKind, changes: dict[str, Any], rate: float
) -> None:
    assert optimizers.learning_rate(imagenet_facts(**changes), kind).what == rate


@pytest.mark.parametrize(
    ("kind", "changes", "domain"),
    [
        ("sgd", {}, Float(0.02, 0.5, log=True)),
        ("adamw", {}, Float(1e-4, 1e-2, log=True)),
        ("lars", {}, Float(0.06, 1.5, log=True)),
        ("lamb", {}, Float(1e-4, 1e-2, log=True)),
        ("adadelta", {}, Float(0.1, 10.0, log=True)),
        ("adadelta", {"train_images": 1257, "epochs": 20}, Float(0.1, 10.0, log=True)),
        ("sgd", {"train_images": 1257, "epochs": 20}, Float(0.1, 2.5, log=True)),
        ("adamw", {"train_images": 1257, "epochs": 20}, Float(5e-4, 5e-2, log=True)),
        ("sgd", {"train_images": 1257, "epochs": 20, "pretrained": True}, Float(0.00022, 0.0055, log=True)),
    ],
)
def test_rates_lie_around_the_rule_and_higher_in_short_runs(
    kind: OptimizerKind, changes: dict[str, Any], domain: Float
) -> None:
    assert optimizers.learning_rates(imagenet_facts(**changes), kind).what == domain


def test_decoupled_decay_does_not_depend_on_the_model() -> None:
    small, large = (optimizers.weight_decays(imagenet_facts(parameters=n), "adamw") for n in (10**4, 10**9))
    assert small == large
    assert small.what == Float(1e-3, 1e-1, log=True)


def test_momentum_doubles_or_halves_the_rate_at_most() -> None:
    domain = optimizers.momenta(digits_facts()).what
    assert [0.1 / (1 - end) for end in (domain.low, domain.high)] == pytest.approx([0.5, 2.0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pretrained", [False, True])
def test_the_rules_lie_in_the_ranges_on_the_documents_own_data(kind: OptimizerKind, pretrained: bool) -> None:
    facts = imagenet_facts(pretrained=pretrained)
    assert optimizers.learning_rate(facts, kind).what in optimizers.learning_rates(facts, kind).what
    assert optimizers.weight_decay(facts, kind).what in optimizers.weight_decays(facts, kind).what


@pytest.mark.parametrize(
    ("kind", "scaling"),
    [
        ("sgd", "linear"),
        ("lars", "linear"),
        ("rmsprop", "sqrt"),
        ("adam", "sqrt"),
        ("adamw", "sqrt"),
        ("lamb", "sqrt"),
        ("adam_then_sgd", "sqrt"),
        ("adadelta", "none"),
    ],
)
def test_the_rate_follows_the_batch_as_the_papers_say(kind: OptimizerKind, scaling: str) -> None:
    assert optimizers.scaling(kind).what == scaling


@pytest.mark.parametrize(
    ("kind", "domain"),
    [
        ("sgd", Float(1e-5, 1e-3, log=True)),
        ("lars", Float(1e-5, 1e-3, log=True)),
        ("adamw", Float(1e-3, 1e-1, log=True)),
        ("lamb", Float(1e-3, 1e-1, log=True)),
        ("adam_then_sgd", Float(1e-3, 1e-1, log=True)),
        ("rmsprop", Float(1e-6, 1e-4, log=True)),
        ("adam", Float(1e-6, 1e-4, log=True)),
        ("adadelta", Float(1e-6, 1e-4, log=True)),
    ],
)
def test_a_decay_that_a_division_distorts_is_small_and_a_decoupled_one_large(
    kind: OptimizerKind, domain: Float
) -> None:
    assert optimizers.weight_decays(imagenet_facts(), kind).what == domain


def test_adam_then_sgd_takes_the_rules_of_both() -> None:
    facts = imagenet_facts()
    recipe = base_recipe(facts, optimizer__kind="adam_then_sgd")
    values = {path: ruling.what for path, ruling in optimizers.details(facts, recipe).items()}
    assert values == {
        "optimizer.lr": 1e-3,
        "optimizer.scaling": "sqrt",
        "optimizer.weight_decay": 0.02,
        "optimizer.sgd_lr": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "optimizer.sgd_weight_decay": 1e-4,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_every_kind_has_a_reason_and_a_source(kind: OptimizerKind) -> None:
    facts = digits_facts()
    ruled = optimizers.details(facts, base_recipe(facts, optimizer__kind=kind))
    assert {"optimizer.lr", "optimizer.scaling", "optimizer.weight_decay"} <= ruled.keys()
    assert all(ruling.reason and ruling.source for ruling in ruled.values())
    for ranges in (optimizers.learning_rates(facts, kind), optimizers.weight_decays(facts, kind)):
        assert ranges.reason
        assert ranges.source
