"""What all benchmarks need: the machine described, arms timed in turn, results written down."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MOST_LOAD_PER_THREAD = 1.5  # above it the machine is busy with something else
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FLAT = 2.0  # asked: the dearest size of a search costs at most so many times the cheapest
PACKAGES = ("torch", "torchvision", "timm", "ray", "optuna", "mlflow", "numpy")


@dataclass(frozen=True)
class Slice:
    """One timed piece of work: how much was done, and the seconds of wall clock and processor."""

    work: float
    wall_seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """The work per second of wall clock."""
        return self.work / self.wall_seconds

    @property
    def thrift(self) -> float:
        """The work per second of processor time. It is steadier than the rate on a shared machine."""
        return self.work / self.cpu_seconds


def environment(threads: int) -> dict[str, Any]:
    """Return hardware, versions, commit and load, without which a figure means nothing."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": _gpu(),
        "threads": threads,
        "python": platform.python_version(),
        "versions": dict(_versions()),
        "bytecode_compiled": _bytecode_compiled(),
        "commit": _commit(),
        "load_before": os.getloadavg()[0],
        "command": portable(shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])),
    }


def portable(text: str) -> str:
    """Return a command or path as others can use it: without the folders of this machine."""
    text = text.replace(f"{Path.cwd()}{os.sep}", "")
    folder = os.environ.get("TUNEBOOK_DATA")
    return text.replace(str(Path(folder).absolute()), "$TUNEBOOK_DATA") if folder else text


def refuse_busy_machine(threads: int) -> None:
    """End the benchmark when the load of the last minute would decide the result."""
    load = os.getloadavg()[0]
    if load > MOST_LOAD_PER_THREAD * max(threads, os.cpu_count() or 1):
        sys.exit(f"load {load:.1f} is too high to measure anything; try again on a quiet machine")


def flatness(means: Mapping[int, float], least: int) -> str:
    """Say whether mean costs by number of trials, of at least so many, are flat."""
    means = {size: mean for size, mean in means.items() if size >= least}
    if len(means) < 2:
        return f"no two sizes from {least:,} trials on to compare"
    apart = max(means.values()) / min(means.values())
    return (
        f"from {min(means):,} to {max(means):,} trials the dearest size costs {apart:.2f} times the cheapest "
        f"(asked: at most {FLAT:g}; {'met' if apart <= FLAT else 'not met'})"
    )


def timed(work: Callable[[], float]) -> Slice:
    """Run `work` once; it returns how much it did."""
    wall, cpu = time.perf_counter(), time.process_time()
    done = work()
    return Slice(done, time.perf_counter() - wall, time.process_time() - cpu)


def in_rounds(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[Slice]]:
    """Run each arm once a round, in rotating order (A B C, B C A, ...), after one warm-up round."""
    names = list(arms)
    for name in names:
        arms[name]()
    slices: dict[str, list[Slice]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            slices[name].append(timed(arms[name]))
    return slices


def ratio(
    ours: Sequence[Slice], theirs: Sequence[Slice], figure: Callable[[Slice], float]
) -> dict[str, float]:
    """Return our figure over theirs, round by round: median, least and most."""
    ratios = [figure(a) / figure(b) for a, b in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}


def in_own_process(
    script: str, words: Sequence[str], variables: Mapping[str, str], timeout: float | None = None
) -> Any:
    """Run a script in a process of its own; return the last line that it prints, read as JSON."""
    command, environ = [sys.executable, script, *words], {**os.environ, **variables}
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, timeout=timeout)
    return json.loads(done.stdout.decode().splitlines()[-1])


def write(name: str, record: Mapping[str, Any], page: str) -> None:
    """Write a result as JSON and as a page of Markdown under benchmarks/results/."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text(page)
    print(page)


def measure_missing(
    name: str,
    runs: Iterable[tuple[dict[str, Any], Callable[[], dict[str, Any]]]],
    page: Callable[[Sequence[dict[str, Any]], dict[str, Any]], str],
) -> None:
    """Measure each setting that a result does not have yet, and write the result after each, so that it may
    be stopped at any time."""
    file = RESULTS / f"{name}.json"
    found = json.loads(file.read_text())["runs"] if file.exists() else []
    for setting, measure in runs:
        if any(each["setting"] == setting for each in found):
            continue
        where = environment(1)
        found.append({"setting": setting, **measure()})
        write(name, {"environment": where, "runs": found}, page(found, where))


def described(environment: Mapping[str, Any]) -> str:
    """Return the environment as the last paragraph of a page."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return (
        f"{environment['processor']}, {environment['cores']} cores, {environment['threads']} thread(s)"
        f"{', ' + environment['gpu'] if environment.get('gpu') else ''}; "
        f"Python {environment['python']}, {versions}; "
        f"bytecode {'compiled' if environment['bytecode_compiled'] else 'not compiled'}; "
        f"commit {environment['commit']}; "
        f"load before {environment['load_before']:.2f}, after {os.getloadavg()[0]:.2f}.\n\n"
        f"    {environment['command']}\n"
    )


def plain(slices: Mapping[str, Sequence[Slice]]) -> dict[str, list[dict[str, float]]]:
    return {name: [asdict(each) for each in arm] for name, arm in slices.items()}


def _versions() -> Iterator[tuple[str, str]]:
    """Yield the versions of what is installed: a machine that only trains need not have what searches."""
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _gpu() -> str | None:
    """Return the name of the first GPU that torch may use."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _bytecode_compiled() -> bool:
    import torch

    return (Path(torch.__file__).parent / "__pycache__").exists()


def _commit() -> str:
    """Return the commit, with `-dirty` if any file but the results was changed since."""
    hash_of_head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!results")
    return f"{hash_of_head or 'unknown'}{'-dirty' if changed else ''}"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(RESULTS.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
