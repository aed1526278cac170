"""A search by Optuna's GPSampler and HyperbandPruner, in the environment of this project.

    python -m offline.peers.optuna_gp

GPSampler learns from finished trials alone, and draws evenly what does not exist in all of them.
"""

from __future__ import annotations

import optuna

from offline.peers.serving import Asked, Dimension, Peer, Values, serve


class OptunaGp(Peer):
    """A search by `Study.ask` and `Study.tell`."""

    def __init__(self, asked: Asked) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._asked = asked
        self._study = optuna.create_study(
            study_name=str(asked.seed),  # its hash chooses the bracket of a trial
            direction="maximize",
            sampler=optuna.samplers.GPSampler(seed=asked.seed),
            pruner=optuna.pruners.HyperbandPruner(asked.grace, asked.epochs, asked.factor),
        )
        self._trials: dict[int, optuna.Trial] = {}

    def ask(self) -> tuple[int, Values]:
        trial = self._study.ask()
        self._trials[trial.number] = trial
        values: dict[str, float] = {}
        for each in self._asked.dimensions:
            if each.exists(values):
                values[each.name] = _suggested(trial, each)
        return trial.number, values

    def report(self, number: int, epoch: int, score: float) -> bool:
        trial = self._trials[number]
        trial.report(score, epoch)
        if epoch >= self._asked.epochs:
            self._study.tell(trial, score)
            return False
        if trial.should_prune():
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return False
        return True

    def diverged(self, number: int) -> None:
        self._study.tell(self._trials[number], state=optuna.trial.TrialState.FAIL)


def _suggested(trial: optuna.Trial, dimension: Dimension) -> float:
    match dimension.kind:
        case "float":
            return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=dimension.log)
        case "integer":
            low, high = int(dimension.low), int(dimension.high)
            return trial.suggest_int(dimension.name, low, high, log=dimension.log)
        case "choice":
            return trial.suggest_categorical(dimension.name, dimension.options)


if __name__ == "__main__":
    serve(OptunaGp)
