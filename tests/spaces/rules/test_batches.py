"""Tests what changes with a recipe's batch, and at which batches each rule was seen."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.conditions import scalars_of
from spaces.rules import batches
from spaces.rules.rulings import Rulings
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts

FACTS = imagenet_facts(gpus=1.0)


def values(**changes: Any) -> dict[str, Any]:
    return scalars_of(base_recipe(FACTS, **{"loop__batch_size": 128, **changes}))


def moved(batch: int, gpus: int = 1, fitted: int | None = None, **changes: Any) -> Rulings:
    return batches.moved(FACTS, values(**changes), batch=batch, gpus=gpus, fitted=fitted)


def test_the_rate_at_256_stays_and_the_reason_says_what_is_applied() -> None:
    rate = moved(1024, optimizer__lr=0.1)["optimizer.lr"]
    assert rate.what == 0.1
    assert "0.4 is applied at 1,024, 0.05 was at 128" in rate.reason


@pytest.mark.parametrize(
    ("own", "batch", "wanted"), [(1.0, 1024, 5.0), (0.0, 1024, 4.0), (5.0, 32, 5.0), (3.0, 512, 4.2)]
)
def test_the_warm_up_moves_as_the_rule_does(own: float, batch: int, wanted: float) -> None:
    assert moved(batch, schedule__warmup_epochs=own)["schedule.warmup_epochs"].what == pytest.approx(
        wanted, abs=0.1
    )


def test_the_warm_up_is_at_most_a_tenth_of_the_run() -> None:
    assert moved(1024, loop__epochs=20, schedule__warmup_epochs=1.0)["schedule.warmup_epochs"].what == 2.0


def test_a_schedule_that_rises_by_itself_gets_no_warm_up() -> None:
    assert "schedule.warmup_epochs" not in moved(1024, schedule__kind="onecycle")


def test_the_average_keeps_its_half_life_in_images() -> None:
    decay = moved(512, regularisation__averaging__kind="ema", regularisation__averaging__decay=0.99)
    assert decay["regularisation.averaging.decay"].what == pytest.approx(0.99**4)


def test_a_device_computes_no_more_at_once_than_was_seen_to_fit() -> None:
    assert moved(1024, gpus=8, fitted=64)["loop.micro_batch"].what == 64
    assert moved(256, gpus=8, fitted=64)["loop.micro_batch"].what == 32


def test_batch_norm_of_few_images_sees_all_devices() -> None:
    assert moved(32, gpus=8)["loop.sync_norm"].what is True
    assert "loop.sync_norm" not in moved(64, gpus=8)
    assert "loop.sync_norm" not in moved(32, gpus=8, model__freeze_norm=True)


def test_a_recipe_of_a_cpu_gets_the_number_format_of_gpus() -> None:
    on_cpu = batches.moved(
        imagenet_facts(gpus=0.0), values(precision__kind="fp32"), batch=128, gpus=1, fitted=None
    )
    assert on_cpu["precision.kind"].what == "auto"
    assert on_cpu["precision.channels_last"].what is True
    assert "timed" not in on_cpu["precision.channels_last"].reason, "that was on the CPU"
    assert "precision.kind" not in moved(1024, gpus=8)


def test_every_change_has_a_reason_and_a_source() -> None:
    found = moved(1024, gpus=8, regularisation__averaging__kind="ema", optimizer__kind="adam_then_sgd")
    assert {"loop.batch_size", "optimizer.lr", "optimizer.sgd_lr", "loop.micro_batch"} <= found.keys()
    assert all(each.reason and each.source for each in found.values())


@pytest.mark.parametrize(
    ("changes", "batch", "wanted"),
    [
        ({}, 1024, []),
        (
            {},
            16384,
            ["linear in the batch: seen at batches of 64 to 8,192", "the warm-up: seen at batches of 256"],
        ),
        ({}, 32, ["linear in the batch: seen at batches of 64", "the warm-up: seen at batches of 256"]),
        ({"optimizer__kind": "adamw"}, 8192, ["root of the batch: seen at batches of 256 to 4,096"]),
        ({"optimizer__kind": "lars"}, 16384, ["the warm-up"]),
        ({"optimizer__kind": "lamb"}, 16384, ["the warm-up"]),
        ({"optimizer__kind": "adadelta", "schedule__kind": "onecycle"}, 16384, []),
        ({"regularisation__averaging__kind": "ema"}, 1024, ["half-life in epochs: no source says"]),
    ],
)
def test_a_rule_is_named_where_it_was_not_seen(
    changes: dict[str, Any], batch: int, wanted: list[str]
) -> None:
    own, *rules = batches.warnings(FACTS, values(loop__batch_size=512, **changes), batch)
    assert own == f"the recipe itself was trained at a batch of 512 alone; at {batch:,} it has no score"
    assert len(rules) == len(wanted)
    for line, words in zip(rules, wanted, strict=True):
        assert words in line


def test_a_rule_is_named_too_where_the_recipe_s_own_batch_is_one_at_which_it_was_not_seen() -> None:
    _, rate, warmup = batches.warnings(FACTS, values(loop__batch_size=16), 1024)
    assert rate.endswith("figure 1), not at 16")
    assert warmup.endswith("section 2.2), not at 16")
    _, rate, _ = batches.warnings(FACTS, values(loop__batch_size=16), 16384)
    assert rate.endswith("not at 16 or 16,384")


def test_nothing_is_unseen_at_the_recipe_s_own_batch() -> None:
    assert batches.warnings(FACTS, values(), 128) == []


def test_too_few_steps_are_named_with_the_largest_batch_that_has_enough() -> None:
    *_, few = batches.warnings(digits_facts(train_images=1259), values(loop__epochs=5), 1024)
    assert few.startswith("a run of 5 steps, 1 an epoch: ")
    assert few.endswith("at batches up to 12")
