"""Tests the rules for smoothing, clipping, dropout and averaged weights, as tables."""

import math

import pytest

from spaces.domains import Value
from spaces.rules import regularisation
from spaces.rules.rules import RULES
from spaces.rules.rulings import Distribution
from tests.spaces.rules.rule_facts import asked, settled, shares, silent
from tests.spaces.small_facts import MILLION, digits_facts, imagenet_facts

SMOOTHING = "regularisation.label_smoothing"
CLIPPING, NORM = "regularisation.clipping.kind", "regularisation.clipping.max_norm"
AVERAGING, DECAY = "regularisation.averaging.kind", "regularisation.averaging.decay"


@pytest.mark.parametrize(
    ("model", "parameters", "own", "tried"),
    [
        ("resnet_small", 77_754, 0.0, False),
        ("ResNet18", 11.7 * MILLION, 0.0, False),
        ("ResNet34", 21.8 * MILLION, 0.0, True),
        ("ResNet50 with ten classes", 23.5 * MILLION, 0.1, True),
        ("ResNet50", 25.6 * MILLION, 0.1, True),
        ("ViT-L", 304 * MILLION, 0.1, True),
    ],
)
def test_labels_are_smoothed_from_resnet50_size(
    model: str, parameters: float, own: float, tried: bool
) -> None:
    facts = imagenet_facts(parameters=int(parameters))
    assert regularisation.label_smoothing(facts).what == own, model
    assert silent(SMOOTHING, facts) == (not tried), model


@pytest.mark.parametrize(("parameters", "on"), [(12 * MILLION, 0.25), (25 * MILLION, 0.75), (10**9, 0.75)])
def test_smoothing_is_on_in_a_quarter_to_three_quarters_of_120_epochs(parameters: int, on: float) -> None:
    likely = shares(asked(SMOOTHING, imagenet_facts(parameters=parameters)))
    assert 1.0 - likely[0.0] == pytest.approx(on)
    assert likely[0.1] == pytest.approx(on / 2)


def test_smoothing_grows_likelier_with_parameters_and_epochs_and_fewer_images() -> None:
    by_size = [shares(asked(SMOOTHING, imagenet_facts(parameters=n * MILLION)))[0.0] for n in (12, 16, 25)]
    by_epochs = [shares(asked(SMOOTHING, imagenet_facts(epochs=n)))[0.0] for n in (20, 60, 120, 360)]
    by_images = [shares(asked(SMOOTHING, imagenet_facts(train_images=10**n)))[0.0] for n in (3, 4, 5, 6)]
    assert by_images == sorted(by_images)
    assert by_size == sorted(by_size, reverse=True)
    assert by_epochs == sorted(by_epochs, reverse=True)


def test_small_nets_are_smoothed_where_one_asks_and_then_in_the_lesser_part_of_trials() -> None:
    (wanted,) = (each for each in RULES if each.path == SMOOTHING and each.optional)
    found = wanted.of(digits_facts(), settled(digits_facts()))
    assert found is not None
    assert 0.5 < shares(found)[0.0] < 0.75
    assert wanted.of(imagenet_facts(), settled(imagenet_facts())) is None


def test_gradients_are_clipped_at_1_for_attention_and_seldom_else() -> None:
    kinds = [shares(asked(CLIPPING, imagenet_facts(attention=attention))) for attention in (False, True)]
    assert kinds == [pytest.approx({"none": 0.7, "norm": 0.3}), pytest.approx({"none": 0.2, "norm": 0.8})]
    norms = [shares(asked(NORM, imagenet_facts(attention=attention))) for attention in (False, True)]
    assert norms[0] == pytest.approx(dict.fromkeys((0.5, 1.0, 2.0, 5.0, 10.0), 0.2))
    assert norms[1] == pytest.approx({0.5: 0.0625, 1.0: 0.75, 2.0: 0.0625, 5.0: 0.0625, 10.0: 0.0625})


def _mean(found: Distribution) -> float:
    def rate(value: Value) -> float:
        return 0.0 if value is None else float(value)

    return sum(rate(value) * share for value, share in shares(found).items())


def test_fewer_images_mean_more_dropout() -> None:
    means = [_mean(asked("model.dropout", imagenet_facts(train_images=10**n))) for n in (2, 3, 4, 5, 6)]
    assert means == sorted(means, reverse=True)
    assert means[1] > 0.2 > 0.15 > means[4]


def test_dropout_waits_for_long_runs_and_for_models_that_have_it() -> None:
    assert silent("model.dropout", imagenet_facts(epochs=9))
    assert silent("model.dropout", imagenet_facts(), model__kind="timm")
    assert not silent("model.dropout", imagenet_facts(), model__kind="torchvision")


def test_half_lives_of_averages_are_shares_of_the_run() -> None:
    facts = imagenet_facts(train_images=10_000, epochs=20)
    found = asked(DECAY, facts, loop__batch_size=100)
    half_lives = [math.log(0.5) / math.log(float(decay)) for decay in shares(found) if decay is not None]
    assert half_lives == pytest.approx([20, 40, 100, 200], rel=1e-3)


@pytest.mark.parametrize("epochs", [1, 20, 1_000, 100_000])
def test_no_decay_of_averages_is_1_and_half_lives_stay_shares_of_any_run(epochs: int) -> None:
    facts = imagenet_facts(train_images=1_000_000, epochs=epochs)
    found = asked(DECAY, facts, loop__batch_size=100)
    decays = [float(decay) for decay in shares(found) if decay is not None]
    half_lives = [math.log(0.5) / math.log(decay) for decay in decays]
    assert max(decays) < 1.0
    assert half_lives == pytest.approx(
        [share * 10_000 * epochs for share in (0.01, 0.02, 0.05, 0.1)], rel=1e-3
    )


def test_a_run_of_a_few_steps_is_not_averaged() -> None:
    assert silent(AVERAGING, digits_facts(epochs=1))
    decays = shares(asked(DECAY, digits_facts(epochs=1), loop__batch_size=1257))
    assert decays == {0.5: pytest.approx(1.0)}


def test_averages_score_in_six_of_ten_trials() -> None:
    for facts in (imagenet_facts(), digits_facts()):
        assert shares(asked(AVERAGING, facts)) == pytest.approx({"none": 0.4, "ema": 0.6})
