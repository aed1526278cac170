"""Tests the priors' sampler: right priors keep their share, wrong ones lose it, even draws never end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from search.deciding.beliefs import EVEN_EVERY, rank_of, trust
from search.deciding.make import make_sampler
from search.deciding.prior_tpe import FIRST_SHARE, PriorTpeSampler
from search.record.journal import TrialEnd
from spaces.domains import Choice, Float, Value
from spaces.priors import Normal, Prior, Uniform, Weights
from spaces.space import Believed, Dimension, Space, When
from spaces.tables import ByValue, Case
from trainable.recipe import Recipe

RATE = "optimizer.lr"
RATES = Float(1e-4, 10.0, log=True)


def believing(space: Space, **believed: Prior) -> Space:
    """Return the space with these priors by dimension, and none elsewhere."""

    def wanted(each: Dimension) -> Dimension:
        return replace(each, beliefs=Believed(believed.get(each.name, Uniform())))

    return replace(space, dimensions=tuple(map(wanted, space.dimensions)))


def one_rate() -> Space:
    dimension = Dimension(RATE, RATES, "for the test", "none", beliefs=Believed(Normal(1.0, "high")))
    return Space(Recipe(), (dimension,), own={RATE: 0.01})


def finish(sampler: PriorTpeSampler, number: int, rate: float, best: float) -> None:
    """Report a trial that is the better, the nearer its rate is to `best`."""
    sampler.add(number, {RATE: rate})
    sampler.tell(number, "finished", {1: -abs(float(np.log10(rate / best)))})


def after_even_trials(count: int, best: float, seed: int = 0) -> PriorTpeSampler:
    """Return a sampler that has learnt from rates drawn evenly over five decades."""
    sampler, random = PriorTpeSampler(one_rate(), seed, "max"), np.random.default_rng(seed)
    for number, rate in enumerate(10 ** random.uniform(-4, 1, count)):
        finish(sampler, number, float(rate), best)
    return sampler


def test_a_right_prior_keeps_its_share_and_a_wrong_one_loses_it() -> None:
    right = [after_even_trials(20, best=1.0, seed=seed).prior_share() for seed in range(20)]
    wrong = [after_even_trials(20, best=1e-3, seed=seed).prior_share() for seed in range(20)]
    assert right == [FIRST_SHARE] * 20
    assert float(np.median(wrong)) < 0.01
    assert max(wrong) < 0.3


def test_the_prior_weighs_less_the_more_trials_there_are() -> None:
    shares = [after_even_trials(count, best=1.0).prior_share() for count in (0, 10, 40, 1000)]
    assert shares[:2] == [FIRST_SHARE, FIRST_SHARE]
    assert shares[2] == pytest.approx(FIRST_SHARE / 2)
    assert shares[3] == pytest.approx(FIRST_SHARE / 50)


def test_failed_trials_and_trials_outside_the_space_leave_the_share_as_it_was() -> None:
    def share_after(rate: float, outcome: TrialEnd) -> float:
        sampler = after_even_trials(20, best=1e-3)
        sampler.add(20, {RATE: rate})
        sampler.tell(20, outcome, {1: 1.0})
        return sampler.prior_share()

    before = after_even_trials(20, best=1e-3).prior_share()
    assert share_after(1.0, "failed") == share_after(100.0, "finished") == before
    assert share_after(1.0, "finished") != before


def test_where_nothing_is_believed_every_trial_is_tpes_whatever_it_has_learnt(small_space: Space) -> None:
    space = believing(small_space)
    for wanted in (False, True):
        ours, tpe = (make_sampler(space, kind, 3, "max") for kind in ("prior-tpe", "tpe"))
        for each in (ours, tpe):
            each.add(0, space.own)
            if wanted:
                each.tell(0, "finished", {1: 0.5})
        assert [ours.ask(number) for number in (1, 2)] == [tpe.ask(number) for number in (1, 2)]


def test_what_is_believed_of_one_variant_alone_is_drawn_from_before_a_trial_had_it(
    small_space: Space,
) -> None:
    space = believing(small_space, **{"regularisation.label_smoothing": Normal(0.02, "high")})
    asked = make_sampler(space, "prior-tpe", 3, "max")
    asked.add(0, space.own)
    assert asked.ask(1)["regularisation.label_smoothing"] == pytest.approx(0.02)


def test_where_the_documents_recipe_is_the_mode_it_is_not_tried_twice(small_space: Space) -> None:
    believed: dict[str, Prior] = {
        "optimizer.kind": Weights((2.0, 1.0)),
        "optimizer.lr[sgd]": Normal(0.1, "medium"),
        "optimizer.momentum[sgd]": Normal(0.9, "medium"),
        "regularisation.label_smoothing": Normal(0.1, "medium"),
        "loop.batch_size": Normal(128, "medium"),
    }
    space = believing(small_space, **believed)
    asked = make_sampler(space, "prior-tpe", 3, "max")
    asked.add(0, space.own)
    first = space.encode(asked.ask(1))
    assert any(abs(first[name] - position) > 1e-3 for name, position in space.encode(space.own).items())


@pytest.mark.parametrize("best", [1.0, 1e-3])
def test_one_trial_in_five_is_drawn_evenly_whatever_the_prior_says(best: float) -> None:
    sampler = after_even_trials(4, best)
    rates = []
    for number in range(4, 40 * EVEN_EVERY):
        rate = sampler.ask(number)[RATE]
        assert isinstance(rate, float)
        finish(sampler, number, rate, best)
        if number % EVEN_EVERY == EVEN_EVERY - 1:
            rates.append(np.log10(rate))
    assert len(rates) == 40
    by_decade = Counter(np.floor(rates).astype(int))
    assert all(by_decade[decade] >= 2 for decade in range(-4, 1))


def test_the_first_drawn_trial_is_the_mode_and_the_next_lie_around_it() -> None:
    sampler, rates = PriorTpeSampler(one_rate(), 0, "max"), []
    sampler.add(0, one_rate().own)
    for number in range(1, 5):
        values = sampler.ask(number)
        sampler.add(number, values)
        rates.append(values[RATE])
    assert rates[0] == pytest.approx(1.0)
    assert len(set(rates)) == 4


def test_it_finds_the_best_of_a_conditional_space() -> None:
    def rate(kind: str, prior: Prior) -> Dimension:
        when = When("optimizer.kind", (kind,))
        return Dimension(RATE, RATES, "for the test", "none", when, kind, Believed(prior))

    kinds = Dimension(
        "optimizer.kind",
        Choice(("sgd", "adamw")),
        "for the test",
        "none",
        beliefs=Believed(Weights((3.0, 1.0))),
    )
    space = Space(
        Recipe(),
        (kinds, rate("sgd", Normal(1.0, "high")), rate("adamw", Uniform())),
        own={"optimizer.kind": "sgd", RATE: 0.1},
    )
    sampler, scores, drawn = PriorTpeSampler(space, 0, "max"), [], set()
    for number in range(30):
        values = sampler.ask(number)
        kind, lr = values["optimizer.kind"], values[RATE]
        assert isinstance(lr, float)
        scores.append(-abs(float(np.log10(lr / (1.0 if kind == "sgd" else 0.01)))))
        drawn.add(kind)
        sampler.add(number, values)
        sampler.tell(number, "finished", {1: scores[-1]})
    assert max(scores) > -0.3
    assert drawn == {"sgd", "adamw"}


@pytest.mark.parametrize(("kind", "expected"), [("sgd", 0.02), ("adamw", 0.15)])
def test_a_prior_follows_what_was_drawn_before_it(small_space: Space, kind: str, expected: float) -> None:
    cases = (
        Case(("sgd",), Believed(Normal(0.02, "high"))),
        Case(("adamw",), Believed(Normal(0.15, "high"))),
    )
    weights = {"optimizer.kind": Weights((9.0, 1.0) if kind == "sgd" else (1.0, 9.0))}
    space = believing(small_space, **weights)
    smoothing = "regularisation.label_smoothing"
    dimensions = tuple(
        replace(each, beliefs=ByValue("optimizer.kind", "sgd", cases)) if each.name == smoothing else each
        for each in space.dimensions
    )
    sampler = PriorTpeSampler(replace(space, dimensions=dimensions), 0, "max")
    sampler.add(0, space.own)
    asked = sampler.ask(1)
    assert asked["optimizer.kind"] == kind
    assert asked[smoothing] == pytest.approx(expected)


def test_trials_rank_as_tpe_ranks_them() -> None:
    def rank(outcome: TrialEnd, scores: Mapping[int, float], excess: float = 0.0) -> tuple[int, int, float]:
        found = rank_of(outcome, scores, "max", excess)
        assert found is not None
        return found

    best_first = [
        rank("finished", {1: 0.0, 2: 0.6}),
        rank("finished", {1: 0.9, 2: 0.5}),
        rank("stopped", {1: 0.1, 3: 0.2}),
        rank("stopped", {1: 0.9}),
        rank("diverged", {1: 0.9}),
        rank("infeasible", {}, 0.1),
        rank("infeasible", {}, 0.2),
    ]
    assert sorted(best_first) == best_first
    assert len(set(best_first)) == 7
    assert rank("stopped", {}) == rank("diverged", {})
    assert rank_of("failed", {1: 0.9}, "max") is None
    assert rank("finished", {1: 0.5}) > rank("finished", {1: 0.6})
    assert sorted([rank_of("finished", {1: each}, "min") or (9, 0, 0.0) for each in (0.5, 0.4)])[0][2] == 0.4


def test_trust_falls_only_where_the_better_trials_are_the_less_likely_ones() -> None:
    assert trust([3.0, 2.0, 1.0, 0.0, -1.0], [5, 4, 3, 2, 1]) == 1.0
    assert trust([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0], range(7, 0, -1)) == pytest.approx(0.0143, abs=1e-3)
    assert trust([0.0, 0.0, 0.0, 0.0, 0.0], [5, 4, 3, 2, 1]) == trust([1.0, 2.0], [2, 1]) == 1.0
    assert trust([1.0, 2.0, 3.0, 4.0], [7, 7, 7, 7]) == 1.0


def test_the_first_drawn_trial_of_a_search_is_the_priors_mode(small_space: Space) -> None:
    believed: dict[str, Prior] = {
        "optimizer.kind": Weights((1.0, 5.0)),
        "regularisation.label_smoothing": Normal(0.02, "high"),
    }
    space = believing(small_space, **believed)
    asked = make_sampler(space, "prior-tpe", 3, "max")
    asked.add(0, space.own)
    values: Mapping[str, Value] = asked.ask(1)
    assert values["optimizer.kind"] == "adamw"
    assert values["regularisation.label_smoothing"] == pytest.approx(0.02)
