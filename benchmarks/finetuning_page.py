"""Writes the page of `finetuning.py`: what was run, and the tables of its three parts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from real_searches_page import epochs_to
from report import described

SIDE = 96
"""The side of all images in pixels."""
SEARCHED = {"epochs": 4, "images": 400}
TRIALS = {"spaces": 12, "backbones": 4}
PARTS = ("start", "spaces", "backbones")
BACKBONES = ("tf_efficientnet_lite0", "tf_efficientnet_lite1", "tf_efficientnet_lite2")
COMPARED = (
    ("pretrained", "scratch"),
    ("pretrained", "loop"),
    ("pretrained", "norm-not-frozen"),
    ("frozen-at-same-rate", "norm-not-frozen"),
)
Record = dict[str, Any]


def page(runs: Sequence[Record]) -> str:
    lines = [
        "# Fine-tuning by default",
        "",
        f"At {SIDE} px on one processor thread; accuracy in percent, test scores with 95 % intervals. "
        "`signs` are photographs of 100 px; `photographs` (CIFAR-10's, 32 px), `nuclei` (48 px) and "
        "`clothes` (Fashion-MNIST's, 28 px) are enlarged. Frozen BatchNorm was chosen on the first three.",
    ]
    for part, lines_of in (("start", _start_lines), ("spaces", _space_lines), ("backbones", _backbone_lines)):
        if of_part := [each for each in runs if each["part"] == part]:
            lines += lines_of(of_part)
    return "\n".join([*lines, "", *_where(runs)])


def _where(runs: Sequence[Record]) -> Iterator[str]:
    """Yield the commit of each part's runs, and the machine and versions of the last one."""
    for part in PARTS:
        commits = sorted({each["environment"]["commit"] for each in runs if each["part"] == part})
        if commits:
            yield f"Runs of `{part}` are of commit {', '.join(commits)}."
    if runs:
        yield from ("", described(max(runs, key=lambda each: PARTS.index(each["part"]))["environment"]))


def _start_lines(runs: Sequence[Record]) -> Iterator[str]:
    yield from ("", "## Untuned, in the same processor time", "")
    yield (
        "`pretrained`: the documented recipe from EfficientNet-Lite0; `scratch`: that of the small ResNet; "
        "`loop`: the one that anybody writes; `norm-not-frozen`: the first one with BatchNorm trained, at "
        "its rate by rule; `frozen-at-same-rate`: with frozen BatchNorm at that rate."
    )
    yield from ("", "| set | start | seed | epochs | CPU s | validation | test |", "|-|-|-|-|-|-|-|")
    for each in runs:
        yield (
            f"| {each['set']} | {each['arm']} | {each['seed']} | {each['epochs']} "
            f"| {each['cpu_seconds']:.0f} | {100 * each['validation']:.1f} | {_test(each)} |"
        )
    yield ""
    for name, by_arm in _by_set(runs).items():
        for ours, theirs in COMPARED:
            pairs = [
                (each, by_arm[theirs, seed])
                for (arm, seed), each in by_arm.items()
                if arm == ours and (theirs, seed) in by_arm
            ]
            if pairs:
                yield f"- {name}, `{ours}` against `{theirs}`: " + "; ".join(
                    _gains(pairs, part) for part in ("test", "validation")
                )


def _gains(pairs: Sequence[tuple[Record, Record]], part: str) -> str:
    found = [100 * (ours[part] - theirs[part]) for ours, theirs in pairs]
    spread = f"{min(found):+.1f} to {max(found):+.1f}, n={len(found)}"
    return f"{statistics.mean(found):+.1f} points on {part} ({spread})"


def _space_lines(runs: Sequence[Record]) -> Iterator[str]:
    yield from ("", "## `finetune` against `wide`", "")
    yield (
        f"{TRIALS['spaces']} trials of {SEARCHED['epochs']} epochs, none stopped early, {SEARCHED['images']} "
        "training images; epochs, best and test of `wide` are those of its drawn trials, without the "
        "documented recipe, which it tries first, too. `ratio`: the share of the wide search's epochs after "
        "which `finetune` had a trial as good as its best one, of the drawn and (in brackets) of all."
    )
    yield from ("", "| set | space | seed | epochs | best | test | ratio |", "|-|-|-|-|-|-|-|")
    by_set = _by_set(runs)
    for each in runs:
        ratio = _ratio(by_set[each["set"]], each["seed"]) if each["arm"] == "wide" else None
        yield (
            f"| {each['set']} | {each['arm']} | {each['seed']} | {each['epochs']} | {100 * each['best']:.1f} "
            f"| {_test(each)} | {'' if ratio is None else ratio} |"
        )


def _ratio(by_arm: dict[tuple[str, int], Record], seed: int) -> str:
    ours, theirs = by_arm.get(("finetune", seed)), by_arm[("wide", seed)]
    if ours is None:
        return "not run"
    reached = (epochs_to(ours, theirs[best]) for best in ("best", "best_of_all"))
    drawn, of_all = ("never" if each is None else f"{each / theirs['epochs']:.2f}" for each in reached)
    return f"{drawn} ({of_all})"


def _backbone_lines(runs: Sequence[Record]) -> Iterator[str]:
    yield from ("", "## `tunebook backbones` against searches", "")
    yield (
        f"Accuracy of a linear head on frozen features -> the best of {TRIALS['backbones']} trials of "
        f"{SEARCHED['epochs']} epochs, {SEARCHED['images']} training images; in brackets the best "
        "one's on the test part. `place`: that of the first one by features, after tuning (in brackets on "
        "the test part)."
    )
    yield from ("", "| set | seed | " + " | ".join(BACKBONES) + " | place |", "|-|-|-|-|-|-|")
    for each in runs:
        probed, tuned = each["probed"], each["tuned"]
        tested = {name: score for name, (score, _) in each["test"].items()}
        first = max(probed, key=lambda name: probed[name])
        place, on_test = (
            1 + sum(each > scores[first] for each in scores.values()) for scores in (tuned, tested)
        )
        cells = " | ".join(
            f"{100 * probed[name]:.1f} -> {100 * tuned[name]:.1f} ({100 * tested[name]:.1f})"
            for name in BACKBONES
        )
        yield f"| {each['set']} | {each['seed']} | {cells} | {place} ({on_test}) |"


def _test(run: Record) -> str:
    bounds = run.get("interval")
    sure = f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else ""
    return f"{100 * run['test']:.1f}{sure}"


def _by_set(runs: Sequence[Record]) -> dict[str, dict[tuple[str, int], Record]]:
    found: dict[str, dict[tuple[str, int], Record]] = {}
    for each in runs:
        found.setdefault(each["set"], {})[each["arm"], each["seed"]] = each
    return found
