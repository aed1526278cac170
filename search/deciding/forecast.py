"""Forecasts what a search takes: it is played many times, with the costs of runs that were tried.

A play gives each trial the cost of one of the tried recipes and a random worth, and lets the search's own
scheduler compare trials at the rungs, as many at once as there are places. It knows no clock and no file.
What a trial takes beside its epochs is from benchmarks/results/overhead.md and turnaround-cpu.md; what the
search takes beside its trials is what the last ones on the machine took. benchmarks/forecast.py measures how
near forecasts come.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from search.deciding.finalists import Final
from search.deciding.pruning import Pruning
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler
from search.facts.beside_trials import USUAL, BesideTrials
from search.facts.run_costs import TriedRuns
from search.record.clock import duration, time_limit
from search.study import Study
from spaces.domains import disk_size
from trainable.recipe.base import Spec
from trainable.recipe.network_cost import RunCost

LEAST_PLAYS, PLAYS, MOST_EVENTS = 10, 200, 40_000  # so many plays, fewer of a search of many trials
MOST_PLAYED = 2_000  # of more trials so many are played: the others take as long on average
# of a place for a trial: an epoch's result with its decision, a new trial, measuring what a network costs
EPOCH_SECONDS, TRIAL_SECONDS, MEASURE_SECONDS = 0.03, 0.15, 0.7
INTERVAL = (0.1, 0.9)  # of the plays
BESIDE = 1.15  # both ends are so many times as far away: what is beside the steps was not measured here
KEEP_LAST = 2  # checkpoints of a trial that has finished
OF_SEARCH, OF_EPOCH = 4_000_000, 2_000  # bytes: MLflow's database, the report and the rest; an epoch's part
HOUR = 3600.0


class Within(Spec):
    """What some hours would get of a search."""

    hours: float
    trials: float  # that have begun, on average
    epochs: float

    def words(self, trials: int, epochs: float) -> str:
        """Return it in words, beside how many there are in all."""
        hours = time_limit(self.hours)
        if self.epochs >= 0.995 * epochs:
            return f"{hours} would do for all of it"
        share = f"{self.epochs / epochs:.0%} of the epochs"
        return f"{hours} would get {self.trials:.0f} of {trials} trials, {share}"


class Forecast(Spec):
    """What a search takes from its first trial on, before it begins."""

    seconds: float  # the median of the plays
    low_seconds: float
    high_seconds: float
    trials: int
    epochs: float  # of all trials and finalists, on average
    at_once: int
    gpu_hours: float | None  # that trials hold; None where they reserve no GPU
    price: float | None  # None without GPUs, or without `budget.price_per_gpu_hour`
    disk_bytes: int  # checkpoints, MLflow's database and the report; images are decoded before
    within: Within
    tried: int  # so many recipes were tried for it
    workers: int = 1  # of a trial: what they send each other is not in it
    beside_seconds: float = 0.0  # of these: before its first trial trains, and after the last result

    def __str__(self) -> str:
        money = f" for {self.price:,.2f}" if self.price is not None else ""
        gpus = f", {self.gpu_hours:,.2g} GPU-hours{money}" if self.gpu_hours is not None else ""
        low, high = duration(self.low_seconds), duration(self.high_seconds)
        takes = (
            f"about {duration(self.seconds)} ({low} to {high}){gpus}, {disk_size(self.disk_bytes)} of disk"
        )
        sent = f", without what its {self.workers} workers send each other" if self.workers > 1 else ""
        return f"forecast: {takes}{sent}; {self.within.words(self.trials, self.epochs)}"


@dataclass(frozen=True)
class Places:
    """Where the trials of a search train."""

    at_once: int  # so many trials
    gpus: float = 0.0  # that a trial reserves, all its workers together
    workers: int = 1  # of a trial
    slowed: float = 1.0  # how many times as long as its own work a process takes there
    measures: bool = False  # what a trial's network costs is measured before it is trained
    beside: BesideTrials = USUAL  # what the search takes before its first trial, and after the last one


def forecast(study: Study, pruning: Pruning, final: Final, tried: TriedRuns, places: Places) -> Forecast:
    """Return what a search takes, by the costs of its first trials. A later one costs what one of these does,
    drawn at random."""
    budget = study.budget
    played = min(budget.trials, MOST_PLAYED)
    longer = budget.trials / played
    game, rng = _Game(study, pruning, final, tried.costs, places), np.random.default_rng(study.seed)
    plays = [game.play(played, rng) for _ in range(max(LEAST_PLAYS, min(PLAYS, MOST_EVENTS // played)))]
    limit = _limit_seconds(study, places)
    beside = places.beside.seconds
    ends = sorted(min(limit, each.seconds * longer) + beside for each in plays)
    low, middle, high = (ends[int(share * (len(ends) - 1))] for share in (INTERVAL[0], 0.5, INTERVAL[1]))
    held = fmean(each.held * longer * min(1.0, limit / (each.seconds * longer)) for each in plays)
    gpu_hours = held * places.gpus / HOUR if places.gpus else None
    rate = budget.price_per_gpu_hour
    hours = budget.hours or 1.0
    trains = max(0.0, hours * HOUR - places.beside.start_seconds)
    in_time = [each.until(trains / longer) for each in plays]
    epochs = longer * fmean(each.epochs for each in plays)
    checkpoints = longer * fmean(each.finished for each in plays) * KEEP_LAST
    kept = checkpoints * fmean(each.checkpoint_bytes for each in tried.costs)
    return Forecast(
        seconds=middle,
        low_seconds=low / BESIDE,
        high_seconds=high * BESIDE,
        trials=budget.trials,
        epochs=epochs,
        at_once=places.at_once,
        gpu_hours=gpu_hours,
        price=None if gpu_hours is None or rate is None else gpu_hours * rate,
        disk_bytes=int(kept + OF_SEARCH + OF_EPOCH * epochs),
        within=Within(
            hours=hours,
            trials=longer * fmean(trials for trials, _ in in_time),
            epochs=longer * fmean(trained for _, trained in in_time),
        ),
        tried=tried.tried,
        workers=places.workers,
        beside_seconds=beside,
    )


@dataclass
class _Play:
    """How one play went."""

    seconds: float = 0.0
    held: float = 0.0  # seconds of places
    finished: int = 0  # trials and finalists' runs that keep their checkpoints

    def __post_init__(self) -> None:
        # of each stretch of training when it began and ended, and its epochs
        self.stretches: list[tuple[float, float, int]] = []
        self.begun: list[float] = []  # when trials began

    @property
    def epochs(self) -> int:
        return sum(epochs for _, _, epochs in self.stretches)

    def add(self, began: float, ended: float, epochs: int) -> None:
        """Note that a place trained so many epochs of a trial."""
        self.held += ended - began
        self.stretches.append((began, ended, epochs))

    def until(self, seconds: float) -> tuple[int, float]:
        """Return how many trials began, and how many epochs were trained, up to then."""
        done = [
            epochs * min(1.0, (seconds - began) / (ended - began))
            for began, ended, epochs in self.stretches
            if began < seconds
        ]
        return sum(each <= seconds for each in self.begun), sum(done)


@dataclass(frozen=True)
class _Game:
    """The rules by which a search is played through."""

    study: Study
    pruning: Pruning
    final: Final
    costs: tuple[RunCost, ...]  # of the first trials
    places: Places

    def play(self, trials: int, rng: np.random.Generator) -> _Play:
        """Play a search of so many trials, and its finalists' runs."""
        play, scheduler = _Play(), self._scheduler()
        worth = rng.permutation(trials).astype(float)
        known = len(self.costs)
        drawn = [*range(min(known, trials)), *rng.integers(known, size=max(0, trials - known))]
        queue, paused = list(range(trials - 1, -1, -1)), dict[int, int]()
        running: list[tuple[float, int, int]] = []

        def next_trial() -> tuple[int, int] | None:
            is_last = not queue and not running
            if (promoted := scheduler.promoted(paused, least=int(is_last)) if paused else None) is not None:
                return promoted, paused.pop(promoted)
            return (queue.pop(), 0) if queue else None

        def begin(trial: int, epoch: int, now: float) -> None:
            end = next(each for each in (*scheduler.rungs, self._epochs) if each > epoch)
            ended = now + self._seconds(self.costs[int(drawn[trial])], epoch, end)
            play.add(now, ended, end - epoch)
            if epoch == 0:
                play.begun.append(now)
            heapq.heappush(running, (ended, trial, end))

        while True:
            while len(running) < self.places.at_once and (found := next_trial()) is not None:
                begin(*found, play.seconds)
            if not running:
                break
            play.seconds, trial, epoch = heapq.heappop(running)
            if epoch == self._epochs:
                play.finished += 1
            elif scheduler.report(trial, epoch, worth[trial], exempt=trial == 0):
                begin(trial, epoch, play.seconds)
            elif scheduler.pauses:
                paused[trial] = epoch
        self._play_final(play, rng)
        return play

    def _play_final(self, play: _Play, rng: np.random.Generator) -> None:
        """Train the finalists, when all trials have ended."""
        free = [play.seconds] * self.places.at_once
        for _ in range(self.final.epochs(self.study) // self._epochs):
            began = heapq.heappop(free)
            ended = began + self._seconds(self.costs[int(rng.integers(len(self.costs)))], 0, self._epochs)
            play.add(began, ended, self._epochs)
            play.finished += 1
            heapq.heappush(free, ended)
        play.seconds = max(free)

    def _scheduler(self) -> Scheduler:
        """Return what compares the trials of a play. Forecasts of `model` stop more trials than it does."""
        kind = PromotionAsha if self.pruning.kind == "promotion" else Asha
        return kind(self.pruning.rungs, self.pruning.factor, "max")

    def _seconds(self, cost: RunCost, begin: int, end: int) -> float:
        beside = EPOCH_SECONDS * (end - begin)
        if begin == 0:
            beside += TRIAL_SECONDS + MEASURE_SECONDS * self.places.measures
        start = cost.starting_seconds if begin == 0 else 0.0
        return start + cost.seconds(begin, end) + beside * self.places.slowed

    @property
    def _epochs(self) -> int:
        return self.study.budget.epochs


def _limit_seconds(study: Study, places: Places) -> float:
    """Return for how many seconds the study's budget lets trials train; its hours begin with the start."""
    budget, limits = study.budget, [math.inf]
    if budget.hours is not None:
        limits.append(max(0.0, budget.hours * HOUR - places.beside.start_seconds))
    if places.gpus and (most := budget.most_gpu_hours) is not None:
        limits.append(most * HOUR / (places.gpus * places.at_once))
    return min(limits)
