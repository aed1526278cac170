"""What a search takes, said before it begins: some of its recipes are tried for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search.deciding.finalists import Final
from search.deciding.forecast import Forecast, Places, forecast
from search.deciding.pruning import Pruning
from search.deciding.sampler import RandomSampler
from search.facts.hardware import PerTrial
from search.facts.run_costs import TriedRuns, read_tried, tried_file, try_runs, write_tried
from search.reporting.terminal import effort
from search.study import Study
from spaces.domains import counted, listed
from spaces.space import Space
from trainable.bench import Bench
from trainable.data import DataInfo
from trainable.errors import FaultyInput, UserError
from trainable.recipe import Recipe

if TYPE_CHECKING:  # torch and Ray take seconds to import
    from search.running.prepare import Prepared

DRAWS = 6  # recipes that are tried beside the documented one


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A search, as far as it is decided, whose time is asked for."""

    study: Study
    space: Space
    pruning: Pruning
    final: Final
    trial: PerTrial
    concurrent: int
    info: DataInfo

    @property
    def at_once(self) -> int:
        return min(self.concurrent, self.study.budget.trials)

    def recipes(self) -> list[Recipe]:
        """Return the recipes to try: the documented one, and a few that are drawn from the priors."""
        sampler, found = RandomSampler(self.space, self.study.seed), [self.space.recipe(self.space.own)]
        for number in range(DRAWS):
            try:
                found.append(self.space.recipe(sampler.ask(number)))
            except FaultyInput:  # a trial of these values would fail at once
                continue
        return found

    def file(self, bench: Bench) -> Path:
        """Return where the costs of these recipes are kept for `explain`."""
        return tried_file(self.recipes(), self.info, self.trial, self.at_once, bench)

    def forecast(self, tried: TriedRuns) -> Forecast:
        """Return what the search takes, by what runs of its recipes cost."""
        study, trial = self.study, self.trial
        measures = self.space.networks_differ or bool(study.objective.constraints.limits)
        places = Places(self.at_once, trial.gpus * trial.workers, tried.slowed, measures)
        return forecast(study, self.pruning, self.final, tried.costs, places)


def forecast_of(prepared: Prepared) -> Forecast:
    """Return what a search takes that is ready to run; its recipes are tried now, as the machine is now.

    Raises UserError where nothing can be tried here.
    """
    asked = Prospect(
        study=prepared.study,
        space=prepared.space,
        pruning=prepared.pruning,
        final=prepared.final,
        trial=prepared.per_trial,
        concurrent=prepared.concurrent,
        info=prepared.data.info,
    )
    bench, build = prepared.bench, prepared.code.model
    tried = try_runs(
        asked.recipes(), prepared.data, asked.trial, at_once=asked.at_once, build=build, bench=bench
    )
    if build is None and not prepared.study.data.own:
        write_tried(asked.file(bench), tried)
    return asked.forecast(tried)


def plan_lines(prepared: Prepared) -> Iterator[str]:
    """Yield a new search in five lines; the last one, what it takes, comes when some recipes were tried."""
    study, space, info = prepared.study, prepared.space, prepared.data.info
    parts = [f"{info.train_images:,} training", f"{info.validation_images:,} validation"]
    parts += [f"{info.test_images:,} test"] if info.test_images else []
    first = space.recipe(space.own).sentence_at(info.image_size)
    classes = counted(len(info.classes), "class", "classes")
    yield f"data: {study.data.path}: {listed(parts)} images of {classes}"
    yield f"first trial: {first}"
    yield f"searched: {counted(len(space.dimensions), 'field')}; `tunebook explain` says which, and why"
    yield f"budget: {effort(study, prepared.pruning, prepared.final, prepared.concurrent)}"
    yield _forecast_line(prepared)


def _forecast_line(prepared: Prepared) -> str:
    """Return the forecast of a search in one line, or why there is none."""
    try:
        return str(forecast_of(prepared))
    except UserError as error:
        return f"no forecast: {error}"


def explained_forecast(asked: Prospect, bench: Bench) -> str:
    """Return the forecast in one line, by costs that a search of these recipes, or its dry run, has measured;
    where there are none, how to get them, which takes seconds."""
    tried = read_tried(asked.file(bench))
    if tried is None:
        return "forecast: `tunebook search` with --dry-run tries a few recipes and says what the search takes"
    return str(asked.forecast(tried))
