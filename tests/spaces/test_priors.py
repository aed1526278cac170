"""Tests what is believed: drawn as the reference says, a density over its domain, described in words."""

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, cell_of, fraction_of, value_at
from spaces.priors import (
    SPREADS,
    Confidence,
    Normal,
    Prior,
    Uniform,
    Weights,
    believed,
    check_prior,
    clamped,
    density,
    describe,
    likeliest,
    quantile_value,
)

MANY = [(each + 0.5) / 4000 for each in range(4000)]
RATE = Float(1e-3, 10.0, log=True)
SHARE = Float(0.0, 0.8)
EPOCHS = Integer(0, 20)
BATCH = Integer(8, 512, log=True)
KINDS = Choice(("sgd", "adamw", None))
DOMAINS: st.SearchStrategy[Domain] = st.sampled_from((RATE, SHARE, EPOCHS, BATCH, KINDS))
CONFIDENCES = st.sampled_from(sorted(SPREADS))

NORMALS: list[tuple[Domain, Normal]] = [
    (RATE, Normal(0.1, "medium")),
    (RATE, Normal(1e-3, "high")),
    (RATE, Normal(10.0, "low")),
    (SHARE, Normal(0.2, "low")),
    (SHARE, Normal(0.8, "medium")),
    (EPOCHS, Normal(3.0, "medium")),
    (BATCH, Normal(64.0, "high")),
]


def reference(domain: Domain, prior: Normal) -> stats.rv_continuous:
    """Return scipy's normal, cut off at the ends of the domain's (log-)length."""
    centre = fraction_of(domain, prior.centre)
    return stats.truncnorm(-centre / prior.spread, (1.0 - centre) / prior.spread, centre, prior.spread)


@pytest.mark.parametrize(("domain", "prior"), [each for each in NORMALS if isinstance(each[0], Float)])
def test_even_fractions_draw_a_truncated_normal(domain: Domain, prior: Normal) -> None:
    positions = [fraction_of(domain, quantile_value(domain, prior, each)) for each in MANY]
    expected = reference(domain, prior)
    assert positions == pytest.approx(expected.ppf(MANY), abs=1e-9)
    assert sum(positions) / len(positions) == pytest.approx(expected.mean(), abs=1e-4)


@pytest.mark.parametrize(("domain", "prior"), [each for each in NORMALS if isinstance(each[0], Integer)])
def test_whole_numbers_are_drawn_as_often_as_their_cell_of_the_normal_is_likely(
    domain: Integer, prior: Normal
) -> None:
    values = [quantile_value(domain, prior, each) for each in MANY]
    expected = reference(domain, prior)
    for value in range(domain.low, domain.high + 1):
        start, end = cell_of(domain, value)
        share = values.count(value) / len(values)
        assert share == pytest.approx(expected.cdf(end) - expected.cdf(start), abs=2 / len(MANY))


@pytest.mark.parametrize(
    ("prior", "shares"),
    [
        (Weights((6.0, 3.0, 1.0)), (0.6, 0.3, 0.1)),
        (Uniform(), (1 / 3, 1 / 3, 1 / 3)),
        (believed(KINDS, "adamw", "medium"), (1 / 6, 4 / 6, 1 / 6)),
        (believed(KINDS, None, "high"), (0.1, 0.1, 0.8)),
    ],
)
def test_options_are_drawn_by_their_weights(prior: Prior, shares: tuple[float, ...]) -> None:
    values = [quantile_value(KINDS, prior, each) for each in MANY]
    for option, share in zip(KINDS.options, shares, strict=True):
        assert values.count(option) / len(values) == pytest.approx(share, abs=2 / len(MANY))
        assert density(KINDS, prior, option) == pytest.approx(3 * share)


@pytest.mark.parametrize(("domain", "prior"), [*NORMALS, (RATE, Uniform()), (SHARE, Uniform())])
def test_a_density_averages_one_over_its_domain(domain: Domain, prior: Prior) -> None:
    def at(position: float) -> float:
        return density(domain, prior, value_at(domain, position))

    ends = (
        [cell_of(domain, value)[1] for value in range(domain.low, domain.high)]
        if isinstance(domain, Integer)
        else None
    )
    area, _ = integrate.quad(at, 0.0, math.nextafter(1.0, 0.0), points=ends, limit=600)
    assert area == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(("domain", "prior"), NORMALS)
