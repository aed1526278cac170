"""Tests the page of a bundle: what it says of a recipe's origin, and that its code works as it stands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.trainable.bundle.trained_networks import untrained
from trainable.bundle.measured import MeasuredBundle
from trainable.bundle.model_card import model_card
from trainable.bundle.trained import Trained, trained_in
from trainable.bundle.weights_alone import uses_of_weights
from trainable.markdown import code, plain, table
from trainable.recipe.provenance import (
    Dropped,
    ExplainedGap,
    Finalized,
    FreshRuns,
    Provenance,
    Simplified,
    Verification,
)
from trainable.recipe.trained_files import METRICS_FILE, MODEL_FILE, RECIPE_FILE
from trainable.recipe.yamlfile import write_recipe
from trainable.train import model_file
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores

LATENCY: dict[str, Any] = {
    "processor": "a processor",
    "threads": 1,
    "image": [8, 8, 1],
    "files": {
        "model.onnx": {
            "runtime": "onnxruntime",
            "batches": {"1": {"median_ms": 1.0, "p5_ms": 0.9, "p95_ms": 1.2}},
        }
    },
}


def card_of(trained: Trained, known: Provenance) -> str:
    recipe = trained.recipe.model_copy(update={"provenance": known})
    scores = Scores(loss=0.1, accuracy=0.95, balanced_accuracy=0.95, top5_accuracy=None, images=269)
    measured = MeasuredBundle("test", scores, Intervals({}, 1000), {"model.onnx": 1.0}, LATENCY)
    return model_card(replace(trained, recipe=recipe), measured)


def test_the_page_says_what_was_found_about_the_images_above_the_scores() -> None:
    words = "test images are of another kind: <b>look</b>"
    page = card_of(replace(untrained(), warnings=(words,)), Provenance())
    assert page.index("test images are of another kind") < page.index("## Use") < page.index("## Scores")
    assert "<b>" not in page
    assert "Before you trust it" not in card_of(untrained(), Provenance())


GAP = "test_accuracy 0.8000 is 0.1000 below val_accuracy 0.9000, more than chance allows"
KIND = "test images are from another camera"
SAID = {"warnings": (f"93 of 100: {KIND}",), "causes": (KIND,)}
ABOVE = {"gap": ExplainedGap(GAP, (KIND,))}


@pytest.mark.parametrize("above", [{}, SAID, ABOVE, {**SAID, **ABOVE}])
def test_a_gap_and_its_causes_are_said_once(above: dict[str, Any]) -> None:
    verification = Verification(
        verified=True,
        metric="val_accuracy",
        part="test",
        seeds=(1, 2),
        scores=(0.8, 0.8),
        validation_scores=(0.9, 0.9),
        claimed=0.9,
        parts_differ=GAP,
        causes=(KIND,),
        rule="by the rule",
    )
    page = card_of(replace(untrained(), **above), Provenance(verification=verification))
    assert (page.count(KIND), page.count(plain(GAP))) == (1, 1)


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ({"words": ""}, None),
        ({"words": f"{GAP}: look"}, ExplainedGap(f"{GAP}: look", None)),  # of an earlier version
        ({"words": GAP, "causes": []}, ExplainedGap(GAP, ())),
        ({"words": GAP, "causes": [KIND]}, ExplainedGap(GAP, (KIND,))),
        ("what", None),
    ],
)
def test_a_trained_folder_s_gap_between_validation_and_test_is_on_the_page(
    gap: Any, expected: ExplainedGap | None, tmp_path: Path
) -> None:
    known = untrained()
    write_recipe(tmp_path / RECIPE_FILE, known.recipe)
    (tmp_path / MODEL_FILE).write_bytes(model_file(known.weights, known.recipe, known.data.info))
    assert trained_in(tmp_path).gap is None  # an earlier version has left no such file
    (tmp_path / METRICS_FILE).write_text(json.dumps({"validation_test_gap": gap}))
    found = trained_in(tmp_path)
    assert found.gap == expected
    page = card_of(found, Provenance())
    assert page.count(plain(GAP)) == (expected is not None)
    assert page.count(KIND) == (expected is not None and bool(expected.causes))


def test_the_page_says_how_far_the_scores_of_a_recipe_are_luck_and_what_was_changed_in_it() -> None:
    final = FreshRuns(
        metric="val_accuracy",
        seeds=(1, 2, 3),
        scores=(0.9, 0.91, 0.92),
        mean=0.91,
        deviation=0.01,
        estimate=0.9085,
        low=0.89,
        high=0.925,
        gap=0.012,
        fresh_splits=False,
    )
    steps: dict[str, Any] = {"metric": "val_accuracy", "seeds": (4, 5), "before": 0.90}
    dropped = Dropped(field="augmentation.mixing.kind", value="mixup", gain=0.0)
    known = Provenance(
        final=final,
        simplified=Simplified(**steps, after=0.9, dropped=(dropped,)),
        finalized=Finalized(**steps, after=0.913, latency_ms=1.0),
    )
    card = card_of(untrained(), known)
    assert "3 runs with fresh seeds had a mean val_accuracy of 0.9100, deviation 0.0100" in card
    assert (
        "it is worth 0.9085 (95 % interval 0.8900 to 0.9250), and the search's own figure is 0.0120 above"
        in card
    )
    assert "| left out as within noise | augmentation.mixing.kind (2 seeds) |" in card
    assert "over 2 seeds: +0.0130 val_accuracy |" in card
    assert "trained again" not in card_of(untrained(), Provenance())


MARKUP = ("![x](https://a.b/c)", "<img src=x>", "a](b)\n# Head", "| a |", "\x1b]0;x\x07")


@pytest.mark.parametrize("text", MARKUP, ids=ascii)
def test_what_somebody_wrote_into_a_recipe_s_origin_is_no_markup_of_the_page(text: str) -> None:
    texts: dict[str, Any] = dict.fromkeys(("search", "mlflow_run_id", "git_commit", "device"), text)
    known = Provenance(
        **texts,
        weights_digest=text,
        versions={text: text},
        finalized=Finalized(metric=text, seeds=(4,), before=0.9, after=0.91, latency_ms=1.0),
    )
    lines = card_of(untrained(), known).splitlines()
    assert len(lines) == len(card_of(untrained(), known.model_copy(update={"search": "x"})).splitlines())
    (commit,) = [line for line in lines if line.startswith("| commit")]
    assert commit.isprintable()
    left = re.sub(r"\\.", "", commit)  # without what is escaped
    assert not re.search(r"[\[\]<>]|://", left)
    assert left.count("|") == 3, "two columns"
    assert not [line for line in lines if line.startswith("# Head")]


@pytest.mark.slow("exports networks")
@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "googlenet"])
def test_the_page_s_code_for_torchvision_builds_the_network_and_loads_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, channels: int
) -> None:
    values = {"model": {"kind": "torchvision", "name": name}, "data.channels": channels}
    trained = untrained({**values, "data.image_size": 64, "precision.kind": "fp32"})
    monkeypatch.chdir(tmp_path)
    save_file(dict(trained.weights), "model.safetensors")
    (text,) = [each for each in uses_of_weights(trained) if "torchvision" in each and each.startswith("```")]
    made: dict[str, Any] = {}
    exec(text.removeprefix("```python\n").removesuffix("```"), made)
    images = torch.rand(2, channels, 64, 64)
    with torch.no_grad():
        assert torch.equal(made["network"](images), trained.network().eval()(images))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("rose", "`rose`"), ("two\nlines\tand more", "`two lines and more`"), ("a `b` c", "`` a `b` c ``")],
)
def test_whatever_a_class_is_called_it_stays_within_its_line_and_its_quotes(name: str, wanted: str) -> None:
    assert code(name) == wanted


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [("a|b", r"a\|b"), (r"a\|b", r"a\\\|b"), (r"a\\|b", r"a\\\|b"), (r"|\|", r"\|\\\|"), (r"a\b", r"a\b")],
)
def test_no_bar_ends_a_cell_also_where_backslashes_before_it_are_counted(cell: str, wanted: str) -> None:
    assert table(("class",), [(cell,)]).splitlines()[2] == f"| {wanted} |"
