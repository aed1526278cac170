"""Tests a person's overrides of the named spaces."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import Choice, Float, SpaceError
from spaces.facts import NetworkFacts
from spaces.rules.optimizers import learning_rates
from spaces.space import When
from tests.spaces.catalog.small_catalog import AVERAGING, DECAY, LR, RATE, document, faults, names, of
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts


def test_an_override_replaces_all_dimensions_of_its_path_by_one() -> None:
    space = document(imagenet_facts(), overrides={LR: RATE})
    assert [name for name in names(space) if name.startswith(LR)] == [LR]
    assert of(space, LR).domain == Float(0.01, 1.0, log=True)
    assert of(space, LR).when is None
    assert space.own[LR] == 0.1


def test_an_override_of_a_field_that_one_kind_has_exists_for_that_kind() -> None:
    space = document(
        imagenet_facts(),
        overrides={
            "optimizer.momentum": {"uniform": [0.5, 0.99]},
            "optimizer.beta2": {"choice": [0.95, 0.999]},
            DECAY: {"choice": [0.99, 0.999]},
            "augmentation.mixing.alpha": {"log": [0.1, 2.0]},
        },
    )
    assert of(space, "optimizer.momentum").when == When("optimizer.kind", ("sgd",))
    assert of(space, "optimizer.beta2").when == When("optimizer.kind", ("adamw", "lamb"))
    assert of(space, DECAY).when == When(AVERAGING, ("ema",))
    assert of(space, "augmentation.mixing.alpha").when == When(
        "augmentation.mixing.kind", ("mixup", "cutmix")
    )


def test_an_override_of_what_the_space_fixes_adds_a_dimension() -> None:
    space = document(imagenet_facts(), overrides={"loop.batch_size": {"choice": [128, 512]}})
    assert of(space, "loop.batch_size").domain == Choice((128, 512))
    assert space.own["loop.batch_size"] == 128  # the rule's 256 is not among the options


def test_an_added_kind_is_drawn_first_and_brings_the_dimensions_of_its_options() -> None:
    space = document(
        digits_facts(), overrides={"augmentation.crop.kind": {"choice": ["none", "pad", "resized"]}}
    )
    assert names(space)[0] == "augmentation.crop.kind"
    assert of(space, "augmentation.crop.fraction").when == When("augmentation.crop.kind", ("pad",))
    assert of(space, "augmentation.crop.scale_min").when == When("augmentation.crop.kind", ("resized",))
    assert space.own["augmentation.crop.kind"] == "none"


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_believed_of_each_network_follows_its_own_facts(order: int) -> None:
    networks = (
        NetworkFacts(name="resnet18", parameters=11_700_000),
        NetworkFacts(name="vit_b_16", parameters=86_600_000, attention=True, batch_norm=False),
    )[::order]
    first, second = (each.name for each in networks)
    facts = imagenet_facts(pretrained=True, networks=networks).of_network(first)
    base = base_recipe(facts, model__kind="torchvision", model__name=first, model__weights="default")
    pins = frozenset({"model.kind", "model.weights"})
    space = make_space("finetune", base, pins, facts, {"model.name": {"choice": [first, second]}})
    assert names(space)[0] == "model.name"
    rate = of(space, f"{LR}[adamw]")
    for each in networks:
        alone = learning_rates(facts.of_network(each.name), {}, "adamw")
        assert rate.prior({**space.own, "model.name": each.name, "model.freeze_norm": False}) == alone.prior
        assert all(end in rate.domain for end in alone.domain.extremes())
    assert of(space, "model.freeze_norm").domain == Choice((False, True)), "of the one that has BatchNorm"
    frozen = {**space.own, "model.name": "vit_b_16", "model.freeze_norm": True}
    assert rate.prior(frozen) == rate.prior({**frozen, "model.freeze_norm": False})


def test_a_kind_with_one_option_left_decides_the_first_trial() -> None:
    space = document(imagenet_facts(), overrides={"optimizer.kind": {"choice": ["adamw"]}})
    assert space.own["optimizer.kind"] == "adamw"
    assert space.own[LR] == 1e-3
    assert of(space, LR).domain == learning_rates(imagenet_facts(), {}, "adamw").domain
    assert "optimizer.momentum" not in names(space)


@pytest.mark.parametrize(("options", "rate"), [([False], 0.005), ([True], 0.0015), ([False, True], 0.0015)])
def test_what_is_left_of_frozen_batch_norm_decides_the_first_rate(options: list[bool], rate: float) -> None:
    facts = imagenet_facts(pretrained=True, parameters=3_400_000)
    base = base_recipe(facts, model__kind="torchvision", model__name="resnet18", model__weights="default")
    pins = frozenset({"model.kind", "model.name", "model.weights"})
    space = make_space("finetune", base, pins, facts, {"model.freeze_norm": {"choice": options}})
    assert (space.own["model.freeze_norm"], space.own[LR]) == (rate == 0.0015, rate)


def test_a_fixed_override_is_a_pin() -> None:
    space = document(imagenet_facts(), overrides={"optimizer.kind": {"fixed": "adamw"}, LR: {"fixed": 0.002}})
    assert [name for name in names(space) if name.startswith("optimizer")] == ["optimizer.weight_decay"]
    assert space.recipe(space.own).optimizer.lr == 0.002
    assert {"optimizer.kind", LR} <= space.pins


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"optimizer.weight_decay": {"uniform": [-1, 1]}}, "-1 is refused by the recipe"),
        ({"optimizer.lrr": RATE}, "no field 'lrr' in optimizer; known: kind, lr, scaling"),
        ({"optimizer.gamma": {"fixed": 1}}, "no field 'gamma' in optimizer; known: kind"),
        ({"optimizer.kind": {"choice": ["lion"]}}, "expected one of 'sgd', 'rmsprop'"),
        ({"optimizer.kind": {"choice": ["sgd", "lion"]}}, "lion is refused by the recipe"),
        ({"model.weights": {"choice": ["a.safetensors", None]}}, "write it under base"),
        ({"schedule.warmup_epochs": {"uniform": [0, 120]}}, "120 is refused"),
    ],
)
def test_an_override_that_cannot_be_is_refused_at_its_path_in_the_study(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        document(imagenet_facts(), overrides=overrides)
    ((written_at, says),) = faults(caught).items()
    assert written_at == f"space.overrides.{next(iter(overrides))}"
    assert message in says


def test_an_override_of_a_pin_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"space\.overrides\.optimizer\.lr: is pinned to 0\.3 in base"):
        document(imagenet_facts(), overrides={LR: RATE}, optimizer__lr=0.3)


def test_a_first_trial_outside_an_overridden_range_stays() -> None:
    space = document(imagenet_facts(), overrides={LR: {"log": [1.0, 10.0]}})
    assert space.own[LR] == 0.1
