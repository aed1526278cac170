"""A search by SMAC's multi-fidelity facade: Hyperband, proposals by a random forest (JMLR 23-54).

    python -m offline.peers.smac

It is set as in SMAC's example of multi-fidelity training (5 random configurations first). Its budgets are
fractions of epochs; they are rounded: 6, 17 and 52.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, Float, InCondition, Integer
from ConfigSpace.hyperparameters import Hyperparameter
from smac import MultiFidelityFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue
from smac.runhistory.enumerations import StatusType

from offline.peers.serving import Asked, Dimension, Piece, Promoting, serve

FIRST_CONFIGURATIONS = 5
UNKNOWN_COST = 1e4  # of a training that diverged, if it is the first of all; else the worst score so far


class Smac(Promoting):
    """A search by `smac.MultiFidelityFacade`, with `ask` and `tell`."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self._costs: list[float] = []
        scenario = Scenario(
            _space(asked),
            output_directory=Path.cwd(),
            deterministic=True,
            # It is the number of pieces of training; the simulation ends the search, not this.
            n_trials=20 * asked.trainings,
            min_budget=asked.grace,
            max_budget=asked.epochs,
            seed=asked.seed % 2**31,
        )
        self._facade = MultiFidelityFacade(
            scenario,
            _unused,
            initial_design=MultiFidelityFacade.get_initial_design(scenario, n_configs=FIRST_CONFIGURATIONS),
            intensifier=MultiFidelityFacade.get_intensifier(scenario, eta=asked.factor),
            logging_level=False,
        )

    def next_piece(self) -> Piece:
        info = self._facade.ask()
        number = self._facade.runhistory.get_config_id(info.config)
        return Piece(number, dict(info.config), round(info.budget), info)

    def report(self, number: int, epoch: int, score: float) -> bool:
        self._costs.append(-score)
        return super().report(number, epoch, score)

    def tell(self, handle: TrialInfo, score: float | None) -> None:
        if score is None:  # SMAC's default is infinity, of which its forest cannot learn
            value = TrialValue(max(self._costs, default=UNKNOWN_COST), status=StatusType.CRASHED)
        else:
            value = TrialValue(-score)
        self._facade.tell(handle, value, save=False)


def _unused(config: Any, seed: int, budget: float) -> float:
    raise NotImplementedError("the simulation trains")


def _space(asked: Asked) -> ConfigurationSpace:
    space = ConfigurationSpace(seed=asked.seed % 2**31)
    made = {each.name: _parameter(each) for each in asked.dimensions}
    space.add(*made.values())
    space.add(
        *(
            InCondition(made[each.name], made[each.only_if], each.only_with)
            for each in asked.dimensions
            if each.only_if is not None
        )
    )
    return space


def _parameter(dimension: Dimension) -> Hyperparameter:
    match dimension.kind:
        case "float":
            return Float(dimension.name, (dimension.low, dimension.high), log=dimension.log)
        case "integer":
            return Integer(dimension.name, (int(dimension.low), int(dimension.high)), log=dimension.log)
        case "choice":
            return CategoricalHyperparameter(dimension.name, dimension.options)


if __name__ == "__main__":
    serve(Smac)
