"""Tests `tunebook export` of a recipe's file and of a search, for other programs and other hardware."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from search.results.export import Exported
from search.results.formats.write import ProgramFormat, export_as
from tests.search.results.formats.winners import recipe_of, winner_of
from tests.trainable.small_images import write_classes
from trainable.data.assembly import load
from trainable.data.measure import DIGEST_FORM
from trainable.errors import UserError
from trainable.recipe.yamlfile import parse_tree, read_recipe, read_tree, to_yaml

Run = Callable[..., tuple[int, str, str]]
RECIPE = """
data: {path: digits}
precision: {kind: fp32}
schedule: {warmup_epochs: 1.0}
regularisation: {averaging: {kind: ema, decay: 0.99}}
loop: {epochs: 20, batch_size: 64}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE)
    return file


def test_what_a_format_cannot_say_is_in_the_file_and_on_standard_error(
    tunebook: Run, recipe: Path, tmp_path: Path
) -> None:
    code, out, err = tunebook("export", recipe, "-o", "args.yaml", "--format", "timm")
    assert code == 0, err
    assert "mine.yaml -> args.yaml" in out
    lines = [line.removeprefix("timm cannot say ") for line in err.splitlines()]
    head = [line.removeprefix("#   ") for line in (tmp_path / "args.yaml").read_text().splitlines()]
    assert len(lines) > 2
    assert set(lines) <= set(head)
    assert f"({len(lines)}):" in (tmp_path / "args.yaml").read_text()
    assert read_tree(tmp_path / "args.yaml")["epochs"] == 19, "and one of warm-up"


@pytest.mark.parametrize("form", ["timm", "torchvision", "paddleclas", "script"])
def test_each_format_is_written_in_its_own_language(
    tunebook: Run, recipe: Path, tmp_path: Path, form: str
) -> None:
    code, _, err = tunebook("export", recipe, "-o", "out", "--format", form)
    assert code == 0, err
    text = (tmp_path / "out").read_text()
    match form:
        case "script":
            ast.parse(text)
        case "torchvision":
            assert shlex.split(text, comments=True)[0] == "torchrun"
        case _:
            read_tree(tmp_path / "out")


def test_the_parts_of_the_data_are_written_and_named(tunebook: Run, recipe: Path, tmp_path: Path) -> None:
    code, _, err = tunebook("export", recipe, "-o", "args.yaml", "--format", "timm", "--images", "parts")
    assert code == 0, err
    assert read_tree(tmp_path / "args.yaml")["data_dir"] == str(tmp_path / "parts"), "train.py is elsewhere"
    assert not [line for line in err.splitlines() if line.startswith("timm cannot say data:")]
    assert len(list((tmp_path / "parts").rglob("*.png"))) == 1_797


@pytest.mark.parametrize("asked", [("--images", "parts"), ("--format", "script"), ("--batch", "32")])
def test_a_file_that_was_found_with_other_images_is_refused_with_both_digests(
    tunebook: Run, recipe: Path, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    recipe.write_text(f"{RECIPE}provenance: {{data_digest: {DIGEST_FORM}0}}\n")
    code, out, err = tunebook("export", recipe, "-o", "out", *asked)
    assert (code, out) == (2, "")
    assert "data.path digits: these are not the images that the recipe was found with" in err
    assert f"(digest {DIGEST_FORM}0, now {DIGEST_FORM}" in err
    assert "put the former back, or train with what is there now" in err
    assert "`tunebook train RECIPE --out DIR`" in err
    assert not [name for name in ("out", "parts") if (tmp_path / name).exists()]


def test_another_batch_and_gpus_change_fields_with_reasons_and_say_what_was_not_seen(
    tunebook: Run, recipe: Path, tmp_path: Path
) -> None:
    code, out, err = tunebook("export", recipe, "-o", "large.yaml", "--gpus", "8", "--batch", "1024")
    assert code == 0, err
    assert "moved to a batch of 1,024 on 8 GPUs" in out
    new, text = read_recipe(tmp_path / "large.yaml"), (tmp_path / "large.yaml").read_text()
    assert (new.loop.batch_size, new.loop.micro_batch) == (1024, 128)
    assert new.schedule.warmup_epochs == 2.0
    assert new.precision.kind == "auto"
    for field in ("batch_size", "warmup_epochs", "decay", "lr", "micro_batch", "channels_last"):
        assert re.search(rf"^ +{field}: \S+ +# .+(\(.+\)|\[\d+\])$", text, re.MULTILINE), field
    assert "moved: loop.batch_size: 64 -> 1024: asked for; it was 64 (yours to say)" in err
    moved = [line.removeprefix("moved: ") for line in err.splitlines() if line.startswith("moved: ")]
    assert [f"# Moved: {line}." for line in moved] == re.findall(r"^# Moved: .*$", text, re.MULTILINE)
    assert {line.split(":")[0] for line in moved} >= {"precision.kind", "schedule.warmup_epochs"}
    assert "not seen: the recipe itself was trained at a batch of 64 alone" in err
    assert text.count("# Not seen: ") == err.count("not seen: ") >= 2


def test_a_moved_recipe_is_written_for_other_programs_too(
    tunebook: Run, recipe: Path, tmp_path: Path
) -> None:
    arguments = ("--format", "timm", "--gpus", "4", "--batch", "256")
    code, _, err = tunebook("export", recipe, "-o", "args.yaml", *arguments)
    assert code == 0, err
    found = read_tree(tmp_path / "args.yaml")
    assert found["batch_size"] * found["grad_accum_steps"] * 4 == 256
    assert found["lr"] == pytest.approx(0.1)
    assert found["device"] == "cuda"
    text = (tmp_path / "args.yaml").read_text()
    assert "torchrun --nproc_per_node=4 train.py -c THIS_FILE" in text
    assert "# Moved: loop.batch_size: 64 -> 256: " in text
    tunebook("export", recipe, "-o", "paddle.yaml", "--format", "paddleclas", "--gpus", "2")
    launch = "python -m paddle.distributed.launch --gpus=0,1 tools/train.py -c THIS_FILE"
    assert launch in (tmp_path / "paddle.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--batch", "4096"], ["--batch 4096", "1,259 training images"]),
        (["--batch", "100", "--gpus", "8"], ["--batch 100", "multiple of the 8 GPUs"]),
        (["--trial", "3", "--format", "timm"], ["--trial 3", "is a recipe"]),
        (["--format", "keras"], ["keras", "paddleclas"]),
    ],
)
def test_what_cannot_be_exported_is_refused_before_a_file_is_written(
    tunebook: Run, recipe: Path, tmp_path: Path, arguments: list[str], wanted: list[str]
) -> None:
    code, _, err = tunebook("export", recipe, "-o", "out", *arguments)
    assert code == 2, err
    assert not (tmp_path / "out").exists()
    for words in wanted:
        assert words in err


