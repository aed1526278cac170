"""Tests the program of a search's best trial against the run that trained it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from search.learning.search import Search
from search.results.trained_trial import best_program
from tests.search.results.trained_search import trained_search
from tests.trainable.small_runs import probabilities
from trainable.data.parts import ArrayPart
from trainable.errors import UserError
from trainable.training.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("searches") / "one"
    folder.mkdir()
    return folder, trained_search(folder)


@pytest.mark.slow("exports a network")
def test_the_program_answers_as_the_run_does_with_averaged_weights_from_raw_pixels(
    trained: tuple[Path, Run],
) -> None:
    folder, run = trained
    part = run.parts["validation"]
    assert isinstance(part, ArrayPart)
    program = best_program(Search(folder)).module()
    pixels, _ = part.tensors()
    with torch.no_grad():
        found = program(pixels.permute(0, 2, 3, 1))
    assert torch.allclose(found, probabilities(run, "validation"), atol=1e-5)
    assert not torch.equal(run.weights()["head.weight"], run.model.state_dict()["head.weight"])


@pytest.mark.slow("exports a network")
def test_the_program_takes_any_number_of_images(trained: tuple[Path, Run]) -> None:
    program = best_program(Search(trained[0])).module()
    for images in (1, 3, 64):
        found = program(torch.zeros(images, 8, 8, 1, dtype=torch.uint8))
        assert found.shape == (images, 10)
        assert torch.allclose(found.sum(1), torch.ones(images))


@pytest.mark.slow("exports a network")
def test_the_program_makes_images_of_any_size_square_itself(trained: tuple[Path, Run]) -> None:
    program = best_program(Search(trained[0])).module()
    found = program(torch.full((2, 20, 13, 1), 255, dtype=torch.uint8))
    white = program(torch.full((2, 8, 8, 1), 255, dtype=torch.uint8))
    assert torch.allclose(found, white, atol=1e-5)


def test_without_a_checkpoint_the_error_says_where_it_is_missing(
    trained: tuple[Path, Run], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained[0], folder, ignore=shutil.ignore_patterns("trials"))
    with pytest.raises(UserError, match=rf"{folder}/trials/0000: no checkpoint of trial 0 that can be read"):
        best_program(Search(folder))


@pytest.mark.slow("trains networks")
def test_a_search_without_a_finished_trial_has_no_program(tmp_path: Path) -> None:
    trained_search(tmp_path)
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / ".synced").unlink()
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:-2]))
    with pytest.raises(UserError, match="no trial has finished yet"):
        best_program(Search(tmp_path))
