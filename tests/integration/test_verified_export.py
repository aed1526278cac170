"""Verifies a recipe's file with the command `export --verify`, which trains in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from search.results.verify import new_seeds
from tests.trainable.small_runs import small_recipe, write_parts
from trainable.bench import ON_CPU
from trainable.recipe.provenance import Provenance
from trainable.recipe.techniques import techniques_of, without
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.tasks.kits import load_for

pytestmark = pytest.mark.integration


@pytest.mark.scenario
def test_a_test_part_of_another_kind_is_said_and_the_recipe_written_though_it_is_not_verified(
    tmp_path: Path,
) -> None:
    write_parts(tmp_path / "parts.npz", other_kind=True)
    recipe = small_recipe({"data.path": str(tmp_path / "parts.npz"), "optimizer.lr": 0.02})
    claim = Provenance(objective="val_accuracy", metrics={"val_accuracy": 0.9})
    write_recipe(tmp_path / "best.yaml", recipe.model_copy(update={"provenance": claim}))

    command = [sys.executable, "-m", "search", "export", "best.yaml", "-o", "verified.yaml", "--verify", "3"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 1, ran.stderr
    provenance = read_recipe(tmp_path / "verified.yaml").provenance
    assert provenance is not None
    assert (found := provenance.verification) is not None
    assert (found.verified, found.part, found.seeds, found.claimed) == (False, "test", (1, 2, 3), 0.9)
    assert provenance.data_digest == load_for(recipe, ON_CPU).info.digest
    assert found.mean == np.mean(found.scores) < np.mean(found.validation_scores) - 0.3
    assert found.gap is not None
    lines = ran.stdout.splitlines()
    assert lines[0] == "3 runs of 3 epochs: the recipe with 3 new seeds, scored on the test part"
    assert str(found.gap) in lines
    assert [line for line in lines if line.startswith("not verified: test_accuracy")]


@pytest.mark.scenario
def test_what_was_tried_in_vain_is_in_the_provenance_and_the_claim_stays(tmp_path: Path) -> None:
    write_parts(tmp_path / "parts.npz", other_kind=False)
    recipe = small_recipe({"data.path": str(tmp_path / "parts.npz"), "optimizer.lr": 0.02})
    bare = without(recipe, [path for path, _ in techniques_of(recipe)])
    claim = Provenance(objective="val_accuracy", metrics={"val_accuracy": 0.9})
    write_recipe(tmp_path / "best.yaml", bare.model_copy(update={"provenance": claim}))

    steps = ["--simplify", "--finalize", "--seeds", "2"]
    command = [sys.executable, "-m", "search", "export", "best.yaml", "-o", "tried.yaml", *steps]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "2 runs of 3 epochs: the whole recipe, and without each of 0 techniques" in ran.stdout
    assert "2 runs of 3 epochs: the recipe with 2 new seeds, each scored in several ways" in ran.stdout
    tried = read_recipe(tmp_path / "tried.yaml")
    assert tried.digest() == bare.digest()
    assert tried.provenance is not None
    assert tried.provenance.metrics == claim.metrics
    for record in (tried.provenance.simplified, tried.provenance.finalized):
        assert record is not None
        assert (record.seeds, record.changed, record.after) == ((1, 2), False, record.before)
    assert new_seeds(tried, 3) == [3, 4, 5]
