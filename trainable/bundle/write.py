"""Writes a bundle: a folder with a trained network in forms that need nothing of ours, each one checked."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from trainable.bundle.answering import Answer, answer_of_onnx, answer_of_pt2
from trainable.bundle.classifier import make_classifier
from trainable.bundle.latency import latencies, processor
from trainable.bundle.model_card import Measured, model_card
from trainable.bundle.parity import check_parity, stored_images, top_classes
from trainable.bundle.programs import export_program, write_onnx, write_pt2
from trainable.bundle.script import about, predict_script
from trainable.bundle.timm_files import write_timm_files
from trainable.bundle.trained import Trained, in_fp32
from trainable.data import Split
from trainable.errors import UserError
from trainable.models.widths import PRUNED_FILE
from trainable.recipe.trained_files import MODEL_FILE, RECIPE_FILE
from trainable.recipe.yamlfile import sync_folder, write_recipe, write_whole
from trainable.train import METRICS_FILE, model_file
from trainable.training.answers import Answers
from trainable.training.bootstrap import Intervals, intervals
from trainable.training.evaluate import Scores
from trainable.training.run import PREFIXES, Run

ONNX_FILE, PT2_FILE, SCRIPT_FILE, LATENCY_FILE, CARD_FILE = (
    "model.onnx",
    "model.pt2",
    "predict.py",
    "latency.json",
    "README.md",
)
Say = Callable[[str], None]


def check_new(out: Path) -> None:
    """Raises UserError if the folder exists and is not empty: a bundle is written whole, over nothing."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists already; give a new folder for the bundle")


def write_bundle(trained: Trained, out: Path, say: Say = lambda line: None) -> None:
    """Writes the folder of a bundle, whole or not at all. `say` receives a line for each checked file.

    Every exported file is read back and must have the top class that a run has with these weights for 99.9 %
    of the test images, or of the validation images where there are none. Raises ExportError if it does not,
    or if the network cannot be exported, and UserError for a folder that is not empty.
    """
    check_new(out)
    part: Split = "validation" if trained.data.test is None else "test"
    with moved_to(out) as folder:
        scores, sure = _run_scores(trained, part)
        say(f"accuracy {scores.accuracy:.4f} on the {scores.images:,} images of the {part} part, in fp32")
        described = _write_forms(trained, folder)
        answers = {ONNX_FILE: answer_of_onnx(folder / ONNX_FILE), PT2_FILE: answer_of_pt2(folder / PT2_FILE)}
        parity: dict[str, float] = {}
        for name, answer in answers.items():
            images = stored_images(trained.data, trained.recipe.data, part, described)
            expected = _answers(scores).predicted.numpy()
            parity[name] = check_parity(name, top_classes(answer, images), expected)
            say(f"{name}: the same top class on {parity[name]:.2%} of them")
        measured = Measured(part, scores, sure, parity, _latency(trained, answers))
        _write_pages(trained, measured, folder)


@contextmanager
def moved_to(out: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `out` that becomes `out` at the end; after an error it is removed."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from None
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp makes it private
        sync_folder(folder)
        os.replace(folder, out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_forms(trained: Trained, folder: Path) -> dict[str, Any]:
    """Writes the network in every form, and returns what the exported ones say of themselves."""
    classifier = make_classifier(trained.network(), trained.recipe, trained.data.info)
    described = about(trained.data.info.classes, classifier.form)
    program = export_program(classifier)
    write_pt2(program, folder / PT2_FILE, described)
    write_onnx(program, folder / ONNX_FILE, described)
    write_timm_files(trained, folder)
    content = model_file(trained.weights, trained.recipe, trained.data.info)
    write_whole(folder / MODEL_FILE, content)  # over timm's, which does not say by what images are normalised
    if trained.widths is not None:
        write_whole(folder / PRUNED_FILE, trained.widths.content())
    write_recipe(folder / RECIPE_FILE, trained.recipe)
    write_whole(folder / SCRIPT_FILE, predict_script().encode())
    return described


def _run_scores(trained: Trained, part: Split) -> tuple[Scores, Intervals]:
    """Returns what a run answers with these very weights, and how sure its scores are."""
    run = Run(in_fp32(trained.recipe), data=trained.data, model=trained.network().float())
    try:
        scores = run.score(part, confusion=True, answers=True)
        return scores, intervals(_answers(scores), run.extra_metrics, seed=trained.recipe.loop.seed)
    finally:
        run.close()


def _answers(scores: Scores) -> Answers:
    if scores.answers is None:
        raise UserError("the weights answer with numbers that are not finite: there is nothing to bundle")
    return scores.answers


def _latency(trained: Trained, answers: dict[str, Answer]) -> dict[str, Any]:
    info = trained.data.info
    size = (info.image_size, info.image_size, info.channels)
    runtimes = {
        name: f"{package} {metadata.version(package)}, cpu"
        for name, package in ((ONNX_FILE, "onnxruntime"), (PT2_FILE, "torch"))
    }
    files = {
        name: {"runtime": runtimes[name], "batches": latencies(answer, size)}
        for name, answer in answers.items()
    }
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "image": list(size),
        "files": files,
    }


def _write_pages(trained: Trained, measured: Measured, folder: Path) -> None:
    prefix = PREFIXES[measured.part]
    metrics = {
        "recipe": trained.recipe.digest(),
        "class_names": trained.data.info.classes,
        "part": measured.part,
        "images": measured.scores.images,
        **measured.scores.metrics(prefix),
        f"{prefix}_confusion": measured.scores.confusion,
        f"{prefix}_intervals": measured.intervals.tree(prefix),
        "same_top_class": measured.parity,
    }
    write_whole(folder / METRICS_FILE, _as_json(metrics))
    write_whole(folder / LATENCY_FILE, _as_json(measured.latency))
    write_whole(folder / CARD_FILE, model_card(trained, measured).encode())


def _as_json(tree: Mapping[str, Any]) -> bytes:
    return (json.dumps(tree, indent=2, allow_nan=False) + "\n").encode()
