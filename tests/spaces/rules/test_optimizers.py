"""Tests the rules for each optimizer at the points that documents and papers name, as tables."""

import math
from typing import Any, get_args

import pytest

from spaces.conditions import scalars_of
from spaces.domains import Float
from spaces.priors import Normal
from spaces.rules import optimizers
from spaces.rules.rates import KINDS, OptimizerKind
from tests.spaces.rules.rule_facts import asked, centre, shares
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts
from trainable.recipe.optimizers import Optimizer


def test_every_optimizer_of_a_recipe_has_rules() -> None:
    union, *_ = get_args(Optimizer)
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
        ("rmsprop", {}, 1e-3),
        ("adam", {}, 1e-3),
        ("lamb", {}, 1e-3),
        ("adam_then_sgd", {}, 1e-3),
        ("lars", {}, 0.3),
        ("adadelta", {}, 1.0),
    ],
)
def test_the_rate_is_the_documents_at_batch_256(
    kind: OptimizerKind, changes: dict[str, Any], rate: float
) -> None:
    assert optimizers.learning_rate(imagenet_facts(**changes), kind).what == rate


SHORT = {"train_images": 1257, "epochs": 20, "parameters": 77_754}
LARGE = {**SHORT, "parameters": 11_181_642}


@pytest.mark.parametrize(
    ("kind", "changes", "rate", "domain"),
    [
        ("sgd", {}, 0.1, Float(0.0032, 3.2, log=True)),
        ("adamw", {}, 1e-3, Float(3.2e-5, 3.2e-2, log=True)),
        ("lars", {}, 0.3, Float(0.0095, 9.5, log=True)),
        ("lamb", {}, 1e-3, Float(3.2e-5, 3.2e-2, log=True)),
        ("adadelta", {}, 1.0, Float(0.032, 32.0, log=True)),
        ("adadelta", SHORT, 1.0, Float(0.032, 32.0, log=True)),
        ("sgd", SHORT, 2.0, Float(0.063, 63.0, log=True)),
        ("adamw", SHORT, 0.05, Float(1e-3, 1.6, log=True)),
        ("sgd", {**SHORT, "pretrained": True}, 0.1, Float(0.001, 3.2, log=True)),
        ("adamw", {**SHORT, "pretrained": True}, 0.005, Float(0.00016, 0.16, log=True)),
        ("sgd", {**SHORT, "parameters": 100_000}, 2.0, Float(0.063, 63.0, log=True)),
        ("sgd", LARGE, 0.2, Float(0.0063, 6.3, log=True)),
        ("sgd", {**SHORT, "parameters": 86 * MILLION}, 0.2, Float(0.0063, 6.3, log=True)),
        ("lars", LARGE, 0.6, Float(0.019, 19.0, log=True)),
        ("adamw", LARGE, 0.05, Float(1e-3, 1.6, log=True)),
        ("lamb", LARGE, 0.05, Float(1e-3, 1.6, log=True)),
        ("adamw", {**SHORT, "attention": True}, 1e-3, Float(3.2e-5, 3.2e-2, log=True)),
        ("sgd", {**SHORT, "attention": True}, 0.1, Float(0.0032, 3.2, log=True)),
    ],
)
def test_rates_lie_a_decade_and_a_half_around_the_rule_and_higher_in_short_runs(
    kind: OptimizerKind, changes: dict[str, Any], rate: float, domain: Float
) -> None:
    found = asked(f"optimizer.lr[{kind}]", imagenet_facts(**changes), model__freeze_norm=False)
    assert (found.domain, centre(found)) == (domain, pytest.approx(rate))


def test_rates_fall_as_a_run_sees_more_images() -> None:
    runs = [(1_000, 10), (4_000, 9), (50_000, 20), (50_000, 160), (1_280_000, 90), (1_280_000, 300)]
    found = [
        centre(asked("optimizer.lr[sgd]", imagenet_facts(train_images=n, epochs=epochs, parameters=853_018)))
        for n, epochs in runs
    ]
    assert found == sorted(found, reverse=True)
    assert found[3] == pytest.approx(0.2, rel=0.1)  # CIFAR's ResNet56: 0.1 at batch 128


def test_rates_of_a_short_run_fall_with_the_models_size_from_100_000_to_10_million_parameters() -> None:
    sizes = [20_000, 100_000, 10**6, 10**7, 10**8]
    found = [centre(asked("optimizer.lr[sgd]", imagenet_facts(**{**SHORT, "parameters": n}))) for n in sizes]
    assert found == pytest.approx([2.0, 2.0, 2.0 / 10**0.5, 0.2, 0.2])


