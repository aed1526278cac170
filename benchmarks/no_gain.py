"""What `budget.no_gain` spares and loses: trials of a table in random orders, stopped by the rule or not.

    python benchmarks/no_gain.py

The table (benchmarks/tables/fashion_mnist_4000.jsonl) has trained networks with different recipes. An order
of them is a random search of so many trials, all trained to the end; after each trial the rule is asked. A
loss is the best score of the whole search less that of the search which was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from report import described, environment, write
from search.deciding.goals import expected_gain
from trainable.curves.levels import error_of_share

TABLE = Path(__file__).parent / "tables" / "fashion_mnist_4000.jsonl"
ORDERS, TRIALS = 1_000, 64
RULES = ((5, 500), (10, 500), (20, 500), (5, 10_000), (10, 10_000), (20, 10_000))  # trials more, images


def main() -> None:
    scores, where, rng = scores_of(TABLE), environment(1), np.random.default_rng(0)
    orders = [rng.choice(scores, TRIALS, replace=False).tolist() for _ in range(ORDERS)]
    rows = [{"more": more, "images": images, **tried(orders, more, images)} for more, images in RULES]
    write(
        "no-gain", {"environment": where, "table": len(scores), "rows": rows}, page(rows, len(scores), where)
    )


def tried(orders: Sequence[Sequence[float]], more: int, images: int) -> dict[str, float]:
    """Return what a rule spares and loses on average, and in what share of orders it loses beyond luck."""
    stops = [stop(order, more, images) for order in orders]
    losses = np.array([max(order) - max(order[:end]) for order, end in zip(orders, stops, strict=True)])
    luck = np.array([error_of_share(max(order), images) for order in orders])
    return {
        "trained": float(np.mean(stops)),
        "loss": float(losses.mean()),
        "luck": float(luck.mean()),
        "beyond_luck": float(np.mean(losses > luck)),
    }


def stop(scores: Sequence[float], more: int, images: int) -> int:
    """Return after how many trials the rule ends a search."""
    for count in range(2 * more, len(scores)):
        gain = expected_gain(scores[:count], more)
        if gain is not None and gain <= error_of_share(max(scores[:count]), images):
            return count
    return len(scores)


def scores_of(file: Path) -> list[float]:
    """Return the last score of each network in the table."""
    return [float(json.loads(line)["curve"][-1][0]) for line in file.read_text().splitlines()]


def page(rows: Sequence[Mapping[str, Any]], size: int, where: Mapping[str, Any]) -> str:
    lines = "\n".join(
        f"| {row['more']} | {row['images']:,} | {row['luck']:.4f} | {row['trained']:.0f} | {row['loss']:.4f} "
        f"| {row['beyond_luck']:.0%} |"
        for row in rows
    )
    return (
        "# What stopping without further gain spares and loses\n\n"
        f"Random searches of {TRIALS} trials, n = {ORDERS:,} orders of {size} networks; accuracies.\n\n"
        "| trials more | validation images | luck | trials trained | loss, mean | loss above luck |\n"
        f"|-|-|-|-|-|-|\n{lines}\n\n{described(where)}"
    )


if __name__ == "__main__":
    main()
