"""Tests that the command has arguments of torchvision's references alone, with the recipe's numbers."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from search.results.formats.torchvision_args import shell_command, torchvision_sheet
from search.results.formats.winner import Winner
from tests.search.results.formats.test_every_field import KINDS
from tests.search.results.formats.winners import recipe_of, winner_of

KNOWN = {  # arguments of references/classification/train.py of torchvision 0.15 and later
    *(
        "data-path",
        "model",
        "device",
        "batch-size",
        "epochs",
        "workers",
        "opt",
        "lr",
        "momentum",
        "weight-decay",
    ),
    *("norm-weight-decay", "bias-weight-decay", "label-smoothing", "mixup-alpha", "cutmix-alpha"),
    *("lr-scheduler", "lr-warmup-epochs", "lr-warmup-method", "lr-warmup-decay", "lr-step-size", "lr-gamma"),
    *("lr-min", "sync-bn", "auto-augment", "ra-magnitude", "random-erase", "amp", "model-ema"),
    *("model-ema-steps", "model-ema-decay", "interpolation", "val-resize-size", "val-crop-size"),
    *("train-crop-size", "clip-grad-norm"),
}


def given(winner: Winner) -> dict[str, str]:
    """Return the arguments of the command, as a shell reads them; a flag has the value of the empty text."""
    joined = shell_command(winner, torchvision_sheet(winner)).replace("\\\n", "")
    words = shlex.split(joined)
    assert words[0] == "torchrun"
    found: dict[str, str] = {}
    for word in words[words.index("train.py") + 1 :]:
        if word.startswith("--"):
            found[word.removeprefix("--")] = ""
        else:
            found[list(found)[-1]] = word
    return found


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_no_argument_is_unknown_to_the_references(kinds: dict[str, Any]) -> None:
    asked = recipe_of(**{path.replace(".", "__"): value for path, value in kinds.items()})
    assert given(winner_of(asked)).keys() <= KNOWN


def test_the_rate_is_the_one_that_is_applied_to_the_whole_batch_of_all_gpus() -> None:
    asked = recipe_of(optimizer__lr=0.2, loop__batch_size=64)
    winner = winner_of(asked, gpus=4)
    found = given(winner)
    assert (found["lr"], found["batch-size"]) == (str(0.2 * 64 / 256), "16")
    assert "--nproc_per_node=4" in shell_command(winner, torchvision_sheet(winner))


def test_a_last_batch_of_fewer_images_which_the_references_train_on_is_listed() -> None:
    def listed(batch: int) -> list[str]:
        sheet = torchvision_sheet(winner_of(recipe_of(loop__batch_size=batch)))
        return [each.why for each in sheet.unsaid if each.path == "loop"]

    assert listed(64) == [], "320 images are 5 batches"
    assert listed(96) == ["an epoch has 4 steps there, the last of fewer images, and here 3"]


def test_the_decay_of_the_average_is_the_recipe_s_after_the_references_have_scaled_it() -> None:
    asked = recipe_of(regularisation__averaging__kind="ema", regularisation__averaging__decay=0.98)
    winner = winner_of(asked)
    forgotten = 1.0 - float(given(winner)["model-ema-decay"])
    assert min(1.0, forgotten * winner.cut.batch / asked.loop.epochs) == pytest.approx(0.02)


def test_the_warm_up_has_the_mean_rate_of_each_of_its_epochs() -> None:
    found = given(winner_of(recipe_of(schedule__warmup_epochs=2.0)))
    first, epochs = float(found["lr-warmup-decay"]), int(found["lr-warmup-epochs"])
    means = [first + (1.0 - first) * epoch / epochs for epoch in range(epochs)]
    assert means == pytest.approx([0.25, 0.625]), "the references rise to the whole rate at the end of it"
    assert int(found["epochs"]) == 4


def test_a_path_with_a_space_stays_one_word() -> None:
    assert given(winner_of(recipe_of(), images="my pets"))["data-path"] == "my pets"