def test_the_rate_of_sgd_for_small_nets_is_surer_than_others() -> None:
    found = {
        "sgd": asked("optimizer.lr[sgd]", digits_facts(parameters=100_000)),
        "adamw": asked("optimizer.lr[adamw]", digits_facts(parameters=100_000)),
        "lamb": asked("optimizer.lr[lamb]", digits_facts()),
        "fine-tuned": asked("optimizer.lr[sgd]", digits_facts(pretrained=True)),
        "attention": asked("optimizer.lr[adamw]", digits_facts(attention=True)),
        "larger": asked("optimizer.lr[sgd]", digits_facts(parameters=100_001)),
        "ResNet50": asked("optimizer.lr[adamw]", imagenet_facts()),
    }
    sure = {name: each.prior.confidence for name, each in found.items() if isinstance(each.prior, Normal)}
    assert sure == {
        "sgd": "high",
        "adamw": "medium",
        "lamb": "medium",
        "fine-tuned": "medium",
        "attention": "medium",
        "larger": "medium",
        "ResNet50": "medium",
    }


def test_most_draws_of_sgds_rate_lie_within_the_factor_5_that_never_failed() -> None:
    found = asked("optimizer.lr[sgd]", digits_facts())
    assert isinstance(found.prior, Normal)
    assert isinstance(found.domain, Float)
    decades = math.log10(found.domain.high / found.domain.low) * found.prior.spread
    assert math.log10(5) / decades == pytest.approx(1.86, abs=0.05)  # in standard deviations: 94 %


# --- a sweep over rates -------------------------------------------------------------------------------


def test_a_sweep_centres_the_rate_of_the_optimizer_that_it_was_made_with() -> None:
    facts = imagenet_facts(lr_band=(0.2, 5.0), lr_band_kind="sgd")
    found = asked("optimizer.lr[sgd]", facts)
    assert found.prior == Normal(1.0, "high")
    assert found.domain == Float(0.032, 32.0, log=True)
    assert "recommends 0.2 to 5 for sgd; the rule's 0.1 lies below" in found.reason
    for other in ("adamw", "lars"):
        assert asked(f"optimizer.lr[{other}]", facts) == asked(f"optimizer.lr[{other}]", imagenet_facts())


def test_a_sweep_of_a_short_run_is_compared_with_the_rules_rate_which_is_not_the_documents() -> None:
    found = asked("optimizer.lr[sgd]", digits_facts(lr_band=(0.3, 4.6), lr_band_kind="sgd"))
    assert found.reason == "a sweep recommends 0.3 to 4.6 for sgd; the rule's 2 lies within"


def test_a_sweep_says_where_the_rules_rate_lies() -> None:
    def rate_lies(low: float, high: float) -> str:
        facts = imagenet_facts(lr_band=(low, high), lr_band_kind="sgd")
        return asked("optimizer.lr[sgd]", facts).reason.rpartition(" ")[2]

    assert [rate_lies(0.01, 0.05), rate_lies(0.05, 0.5), rate_lies(0.5, 1.0)] == ["above", "within", "below"]


def test_a_sweep_of_an_unnamed_optimizer_is_the_documents_own() -> None:
    attention = imagenet_facts(lr_band=(0.01, 0.1), attention=True)
    assert "sweep" in asked("optimizer.lr[sgd]", imagenet_facts(lr_band=(0.01, 0.1))).reason
    assert "sweep" in asked("optimizer.lr[adamw]", attention).reason
    assert "sweep" not in asked("optimizer.lr[sgd]", attention).reason


@pytest.mark.parametrize(("band", "rate"), [((0.05, 0.5), 0.1), ((0.2, 5.0), 0.2), ((0.001, 0.05), 0.05)])
def test_the_documents_own_rate_is_clipped_into_what_a_sweep_recommends(
    band: tuple[float, float], rate: float
) -> None:
    ruling = optimizers.learning_rate(imagenet_facts(lr_band=band), "sgd")
    assert ruling.what == rate
    assert ("sweep" in ruling.reason) == (rate != 0.1)


def test_a_sweeps_whole_band_can_be_drawn_however_wide_it_is() -> None:
    found = asked("optimizer.lr[sgd]", imagenet_facts(lr_band=(1e-5, 1e3)))
    assert found.domain == Float(1e-5, 1e3, log=True)