def test_the_density_of_a_number_is_the_references(domain: Domain, prior: Normal) -> None:
    if isinstance(domain, Float):
        for value in (quantile_value(domain, prior, each) for each in (0.0, 0.2, 0.5, 0.9)):
            expected = reference(domain, prior).pdf(fraction_of(domain, value))
            assert density(domain, prior, value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("prior", [Uniform(), Normal(0.1)])
@pytest.mark.parametrize("value", [100.0, 1e-4, "sgd", None, True])
def test_what_is_outside_of_the_domain_has_no_density(prior: Prior, value: Value) -> None:
    assert density(RATE, prior, value) == 0.0


@st.composite
def beliefs(draw: st.DrawFn) -> tuple[Domain, Prior]:
    domain = draw(DOMAINS)
    if draw(st.booleans()):
        return domain, Uniform()
    if isinstance(domain, Choice):
        weights = st.floats(0.01, 100.0)
        return domain, Weights(tuple(draw(weights) for _ in domain.options))
    return domain, Normal(draw(st.floats(domain.low, domain.high)), draw(CONFIDENCES))


@given(belief=beliefs(), fraction=st.floats(0.0, 1.0, exclude_max=True))
def test_every_draw_lies_in_the_domain_has_a_density_and_comes_again(
    belief: tuple[Domain, Prior], fraction: float
) -> None:
    domain, prior = belief
    value = quantile_value(domain, prior, fraction)
    assert value in domain
    assert density(domain, prior, value) > 0.0
    assert quantile_value(domain, prior, fraction) == value


@given(belief=beliefs(), fractions=st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=2))
def test_larger_fractions_draw_no_smaller_numbers(
    belief: tuple[Domain, Prior], fractions: list[float]
) -> None:
    domain, prior = belief
    positions = [fraction_of(domain, quantile_value(domain, prior, each)) for each in sorted(fractions)]
    assert positions == sorted(positions)


@given(belief=beliefs(), fraction=st.floats(0.0, 1.0, exclude_max=True))
def test_nothing_is_likelier_than_the_mode(belief: tuple[Domain, Prior], fraction: float) -> None:
    domain, prior = belief
    best = likeliest(domain, prior)
    assert best in domain
    most = density(domain, prior, best)
    if isinstance(domain, Integer):  # the whole number nearest to the centre; a log cell beside it is smaller
        most *= 1.05
    assert density(domain, prior, quantile_value(domain, prior, fraction)) <= most * (1.0 + 1e-9)


@pytest.mark.parametrize(("confidence", "within_a_decade"), [("low", 0.56), ("medium", 0.72), ("high", 0.95)])
def test_a_surer_prior_stays_nearer_to_its_centre(confidence: Confidence, within_a_decade: float) -> None:
    """It looks at the four decades of the rate, around its middle: a decade is a quarter of the length."""
    near = [0.01 <= quantile_value(RATE, Normal(0.1, confidence), each) <= 1.0 for each in MANY]
    assert sum(near) / len(near) == pytest.approx(within_a_decade, abs=0.02)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: believed(RATE, 100.0), "expected a prior within 0.001 to 10, log, got 100"),
        (lambda: believed(KINDS, "lion"), "expected a prior within one of sgd, adamw, null, got lion"),
        (lambda: check_prior(RATE, Normal(100.0)), "expected a prior within 0.001 to 10, log, got 100"),
        (lambda: check_prior(RATE, Weights((1.0,))), "a centre within 0.001 to 10, log, got weights"),
        (lambda: check_prior(KINDS, Normal(1.0)), "weights for one of sgd, adamw, null, got a centre"),
        (lambda: check_prior(KINDS, Weights((1.0, 2.0))), "a weight for each of the 3 options, got 2"),
        (lambda: Weights((1.0, 0.0)), "expected weights above 0, got 0.0"),
        (lambda: Weights((1.0, math.inf)), "expected weights above 0, got inf"),
        (lambda: Weights(()), "expected weights above 0, got none"),
        (lambda: Weights((1.0, 1e-300)), "expected each weight to be at least 1e-12 of their sum"),
        (lambda: Weights((1e308, 1e308)), "expected each weight to be at least 1e-12 of their sum"),
        (lambda: Weights((True,)), "expected weights above 0, got True"),
    ],
)
def test_a_prior_that_is_none_of_the_domains_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        build()


@pytest.mark.parametrize(
    ("prior", "moved"),
    [
        (Normal(100.0, "high"), Normal(10.0, "high")),
        (Normal(1e-9), Normal(1e-3)),
        (Normal(0.1), Normal(0.1)),
        (Uniform(), Uniform()),
    ],
)
def test_a_centre_outside_the_domain_moves_to_its_nearer_end(prior: Prior, moved: Prior) -> None:
    assert clamped(RATE, prior) == moved


@pytest.mark.parametrize(
    ("domain", "prior", "words"),
    [
        (RATE, Normal(0.1, "high"), "around 0.1 (high confidence) within 0.001 to 10, log"),
        (EPOCHS, Normal(3), "around 3 (medium confidence) within 0 to 20, whole"),
        (RATE, Uniform(), "0.001 to 10, log"),
        (KINDS, Weights((3, 1, 1)), "sgd 60%, adamw 20%, null 20%"),
    ],
)
def test_a_prior_is_described_in_words(domain: Domain, prior: Prior, words: str) -> None:
    assert describe(domain, prior) == words
