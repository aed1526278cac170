"""Compares the documents' own recipe for images with masks with the best that a search finds.

    python benchmarks/mask_searches.py --nuclei FOLDER [--only textures] [--trials 24] [--epochs 30]

One command of the command line searches each set, in the space `document`, as it is. Trial 0 is the
documents' recipe. It and the best one are then trained from their exported YAML alone with fresh seeds, and
scored on the test part. The rules' own numbers were measured on `nuclei` and `shapes`; `textures`, rendered
by made_masks.py as the second is, were kept apart: no rule has seen them. What was measured is not measured
again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made_masks import write_set
from real_searches import course, fresh, tunebook
from report import RESULTS, described, environment, portable, write
from search.record.finals import error_of_sum, student
from search.record.journal import read

NAME = "mask-searches"
SETS = ("nuclei", "shapes", "textures")
IMAGES, FRESH = 160, 5
SMALL = ("--set", "base.model={kind: unet_small, width: 8}", "--set", "base.precision.kind=fp32")


def main() -> None:
    options = _options()
    file = RESULTS / f"{NAME}.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())["runs"] if file.exists() else []
    for name in options.only:
        if name not in {each["set"] for each in found}:
            found.append(_run(name, options))
        write(NAME, {"environment": environment(1), "runs": found}, page(found))


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as storage:
        where = environment(1)
        command = ["search", *_masks_of(name, Path(storage), options), *SMALL]
        command += ["--trials", str(options.trials), "--epochs", str(options.epochs)]
        tunebook(Path(storage), *command, "--storage", storage, "--name", "run")
        folder = Path(storage) / "run"
        found = course(read(folder / "events.jsonl"), "val_mean_iou")
        again = {trial: fresh(folder, trial, FRESH) for trial in sorted({0, found["trial"]})}
    return {
        "set": name,
        **found,
        "fresh": {"documents": again[0], "best": again[found["trial"]]},
        "command": portable(shlex.join(["tunebook", *command])),
        "environment": where,
    }


def _masks_of(name: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """Return the options that name a set, after it is made."""
    if name == "nuclei":
        masks = "{kind: segmentation, masks: {values: binary}}"
        return ["--data", str(options.nuclei.absolute()), "--set", f"base.task={masks}"]
    write_set(name, folder / name, IMAGES)
    masks = f"{{kind: segmentation, masks: {{classes: {name}/classes.txt}}}}"
    return ["--data", name, "--set", f"base.task={masks}"]


def page(found: Sequence[dict[str, Any]]) -> str:
    head = (
        "# Images with masks: the documents' recipe and the best of a search\n\n"
        "`unet_small` of width 8, from scratch, in fp32 on one core; the space `document`, 30 epochs, ASHA. "
        f"Test mIoU in points of the recipe, trained from its YAML with {FRESH} fresh seeds: mean ± "
        "standard deviation of a training. `gain` has its 95 % interval over these seeds (Welch). The rules' "
        "numbers were measured on nuclei and shapes; textures were kept apart. Nuclei: 42 training, 9 "
        f"validation and 9 test images; the others: {IMAGES} images, 70 % of them to train on.\n\n"
        "| set | trials: finished, stopped, diverged | epochs | validation: documents' | best | "
        "test: documents' | best | gain |\n|-|-|-|-|-|-|-|-|\n"
    )
    rows = "\n".join(f"| {' | '.join(_row(each))} |" for each in found)
    values = "\n".join(f"- {each['set']}: `{json.dumps(each['values'])}`" for each in found)
    commands = "\n\n".join(f"    {each['command']}" for each in found)
    commits = ", ".join(f"{each['set']} {each['environment']['commit']}" for each in found)
    return (
        f"{head}{rows}\n\n## The values of the best trials\n\n{values}\n\n## Commands\n\n{commands}\n\n"
        f"Commits of the runs: {commits}.\n\n" + described(environment(1))
    )


def _row(run: dict[str, Any]) -> list[str]:
    ends = ", ".join(str(run["ends"].get(each, 0)) for each in ("finished", "stopped", "diverged"))
    ours, best = (run["fresh"][which] for which in ("documents", "best"))
    return [
        run["set"],
        ends,
        str(run["epochs"]),
        _spread(ours["validation"]),
        _spread(best["validation"]),
        _spread(ours["test"]),
        _spread(best["test"]),
        _gain(best["test"], ours["test"]),
    ]


def _spread(scores: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(scores):.1f} ± {100 * statistics.stdev(scores):.1f}"


def _gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    parts = [(statistics.variance(each) / len(each), float(len(each) - 1)) for each in (ours, theirs)]
    error, freedom = error_of_sum(*parts)
    gain, half = statistics.fmean(ours) - statistics.fmean(theirs), student(freedom) * error
    return f"{100 * gain:+.1f} ({100 * (gain - half):+.1f} to {100 * (gain + half):+.1f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Search for recipes of images with masks.")
    parser.add_argument("--nuclei", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    main()