# --- which optimizer ----------------------------------------------------------------------------------


def test_sgd_gains_on_adamw_with_the_images_that_a_run_sees() -> None:
    runs = [(1_000, 10), (10_000, 6), (50_000, 100), (1_280_000, 90)]
    likely = [shares(asked("optimizer.kind", imagenet_facts(train_images=n, epochs=e))) for n, e in runs]
    assert [each["sgd"] for each in likely] == sorted(each["sgd"] for each in likely)
    assert [likely[0]["sgd"], likely[-1]["sgd"]] == pytest.approx([0.35, 0.7])
    assert all(each["lamb"] == pytest.approx(0.05) for each in likely)


def test_attention_is_trained_with_adamw_or_an_optimizer_of_timms_in_eight_trials_of_ten() -> None:
    found = shares(asked("optimizer.kind", imagenet_facts(attention=True)))
    assert found["adamw"] + found["timm"] == pytest.approx(0.8)


def test_lars_is_for_batches_of_4096_and_more() -> None:
    facts = imagenet_facts()
    assert "lars" not in shares(asked("optimizer.kind", facts, loop__batch_size=2048))
    assert "lars" in shares(asked("optimizer.kind", facts, loop__batch_size=4096))


# --- momentum and decay -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("sgd", 1e-4),
        ("lars", 1e-4),
        ("adamw", 0.02),
        ("lamb", 0.02),
        ("adam_then_sgd", 0.02),
        ("rmsprop", 1e-5),
        ("adam", 1e-5),
        ("adadelta", 1e-5),
    ],
)
def test_a_decay_that_a_division_distorts_is_small_and_a_decoupled_one_large(
    kind: OptimizerKind, rate: float
) -> None:
    found = asked(f"optimizer.weight_decay[{kind}]", imagenet_facts())
    assert centre(found) == rate
    low, high = found.domain.extremes()
    assert [low, high] == pytest.approx([rate / 31.6, rate * 31.6], rel=0.02)


@pytest.mark.parametrize("change", ["policy", "mixing"])
def test_strong_augmentation_that_was_drawn_takes_three_tenths_of_sgds_decay(change: str) -> None:
    kinds = {"policy": "randaugment", "mixing": "cutmix"}
    drawn = {f"augmentation__{change}__kind": kinds[change]}
    found = asked("optimizer.weight_decay[sgd]", imagenet_facts(), **drawn)
    assert centre(found) == 7e-5
    assert "x0.7 with strong augmentation" in found.reason
    assert centre(asked("optimizer.weight_decay[adamw]", imagenet_facts(), **drawn)) == 0.02


def test_masks_leave_the_decay_alone() -> None:
    found = asked("optimizer.weight_decay[sgd]", imagenet_facts(), augmentation__masking__kind="erasing")
    assert centre(found) == 1e-4


def test_decoupled_decay_does_not_depend_on_a_convolutional_models_size() -> None:
    small, large = (
        asked("optimizer.weight_decay[adamw]", imagenet_facts(parameters=n)) for n in (10**4, 10**9)
    )
    assert small == large
    assert centre(asked("optimizer.weight_decay[adamw]", imagenet_facts(attention=True))) == 0.05


def test_momentum_halves_the_rate_or_multiplies_it_by_five_at_most() -> None:
    found = asked("optimizer.momentum", digits_facts())
    assert isinstance(found.domain, Float)
    assert [0.1 / (1 - end) for end in (found.domain.low, found.domain.high)] == pytest.approx([0.5, 5.0])
    assert centre(found) == 0.9


def test_sgd_after_adam_goes_by_sgds_rules() -> None:
    facts = digits_facts()
    for path, other in (("sgd_lr", "lr"), ("sgd_weight_decay", "weight_decay")):
        assert asked(f"optimizer.{path}", facts) == asked(f"optimizer.{other}[sgd]", facts)


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


def test_adam_then_sgd_takes_the_rules_of_both() -> None:
    facts = imagenet_facts()
    recipe = base_recipe(facts, optimizer__kind="adam_then_sgd")
    values = {path: ruling.what for path, ruling in optimizers.details(facts, scalars_of(recipe)).items()}
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
    ruled = optimizers.details(facts, scalars_of(base_recipe(facts, optimizer__kind=kind)))
    assert {"optimizer.lr", "optimizer.scaling", "optimizer.weight_decay"} <= ruled.keys()
    assert all(ruling.reason and ruling.source for ruling in ruled.values())
