"""Writes a bundle: a folder with a trained network in forms that need nothing of ours, each one checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainable.bench import Say, silent
from trainable.bundle.measured import MeasuredBundle, measure, scored
from trainable.bundle.model_card import model_card
from trainable.bundle.programs import answer_of_onnx, answer_of_pt2, export_program, write_onnx, write_pt2
from trainable.bundle.trained import Trained
from trainable.bundle.weights_alone import write_timm_files
from trainable.data import Split
from trainable.files.folders import check_new, moved_to
from trainable.outcome import by_class_tree, confusion_tree
from trainable.recipe.trained_files import (
    METRICS_FILE,
    MODEL_FILE,
    ONNX_FILE,
    PRUNED_FILE,
    RECIPE_FILE,
    TRAINING_FILE,
)
from trainable.recipe.yamlfile import write_recipe, write_whole
from trainable.stages import stage
from trainable.train import model_file
from trainable.training.run import PREFIXES

PT2_FILE, SCRIPT_FILE, LATENCY_FILE, CARD_FILE = (
    "model.pt2",
    "predict.py",
    "latency.json",
    "README.md",
)


def write_bundle(trained: Trained, out: Path, say: Say = silent, *, replaces: bool = False) -> None:
    """Write the folder of a bundle, whole or not at all. `say` receives a line for each checked file, and
    one for each function of a person's own that is another one now.

    Every exported file is read back and must have the top class that a run has with these weights for 99.9 %
    of the test images, or of the validation images where there are none. Raises ExportError if it does not,
    or if the network cannot be exported, and UserError for a folder that is not empty; an earlier bundle is
    replaced where that is asked for.
    """
    earlier = ONNX_FILE if replaces else None
    check_new(out, "the bundle", earlier)
    for line in trained.changed_code:
        say(line)
    part: Split = "validation" if trained.data.test is None else "test"
    with moved_to(out, replaces=earlier) as folder:
        with stage(f"scoring the {part} part"):
            found = scored(trained, part)
        words = trained.exporter.words
        score = f"{words.metric_title} {found.scores.by_name()[words.metric]:.4f}"
        say(f"{score} on the {found.scores.images:,} images of the {part} part, in fp32")
        with stage("exporting the network"):
            _write_forms(trained, folder)
        with stage("reading the exported files back"):
            onnx, pt2 = answer_of_onnx(folder / ONNX_FILE), answer_of_pt2(folder / PT2_FILE)
        answers = {ONNX_FILE: onnx, PT2_FILE: pt2}
        _write_pages(trained, measure(trained, answers, found, say), folder)


def _write_forms(trained: Trained, folder: Path) -> None:
    exporter, about = trained.exporter, trained.exporter.about()
    program = export_program(exporter, trained.network())
    write_pt2(program, folder / PT2_FILE, about)
    write_onnx(program, folder / ONNX_FILE, about, exporter.output)
    write_timm_files(trained, folder)
    content = model_file(trained.weights, trained.recipe, trained.data.info)
    write_whole(folder / MODEL_FILE, content)  # over timm's, which does not say by what images are normalised
    if trained.widths is not None:
        write_whole(folder / PRUNED_FILE, trained.widths.content())
    if trained.training is not None:
        write_recipe(folder / TRAINING_FILE, trained.training)
    write_recipe(folder / RECIPE_FILE, trained.recipe)
    write_whole(folder / SCRIPT_FILE, exporter.script().encode())


def metrics_tree(trained: Trained, measured: MeasuredBundle) -> dict[str, Any]:
    """Return what a bundle's `metrics.json` has."""
    prefix, names = PREFIXES[measured.part], trained.data.info.classes
    by_class = by_class_tree(measured.scores, names)
    return {
        "recipe": trained.recipe.digest(),
        "class_names": names,
        "part": measured.part,
        "images": measured.scores.images,
        **measured.scores.metrics(prefix),
        **confusion_tree(measured.scores, prefix, names),
        **({f"{prefix}_by_class": by_class} if by_class else {}),
        f"{prefix}_intervals": measured.intervals.tree(prefix, names),
        "same_top_class": measured.parity,
    }


def _write_pages(trained: Trained, measured: MeasuredBundle, folder: Path) -> None:
    write_whole(folder / METRICS_FILE, _as_json(metrics_tree(trained, measured)))
    write_whole(folder / LATENCY_FILE, _as_json(measured.latency))
    write_whole(folder / CARD_FILE, model_card(trained, measured).encode())


def _as_json(tree: Mapping[str, Any]) -> bytes:
    return (json.dumps(tree, indent=2, allow_nan=False) + "\n").encode()
