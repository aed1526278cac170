"""The formulas at the points that the documents name, as tables."""

import pytest

from spaces import heuristics
from spaces.domains import Choice, Float
from spaces.rulings import interpolated, rounded
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts


@pytest.mark.parametrize(
    ("model", "parameters", "own", "options"),
    [
        ("resnet_small", 77_754, 0.0, None),
        ("ResNet18", 11.7 * MILLION, 0.0, None),
        ("ResNet34", 21.8 * MILLION, 0.0, (0.0, 0.1)),
        ("ResNet50 with ten classes", 23.5 * MILLION, 0.1, (0.0, 0.1)),
        ("ResNet50", 25.6 * MILLION, 0.1, (0.0, 0.1)),
        ("ViT-L", 304 * MILLION, 0.1, (0.0, 0.1)),
    ],
)
def test_labels_are_smoothed_from_resnet50_size(
    model: str, parameters: float, own: float, options: tuple[float, ...] | None
) -> None:
    facts = imagenet_facts(parameters=int(parameters))
    ruling = heuristics.label_smoothings(facts)
    assert heuristics.label_smoothing(facts).what == own, model
    assert (ruling.what if ruling else None) == (Choice(options) if options else None), model


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
    assert heuristics.batch_size(imagenet_facts(train_images=images, epochs=epochs, gpus=gpus)).what == batch


@pytest.mark.parametrize(
    ("batch", "epochs", "own", "most"),
    [
        (32, 20, 1.0, 2.0),
        (256, 120, 1.0, 2.0),
        (512, 120, 2.2, 4.5),
        (1024, 120, 5.0, 10.0),
        (8192, 120, 5.0, 10.0),
        (1024, 6, 0.6, 0.6),
        (32, 1, 0.1, 0.1),
    ],
)
def test_warm_up_is_for_large_batches_and_at_most_a_tenth_of_the_run(
    batch: int, epochs: int, own: float, most: float
) -> None:
    facts = imagenet_facts(epochs=epochs)
    assert heuristics.warmup_epochs(facts, batch).what == own
    assert heuristics.warmups(facts, batch).what == Float(0.0, most)


def test_interpolation_runs_straight_in_logarithms_and_flat_outside() -> None:
    line = ((10.0, 1.0), (1000.0, 100.0))
    assert [interpolated(x, *line) for x in (1, 10, 100, 1000, 10_000)] == pytest.approx([1, 1, 10, 100, 100])
    falling = ((10.0, 100.0), (1000.0, 1.0))
    assert interpolated(100, *falling) == pytest.approx(10)


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


def test_erasing_where_it_is_pinned_takes_half_of_the_images() -> None:
    facts = digits_facts()
    base = base_recipe(facts, augmentation__masking__kind="erasing")
    values = heuristics.fixed_by_rule(facts, base, {"augmentation.masking.kind"})
    assert values["augmentation.masking.probability"] == 0.5


def test_rules_leave_pins_alone_and_the_kind_of_a_section_that_holds_one() -> None:
    facts = imagenet_facts()
    pins = {"augmentation.crop.fraction", "loop.batch_size", "optimizer.lr"}
    base = base_recipe(facts, augmentation__crop__fraction=0.2, loop__batch_size=1024, optimizer__lr=0.3)
    values = heuristics.fixed_by_rule(facts, base, pins)
    assert not values.keys() & (pins | {"augmentation.crop.kind", "augmentation.crop.scale_min"})
    assert values["schedule.warmup_epochs"] == 5.0  # by the pinned batch


def test_pinned_strong_augmentation_lightens_the_weight_decay() -> None:
    facts = imagenet_facts()
    base = base_recipe(facts, augmentation__policy__kind="randaugment")
    values = heuristics.fixed_by_rule(facts, base, {"augmentation.policy.kind"})
    assert values["optimizer.weight_decay"] == 7e-5


def test_rules_applied_twice_change_nothing() -> None:
    facts = imagenet_facts()
    once = base_recipe(facts).with_values(heuristics.fixed_by_rule(facts, base_recipe(facts), frozenset()))
    assert once.with_values(heuristics.fixed_by_rule(facts, once, frozenset())) == once
