"""Builds the sampler and the scheduler that a study names."""

from __future__ import annotations

from typing import assert_never

from search.deciding.pruning import Pruning
from search.deciding.sampler import RandomSampler, Sampler, SobolSampler
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler
from search.study import SamplerKind
from spaces.space import Space, concentration
from trainable.recipe.metrics import Mode
from trainable.stages import stage

# below this `concentration` a space counts as without beliefs: a sum of logarithms is not exactly 0
NO_BITS = 1e-9
LOADING = "loading the sampler"  # a stage


def make_sampler(
    space: Space, kind: SamplerKind, seed: int, direction: Mode, *, by_time: bool = False
) -> Sampler:
    """Build the sampler of a study; `direction` says whether the objective is maximised or minimised,
    `by_time` whether the budget is in hours: then a model counts an improvement for each second of training.

    In a space without beliefs, `prior-tpe` is TPE, and `auto`, `mutation` and `gp` draw nothing from priors.
    """
    believes = concentration(space) > NO_BITS
    match kind:
        case "auto" | "mutation" | "gp":
            with stage(LOADING):
                from search.deciding.auto import AutoSampler  # scipy.stats takes a second to import

            return AutoSampler(space, seed, direction, learns=kind, believes=believes, by_time=by_time)
        case "prior-tpe" if believes:
            with stage(LOADING):
                from search.deciding.prior_tpe import PriorTpeSampler  # it imports scipy.stats, too

            return PriorTpeSampler(space, seed, direction)
        case "prior-tpe" | "tpe":
            with stage(LOADING):
                from search.deciding.tpe import TpeSampler  # Optuna takes 0.4 s to import

            return TpeSampler(space, seed, direction)
        case "random":
            return RandomSampler(space, seed)
        case "qmc":
            return SobolSampler(space, seed)


def make_scheduler(space: Space, pruning: Pruning, direction: Mode) -> Scheduler:
    """Build the scheduler of a search; `direction` says whether the objective is maximised or minimised."""
    match pruning.kind:
        case "asha":
            return Asha(pruning.rungs, pruning.factor, direction)
        case "promotion":
            return PromotionAsha(pruning.rungs, pruning.factor, direction)
        case "model":
            from search.deciding.model_asha import ModelAsha  # it imports scipy

            return ModelAsha(pruning.rungs, pruning.factor, direction, space)
        case _:
            assert_never(pruning.kind)
