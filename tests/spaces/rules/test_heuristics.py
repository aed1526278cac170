"""Tests the documented recipe, which is gathered from the rules."""

import pytest

from spaces.facts import Facts
from spaces.forms import types_of
from spaces.rules import heuristics, loops, rates, schedules
from spaces.rules.rulings import log_log_interpolated, number_at, rounded, share_between
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts
from trainable.recipe.network_cost import Speed


def test_interpolation_runs_straight_in_logarithms_and_flat_outside() -> None:
    line = ((10.0, 1.0), (1000.0, 100.0))
    assert [log_log_interpolated(x, *line) for x in (1, 10, 100, 1000, 10_000)] == pytest.approx(
        [1, 1, 10, 100, 100]
    )
    falling = ((10.0, 100.0), (1000.0, 1.0))
    assert log_log_interpolated(100, *falling) == pytest.approx(10)


def test_a_share_on_the_logarithm_is_0_and_1_outside() -> None:
    assert [share_between(x, 10, 1000) for x in (1, 10, 100, 1000, 10_000)] == pytest.approx(
        [0, 0, 0.5, 1, 1]
    )


def test_a_rule_that_needs_a_number_refuses_a_word() -> None:
    with pytest.raises(TypeError, match=r"loop\.batch_size: expected a number, got 'many'"):
        number_at({"loop.batch_size": "many"}, "loop.batch_size")


@pytest.mark.parametrize(
    ("number", "two"), [(0.000179, 0.00018), (3.1623e-5, 3.2e-5), (1.0, 1.0), (0.6, 0.6)]
)
def test_numbers_keep_two_significant_digits(number: float, two: float) -> None:
    assert rounded(number) == two


def test_the_rules_make_the_documents_own_recipe_of_the_default_one() -> None:
    facts = imagenet_facts()
    values = heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset())
    assert values == {
        "optimizer.kind": "sgd",
        "schedule.kind": "cosine",
        "augmentation.crop.kind": "resized",
        "augmentation.policy.kind": "none",
        "augmentation.masking.kind": "none",
        "augmentation.mixing.kind": "none",
        "loop.batch_size": 256,
        "precision.kind": "auto",
        "precision.channels_last": True,
        "loop.compile": False,
        "optimizer.lr": 0.1,
        "optimizer.scaling": "linear",
        "optimizer.weight_decay": 1e-4,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "schedule.warmup_epochs": 1.0,
        "regularisation.label_smoothing": 0.1,
        "augmentation.crop.scale_min": 0.08,
        "augmentation.flip_probability": 0.5,
    }


@pytest.mark.parametrize("kind", ["onecycle", "cyclic", "sgdr"])
def test_what_rises_by_itself_or_has_cycles_gets_no_warm_up(kind: str) -> None:
    facts = imagenet_facts()
    base = base_recipe(facts, schedule__kind=kind, loop__batch_size=1024)
    values = heuristics.fixed_by_rule(facts, base, {"schedule.kind", "loop.batch_size"})
    assert values["schedule.warmup_epochs"] == 0.0


@pytest.mark.parametrize(
    ("facts", "pinned", "path", "value"),
    [
        (digits_facts(), {"masking": "erasing"}, "augmentation.masking.probability", 0.5),
        (imagenet_facts(), {"policy": "randaugment"}, "optimizer.weight_decay", 7e-5),
    ],
    ids=["half of the images are erased", "strong augmentation lightens the decay"],
)
def test_the_rules_follow_a_pinned_augmentation(
    facts: Facts, pinned: dict[str, str], path: str, value: float
) -> None:
    values = {f"augmentation.{section}.kind": kind for section, kind in pinned.items()}
    assert heuristics.fixed_by_rule(facts, base_recipe(facts).with_values(values), set(values))[path] == value


def test_rules_leave_pins_alone_and_the_kind_of_a_section_that_holds_one() -> None:
    facts = imagenet_facts()
    pins = {"augmentation.crop.fraction", "loop.batch_size", "optimizer.lr"}
    base = base_recipe(facts, augmentation__crop__fraction=0.2, loop__batch_size=1024, optimizer__lr=0.3)
    values = heuristics.fixed_by_rule(facts, base, pins)
    assert not values.keys() & (pins | {"augmentation.crop.kind", "augmentation.crop.scale_min"})
    assert values["schedule.warmup_epochs"] == 5.0  # by the pinned batch


def test_rules_applied_twice_change_nothing() -> None:
    facts = imagenet_facts()
    once = base_recipe(facts).with_values(heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset()))
    assert once.with_values(heuristics.fixed_by_rule(facts, once, frozenset())) == once


def test_very_small_nets_are_cropped_nearly_square_in_the_documents_own_recipe() -> None:
    facts = imagenet_facts(parameters=int(1.5 * MILLION))
    values = heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset())
    assert values["augmentation.crop.ratio_min"] == 0.9
    assert values["augmentation.crop.ratio_max"] == pytest.approx(1 / 0.9)


def test_who_pins_the_narrowest_crop_keeps_the_widest_as_it_was() -> None:
    facts = imagenet_facts(parameters=int(1.5 * MILLION))
    base = base_recipe(facts, augmentation__crop__kind="resized", augmentation__crop__ratio_min=0.5)
    values = heuristics.fixed_by_rule(facts, base, {"augmentation.crop.ratio_min"})
    assert not [path for path in values if "ratio" in path]


def test_attention_takes_adamw_with_its_own_decay_and_warm_up() -> None:
    facts = imagenet_facts(attention=True, epochs=300)
    values = heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset())
    assert values["optimizer.kind"] == "adamw"
    assert values["optimizer.weight_decay"] == 0.05
    assert values["schedule.warmup_epochs"] == 20.0


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("optimizer.kind", rates.KINDS),
        ("schedule.kind", schedules.KINDS),
        ("augmentation.crop.kind", heuristics.CROPS),
        ("augmentation.masking.kind", heuristics.MASKINGS),
    ],
)
def test_the_rules_know_every_kind_that_a_recipe_may_have(path: str, kinds: tuple[str, ...]) -> None:
    assert set(kinds) == set(types_of(path))


@pytest.mark.parametrize(
    ("trials", "by_blocks", "value"), [(1, True, False), (64, True, "blocks"), (64, False, True)]
)
def test_a_network_is_compiled_where_that_pays_over_all_trials(
    trials: int, by_blocks: bool, value: bool | str
) -> None:
    usual = Speed(number_format="bf16", channels_last=True, images_per_second=100.0)
    compiled = {"images_per_second": 200.0, "compile_seconds": 70.0, "again_seconds": 5.0}
    speeds = (usual, usual.model_copy(update={**compiled, "by_blocks": by_blocks}))
    facts = digits_facts(trials=trials, speeds=speeds)
    assert heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset())["loop.compile"] == value


@pytest.mark.parametrize(("gpus", "trials", "is_said"), [(1, 16, True), (1, 10**6, False), (0, 16, False)])
def test_a_short_search_on_a_gpu_says_why_no_steps_are_timed(gpus: int, trials: int, is_said: bool) -> None:
    facts = digits_facts(gpus=gpus, trials=trials, speeds=())
    for ruling in (loops.precision(facts), loops.channels_last(facts)):
        assert ("as it takes minutes" in ruling.reason) is is_said
