"""Runs debug tools around a run.
Each is off unless it is asked for, and says when it is on, as it slows a run.

`profile` records a few steps, `anomaly` stops at the first gradient that is nan and names the forward step.
`--debug gradcheck` checks a layer instead of a run: it belongs to `tunebook check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import assert_never

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from trainable.bench import Bench, Say
from trainable.debug_tools import Tool

PROFILE_FILE = "profile.json"
# Steps: the first ones choose kernels and fill caches, and the profiler's own first step is slow (torch's
# documents of torch.profiler.schedule); five keep the trace to some MB.
WAIT, WARMUP, ACTIVE = 2, 1, 5
ROWS = 12


@contextmanager
def debugging(tools: Sequence[Tool], bench: Bench, folder: Path | None) -> Iterator[None]:
    """Switch the tools on around a run, say so in a line for each, and switch them off afterwards.

    Files are written to `folder`; None writes no files.
    """
    with ExitStack() as stack:
        for tool in tools:
            match tool:
                case "profile":
                    stack.enter_context(profiled(bench, folder))
                case "anomaly":
                    stack.enter_context(anomalies(bench.say))
                case _:
                    assert_never(tool)
        yield


@contextmanager
def anomalies(say: Say) -> Iterator[None]:
    """Let a backward pass that computes nan raise RuntimeError,
    with a warning that names the forward step."""
    say("debug anomaly is on: every gradient is checked for nan, steps are slower")
    with torch.autograd.set_detect_anomaly(True):
        yield


@contextmanager
def profiled(bench: Bench, folder: Path | None) -> Iterator[None]:
    """Record a few optimizer steps and say the costliest operations as soon as the recording ends.

    A Chrome trace, `profile.json`, is written to `folder`. Steps are counted by torch's hook after every
    optimizer's step, so the training loop needs no code for it.
    """
    say = bench.say
    say(f"debug profile is on: steps {WAIT + WARMUP + 1} to {WAIT + WARMUP + ACTIVE} are recorded")
    activities = [ProfilerActivity.CPU]
    if bench.kind == "cuda":
        activities.append(ProfilerActivity.CUDA)
    recorded: list[bool] = []

    def report(profiler: profile) -> None:
        rows = list(costliest(profiler, bench.device))
        recorded.append(bool(rows))
        for line in rows:
            say(line)
        if rows and folder is not None:
            say(
                f"debug profile: {_trace(profiler, folder)}; open it with chrome://tracing or ui.perfetto.dev"
            )

    plan = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    with profile(activities=activities, schedule=plan, on_trace_ready=report, acc_events=True) as profiler:
        hook = register_optimizer_step_post_hook(lambda *_: profiler.step())
        try:
            yield
        finally:
            hook.remove()
    if not any(recorded):
        say(f"debug profile: the run was over before step {WAIT + WARMUP + 1}, nothing was recorded")


def costliest(profiler: profile, device: torch.device) -> Iterator[str]:
    """Yield a table of the operations that took longest by themselves,
    on the GPU if there is one, else on the CPU.

    It yields no lines if nothing was recorded.
    """
    on_gpu = device.type == "cuda"
    times = [
        (event.self_device_time_total if on_gpu else event.self_cpu_time_total, event)
        for event in profiler.key_averages()
        if not event.key.startswith("ProfilerStep")  # time of a step outside all operations
    ]
    whole = sum(time for time, _ in times)
    if whole <= 0.0:
        return
    yield f"{'operation':<60} {'calls':>7} {f'{device.type} ms':>10} {'share':>6}"
    for time, event in sorted(times, key=lambda pair: -pair[0])[:ROWS]:
        yield f"{event.key[:60]:<60} {event.count:>7} {time / 1000:>10.2f} {time / whole:>6.1%}"


def _trace(profiler: profile, folder: Path) -> Path:
    """Write the trace whole or not at all, like the other files of a run, and return its path."""
    partial = folder / f".{PROFILE_FILE}"
    partial.unlink(missing_ok=True)  # a link there would be written through
    profiler.export_chrome_trace(str(partial))
    return partial.replace(folder / PROFILE_FILE)
