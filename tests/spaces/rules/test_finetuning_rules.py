"""Tests the rules for pretrained models at the points that documents and papers name."""

from typing import Any

import pytest

from spaces.domains import Float
from spaces.rules.optimizers import optimizer
from tests.spaces.rules.rule_facts import PRETRAINED, asked, centre, settled, shares, silent
from tests.spaces.small_facts import imagenet_facts


def fine_tuned(images: int = 10_000, **changes: object) -> dict[str, object]:
    return {"pretrained": True, "train_images": images, "epochs": 20, **changes}


@pytest.mark.parametrize(
    ("kind", "changes", "rate"),
    [
        ("adamw", {"parameters": 3_400_000}, 0.005),
        ("adamw", {"parameters": 25_600_000}, 0.0014),
        ("adamw", {"parameters": 300_000_000}, 0.0005),
        ("lamb", {"parameters": 3_400_000}, 0.005),
        ("sgd", {"parameters": 3_400_000}, 0.1),
        ("sgd", {"parameters": 100_000_000}, 0.02),
        ("lars", {"parameters": 3_400_000}, 0.1),
        ("adamw", {"attention": True}, 0.0001),
        ("sgd", {"attention": True}, 0.01),
        ("adadelta", {}, 1.0),
    ],
)
def test_rates_from_pretrained_weights_fall_with_the_size_of_the_net(
    kind: str, changes: dict[str, object], rate: float
) -> None:
    facts = imagenet_facts(**fine_tuned(1_442, **changes))
    assert centre(asked(f"optimizer.lr[{kind}]", facts, model__freeze_norm=False)) == rate


@pytest.mark.parametrize("images", [500, 1_442, 100_000])
def test_the_documents_rates_are_within_reach(images: int) -> None:
    found = asked("optimizer.lr[sgd]", imagenet_facts(**fine_tuned(images)))
    assert 0.001 in found.domain
    assert 0.01 in found.domain


def test_adamw_has_most_trials_from_pretrained_weights() -> None:
    found = asked("optimizer.kind", imagenet_facts(**fine_tuned()))
    assert shares(found)["adamw"] > 0.5
    assert optimizer(imagenet_facts(**fine_tuned())).what == "adamw"


def test_most_trials_train_all_layers_from_the_start() -> None:
    found = asked("model.freeze_epochs", imagenet_facts(**fine_tuned()))
    assert shares(found) == pytest.approx({0: 0.6, 1: 0.25, 2: 0.1, 5: 0.05})


def test_the_body_is_frozen_for_half_of_the_run_at_most() -> None:
    assert set(shares(asked("model.freeze_epochs", imagenet_facts(**fine_tuned(epochs=4))))) == {0, 1, 2}
    assert silent("model.freeze_epochs", imagenet_facts(**fine_tuned(epochs=1)))


def test_rates_fall_from_the_head_to_the_stem_in_three_trials_of_four() -> None:
    likely = shares(asked("model.layer_rates.kind", imagenet_facts(**fine_tuned())))
    assert likely == pytest.approx({"uniform": 0.25, "geometric": 0.5, "decayed": 0.25})


def test_the_heads_rate_is_1_to_100_times_the_stems_around_10() -> None:
    found = asked("model.layer_rates.lowest", imagenet_facts(**fine_tuned()))
    assert (found.domain, centre(found)) == (Float(0.01, 1.0, log=True), 0.1)


def test_a_layers_factor_lies_around_those_of_the_papers() -> None:
    found = asked("model.layer_rates.factor", imagenet_facts(**fine_tuned()))
    assert 0.65 <= centre(found) <= 0.9


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"loop__batch_size": 4}, 0.8),
        ({"loop__batch_size": 8}, 0.8),
        ({"loop__batch_size": 16}, (0.8 * 0.6) ** 0.5),
        ({"loop__batch_size": 32}, 0.6),
        ({"loop__batch_size": 256}, 0.6),
        ({"loop__batch_size": 256, "loop__micro_batch": 8}, 0.8),
    ],
)
def test_batch_norm_is_frozen_where_few_images_are_normalised_at_once(
    changes: dict[str, int], share: float
) -> None:
    found = asked("model.freeze_norm", imagenet_facts(**fine_tuned()), **changes)
    assert shares(found)[True] == pytest.approx(share)


