"""The prior's sampler: a right prior keeps its share, a wrong one loses it, and even draws never end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from search.deciding.prior_tpe import EVEN_EVERY, FIRST_SHARE, PriorTpeSampler, domain_of, ranked, trust
from search.deciding.sampler import make_sampler
from spaces.domains import Choice, Float, Integer, Value
from spaces.priors import Normal, Prior, Uniform, Weights
from spaces.space import Believed, Dimension, Space

RATE = FloatDistribution(1e-4, 10.0, log=True)
KIND = CategoricalDistribution(["sgd", "adamw"])


def around_one(name: str, before: Mapping[str, Any]) -> Prior:
    return Normal(1.0, "high") if name == "lr" else Uniform()


def believing(space: Space, **believed: Prior) -> Space:
    """The space with these priors by dimension, and none elsewhere."""

    def told(each: Dimension) -> Dimension:
        return replace(each, beliefs=Believed(believed.get(each.name, Uniform())))

    return replace(space, dimensions=tuple(map(told, space.dimensions)))


def sampler(prior: Any = around_one, seed: int = 0) -> PriorTpeSampler:
    return PriorTpeSampler(prior, optuna.samplers.TPESampler(seed=seed), seed=seed)


def study(count: int, best: float, seed: int = 0) -> optuna.Study:
    """Trials with rates drawn evenly over five decades, better the nearer to `best`."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    random, made = np.random.default_rng(seed), optuna.create_study(direction="maximize")
    for rate in 10 ** random.uniform(-4, 1, count):
        value = -abs(float(np.log10(rate / best)))
        made.add_trial(
            create_trial(value=value, params={"lr": float(rate)}, distributions={"lr": RATE}),
        )
    return made


def test_a_right_prior_keeps_its_share_and_a_wrong_one_loses_it() -> None:
    right = [sampler().prior_share(study(20, best=1.0, seed=seed)) for seed in range(20)]
    wrong = [sampler().prior_share(study(20, best=1e-3, seed=seed)) for seed in range(20)]
    assert right == [FIRST_SHARE] * 20
    assert float(np.median(wrong)) < 0.01
    assert max(wrong) < 0.3


def test_the_prior_weighs_less_the_more_trials_there_are() -> None:
    shares = [sampler().prior_share(study(count, best=1.0)) for count in (0, 10, 40, 1000)]
    assert shares[:2] == [FIRST_SHARE, FIRST_SHARE]
    assert shares[2] == pytest.approx(FIRST_SHARE / 2)
    assert shares[3] == pytest.approx(FIRST_SHARE / 50)


def test_where_nothing_is_believed_every_trial_is_tpes_whatever_has_been_told(small_space: Space) -> None:
    space = believing(small_space)
    for told in (False, True):
        ours, tpe = (make_sampler(space, kind, 3, "max") for kind in ("prior-tpe", "tpe"))
        for each in (ours, tpe):
            each.add(0, space.own)
            if told:
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
    assert any(abs(first[name] - place) > 1e-3 for name, place in space.encode(space.own).items())


@pytest.mark.parametrize("best", [1.0, 1e-3])
def test_one_trial_in_five_is_drawn_evenly_whatever_the_prior_says(best: float) -> None:
    made = study(4, best)
    made.sampler = sampler()
    rates = []
    for _ in range(40 * EVEN_EVERY):
        trial = made.ask()
        rate = trial.suggest_float("lr", 1e-4, 10.0, log=True)
        made.tell(trial, -abs(float(np.log10(rate / best))))
        if trial.number % EVEN_EVERY == EVEN_EVERY - 1:
            rates.append(np.log10(rate))
    assert len(rates) == 40
    by_decade = Counter(np.floor(rates).astype(int))
    assert all(by_decade[decade] >= 2 for decade in range(-4, 1))


def test_the_first_trial_is_the_mode_and_the_next_lie_around_it() -> None:
    made = optuna.create_study(sampler=sampler())
    rates = [made.ask().suggest_float("lr", 1e-4, 10.0, log=True) for _ in range(4)]
    assert rates[0] == pytest.approx(1.0)
    assert len(set(rates)) == 4


def test_it_optimises_a_plain_conditional_study() -> None:
    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["sgd", "adamw"])
        best = 1.0 if kind == "sgd" else 0.01
        rate = trial.suggest_float(f"lr_{kind}", 1e-4, 10.0, log=True)
        steps = trial.suggest_int("steps", 0, 10, step=5)
        return -abs(float(np.log10(rate / best))) - 0.01 * steps

    def prior(name: str, before: Mapping[str, Any]) -> Prior:
        match name:
            case "kind":
                return Weights((3.0, 1.0))
            case "lr_sgd":
                return Normal(1.0, "high")
            case _:
                return Uniform()

    made = optuna.create_study(sampler=sampler(prior), direction="maximize")
    made.optimize(objective, n_trials=30)
    assert made.best_value > -0.3
    assert {trial.params["kind"] for trial in made.trials} == {"sgd", "adamw"}


def test_priors_see_what_was_drawn_before_them() -> None:
    seen = []

    def prior(name: str, before: Mapping[str, Any]) -> Prior:
        seen.append((name, dict(before)))
        return Normal(1.0, "high") if name == "lr" else Weights((1.0, 9.0))

    trial = optuna.create_study(sampler=sampler(prior)).ask()
    kind = trial.suggest_categorical("kind", KIND.choices)
    trial.suggest_float("lr", 1e-4, 10.0, log=True)
    assert kind == "adamw"
    assert seen == [("kind", {}), ("lr", {"kind": "adamw"})]


def test_trials_rank_as_tpe_ranks_them() -> None:
    lr: dict[str, Any] = {"params": {"lr": 1.0}, "distributions": {"lr": RATE}}
    diverged = create_trial(state=TrialState.PRUNED, **lr)
    early = create_trial(state=TrialState.PRUNED, intermediate_values={1: 0.9}, **lr)
    late = create_trial(state=TrialState.PRUNED, intermediate_values={1: 0.1, 3: 0.2}, **lr)
    good, better = (create_trial(value=value, **lr) for value in (0.5, 0.6))
    failed, running = (create_trial(state=state, **lr) for state in (TrialState.FAIL, TrialState.RUNNING))
    trials = [running, diverged, good, early, failed, better, late]
    assert ranked(trials, optuna.study.StudyDirection.MAXIMIZE) == [better, good, late, early, diverged]


def test_trust_falls_only_where_the_better_trials_are_the_less_likely_ones() -> None:
    assert trust([3.0, 2.0, 1.0, 0.0, -1.0]) == 1.0
    assert trust([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(0.0143, abs=1e-3)
    assert trust([0.0, 0.0, 0.0, 0.0, 0.0]) == trust([1.0, 2.0]) == 1.0


@pytest.mark.parametrize(
    ("distribution", "domain"),
    [
        (RATE, Float(1e-4, 10.0, log=True)),
        (IntDistribution(1, 9), Integer(1, 9)),
        (KIND, Choice(("sgd", "adamw"))),
        (FloatDistribution(0.0, 1.0, step=0.25), None),
        (IntDistribution(0, 10, step=5), None),
    ],
)
def test_distributions_become_domains(distribution: Any, domain: Any) -> None:
    assert domain_of(distribution) == domain


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
