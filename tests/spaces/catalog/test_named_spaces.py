"""Tests the other named spaces: the naive baseline, the one to fine-tune, and that of few trials."""

from typing import Any

import pytest

from spaces.catalog.catalog import FINE_TUNED, make_space
from spaces.catalog.wide_space import WIDE
from spaces.domains import Choice, Domain, Float, Integer, SpaceError
from spaces.facts import Facts
from spaces.priors import Normal, Uniform
from spaces.rules.rules import RULES
from spaces.rules.tasks import rules_of
from spaces.space import Space, When
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts, masks_facts
from trainable.recipe.tasks import TASK_KINDS

TUNED = imagenet_facts(train_images=1_000, epochs=30, pretrained=True)
WEIGHTS: dict[str, Any] = {"model__weights": "resnet50.safetensors"}


def named(name: str, facts: Facts, overrides: dict[str, Any] | None = None, **pins: Any) -> Space:
    """Return a named space; values by dotted path (`__` for the dot) are pinned."""
    pinned = frozenset(path.replace("__", ".") for path in pins)
    return make_space(name, base_recipe(facts, **pins), pinned, facts, overrides or {})


def domains(space: Space) -> dict[str, Domain]:
    return {each.name: each.domain for each in space.dimensions}


def paths(space: Space) -> set[str]:
    return {each.path for each in space.dimensions}


# --- wide ---------------------------------------------------------------------------------------------

EXAMPLES = [digits_facts(), imagenet_facts(), imagenet_facts(parameters=MILLION, epochs=9, image_size=28)]


@pytest.mark.parametrize("facts", EXAMPLES)
def test_wide_varies_the_fields_of_document_and_knows_nothing(facts: Facts) -> None:
    wide, document = named("wide", facts), named("document", facts)
    assert paths(wide) == paths(document) - {"optimizer.name"}  # a baseline of SGD and AdamW
    assert all(each.prior(wide.own) == Uniform() for each in wide.dimensions)
    assert wide.own == document.own


def test_wide_has_a_range_for_every_field_that_a_rule_speaks_of() -> None:
    assert {rule.path for rule in WIDE} == {rule.path for rule in RULES}


def test_wide_spans_orders_of_magnitude_and_offers_every_kind() -> None:
    found = domains(named("wide", imagenet_facts()))
    assert found["optimizer.kind"] == Choice(("sgd", "adamw"))
    assert found["optimizer.lr[sgd]"] == Float(1e-4, 10.0, log=True)
    assert found["optimizer.lr[adamw]"] == Float(1e-5, 1.0, log=True)
    assert found["optimizer.weight_decay[sgd]"] == Float(1e-6, 1e-2, log=True)
    assert found["optimizer.weight_decay[adamw]"] == Float(1e-5, 1.0, log=True)
    assert found["optimizer.momentum"] == Float(0.5, 0.99)
    assert found["schedule.warmup_epochs"] == Float(0.0, 12.0)
    assert found["regularisation.label_smoothing"] == Float(0.0, 0.3)
    assert found["augmentation.policy.magnitude"] == Integer(0, 30)
    for section, kinds in (("policy", 4), ("masking", 5), ("mixing", 3)):
        kind = found[f"augmentation.{section}.kind"]
        assert isinstance(kind, Choice)
        assert len(kind.options) == kinds


def test_strengths_of_wide_exist_only_with_what_they_are_of() -> None:
    whens = {each.name: each.when for each in named("wide", imagenet_facts()).dimensions}
    assert whens["augmentation.mixing.alpha[mixup]"] == When("augmentation.mixing.kind", ("mixup",))
    masks = ("erasing", "cutout", "gridmask", "hide_and_seek")
    assert whens["augmentation.masking.probability"] == When("augmentation.masking.kind", masks)
    assert whens["regularisation.averaging.decay"] == When("regularisation.averaging.kind", ("ema",))
    assert whens["regularisation.clipping.max_norm"] == When("regularisation.clipping.kind", ("norm",))


def test_a_pinned_optimizer_of_wide_keeps_its_own_wide_range() -> None:
    assert domains(named("wide", imagenet_facts(), optimizer__kind="lamb"))["optimizer.lr"] == Float(
        1e-5, 1.0, log=True
    )


def test_a_belief_in_wide_keeps_its_wide_range() -> None:
    space = named("wide", imagenet_facts(), {"optimizer.lr[sgd]": {"prior": 0.1}})
    (rate,) = (each for each in space.dimensions if each.name == "optimizer.lr[sgd]")
    assert rate.domain == Float(1e-4, 10.0, log=True)
    assert rate.prior({}) == Normal(0.1, "medium")


# --- finetune -----------------------------------------------------------------------------------------


def test_finetune_varies_how_far_pretrained_weights_may_move() -> None:
    assert list(domains(named("finetune", TUNED, **WEIGHTS))) == [
        "optimizer.kind",
        "augmentation.policy.kind",
        "model.layer_rates.kind",
        "model.freeze_norm",
        "optimizer.lr[sgd]",
        "optimizer.lr[adamw]",
        "optimizer.lr[timm]",
        "optimizer.weight_decay[sgd]",
        "optimizer.weight_decay[adamw]",
        "optimizer.weight_decay[timm]",
        "regularisation.label_smoothing",
        "model.freeze_epochs",
        "model.layer_rates.lowest",
        "model.layer_rates.factor",
        "augmentation.crop.scale_min",
        "augmentation.policy.magnitude",
    ]


