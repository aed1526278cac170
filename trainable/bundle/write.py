"""Writes a bundle: a folder with a trained network in forms that need nothing of ours, each one checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from trainable.bundle.answering import Answer, answer_of_onnx, answer_of_pt2
from trainable.bundle.checked import Say, checked, scored
from trainable.bundle.classifier import Classifier, make_classifier
from trainable.bundle.latency import latencies, processor
from trainable.bundle.model_card import Measured, model_card
from trainable.bundle.programs import export_program, write_onnx, write_pt2
from trainable.bundle.script import about, predict_script
from trainable.bundle.segmenter import Segmenter, about_masks, make_segmenter
from trainable.bundle.timm_files import write_timm_files
from trainable.bundle.trained import Trained
from trainable.data import Split
from trainable.new_folder import check_new, moved_to
from trainable.outcome import by_class_tree, confusion_tree
from trainable.recipe.trained_files import MODEL_FILE, PRUNED_FILE, RECIPE_FILE, TRAINING_FILE
from trainable.recipe.yamlfile import write_recipe, write_whole
from trainable.train import METRICS_FILE, model_file
from trainable.training.evaluate import Scores
from trainable.training.run import PREFIXES

ONNX_FILE, PT2_FILE, SCRIPT_FILE, LATENCY_FILE, CARD_FILE = (
    "model.onnx",
    "model.pt2",
    "predict.py",
    "latency.json",
    "README.md",
)


def write_bundle(trained: Trained, out: Path, say: Say = lambda line: None) -> None:
    """Write the folder of a bundle, whole or not at all. `say` receives a line for each checked file, and
    one for each function of a person's own that is another one now.

    Every exported file is read back and must have the top class that a run has with these weights for 99.9 %
    of the test images, or of the validation images where there are none. Raises ExportError if it does not,
    or if the network cannot be exported, and UserError for a folder that is not empty.
    """
    check_new(out, "the bundle")
    for line in trained.changed_code:
        say(line)
    part: Split = "validation" if trained.data.test is None else "test"
    with moved_to(out) as folder:
        found = scored(trained, part)
        say(f"{_headline(found.scores)} on the {found.scores.images:,} images of the {part} part, in fp32")
        described = _write_forms(trained, folder)
        answers = {ONNX_FILE: answer_of_onnx(folder / ONNX_FILE), PT2_FILE: answer_of_pt2(folder / PT2_FILE)}
        parity = checked(trained, answers, found, described, say)
        measured = Measured(part, found.scores, found.intervals, parity, _latency(trained, answers))
        _write_pages(trained, measured, folder)


def _write_forms(trained: Trained, folder: Path) -> dict[str, Any]:
    """Write the network in every form, and return what the exported ones say of themselves."""
    module, described = _exported(trained)
    program = export_program(module)
    write_pt2(program, folder / PT2_FILE, described)
    write_onnx(program, folder / ONNX_FILE, described)
    write_timm_files(trained, folder)
    content = model_file(trained.weights, trained.recipe, trained.data.info)
    write_whole(folder / MODEL_FILE, content)  # over timm's, which does not say by what images are normalised
    if trained.widths is not None:
        write_whole(folder / PRUNED_FILE, trained.widths.content())
    if trained.training is not None:
        write_recipe(folder / TRAINING_FILE, trained.training)
    write_recipe(folder / RECIPE_FILE, trained.recipe)
    write_whole(folder / SCRIPT_FILE, predict_script(trained.data.info.dense).encode())
    return described


def _exported(trained: Trained) -> tuple[Classifier | Segmenter, dict[str, Any]]:
    """Return the module that files are exported of, and what they say of themselves."""
    recipe, info = trained.recipe, trained.data.info
    if info.dense:
        return make_segmenter(trained.network(), recipe, info), about_masks(recipe, info)
    classifier = make_classifier(trained.network(), recipe, info)
    return classifier, about(info.classes, classifier.form)


def _headline(scores: Scores) -> str:
    """Return the score that matters most, in words."""
    iou = scores.extra.get("mean_iou") if scores.by_class else None
    return f"accuracy {scores.accuracy:.4f}" if iou is None else f"mean IoU {iou:.4f}"


def _latency(trained: Trained, answers: dict[str, Answer]) -> dict[str, Any]:
    info = trained.data.info
    size = (info.image_size, info.image_size, info.channels)
    runtimes = {
        name: f"{package} {metadata.version(package)}, cpu"
        for name, package in ((ONNX_FILE, "onnxruntime"), (PT2_FILE, "torch"))
    }
    files = {
        name: {"runtime": runtimes[name], "batches": latencies(answer, size, dense=info.dense)}
        for name, answer in answers.items()
    }
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "image": list(size),
        "files": files,
    }


def metrics_tree(trained: Trained, measured: Measured) -> dict[str, Any]:
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


def _write_pages(trained: Trained, measured: Measured, folder: Path) -> None:
    write_whole(folder / METRICS_FILE, _as_json(metrics_tree(trained, measured)))
    write_whole(folder / LATENCY_FILE, _as_json(measured.latency))
    write_whole(folder / CARD_FILE, model_card(trained, measured).encode())


def _as_json(tree: Mapping[str, Any]) -> bytes:
    return (json.dumps(tree, indent=2, allow_nan=False) + "\n").encode()