@pytest.mark.parametrize(("batch", "few"), [(8, True), (24, True), (32, False), (256, False)])
def test_the_reason_for_freezing_batch_norm_is_true_of_the_batch(batch: int, few: bool) -> None:
    found = asked("model.freeze_norm", imagenet_facts(**fine_tuned()), loop__batch_size=batch)
    assert (f"and {batch} images at once make poor statistics" in found.reason) is few


def test_memory_and_ranks_count_towards_the_images_normalised_at_once() -> None:
    small = imagenet_facts(**fine_tuned(largest_micro_batch=8))
    spread = imagenet_facts(**fine_tuned(workers=8))
    for facts in (small, spread):
        assert shares(asked("model.freeze_norm", facts, loop__batch_size=64))[True] == pytest.approx(0.8)


@pytest.mark.parametrize("changes", [{"batch_norm": False}, {"attention": True}])
def test_without_batch_norm_and_with_attention_there_is_nothing_to_draw(changes: dict[str, Any]) -> None:
    assert silent("model.freeze_norm", imagenet_facts(**fine_tuned(**changes)))


@pytest.mark.parametrize(
    ("kind", "changes", "factor"),
    [
        ("adamw", {}, 0.3),
        ("sgd", {}, 0.3),
        ("timm", {}, 0.3),
        ("adadelta", {}, 1.0),
        ("adamw", {"pretrained": False}, 1.0),
        ("adamw", {"batch_norm": False}, 1.0),
        ("adamw", {"attention": True}, 1.0),
        ("adamw", {"lr_band": (0.001, 0.01), "lr_band_kind": "adamw"}, 1.0),
        ("sgd", {"lr_band": (0.001, 0.01), "lr_band_kind": "adamw"}, 0.3),
    ],
)
def test_rates_are_lower_with_frozen_batch_norm_but_where_a_sweep_was_made(
    kind: str, changes: dict[str, Any], factor: float
) -> None:
    name, facts = f"optimizer.lr[{kind}]", imagenet_facts(**fine_tuned(**changes))
    trained, frozen = (asked(name, facts, model__freeze_norm=each) for each in (False, True))
    assert centre(frozen) == pytest.approx(factor * centre(trained), rel=0.05)
    assert frozen.domain == trained.domain


@pytest.mark.parametrize("frozen", [True, False])
def test_the_documented_rate_follows_what_is_pinned_of_batch_norm(frozen: bool) -> None:
    facts = imagenet_facts(**fine_tuned(parameters=3_400_000))
    recipe = settled(facts, model__freeze_norm=frozen, **PRETRAINED)
    assert recipe["optimizer.lr"] == (0.0015 if frozen else 0.005)


@pytest.mark.parametrize(
    ("changes", "frozen"),
    [
        ({}, True),
        ({"pretrained": False}, False),
        ({"batch_norm": False}, False),
        ({"attention": True}, False),
    ],
)
def test_the_documented_recipe_freezes_the_batch_norm_that_weights_bring(
    changes: dict[str, Any], frozen: bool
) -> None:
    assert settled(imagenet_facts(**fine_tuned(**changes)))["model.freeze_norm"] is frozen


def test_both_rates_of_adam_then_sgd_are_lower_with_frozen_batch_norm() -> None:
    def rates(*, frozen: bool) -> tuple[float, float]:
        facts = imagenet_facts(**fine_tuned(parameters=3_400_000))
        found = settled(facts, optimizer__kind="adam_then_sgd", model__freeze_norm=frozen, **PRETRAINED)
        return found["optimizer.lr"], found["optimizer.sgd_lr"]

    assert rates(frozen=True) == (0.0015, 0.03)
    assert rates(frozen=False) == (0.005, 0.1)


def test_where_a_person_wrote_the_rate_batch_norm_stays_as_it_is() -> None:
    facts, pins = imagenet_facts(**fine_tuned()), {"optimizer__kind": "adamw", "optimizer__lr": 0.005}
    assert settled(facts, **pins, **PRETRAINED)["model.freeze_norm"] is False
    frozen = settled(facts, model__freeze_norm=True, **pins, **PRETRAINED)
    assert (frozen["model.freeze_norm"], frozen["optimizer.lr"]) == (True, 0.005)
