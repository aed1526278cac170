"""Tests `tunebook bundle` on a search's folder: whose weights it takes, and what it refuses at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from search.learning.search import Search
from search.record.folder import keep_verification
from search.record.home import FACTS_FILE
from search.results.export import recipe_of
from tests.search.command_line import Tunebook
from tests.search.planted_searches import Run as PlantedRun
from tests.search.planted_searches import planted
from trainable.checkpoints import checkpoint
from trainable.data.assembly import load
from trainable.data.measure import DIGEST_FORM
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.provenance import Provenance, Verification
from trainable.recipe.yamlfile import read_recipe
from trainable.run import make_run
from trainable.training.run import Run

BASE = {"model.width": 8, "precision.kind": "fp32", "regularisation.averaging": {"kind": "ema", "decay": 0.9}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a search of the digits with two trials that have finished, without checkpoints."""
    made = planted(tmp_path, lambda at, luck: PlantedRun(luck.random(), 0.9), trials=2, base=BASE)
    facts = json.loads((made / FACTS_FILE).read_text())
    facts["data"]["digest"] = load(Data()).info.digest
    (made / FACTS_FILE).write_text(json.dumps(facts))
    return made


def with_checkpoint(folder: Path, trial: int) -> Run:
    """Train an epoch of a trial's recipe and save it where the trial would; return the run."""
    search = Search(folder)
    run = make_run(search.trials[trial].whole_recipe)
    run.step()
    checkpoint.save(search.home.checkpoints(trial), run.state_dict(), run.history)
    run.close()
    return run


def verified(recipe: Recipe) -> Recipe:
    """Return the recipe with a provenance which says that it was trained again and held."""
    found = Verification(
        verified=True,
        metric="val_accuracy",
        part="test",
        seeds=(1, 2),
        scores=(0.9, 0.92),
        validation_scores=(0.9, 0.92),
        mean=0.91,
        deviation=0.01,
        claimed=0.92,
        short=0.01,
        allowed=0.03,
        rule="the rule",
    )
    known = recipe.provenance or Provenance()
    return recipe.model_copy(update={"provenance": known.model_copy(update={"verification": found})})


@pytest.mark.slow("exports a network")
@pytest.mark.usefixtures("few_passes")
def test_a_trial_s_averaged_weights_become_a_bundle_that_knows_its_search(
    tunebook: Tunebook, folder: Path
) -> None:
    run = with_checkpoint(folder, 1)
    keep_verification(folder, verified(recipe_of(Search(folder), Search(folder).trials[1])))
    code, out, _ = tunebook("bundle", folder, "--out", "shipped", "--trial", 1)
    assert (code, out.splitlines()[-1]) == (0, "bundle -> shipped")
    weights = load_file("shipped/model.safetensors")
    assert all(torch.equal(each, weights[name]) for name, each in run.weights().items())
    assert any(not torch.equal(each, weights[name]) for name, each in run.model.state_dict().items())
    known = read_recipe("shipped/recipe.yaml").provenance
    assert known is not None
    assert (known.search, known.trial) == ("planted", 1)
    card = Path("shipped/README.md").read_text()
    assert "| trial | 1 |" in card
    assert "From its file alone: verified: test_accuracy 0.9100, deviation 0.0100, over 2 new seeds" in card
    assert tunebook("export", folder, "-o", "unasked.yaml")[0] == 0
    other = read_recipe("unasked.yaml").provenance
    assert other is not None
    assert (other.trial == 1) == (other.verification is not None), "it was of trial 1 alone"


def test_what_cannot_be_bundled_is_one_message(tunebook: Tunebook, folder: Path) -> None:
    best = Search(folder).best
    assert best is not None
    assert tunebook("bundle", folder, "-o", "new")[0] == 2
    _, _, error = tunebook("bundle", folder, "-o", "new")
    assert error.startswith(
        f"tunebook: {folder}/trials/{best.id:04d}: no checkpoint of trial {best.id} that can"
    )
    assert f"`tunebook export {folder} --trial {best.id} -o recipe.yaml`, `tunebook train" in error
    code, _, error = tunebook("bundle", folder, "-o", "new", "--trial", 7)
    assert (code, error) == (2, "tunebook: --trial 7: this search has no such trial; known: 0 to 1\n")
    code, _, error = tunebook("bundle", folder, "-o", folder)
    assert (code, error) == (2, f"tunebook: {folder}: exists already; give a new folder for the bundle\n")
    Path("empty").mkdir()
    code, _, error = tunebook("bundle", "empty", "-o", "new")
    assert code == 2
    assert "expected a search's folder (with study.yaml), or one that `tunebook train --out` left" in error
    _, _, error = tunebook("bundle", "missing", "-o", "new")
    assert error.startswith("tunebook: missing: no such folder; expected")
    _, _, error = tunebook("bundle", folder.parent, "-o", "new")
    assert error.endswith(f"in it are the searches {folder.name}\n")
    Path("mine.yaml").write_text("version: 2\n")
    _, _, error = tunebook("bundle", "mine.yaml", "-o", "new")
    assert "for a recipe `tunebook train mine.yaml --out DIR`, then `tunebook bundle DIR -o OUT`" in error
    Path("empty/model.safetensors").touch()
    _, _, error = tunebook("bundle", "empty/model.safetensors", "-o", "new")
    assert error == "tunebook: empty/model.safetensors: is one file of several; give its folder, empty\n"
    assert not Path("new").exists()


def test_a_search_without_a_finished_trial_has_nothing_to_bundle(tunebook: Tunebook, tmp_path: Path) -> None:
    folder = planted(tmp_path, lambda at, luck: PlantedRun(0.5, 0.9), trials=2, last=0)
    code, _, error = tunebook("bundle", folder, "-o", "new")
    assert (code, error) == (
        2,
        f"tunebook: {folder}: no trial has finished yet, so there is no best one to export\n",
    )


@pytest.mark.slow("exports a network")
def test_a_diverged_trial_and_a_damaged_checkpoint_are_refused(tunebook: Tunebook, folder: Path) -> None:
    with_checkpoint(folder, 0)
    shutil.rmtree(folder.parent / "other", ignore_errors=True)
    other = planted(
        folder.parent / "other", lambda at, luck: PlantedRun(0.5, 0.9, diverges=True), trials=1, base=BASE
    )
    code, _, error = tunebook("bundle", other, "-o", "new", "--trial", 0)
    assert (code, error) == (
        2,
        "tunebook: trial 0 diverged: its weights are of no use; choose another one\n",
    )
    facts = (folder / FACTS_FILE).read_text()
    (folder / FACTS_FILE).write_text(facts.replace(load(Data()).info.digest, f"{DIGEST_FORM}{'0' * 16}"))
    code, _, error = tunebook("bundle", folder, "-o", "new", "--trial", 0)
    assert code == 2
    assert "they are not what the weights were trained with; put the former back" in error
    state = folder / "trials/0000/epoch-0001/state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="left out, since it cannot be read"):
        code, _, error = tunebook("bundle", folder, "-o", "new", "--trial", 0)
    assert (code, "no checkpoint of trial 0 that can be read" in error) == (2, True)
