"""Tests what the rules say of a segmentation, and that they say nothing of what masks cannot have."""

from __future__ import annotations

import pytest

from spaces.rules.heuristics import fixed_by_rule
from spaces.rules.masks import batch_size, wanted_epochs, window
from spaces.rules.rules import RULES
from spaces.rules.tasks import rules_of
from tests.spaces.rules.rule_facts import TUNED_MASKS, TUNED_UNET, asked, centre, settled, shares, silent
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts, masks_facts
from trainable.recipe.tasks import Segmentation

LONG = masks_facts(train_images=10_582, epochs=50)


def test_the_documented_recipe_of_masks_is_that_of_the_papers() -> None:
    values = settled(masks_facts())
    assert (values["schedule.kind"], values["schedule.power"]) == ("poly", 0.9)
    assert (values["optimizer.kind"], values["optimizer.lr"]) == ("adamw", 0.004)
    assert values["augmentation.crop.kind"] == "scaled"
    assert (values["augmentation.crop.scale_min"], values["augmentation.crop.scale_max"]) == (0.5, 2.0)
    assert (values["task.loss.dice"], values["task.loss.auxiliary"]) == (0.0, 0.4)
    assert values["augmentation.mixing.kind"] == "none"
    assert values["regularisation.label_smoothing"] == 0.0


def test_a_pretrained_backbone_has_a_tenth_of_the_rate_and_its_batchnorm_frozen() -> None:
    values = settled(TUNED_MASKS, **TUNED_UNET)
    assert (values["model.layer_rates.kind"], values["model.layer_rates.factor"]) == ("backbone", 0.1)
    assert values["model.freeze_norm"] is True
    assert shares(asked("model.layer_rates.kind", TUNED_MASKS)) == pytest.approx(
        {"backbone": 0.4, "uniform": 0.4, "geometric": 0.2}
    )
    assert shares(asked("model.freeze_norm", TUNED_MASKS)) == pytest.approx({False: 0.85, True: 0.15})
    assert settled(masks_facts())["model.layer_rates.kind"] == "uniform"


def test_published_rates_are_moved_from_batch_16_to_256() -> None:
    plain, tuned = masks_facts(epochs=20_000), TUNED_MASKS.model_copy(update={"batch_norm": False})
    assert centre(asked("optimizer.lr[sgd]", plain)) == pytest.approx(0.007 * 256 / 16, abs=0.003)
    assert centre(asked("optimizer.lr[adamw]", plain)) == pytest.approx(0.001 * (256 / 16) ** 0.5)
    assert centre(asked("optimizer.lr[adamw]", tuned)) == pytest.approx(
        10 * 6e-5 * (256 / 16) ** 0.5, rel=0.1
    )
    assert centre(asked("optimizer.lr[sgd]", tuned)) == pytest.approx(0.11, rel=0.1)


def test_rates_of_short_runs_from_scratch_lie_where_the_best_were_measured() -> None:
    small = masks_facts(parameters=120_000)
    assert 3 < centre(asked("optimizer.lr[sgd]", small)) < 10
    assert 0.01 < centre(asked("optimizer.lr[adamw]", small)) < 0.1
    muon = asked("optimizer.lr[timm]", small, optimizer__kind="timm", optimizer__name="muon")
    assert 0.03 < centre(muon) < 0.3


def test_rates_of_short_runs_from_pretrained_weights_lie_where_the_best_were_measured() -> None:
    few = masks_facts(parameters=5_200_000, pretrained=True, epochs=12)
    for frozen in (False, True):
        found = asked("optimizer.lr[adamw]", few, model__freeze_norm=frozen)
        assert 0.007 < centre(found) < 0.024
    assert settled(few)["optimizer.lr"] == 0.0024, "the first trial has the papers' own"


def test_transformers_keep_their_low_rates() -> None:
    attention = masks_facts(attention=True, batch_norm=False)
    assert centre(asked("optimizer.lr[adamw]", attention)) == 0.001
    assert centre(asked("optimizer.lr[sgd]", attention)) == 0.01


def test_weight_decay_does_not_follow_the_number_of_images() -> None:
    for facts in (masks_facts(), LONG):
        assert centre(asked("optimizer.weight_decay[sgd]", facts)) == 1e-4
        assert centre(asked("optimizer.weight_decay[adamw]", facts)) == 0.01


