"""Measures whether the audit's chance that a better trial was stopped is right.

    python benchmarks/audits.py [--searches 200]

Searches are replayed over tables of whole curves: ASHA stops some trials, a share of those is audited as
`tunebook audit-pruning` does it, and the table knows whether any stopped one would have ended better than the
best. Only searches whose audit found none better count. The other figure is that of counting: the posterior
predictive probability of a better one under Jeffreys' prior when none of n was better.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
from scipy.special import betaln

from recipe_table import TABLE
from report import described, environment, write
from search.deciding.pruning_replay import WORKERS, Curves
from search.deciding.scheduler import Asha
from search.learning.better_stopped import Stratum, chance_of_better

PHOTOGRAPHS = TABLE.parent / "photographs_1442.jsonl"
TRIALS, SHARES, FACTOR = (16, 36), (0.1, 0.3), 3
RUNGS = {"clothes, around the rules": (2,), "clothes, wide": (1, 3), "photographs": (3,)}
"""The rungs that a search on each table would have, by docs/decisions/0009; two of them on one table."""


def main() -> None:
    options = _options()
    where, rows = environment(1), []
    for table, curves in tables().items():
        for trials in TRIALS:
            for share in SHARES:
                rows.append({"table": table, "trials": trials, "share": share})
                rows[-1] |= compared(curves, RUNGS[table], trials, share, options.searches)
                print(rows[-1], flush=True)
    write("audits", {"environment": where, "rows": rows}, page(rows, where))


def tables() -> dict[str, Curves]:
    """Return whole curves of accuracy, [recipes, epochs]; from where a run diverged they are 0."""
    clothes = [json.loads(line) for line in TABLE.read_text().splitlines()]
    photographs = [json.loads(line) for line in PHOTOGRAPHS.read_text().splitlines()]
    halves = {
        "clothes, around the rules": [each for each in clothes if each["half"] == "rules"],
        "clothes, wide": [each for each in clothes if each["half"] == "wide"],
        "photographs": photographs,
    }
    return {name: _curves(lines) for name, lines in halves.items()}


def _curves(lines: list[dict[str, Any]]) -> Curves:
    scores = [np.array(line["curve"]).reshape(len(line["curve"]), -1)[:, 0] for line in lines]
    epochs = max(map(len, scores))
    return np.array([np.pad(each, (0, epochs - len(each))) for each in scores])


def compared(
    curves: Curves, rungs: tuple[int, ...], trials: int, share: float, searches: int
) -> dict[str, float]:
    """Return how often a better trial was stopped, and what the audits of such searches say of it."""
    random, rows = np.random.default_rng(0), []
    for _ in range(searches):
        finished, stopped = searched(curves, random.permutation(len(curves))[:trials], rungs)
        audited = {
            rung: random.permutation(each)[: math.ceil(share * len(each))] for rung, each in stopped.items()
        }
        best, ends = curves[finished, -1].max(), curves[np.concatenate(list(audited.values())), -1]
        if (ends > best).any():
            continue
        strata = [Stratum(curves[finished], 1)]
        strata += [
            Stratum(curves[each], round(len(stopped[rung]) / len(each)), rung)
            for rung, each in audited.items()
        ]
        unknown = {
            rung: curves[np.setdiff1d(stopped[rung], each), rung - 1] for rung, each in audited.items()
        }
        everyone = np.concatenate(list(stopped.values()))
        rows.append(
            (
                bool((curves[everyone, -1] > best).any()),
                chance_of_better(strata, unknown, rungs),
                counted(len(ends), len(everyone)),
            )
        )
    truth, model, counting = np.array(rows, dtype=float).T
    return {
        "n": len(rows),
        "better": float(truth.mean()),
        "chance": float(model.mean()),
        "chance_by_counting": float(counting.mean()),
        "error": float(((model - truth) ** 2).mean()),
        "error_by_counting": float(((counting - truth) ** 2).mean()),
        "error_of_a_constant": float(truth.var()),
    }


def counted(audited: int, stopped: int) -> float:
    """Return the chance that counting gives (Brown, Cai and DasGupta 2001, section 3.2)."""
    return 1.0 - math.exp(betaln(0.5, stopped + 0.5) - betaln(0.5, audited + 0.5))


def searched(
    curves: Curves, order: np.ndarray, rungs: tuple[int, ...]
) -> tuple[list[int], dict[int, list[int]]]:
    """Return the trials that finish, and those that are stopped at each rung, `WORKERS` at a time."""
    asha, stops = Asha(rungs, FACTOR, "max"), (*rungs, curves.shape[1])
    waiting, finished, stopped = [int(each) for each in order], [], dict[int, list[int]]()
    running = [(waiting.pop(0), 0) for _ in range(WORKERS)]
    while running:
        trial, stage = min(running, key=lambda each: stops[each[1]])
        running.remove((trial, stage))
        if stage == len(rungs):
            finished.append(trial)
        elif asha.report(trial, rungs[stage], curves[trial, rungs[stage] - 1]):
            running.append((trial, stage + 1))
            continue
        else:
            stopped.setdefault(rungs[stage], []).append(trial)
        running += [(waiting.pop(0), 0)] if waiting else []
    return finished, stopped


def page(rows: list[dict[str, Any]], where: dict[str, Any]) -> str:
    head = (
        "# Audits: the chance that a better trial was stopped\n\n"
        "Replayed searches whose audit found no better trial. `better`: in how many of them another stopped "
        "trial would have ended better than the best; `says`: the mean chance that the audit gives, and in "
        "brackets what counting gives; `error`: the mean square of the chance minus what is so (Brier's "
        "score, lower is better), in brackets that of counting, then that of a figure that knows the share "
        "in `better` and nothing of the search.\n\n"
        "| table | trials | audited | n | better | says | error |\n|-|-|-|-|-|-|-|\n"
    )
    lines = "\n".join(
        f"| {each['table']} | {each['trials']} | {each['share']:.0%} | {each['n']} | {each['better']:.2f} | "
        f"{each['chance']:.2f} ({each['chance_by_counting']:.2f}) | "
        f"{each['error']:.3f} ({each['error_by_counting']:.3f}), {each['error_of_a_constant']:.3f} |"
        for each in rows
    )
    return f"{head}{lines}\n\n{described(where)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=200, help="of each table, size and share")
    return parser.parse_args()


if __name__ == "__main__":
    main()
