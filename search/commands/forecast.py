"""What a search takes, said before it begins: some of its recipes are tried for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from search.deciding.finalists import Final, choose_final
from search.deciding.forecast import Forecast, Places, forecast
from search.deciding.make import make_sampler
from search.deciding.pruning import Pruning, choose_pruning
from search.facts.beside_trials import USUAL, add_beside, beside_of, last_beside
from search.facts.hardware import PerTrial
from search.facts.run_costs import TriedRuns, read_tried, tried_file, try_runs, write_tried
from search.record.stored_search import StoredSearch
from search.reporting.terminal import effort
from search.study import Study
from search.study.code import NO_CODE, Code
from search.study.first import FirstTrial
from spaces.domains import counted, listed
from spaces.space import Space
from trainable.bench import Bench
from trainable.data import DataInfo, DataSet
from trainable.errors import FaultyInput, UserError
from trainable.recipe import Recipe

if TYPE_CHECKING:  # torch and Ray take seconds to import
    from search.running.prepare import Prepared

MakeForecast = Callable[[], Forecast]
MOST_DECODED = 10_000  # so many images at most are decoded for a forecast alone
DRAWS = 48  # so many of the search's first trials are looked at: of others it learns from results


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A search, as far as it is decided, whose time is asked for."""

    study: Study
    space: Space
    trial: PerTrial
    concurrent: int
    info: DataInfo
    first: tuple[FirstTrial, ...] = ()

    @classmethod
    def of(cls, prepared: Prepared) -> Prospect:
        """Return that of a search which is ready to run."""
        return cls(
            study=prepared.study,
            space=prepared.space,
            trial=prepared.per_trial,
            concurrent=prepared.concurrent,
            info=prepared.data.info,
            first=prepared.first,
        )

    @cached_property
    def pruning(self) -> Pruning:
        return choose_pruning(self.study, self.space)

    @cached_property
    def final(self) -> Final:
        return choose_final(self.study, self.pruning)

    def forecast(self, images: Callable[[], DataSet], bench: Bench, code: Code = NO_CODE) -> Forecast:
        """Return what the search takes, by what runs of its recipes cost.

        Some are tried now, unless a command of the last hour has tried them. Raises UserError where nothing
        can be tried here.
        """
        recipes, at_once = self.recipes(), min(self.concurrent, self.study.budget.trials)
        is_known = code.model is None and not self.study.data.own  # nothing says when the code is another one
        file = tried_file(recipes, self.info, self.trial, at_once, bench) if is_known else None
        if file is None or (tried := read_tried(file)) is None:
            tried = try_runs(recipes, images(), self.trial, at_once=at_once, build=code.model, bench=bench)
            if file is not None:
                write_tried(file, tried)
        return forecast(self.study, self.pruning, self.final, tried, self._places(at_once, tried, bench))

    def _places(self, at_once: int, tried: TriedRuns, bench: Bench) -> Places:
        beside = last_beside(self.trial.bench(bench).kind) or USUAL.times(tried.slowed)
        return Places(
            at_once,
            gpus=self.trial.gpus * self.trial.workers,
            workers=self.trial.workers,
            slowed=tried.slowed,
            measures=self.space.networks_differ or bool(self.study.objective.constraints.limits),
            beside=beside,
        )

    def recipes(self) -> list[Recipe]:
        """Return the recipes of the search's first trials, as its sampler draws them without any result."""
        study, space = self.study, self.space
        direction, by_time = study.objective.direction, study.budget.is_time
        sampler = make_sampler(space, study.sampler.kind, study.seed, direction, by_time=by_time)
        found, number = [space.recipe(space.own)], 1
        sampler.add(0, space.own)
        for each in self.first:
            found.append(Recipe.from_tree(each.recipe))
            if not each.outside:
                sampler.add(number, each.values)
                number += 1
        for drawn in range(number, min(study.budget.trials, DRAWS)):
            values = sampler.ask(drawn)
            sampler.add(drawn, values)
            with suppress(FaultyInput):  # a trial of these values fails at once
                found.append(space.recipe(values))
        return found


def forecast_of(prepared: Prepared) -> Forecast:
    """Return what a search takes that is ready to run. Raises UserError where nothing can be tried here."""
    return Prospect.of(prepared).forecast(lambda: prepared.data, prepared.bench, prepared.code)


def decoded(data: DataSet, bench: Bench) -> DataSet:
    """Return images with what steps read of them, as a search has them at its first trial. Raises UserError
    where decoding them takes long."""
    images = sum(map(len, data.parts.values()))
    if images > MOST_DECODED and data.cache is not None and not data.decoded_views():
        raise UserError(f"{images:,} images are decoded first, which `tunebook search --dry-run` does")
    data.be_here(bench.say)
    return data


def forecast_or_reason(make: MakeForecast) -> Forecast | UserError:
    """Return a forecast, or why there is none."""
    try:
        return make()
    except UserError as error:
        return error


def forecast_line(found: Forecast | UserError) -> str:
    """Return a forecast in one line, or why there is none."""
    return f"no forecast: {found}" if isinstance(found, UserError) else str(found)


def forecast_tree(found: Forecast | UserError) -> dict[str, Any]:
    """Return a forecast as plain data, or why there is none."""
    if isinstance(found, UserError):
        return {"forecast": None, "why_no_forecast": str(found)}
    return {"forecast": found.model_dump(mode="json"), "why_no_forecast": None}


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
    yield forecast_line(forecast_or_reason(lambda: forecast_of(prepared)))


def keep_beside(prepared: Prepared, told: float) -> None:
    """Remember what a search that has just ended took beside its trials, for the next forecast.

    Its own was told at `told`, in seconds since 1970.
    """
    ended = time.time()
    with suppress(UserError, OSError):  # it has ended well, whatever comes of this
        if (took := beside_of(StoredSearch(prepared.home.folder).record.trials, told, ended)) is not None:
            add_beside(prepared.per_trial.bench(prepared.bench).kind, took)
