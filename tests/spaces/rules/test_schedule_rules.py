"""Tests the rules for the rate's shape, for the batch and for the length of the run, as tables."""

import pytest

from spaces.catalog.wide_space import warmups
from spaces.conditions import scalars_of
from spaces.domains import Choice, Float
from spaces.priors import quantile_value
from spaces.rules import loops, schedules
from tests.spaces.rules.rule_facts import asked, centre, shares, silent
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts


@pytest.mark.parametrize(
    ("images", "epochs", "gpus", "batch"),
    [
        (1_257, 20, 0.0, 32),
        (1_257, 20, 1.0, 32),
        (4_000, 9, 0.0, 64),
        (10_000, 6, 0.0, 64),
        (50_000, 20, 0.0, 128),
        (50_000, 20, 0.5, 256),
        (1_280_000, 120, 1.0, 256),
        (100, 300, 1.0, 16),
        (10, 300, 1.0, 8),
        (2, 1, 0.0, 2),
    ],
)
def test_the_batch_gives_enough_steps_and_fits_the_hardware(
    images: int, epochs: int, gpus: float, batch: int
) -> None:
    assert loops.batch_size(imagenet_facts(train_images=images, epochs=epochs, gpus=gpus)).what == batch


@pytest.mark.parametrize(("images", "batch"), [(1_000, 32), (4_000, 128), (100, 32), (10, 8)])
def test_from_pretrained_weights_a_batch_has_32_images_where_there_are_so_many(
    images: int, batch: int
) -> None:
    facts = imagenet_facts(train_images=images, epochs=30, gpus=0.0, pretrained=True)
    assert loops.batch_size(facts).what == batch


@pytest.mark.parametrize(
    ("images", "fitting", "batches"),
    [
        (1_280_000, None, (64, 128, 256, 512, 1024)),
        (1_280_000, 64, (64, 128, 256)),
        (1_280_000, 200, (64, 128, 256, 512)),
        (10_240, None, (64, 128, 256, 512)),
        (400, None, (8, 16)),
    ],
)
def test_batches_lie_around_the_rules_and_fit_data_and_memory(
    images: int, fitting: int | None, batches: tuple[int, ...]
) -> None:
    found = asked("loop.batch_size", imagenet_facts(train_images=images, largest_micro_batch=fitting))
    assert found.domain == Choice(batches)


def test_the_rules_batch_is_the_likeliest_and_twice_it_half_as_likely() -> None:
    likely = shares(asked("loop.batch_size", imagenet_facts()))
    assert likely[512] == likely[128] == pytest.approx(likely[256] / 2)
    assert likely[1024] == likely[64] == pytest.approx(likely[256] / 4)


def test_two_images_leave_no_batch_to_choose() -> None:
    assert silent("loop.batch_size", digits_facts(train_images=2))


def test_the_documents_would_train_200_epochs() -> None:
    wanted = loops.wanted_epochs(imagenet_facts(epochs=20))
    assert wanted.what == 200
    assert "20 is 10% of it" in wanted.reason


@pytest.mark.parametrize(("images", "epochs"), [(2_000, 128), (19_999, 13), (100_000, 51), (1_280_000, 8)])
def test_fine_tuning_takes_the_steps_of_bit(images: int, epochs: int) -> None:
    facts = imagenet_facts(epochs=20, pretrained=True, train_images=images)
    assert loops.wanted_epochs(facts).what == epochs


@pytest.mark.parametrize(
    ("batch", "epochs", "own", "most"),
    [
        (32, 20, 1.0, 2.0),
        (256, 120, 1.0, 10.0),
        (512, 120, 2.2, 10.0),
        (1024, 120, 5.0, 10.0),
        (8192, 120, 5.0, 10.0),
        (1024, 6, 0.6, 0.6),
        (32, 1, 0.1, 0.1),
        (1024, 36, 3.6, 3.6),
    ],
)
def test_warm_up_is_for_large_batches_and_at_most_a_tenth_of_the_run(
    batch: int, epochs: int, own: float, most: float
) -> None:
    facts = imagenet_facts(epochs=epochs)
    found = asked("schedule.warmup_epochs", facts, loop__batch_size=batch)
    assert schedules.warmup_epochs(facts, batch).what == own
    assert (found.domain, centre(found)) == (Float(0.0, most), own)


@pytest.mark.parametrize("epochs", [1, 9, 29, 105, 117, 135, 155, 199, 1_999])
def test_no_warm_up_exceeds_a_tenth_of_the_run(epochs: int) -> None:
    facts = imagenet_facts(epochs=epochs, attention=True)
    wide = warmups(facts, {}).domain
    for most in (asked("schedule.warmup_epochs", facts).domain, wide):
        assert isinstance(most, Float)
        assert 0.9 * epochs / 10 < most.high <= epochs / 10 or most.high == 40.0
    assert schedules.warmup_epochs(facts, 1024).what <= epochs / 10


def test_attention_warms_up_for_20_epochs_whatever_the_batch() -> None:
    facts = imagenet_facts(attention=True, epochs=300)
    for batch in (64, 4096):
        found = asked("schedule.warmup_epochs", facts, loop__batch_size=batch)
        assert (found.domain, centre(found)) == (Float(0.0, 30.0), 20.0)


@pytest.mark.parametrize(("epochs", "share"), [(6, 0.5), (20, 0.5), (200, 0.7), (600, 0.7)])
def test_a_cosine_is_first_and_more_so_in_long_runs(epochs: int, share: float) -> None:
    likely = shares(asked("schedule.kind", imagenet_facts(epochs=epochs)))
    assert likely["cosine"] == pytest.approx(share)
    assert likely["cosine"] > likely["onecycle"] > likely["step"] == likely["poly"] > likely["exp"]


def test_a_short_run_seldom_leaves_its_high_rates_early() -> None:
    short, long = (shares(asked("schedule.kind", facts)) for facts in (digits_facts(), imagenet_facts()))
    for kind in ("step", "exp"):
        assert short[kind] / short["poly"] == pytest.approx(long[kind] / long["poly"] / 2)


def test_schedules_of_cycles_are_not_offered() -> None:
    assert not shares(asked("schedule.kind", imagenet_facts())).keys() & set(schedules.CYCLED)


@pytest.mark.parametrize("epochs", [1, 6, 20, 120])
def test_an_exponential_fall_ends_at_a_hundredth_of_the_rate(epochs: int) -> None:
    found = asked("schedule.gamma", imagenet_facts(epochs=epochs))
    assert centre(found) ** epochs == pytest.approx(0.01)
    low, high = found.domain.extremes()
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert [low**epochs, high**epochs] == pytest.approx([1e-4, 1 / 3])
    middle = quantile_value(found.domain, found.prior, 0.5)
    assert isinstance(middle, float)
    assert 1e-3 < middle**epochs < 0.1


@pytest.mark.parametrize("kind", schedules.WARMED)
def test_what_can_be_warmed_up_gets_the_rules_warm_up(kind: str) -> None:
    facts = imagenet_facts()
    recipe = base_recipe(facts, schedule__kind=kind, loop__batch_size=1024)
    assert schedules.own_warmup(facts, scalars_of(recipe)).what == 5.0
