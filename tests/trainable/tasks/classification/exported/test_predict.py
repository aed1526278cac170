"""Tests the script of a bundle: it runs where nothing of ours is, and decodes images as training does."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainable.bundle.trained_networks import untrained
from tests.trainable.small_runs import data_set
from tests.trainable.small_segmentations import mask_recipe
from trainable.bundle.programs import export_program, write_onnx
from trainable.data.decode import Form, square
from trainable.data.source import Channels
from trainable.recipe import Recipe
from trainable.recipe.training import CenterCrop, Stretch
from trainable.tasks.classification.exported.classifier import squared
from trainable.tasks.classification.exported.labels import stored_images
from trainable.tasks.classification.exported.predict import stored_pixels
from trainable.tasks.exporters import exporter_of

# What pip installs into site-packages for Pillow, numpy and onnxruntime
NEEDED = ("PIL", "pillow.libs", "numpy", "numpy.libs", "onnxruntime")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the script, its model of digits, and nothing else."""
    folder = tmp_path_factory.mktemp("shipped")
    trained = untrained()
    exporter = trained.exporter
    program = export_program(exporter, trained.network())
    write_onnx(program, folder / "model.onnx", exporter.about(), exporter.output)
    (folder / "predict.py").write_text(exporter.script())
    return folder


def alone(tmp_path: Path, script: Path, *images: Path) -> subprocess.CompletedProcess[str]:
    """Run the script where three packages alone can be imported."""
    packages = tmp_path / "packages"
    packages.mkdir()
    site = Path(np.__file__).parents[1]
    for name in NEEDED:
        if (site / name).exists():
            (packages / name).symlink_to(site / name)
    start = f"import sys; sys.path.append({str(packages)!r}); import runpy; del sys.argv[0]; "
    run = "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-I", "-S", "-c", start + run, str(script), *map(str, images)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)


@pytest.mark.integration
def test_the_script_needs_nothing_of_ours_and_prints_class_and_probability(
    shipped: Path, tmp_path: Path
) -> None:
    trained = untrained()
    images = stored_images(trained.data, trained.recipe.data, "test", trained.exporter.about())
    stored = [next(images) for _ in range(3)]
    files = [tmp_path / f"{number}.png" for number in range(len(stored))]
    for file, pixels in zip(files, stored, strict=True):
        Image.fromarray(pixels[:, :, 0]).save(file)
    done = alone(tmp_path, shipped / "predict.py", *files)
    assert (done.returncode, done.stderr) == (0, "")
    classifier = trained.exporter.module(trained.network())
    for file, pixels, line in zip(files, stored, done.stdout.splitlines(), strict=True):
        (probabilities,) = classifier(torch.from_numpy(pixels[None].copy()))
        name, found, probability = line.split("\t")
        assert (name, found) == (str(file), str(int(probabilities.argmax())))
        assert float(probability) == pytest.approx(float(probabilities.max()), abs=1e-4)


@pytest.mark.integration
def test_an_image_that_cannot_be_read_is_named_and_the_others_are_answered(
    shipped: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.png").write_text("no image")
    Image.new("L", (9, 7), 200).save(tmp_path / "grey.png")
    done = alone(tmp_path, shipped / "predict.py", *(tmp_path / f"{name}.png" for name in ("notes", "grey")))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path}/notes.png: cannot be read: ")
    assert done.stdout.startswith(f"{tmp_path}/grey.png\t")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", [Stretch(), CenterCrop(ratio=0.7)], ids=["stretch", "crop"])
@pytest.mark.parametrize("kind", ["large.jpg", "small.jpg", "turned.jpg", "clear.png", "sixteen.png"])
def test_images_become_the_squares_that_training_sees(
    tmp_path: Path, kind: str, form: Stretch | CenterCrop, channels: Channels
) -> None:
    file = write_kind(tmp_path / kind)
    wanted = Form(channels, 16, form, "bilinear")
    grey = (0.5,) * channels
    info = replace(data_set().info, channels=channels, image_size=16, mean=grey, std=grey)
    recipe = Recipe().with_values({"evaluation.resize": form.model_dump()})
    described = json.loads(json.dumps(exporter_of(recipe, info).about()))
    with Image.open(file) as image:
        expected = square(image, wanted)
    with Image.open(file) as image:
        pixels = torch.from_numpy(stored_pixels(image, described).copy())
    found = squared(pixels.permute(2, 0, 1)[None].float(), 16, form, "bilinear")
    away = np.abs(found[0].numpy() - expected)
    assert away.max() <= 1.0
    assert (away > 0.0).mean() <= 0.005


def write_kind(file: Path) -> Path:
    """Write an image as its name says: as large as a photograph or not, turned by EXIF, with transparency,
    or with 16 bits."""
    random = np.random.default_rng(0)
    width, height = (900, 640) if file.stem == "large" else (60, 44)
    coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    image = coarse.resize((width, height), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    if file.stem == "turned":
        exif[0x0112] = 6
    if file.stem == "clear":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    if file.stem == "sixteen":
        image = Image.fromarray(random.integers(0, 2**16, (height, width), dtype=np.uint16))
    image.save(file, exif=exif)
    return file


@pytest.mark.parametrize("recipe", [Recipe(), mask_recipe(Path())], ids=["labels", "masks"])
def test_the_script_escapes_what_a_terminal_would_obey(recipe: Recipe) -> None:
    tree = ast.parse(exporter_of(recipe, data_set().info).script())
    (function,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "visible"]
    defined: dict[str, Any] = {}
    exec(ast.unparse(function), defined)
    assert defined["visible"]("苹果 \x1b[2J\u202e") == r"苹果 \x1b[2J\u202e"
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print":
            values = [each.value for each in ast.walk(call) if isinstance(each, ast.FormattedValue)]
            known = r"visible\(|', '\.join\(named\)|probabilities\["
            assert all(re.match(known, ast.unparse(each)) for each in values)
