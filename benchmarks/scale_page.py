"""Makes the page of benchmarks/scale.py."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from report import described, flatness

FLAT_FROM = 100
"""A result shall cost as much at any size from so many trials on."""
LEAST_FOR_MEMORY = 100
"""In smaller searches the memory of a result cannot be told from that of the libraries."""
WHOLE_DRIVER = ("decide, auto", "followers, SQLite", "ray")
"""Arms that together are the driver of a search as it is by default."""
DECIDES = ("sampler", "journal", "ledger")

Searches = Sequence[Mapping[str, Any]]


def page(runs: Searches, where: Mapping[str, Any], last: int) -> str:
    """Return the tables of all arms: what a result costs at each size, by part, and whether that is flat."""
    arms = {name: _by_size(runs, name) for name in dict.fromkeys(run["setting"]["arm"] for run in runs)}
    tables = "\n".join(_arm(name, sizes) for name, sizes in arms.items())
    loads = [run["load"] for run in runs]
    return (
        "# What a result costs the driver, by the number of trials\n\n"
        "Processor milliseconds and resident KiB for each result (an epoch that a trial reports), of the "
        f"last {last} trials (of the last half where there are fewer; memory: always of the last half). "
        "Means of n searches, in brackets the least and the most. Other work ran on the machine beside "
        f"them: the load was {min(loads):.1f} to {max(loads):.1f}.\n\n"
        f"{tables}\n{_whole(arms)}\n{described(where)}"
    )


def _by_size(runs: Searches, name: str) -> dict[int, list[Mapping[str, Any]]]:
    sizes: dict[int, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["setting"]["arm"] == name:
            sizes.setdefault(run["setting"]["trials"], []).append(run)
    return dict(sorted(sizes.items()))


def _arm(name: str, sizes: Mapping[int, Searches]) -> str:
    parts = list(dict.fromkeys(part for searches in sizes.values() for part in searches[0]["seconds"]))
    head = f"| trials | whole | {' | '.join(parts)} | KiB a result | n |\n|-|-|{'-|' * len(parts)}-|-|\n"
    rows = "\n".join(_row(size, searches, parts) for size, searches in sizes.items())
    flat = flatness({size: _mean(searches) for size, searches in sizes.items()}, FLAT_FROM)
    return f"## {name}\n\n{head}{rows}\n\n{flat.capitalize()}.\n"


def _row(size: int, searches: Searches, parts: Sequence[str]) -> str:
    wholes = [1e3 * sum(each["seconds"].values()) for each in searches]
    cells = [f"{1e3 * _mean(searches, [part]):.2f}" for part in parts]
    memory = f"{statistics.mean(each['bytes'] for each in searches) / 1024:.1f}"
    return (
        f"| {size:,} | {statistics.mean(wholes):.2f} ({min(wholes):.2f} to {max(wholes):.2f}) | "
        f"{' | '.join(cells)} | {memory if size >= LEAST_FOR_MEMORY else ''} | {len(searches)} |"
    )


def _mean(searches: Searches, parts: Sequence[str] | None = None) -> float:
    """Return the mean seconds a result, of some parts or all."""
    found: float = statistics.mean(
        sum(seconds for part, seconds in each["seconds"].items() if parts is None or part in parts)
        for each in searches
    )
    return found


def _whole(arms: Mapping[str, Mapping[int, Searches]]) -> str:
    """Return what all that the driver of a usual search does costs, where every arm has a size; beyond
    that, Ray's part is that of its largest search."""
    if not all(name in arms for name in WHOLE_DRIVER):
        return ""
    decide, followers, ray = (arms[name] for name in WHOLE_DRIVER)
    sums: dict[int, float] = {}
    for size in sorted(decide.keys() & followers.keys()):
        there = ray[max(each for each in ray if each <= size)]
        delivered = [part for part in followers[size][0]["seconds"] if part not in DECIDES]
        sums[size] = _mean(decide[size]) + _mean(followers[size], delivered) + _mean(there, ["ray", "view"])
    rows = "\n".join(f"| {size:,} | {1e3 * seconds:.1f} |" for size, seconds in sums.items())
    return (
        "## The whole driver\n\n`auto`, ledger, journal, MLflow on SQLite, `optuna.db`, Ray and the live "
        f"view; above {max(ray):,} trials Ray's part is that of {max(ray):,}.\n\n"
        f"| trials | ms a result |\n|-|-|\n{rows}\n\n{flatness(sums, FLAT_FROM).capitalize()}.\n"
    )
