"""The net below the rebuilding of the house: what a new layout must leave as it is, to the last digit.

Losses of small runs, digests of recipes, what four stored searches (tests/net) propose, print and report, and
their best recipe. This file never changes together with the code that it watches; only its imports may follow
a name. TUNEBOOK_WRITE_NET=1 writes what is expected anew, for `git diff`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn

from search.deciding.ledger import Ledger
from search.deciding.make import make_sampler, make_scheduler
from search.learning.search import Search
from search.record.journal import Journal
from tests.net_calls import make_run, train
from trainable.ranks import of_process_group
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, read_tree

NET = Path(__file__).parent / "net"
WRITE = "TUNEBOOK_WRITE_NET"
SEARCHES = ("labels", "masks", "promoted", "taught")
CLASSES = 3
CPU = torch.device("cpu")
TIMES = re.compile(r"seconds|per_second|memory")  # measured, and other each time


def assert_unchanged(name: str, found: str) -> None:
    """Fail unless this is what tests/net/expected has."""
    file = NET / "expected" / name
    if os.environ.get(WRITE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(found)
    kept = file.read_text()
    # what is computed of trials differs in its last digits from processor to processor
    if file.suffix == ".json":
        found, kept = (as_text(json.loads(each, parse_float=to_nine_digits)) for each in (found, kept))
    assert found == kept, f"{file} has something else"


def to_nine_digits(number: str) -> float:
    return float(f"{float(number):.9g}")


def as_text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


# --- losses -----------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "model.width": 8,
    "precision.kind": "fp32",
    "optimizer.scaling": "none",
    "loop.epochs": 2,
    "loop.batch_size": 16,
}
MASKS: dict[str, Any] = {
    "task": {"kind": "segmentation"},
    "data": {"image_size": 16},
    "model": {"kind": "unet_small", "levels": 2, "width": 8},
    "loop": {"epochs": 2, "batch_size": 4},
    "optimizer": {"kind": "adamw", "lr": 0.01, "scaling": "none"},
    "augmentation": {"crop": {"kind": "pad"}},
    "precision": {"kind": "fp32"},
}
ROOM = 6  # images for which the network `Limited` has memory


def arithmetic() -> str:
    """Return what the last digit of a sum depends on beside the code: torch, its kernels, the processor."""
    told = Path("/proc/cpuinfo").read_text()
    maker, *model = (
        found[1] if (found := re.search(rf"^{name}\s*:\s*(\S+)", told, re.M)) else "another"
        for name in ("vendor_id", "cpu family", "model")
    )
    kernels = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__.partition('+')[0]}, {kernels}, {maker}, model {' '.join(model)}"


def assert_same_losses(name: str, history: list[dict[str, Any]]) -> None:
    """Fail unless a run's numbers are those that are kept: exactly with the same arithmetic, else nearly."""
    found = [{key: each[key] for key in sorted(each) if not TIMES.search(key)} for each in history]
    file = NET / "expected" / "losses.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    if os.environ.get(WRITE):
        kept.setdefault(arithmetic(), {})[name] = found
        file.parent.mkdir(exist_ok=True)
        file.write_text(as_text(kept))
    here = arithmetic()  # an entry without a model is of all models
    alike = kept.get(here) or kept.get(here.partition(", model")[0])
    if alike is not None and torch.get_num_threads() == 1:
        assert found == alike[name]
        return
    for now, then in zip(found, next(iter(kept.values()))[name], strict=True):
        assert now.keys() == then.keys()
        for key, value in then.items():
            wanted = pytest.approx(value, rel=1e-3, abs=1e-3) if isinstance(value, float) else value
            assert now[key] == wanted, key


def parts(draw: Callable[[int], tuple[NDArray[Any], NDArray[Any]]], second: str) -> dict[str, Any]:
    """Return the arrays of three parts; `draw` makes the images and their labels or masks from a seed."""
    return {
        f"{part}_{name}": array
        for seed, part in enumerate(("train", "val", "test"))
        for name, array in zip(("images", second), draw(seed), strict=True)
    }