@pytest.mark.parametrize(
    ("images", "epochs", "batch"), [(42, 20, 4), (42, 200, 4), (200, 200, 8), (10_582, 45, 16), (3, 10, 2)]
)
def test_batches_are_small_and_leave_a_run_its_steps(images: int, epochs: int, batch: int) -> None:
    assert batch_size(masks_facts(train_images=images, epochs=epochs)).what == batch


def test_windows_are_as_large_as_the_images_up_to_what_the_device_bears() -> None:
    found = window(masks_facts())["data.image_size"]
    assert found.what == 128
    assert "256 px, at most 128 px on a CPU" in found.reason
    assert window(TUNED_MASKS)["data.image_size"].what == 512
    assert not window(masks_facts(image_size=96)), "a person wrote another side"
    assert not rules_of("classification").network(digits_facts())


def test_scales_are_near_to_1_in_short_runs_and_the_papers_own_in_long_ones() -> None:
    for name, near, far in (("scale_min", 0.8, 0.5), ("scale_max", 1.25, 2.0)):
        path = f"augmentation.crop.{name}"
        assert centre(asked(path, masks_facts())) == pytest.approx(near)
        assert centre(asked(path, LONG)) == pytest.approx(far)
    short, long = (shares(asked("augmentation.crop.kind", each)) for each in (masks_facts(), LONG))
    assert short["scaled"] == pytest.approx(0.5)
    assert long["scaled"] == pytest.approx(0.8)
    assert settled(masks_facts(epochs=5))["augmentation.crop.kind"] == "none"


def test_mixing_and_hiding_are_rare_and_only_what_masks_can_have() -> None:
    facts = masks_facts(epochs=200, train_images=2_000, parameters=25_000_000)
    mixing, masking = (shares(asked(f"augmentation.{each}.kind", facts)) for each in ("mixing", "masking"))
    assert tuple(mixing) == Segmentation.mixings
    assert mixing["none"] == pytest.approx(0.7)
    assert masking["none"] > 0.85
    assert silent("augmentation.mixing.kind", masks_facts(epochs=9))
    assert silent("augmentation.mixing.alpha[mixup]", facts)


def test_losses_that_count_classes_alike_are_tried_beside_the_cross_entropy() -> None:
    assert shares(asked("task.loss.dice", masks_facts())) == pytest.approx({0.0: 0.3, 0.5: 0.2, 1.0: 0.5})
    assert shares(asked("task.loss.lovasz", masks_facts()))[0.0] == pytest.approx(0.75)


def test_unequal_classes_are_weighted_by_their_pixels_now_and_then_and_by_nothing_else() -> None:
    found = asked("regularisation.class_weights.kind", masks_facts())
    assert shares(found) == pytest.approx({"none": 0.9, "inverse": 0.1})
    assert "11.1 times the pixels" in found.reason
    for path in ("loop.sampling", "regularisation.logit_adjustment", "regularisation.class_weights.beta"):
        assert silent(path, masks_facts())
    assert silent("regularisation.class_weights.kind", masks_facts(class_balance=0.5))
    assert "loop.sampling" not in fixed_by_rule(masks_facts(), base_recipe(masks_facts()), frozenset())


def test_a_stride_is_tried_where_the_network_has_one() -> None:
    named = {"model__kind": "smp", "model__name": "deeplabv3plus"}
    assert shares(asked("model.output_stride", TUNED_MASKS, **named)) == pytest.approx({16: 0.75, 8: 0.25})
    assert silent("model.output_stride", TUNED_MASKS, model__kind="smp", model__name="unet")
    assert settled(TUNED_MASKS, **TUNED_UNET, model__name="deeplabv3plus")["model.output_stride"] == 16


def test_labels_are_not_smoothed_and_nothing_is_dropped() -> None:
    for path in ("regularisation.label_smoothing", "model.dropout"):
        assert silent(path, masks_facts(parameters=30_000_000))


def test_a_run_is_as_long_as_deeplabs_where_it_shows_as_many_windows() -> None:
    found = wanted_epochs(masks_facts(train_images=10_582))
    assert found.what == 45
    assert "480,000 windows" in found.reason


def test_rules_of_masks_say_nothing_of_a_classification() -> None:
    only = ("task.loss.dice", "task.loss.lovasz", "augmentation.crop.scale_max")
    for facts in (digits_facts(), imagenet_facts(pretrained=True)):
        values = settled(facts)
        assert not [each.path for each in RULES if each.path in only and each.of(facts, values)]
        kinds = [each.of(facts, values) for each in RULES if each.path == "model.layer_rates.factor"]
        assert sum(each is not None for each in kinds) == facts.pretrained