ESCAPES = '''x"""
import os; os.remove("mine.yaml")
"""'''


@pytest.mark.parametrize("form", ["timm", "torchvision", "paddleclas", "script"])
def test_what_somebody_wrote_into_a_recipe_ends_no_comment(
    tunebook: Run, recipe: Path, tmp_path: Path, form: str
) -> None:
    cost = f"{{kind: cost, costs: [[0, 1], [1, 0]], classes: [a, {json.dumps(ESCAPES)}]}}"
    recipe.write_text(f"{RECIPE}evaluation: {{metrics: [{cost}]}}\n")
    code, _, err = tunebook("export", recipe, "-o", "out", "--format", form)
    assert code == 0, err
    lines = (tmp_path / "out").read_text().splitlines()
    assert not [line for line in lines if line.startswith("import os")]
    if form == "script":
        assert not [each for each in ast.walk(ast.parse("\n".join(lines))) if getattr(each, "id", "") == "os"]


def test_class_folders_are_refused_for_images_with_masks(tmp_path: Path) -> None:
    winner = winner_of(recipe_of(task__kind="segmentation", model__kind="unet_small"))
    found = Exported(winner.recipe, {}, "recipe", winner.info, winner.facts)
    with pytest.raises(UserError, match=r"^--images: it writes class folders, which hold no masks"):
        export_as(found, tmp_path / "recipe.yaml", "tunebook", images=tmp_path / "images")
    assert list(tmp_path.iterdir()) == []


def test_images_whose_class_has_another_name_since_are_not_written(tmp_path: Path) -> None:
    winner = winner_of(recipe_of(data__path=str(write_classes(tmp_path / "all", {"ant": 9, "bee": 9}))))
    info = load(winner.recipe.data).info
    (tmp_path / "all" / "ant").rename(tmp_path / "all" / "asp")
    found = Exported(winner.recipe, {}, "recipe", info, winner.facts)
    with pytest.raises(
        UserError, match=r"^--images: .* \(class 0 was 'ant', and is 'asp' now\): put the former"
    ):
        export_as(found, tmp_path / "recipe.yaml", "timm", images=tmp_path / "images")
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize("form", ["timm", "torchvision", "paddleclas", "script"])
def test_a_recipe_for_segmentation_is_refused_in_a_format_that_classifies(
    tmp_path: Path, form: ProgramFormat
) -> None:
    winner = winner_of(recipe_of(task__kind="segmentation", model__kind="unet_small"))
    found = Exported(winner.recipe, {}, "a recipe", winner.info, winner.facts)
    with pytest.raises(UserError, match=rf"^--format {form}: .* segments .*expected --format tunebook$"):
        export_as(found, tmp_path / "out", form, images=tmp_path / "images")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["timm", "script"])
def test_an_option_that_the_optimizer_has_not_is_refused_before_a_file_is_written(
    tmp_path: Path, form: ProgramFormat
) -> None:
    options = {"optimizer.kind": "timm", "optimizer.name": "nadamw", "optimizer.options": {"system": 1.0}}
    winner = winner_of(recipe_of(**options))
    found = Exported(winner.recipe, {}, "a recipe", winner.info, winner.facts)
    with pytest.raises(UserError, match=r"optimizer\.options\.system: timm's nadamw takes none such"):
        export_as(found, tmp_path / "out", form)
    assert list(tmp_path.iterdir()) == []


def test_a_comment_beside_a_value_stays_one_visible_line() -> None:
    text = to_yaml({"a": 1}, {"a": "x\nb: 2\u2028c: 3\x85d: 4 \x1b[2J\x00 \u202e"})
    assert parse_tree(text, "x") == {"a": 1}
    assert text.strip().isprintable()