def test_every_field_of_finetune_has_a_rule() -> None:
    for kind in TASK_KINDS:
        paths = {rule.path for rule in RULES if kind in rule.tasks}
        assert set(rules_of(kind).fine_tuned) <= paths
        assert set(FINE_TUNED) <= {rule.path for rule in RULES}


def test_finetune_corrects_unequal_classes_in_all_three_ways() -> None:
    unequal = TUNED.model_copy(update={"class_balance": 0.02, "classes_count_alike": True})
    corrections = {"loop.sampling", "regularisation.class_weights.kind", "regularisation.logit_adjustment"}
    assert corrections <= set(paths(named("finetune", unequal, **WEIGHTS)))
    assert not corrections & set(paths(named("finetune", TUNED, **WEIGHTS)))


def test_finetune_smooths_no_labels_of_a_small_net() -> None:
    small = named("finetune", TUNED.model_copy(update={"parameters": MILLION}), **WEIGHTS)
    assert "regularisation.label_smoothing" not in paths(small)


def test_rates_by_layer_are_drawn_for_the_kind_that_has_them() -> None:
    space = named("finetune", TUNED, **WEIGHTS)
    values = space.sample(lambda dimension: 0.9)
    assert values["model.layer_rates.kind"] == "decayed"
    assert "model.layer_rates.factor" in values
    assert "model.layer_rates.lowest" not in values


def test_the_first_trial_of_finetune_takes_the_measured_rate_of_adamw() -> None:
    own = named("finetune", TUNED.model_copy(update={"parameters": 3 * MILLION}), **WEIGHTS).own
    assert (own["optimizer.kind"], own["model.freeze_norm"], own["optimizer.lr"]) == ("adamw", True, 0.0015)


def test_finetune_without_weights_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"space\.name: .*base has none: write model\.weights under base"):
        named("finetune", imagenet_facts())


# --- segmentations -----------------------------------------------------------------------------------

UNET: dict[str, Any] = {"model__kind": "smp", "model__encoder": "resnet50", "model__weights": "default"}
TUNED_MASKS = masks_facts(train_images=2_000, epochs=30, parameters=30 * MILLION, pretrained=True)


@pytest.mark.parametrize(("facts", "pins"), [(masks_facts(), {}), (TUNED_MASKS, UNET)])
def test_wide_varies_the_fields_of_document_of_a_segmentation_too(facts: Facts, pins: dict[str, Any]) -> None:
    wide, document = named("wide", facts, **pins), named("document", facts, **pins)
    assert paths(wide) == paths(document) - {"optimizer.name"}
    assert all(each.prior(wide.own) == Uniform() for each in wide.dimensions)
    found = domains(wide)
    assert found["augmentation.crop.kind"] == Choice(("none", "pad", "scaled"))
    assert found["augmentation.mixing.kind"] == Choice(("none", "cutmix", "classmix"))
    assert found["task.loss.dice"] == Float(0.0, 2.0)


def test_finetune_varies_the_windows_and_the_loss_of_a_segmentation_too() -> None:
    tuned = paths(named("finetune", TUNED_MASKS, **UNET))
    assert {"augmentation.crop.kind", "augmentation.crop.scale_max", "task.loss.dice"} <= tuned
    assert {"model.layer_rates.factor", "model.freeze_norm", "model.freeze_epochs"} <= tuned


def test_quick_varies_the_rate_of_a_segmentation_alone() -> None:
    assert list(domains(named("quick", masks_facts()))) == ["optimizer.lr"]


@pytest.mark.parametrize("name", ["document", "wide", "quick"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_what_is_drawn_for_a_segmentation_makes_a_recipe(name: str, share: float) -> None:
    space = named(name, masks_facts(epochs=200))
    recipe = space.recipe(space.sample(lambda dimension: share))
    assert (recipe.task.kind, recipe.model.kind) == ("segmentation", "unet_small")


# --- quick --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", EXAMPLES)
def test_quick_varies_the_rate_alone_around_the_documents_own(facts: Facts) -> None:
    quick, document = named("quick", facts), named("document", facts)
    assert list(domains(quick)) == ["optimizer.lr"]
    assert domains(quick)["optimizer.lr"] == domains(document)["optimizer.lr[sgd]"]
    assert quick.base == document.base


def test_quick_tunes_the_rate_of_the_optimizer_that_is_pinned() -> None:
    facts = imagenet_facts()
    quick = named("quick", facts, optimizer__kind="adamw")
    assert domains(quick)["optimizer.lr"] == domains(named("document", facts))["optimizer.lr[adamw]"]


def test_what_a_person_writes_over_quick_varies_too() -> None:
    quick = named("quick", imagenet_facts(), {"optimizer.kind": {"choice": ["sgd", "adamw"]}})
    assert list(domains(quick)) == ["optimizer.kind", "optimizer.lr[sgd]", "optimizer.lr[adamw]"]