def labelled(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 48 images of noise with a bright bar whose place shows the class, and the classes."""
    labels = np.arange(48) % CLASSES
    pixels = np.random.default_rng(seed).integers(0, 100, (48, 16, 16), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[:, 5 * label : 5 * label + 3] += 120
    return pixels, labels


def masked(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 12 images of noise with a bright square and a dark bar, and their masks."""
    random = np.random.default_rng(seed)
    pixels, masks = random.integers(80, 160, (12, 20, 24), dtype=np.uint8), np.zeros((12, 20, 24), np.uint8)
    for image, mask, top in zip(pixels, masks, random.integers(0, 12, 12), strict=True):
        mask[top : top + 6, 2:8], mask[:, 16:20] = 1, 2
        image[mask == 1] += 80
        image[mask == 2] -= 70
    return pixels, masks


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe of labels, with its images."""
    np.savez(tmp_path / "labels.npz", **parts(labelled, "labels"))
    return Recipe().with_values({"data.path": str(tmp_path / "labels.npz"), **SMALL})


def history_in(folder: Path) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = json.loads((folder / "metrics.json").read_text())["history"]
    return history


def test_labels_are_learnt_with_the_same_losses(recipe: Recipe, tmp_path: Path) -> None:
    mixed = recipe.with_values(
        {
            "augmentation.mixing.kind": "cutmix",
            "augmentation.masking.kind": "erasing",
            "regularisation.averaging.kind": "ema",
            "regularisation.clipping.kind": "norm",
            "regularisation.label_smoothing": 0.1,
            "loop.micro_batch": 6,
        }
    )
    train(mixed, out=tmp_path / "out", device=CPU)
    assert_same_losses("labels", history_in(tmp_path / "out"))


def test_masks_are_learnt_with_the_same_losses(tmp_path: Path) -> None:
    np.savez(tmp_path / "masks.npz", **parts(masked, "masks"))
    of_masks = Recipe.from_tree(MASKS).with_values(
        {
            "data.path": str(tmp_path / "masks.npz"),
            "task.loss.dice": 1.0,
            "augmentation.mixing.kind": "cutmix",
        }
    )
    train(of_masks, out=tmp_path / "out", device=CPU)
    assert_same_losses("masks", history_in(tmp_path / "out"))


@pytest.mark.parametrize("kind", ["logits", "features"])
def test_a_teacher_s_answers_are_learnt_with_the_same_losses(
    recipe: Recipe, kind: str, tmp_path: Path
) -> None:
    train(recipe, out=tmp_path / "teacher", device=CPU)
    taught = {"distillation.teacher": str(tmp_path / "teacher"), "distillation.kind": kind, "model.width": 4}
    train(recipe.with_values(taught), out=tmp_path / "out", device=CPU)
    assert_same_losses(f"taught by {kind}", history_in(tmp_path / "out"))


def test_a_frozen_body_and_then_the_whole_learn_with_the_same_losses(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe.with_values({"loop.seed": 1}), out=tmp_path / "earlier", device=CPU)
    frozen = {
        "model.weights": str(tmp_path / "earlier" / "model.safetensors"),
        "model.freeze_epochs": 1,
        "data.normalisation": "pretrained",
    }
    train(recipe.with_values(frozen), out=tmp_path / "out", device=CPU)
    assert_same_losses("frozen", history_in(tmp_path / "out"))


class Limited(nn.Module):
    """Has memory to train on `ROOM` images at once."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) > ROOM:
            raise torch.OutOfMemoryError("planted: out of memory")
        logits: Tensor = self.net(images)
        return logits


def test_memory_runs_out_and_the_losses_are_the_same(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, model=Limited(), out=tmp_path / "out", device=CPU)
    history = history_in(tmp_path / "out")
    assert {each["micro_batch"] for each in history} <= set(range(1, ROOM + 1)), "it trains on fewer at once"
    assert_same_losses("memory running out", history)


@pytest.mark.slow("starts two processes that import torch")
def test_two_ranks_learn_with_the_same_losses(recipe: Recipe, tmp_path: Path) -> None:
    asked = {
        "augmentation.mixing.kind": "mixup",
        "loop.batch_size": 15,
        "regularisation.clipping.kind": "norm",
    }
    spawn(_train_as_rank, (recipe.with_values(asked).tree(), str(tmp_path)), nprocs=2)
    assert_same_losses("two ranks", json.loads((tmp_path / "history.json").read_text()))


def _train_as_rank(rank: int, tree: Mapping[str, Any], folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    run = make_run(Recipe.from_tree(tree), ranks=of_process_group(), device=CPU)
    while not run.finished:
        run.step()
    if rank == 0:
        Path(folder, "history.json").write_text(json.dumps([each.tree() for each in run.history]))
    run.close()
    distributed.destroy_process_group()


# --- recipes ----------------------------------------------------------------------------------------------

KINDS = {
    "optimizer": "sgd rmsprop adam adamw adadelta lars lamb adam_then_sgd timm",
    "schedule": "constant cosine step poly exp sgdr onecycle cyclic",
    "model": "resnet_small torchvision timm own",
    "augmentation.crop": "none pad resized",
    "augmentation.policy": "none randaugment trivialaugment autoaugment",
    "augmentation.masking": "none erasing cutout gridmask hide_and_seek",
    "augmentation.size": "fixed multi_scale progressive",
    "augmentation.mixing": "none mixup cutmix",
    "regularisation.clipping": "none norm adaptive",
    "regularisation.averaging": "none ema",
    "regularisation.class_weights": "none inverse effective_number",
    "evaluation.resize": "stretch center_crop",
}
KINDS_OF_MASKS = {
    "model": "unet_small smp",
    "augmentation.crop": "none pad scaled",
    "augmentation.mixing": "none cutmix classmix",
}
NAMED = {
    "torchvision": {"model.name": "resnet18"},
    "timm": {"model.name": "resnet10t"},
    "smp": {"model.name": "unet", "model.encoder": "resnet18"},
    "own": {"model.name": "mine"},
}
TAUGHT = "logits dkd features"
WRITTEN = sorted((Path(__file__).parent / "trainable/recipe/exported_by_0_1").glob("*.yaml"))


def recipes() -> Iterator[tuple[str, Recipe]]:
    """Yield a recipe of each kind of each section, with its defaults, and those that files hold, by name."""
    of_masks = Recipe.from_tree({"task": {"kind": "segmentation"}})
    for task, whole, kinds in (("labels", Recipe(), KINDS), ("masks", of_masks, KINDS_OF_MASKS)):
        for section, names in kinds.items():
            for kind in names.split():
                named = NAMED.get(kind, {}) if section == "model" else {}
                yield f"{task}: {section} {kind}", whole.with_values({f"{section}.kind": kind, **named})
        for kind in TAUGHT.split() if whole is not of_masks else ():
            taught = {"distillation.teacher": "/teacher", "distillation.kind": kind}
            yield f"{task}: distillation {kind}", whole.with_values(taught)
    for file in (*WRITTEN, NET / "best.yaml"):
        yield file.name, read_recipe(file)
    for name in SEARCHES:
        yield f"base of {name}", Search(NET / name).study.base_recipe()


def test_recipes_have_the_same_digests() -> None:
    assert WRITTEN
    assert_unchanged("digests.json", as_text({name: recipe.digest() for name, recipe in recipes()}))


def test_a_recipe_has_the_same_fields() -> None:
    wanted = ("labels: optimizer sgd", "masks: model unet_small")
    fields = {name: dict(recipe.leaves()) for name, recipe in recipes() if name in wanted}
    assert_unchanged("fields.json", as_text(fields))


# --- searches ---------------------------------------------------------------------------------------------


@pytest.fixture(params=SEARCHES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a stored search's folder."""
    folder = tmp_path / str(request.param)
    shutil.copytree(NET / folder.name, folder)
    return folder


@pytest.fixture
def tunebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Call the command line; return the exit code, and what it prints."""
    from search.__main__ import main

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 1e6)  # a busy machine prints no line more

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["tunebook", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), capsys.readouterr().out

    return run


def ledger_of(search: Search, journal: Journal, trials: int) -> Ledger:
    study, settled, direction = search.study, search.record.settled, search.study.objective.direction
    assert settled is not None
    return Ledger(
        journal,
        search.space,
        make_sampler(search.space, study.sampler.kind, study.seed, direction),
        make_scheduler(search.space, search.pruning, direction),
        trials=trials,
        epochs=study.budget.epochs,
        metric=study.objective.metric,
        why=settled.why,
        constraints=settled.constraints,
        first=settled.first,
        finalists=settled.finalists,
    )


@pytest.mark.slow("draws trials with models")
def test_a_search_that_is_cut_off_anywhere_proposes_what_it_had_proposed(
    stored: Path, tmp_path: Path
) -> None:
    """Each trial of the journal is proposed again by a ledger that knows the lines before it."""
    search, lines = Search(stored), (stored / "events.jsonl").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    drawn = [at for at, event in enumerate(events) if event["event"] == "trial"]
    assert len(drawn) >= 3
    budget = read_tree(stored / "study.yaml")["budget"]["trials"]
    for cut in drawn:
        budgets = [event["trials"] for event in events[:cut] if event["event"] == "extend"]
        before = tmp_path / f"before-{cut}"
        before.mkdir()
        (before / "events.jsonl").write_text("".join(lines[:cut]))
        with Journal(before) as journal:
            ledger = ledger_of(search, journal, budgets[-1] if budgets else budget)
            while (proposal := ledger.propose()) is not None and proposal.trial < events[cut]["trial"]:
                pass  # it trains on what was cut off
            assert proposal is not None
            assert (proposal.trial, proposal.recipe.digest()) == (events[cut]["trial"], events[cut]["digest"])


def test_a_stored_search_is_shown_as_it_was(stored: Path, tunebook: Callable[..., tuple[int, str]]) -> None:
    code, shown = tunebook("show", stored, "--json")
    assert code == 0
    assert_unchanged(f"{stored.name}.show.json", as_text(json.loads(shown.replace(str(stored), "SEARCH"))))
    code, shown = tunebook("show", stored)
    assert code == 0
    assert_unchanged(f"{stored.name}.show.txt", shown.replace(str(stored), "SEARCH"))


def test_a_stored_search_is_explained_as_it_was(
    stored: Path, tunebook: Callable[..., tuple[int, str]]
) -> None:
    code, shown = tunebook("explain", stored, "--all")
    assert code == 0
    assert_unchanged(f"{stored.name}.explain.txt", shown.replace(str(stored), "SEARCH"))


def test_the_report_of_a_stored_search_has_the_same_values(
    tmp_path: Path, tunebook: Callable[..., tuple[int, str]]
) -> None:
    shutil.copytree(NET / "labels", folder := tmp_path / "labels")
    code, printed = tunebook("report", folder, "--json")
    assert code == 0
    report = json.loads(
        printed.replace(str(folder), "SEARCH"), parse_float=lambda text: round(float(text), 9)
    )
    del report["made"]
    assert_unchanged("labels.report.json", as_text(report))


def test_the_best_recipe_of_a_stored_search_is_the_same(
    tmp_path: Path, tunebook: Callable[..., tuple[int, str]]
) -> None:
    shutil.copytree(NET / "labels", folder := tmp_path / "labels")
    code, _ = tunebook("export", folder, "-o", tmp_path / "best.yaml")
    assert code == 0
    text = re.sub(r"(?m)^( *created: ).*$", r"\1NOW", (tmp_path / "best.yaml").read_text())
    assert_unchanged("labels.best.yaml", text)
    assert read_tree(tmp_path / "best.yaml").keys() == read_tree(NET / "best.yaml").keys()
