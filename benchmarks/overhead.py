"""What a trial costs beside its training: tunebook and plain Ray Tune, with MLflow on in both.

    python benchmarks/overhead.py [--most 32]

Every trial does nothing but report. Each (arm, case, N) runs in a process of its own; the wall time of N
trials, two at once, is fitted by F + c N, and c is the marginal cost of a trial. Cases: one report; ten
reports; ten reports with a checkpoint of 1 MiB each. Plain Ray Tune is a function trainable with the MLflow
logger that Ray ships, as its documentation writes it, with and without `reuse_actors`; every arm keeps its
runs in SQLite. What is left out on both sides is a trial's own work: making the model and its checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from report import described, environment, in_own_process, refuse_busy_machine, write

CHECKPOINT_BYTES = 2**20
CONCURRENT = 2
SIZES = (4, 16, 32, 64, 256)


class Case(NamedTuple):
    """What a trial that does nothing reports."""

    name: str
    reports: int
    checkpoint: bool


CASES = {
    case.name: case
    for case in (
        Case("1 report", 1, False),
        Case("10 reports", 10, False),
        Case("10 reports + 1 MiB checkpoints", 10, True),
    )
}


def plain_ray(case: Case, trials: int, folder: Path, *, reuse: bool) -> float:
    """Return the seconds of `Tuner.fit` for a function trainable as in Ray's documentation."""
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    def trainable(config: dict[str, Any]) -> None:
        for number in range(1, case.reports + 1):
            result = {"val_accuracy": config["x"], "epoch": number}
            if not case.checkpoint:
                tune.report(result)
                continue
            with tempfile.TemporaryDirectory() as checkpoint:
                (Path(checkpoint) / "state.pt").write_bytes(os.urandom(CHECKPOINT_BYTES))
                tune.report(result, checkpoint=tune.Checkpoint.from_directory(checkpoint))

    ray.init(address="local", num_cpus=CONCURRENT, include_dashboard=False, log_to_driver=False)
    logger = MLflowLoggerCallback(f"sqlite:///{folder}/mlflow.db", experiment_name="plain")
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=trials, metric="val_accuracy", mode="max", reuse_actors=reuse
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name="plain", callbacks=[logger], verbose=0),
    )
    began = time.perf_counter()
    tuner.fit()
    return time.perf_counter() - began


def tunebook(case: Case, trials: int, folder: Path) -> float:
    """Return the seconds of a search whose trials do nothing, with journal, sampler and MLflow."""
    from noop import NoopTrial, prepared_search
    from search.followers.following import tracker_of
    from search.record.journal import Journal
    from search.running.cluster import local_ray
    from search.running.driver import make_ledger
    from search.running.raytune import Hooks, Pool, run_trials
    from search.running.switch import StopSwitch

    prepared, hardware = prepared_search(folder, trials, case.reports)
    with Journal(prepared.home.folder) as journal, local_ray(hardware, StopSwitch()):
        ledger = make_ledger(prepared, journal)
        ledger.begin("noop")
        tracker = tracker_of(prepared.home, prepared.study)
        began = time.perf_counter()
        tracker.start()
        trial = NoopTrial.with_checkpoints(CHECKPOINT_BYTES if case.checkpoint else 0)
        run_trials(prepared, ledger, StopSwitch(), Pool(lambda parked: prepared.concurrent), Hooks(), trial)
        ledger.close("finished")
        backlog = tracker.close(120.0)
        seconds = time.perf_counter() - began
    if not backlog.complete or not all(ledger.ended(number) == "finished" for number in range(trials)):
        sys.exit(f"not all trials finished, or MLflow lacks some: {backlog}")
    return seconds


ARMS: dict[str, Callable[[Case, int, Path], float]] = {
    "plain Ray Tune": lambda case, trials, folder: plain_ray(case, trials, folder, reuse=False),
    "plain Ray Tune, reuse_actors": lambda case, trials, folder: plain_ray(case, trials, folder, reuse=True),
    "tunebook": tunebook,
}


def main() -> None:
    options = _options()
    if options.arm is not None:
        with tempfile.TemporaryDirectory() as folder:
            seconds = ARMS[options.arm](CASES[options.case], options.trials, Path(folder))
        print(json.dumps({"seconds": seconds}))
        return
    refuse_busy_machine(CONCURRENT)
    where = environment(CONCURRENT)
    sizes = [size for size in SIZES if size <= options.most]
    measured = {
        case: {arm: {size: _measure(arm, case, size, options.repeats) for size in sizes} for arm in ARMS}
        for case in CASES
    }
    fits = {case: {arm: _fit(times) for arm, times in arms.items()} for case, arms in measured.items()}
    record = {"environment": where, "seconds": measured, "fits": fits}
    write("overhead", record, _page(fits, sizes, where))


def _measure(arm: str, case: str, size: int, repeats: int) -> list[float]:
    """Return the wall seconds of each repetition, each in a process of its own."""
    words = ["--arm", arm, "--case", case, "--trials", str(size)]
    variables = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
    seconds = [float(in_own_process(__file__, words, variables)["seconds"]) for _ in range(repeats)]
    print(f"{case}, {arm}, {size} trials: {', '.join(f'{each:.2f}' for each in seconds)} s", flush=True)
    return seconds


def _fit(times: dict[int, list[float]]) -> dict[str, float]:
    """Fit F + c N to every run by least squares."""
    points = [(size, seconds) for size, runs in times.items() for seconds in runs]
    sizes, seconds = np.array(points, dtype=float).T
    slope, start = np.polyfit(sizes, seconds, 1)
    return {"start_seconds": float(start), "seconds_a_trial": float(slope), "runs": len(points)}


def _page(fits: dict[str, dict[str, dict[str, float]]], sizes: list[int], where: dict[str, Any]) -> str:
    rows = []
    for case, arms in fits.items():
        for arm, fit in arms.items():
            each, ours = fit["seconds_a_trial"], arms["tunebook"]["seconds_a_trial"]
            start, runs = fit["start_seconds"], fit["runs"]
            rows.append(f"| {case} | {arm} | {each:.3f} | {start:.1f} | {each / ours:.1f} | {runs} |")
    return (
        "# What a trial costs beside its training\n\n"
        "Trials that only report, two at once, MLflow on SQLite in every arm; "
        f"N = {', '.join(map(str, sizes))}; wall seconds are fitted by F + c N.\n\n"
        "| case | arm | c: seconds a trial | F: seconds once | c / tunebook's | runs |\n|-|-|-|-|-|-|\n"
        + "\n".join(rows)
        + f"\n\n{described(where)}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the cost of a trial in tunebook and in plain Ray Tune."
    )
    parser.add_argument("--most", type=int, default=32, help="largest number of trials in a run")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--arm", choices=ARMS, help="run one arm once and print its seconds")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--trials", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
