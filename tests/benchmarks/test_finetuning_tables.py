"""A table of fine-tuning curves is replayed over the ranges that it begins with, and with their beliefs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from finetuning_table import evenly
from offline import finetuning_tables
from offline.arms import Settings, arm_of, chosen_arms, digest, run
from offline.finetuning_tables import documented, finetuning
from offline.search_task import WORST
from offline.tasks import task, task_names
from search.deciding.sampler import RandomSampler
from spaces.catalog.catalog import make_space
from spaces.priors import Uniform
from spaces.settled import tree_of
from spaces.space import Space
from tests.spaces.small_facts import base_recipe, imagenet_facts

FACTS = imagenet_facts(train_images=2_500, epochs=9, pretrained=True)
NAME = "finetuning-photographs-lite0"
EPOCHS = 9


def finetune() -> Space:
    base = base_recipe(FACTS, model__weights="lite0.safetensors")
    return make_space("finetune", base, frozenset({"model.weights"}), FACTS, {})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The higher the rate, the better the run; the first recipe diverges."""
    folder, space = tmp_path_factory.mktemp("tables"), finetune()
    lines = [json.dumps({"space": tree_of(space)})]
    for number in range(40):
        values = RandomSampler(evenly(space), 0).ask(number)
        curve = [[epoch * float(str(values["optimizer.lr"])), 1.0] for epoch in range(1, EPOCHS + 1)]
        kept = 3 if number == 0 else EPOCHS
        lines.append(json.dumps({"number": number, "values": values, "curve": curve[:kept], "seconds": []}))
    (folder / "finetuning_photographs_lite0.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def _tables(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning_tables, "TABLES", tables)


def test_recipes_are_drawn_evenly_from_the_ranges() -> None:
    even = evenly(finetune())
    assert all(each.prior(even.own) == Uniform() for each in even.dimensions)
    rates = [RandomSampler(even, 0).ask(number)["optimizer.lr"] for number in range(20)]
    assert len(set(rates)) == 20


def test_a_task_has_the_ranges_of_its_table_and_the_best_of_its_whole_curves() -> None:
    found = finetuning(NAME)
    assert [each.domain for each in found.space.dimensions] == [each.domain for each in finetune().dimensions]
    assert (found.epochs, found.grace) == (EPOCHS, 1)
    row = found.begin()(RandomSampler(found.space, 0).ask(0))
    assert found.final(row) == WORST
    assert found.best() > found.usual


def test_beliefs_are_those_that_the_table_begins_with() -> None:
    assert documented(NAME).own == finetune().own
    assert documented(NAME).dimensions == finetune().dimensions
    with pytest.raises(ValueError, match="taskset has none"):
        documented("taskset")


def test_tables_that_are_there_are_tasks() -> None:
    assert task_names("taskset,finetuning") == ["taskset", NAME]
    assert task(NAME).name == NAME


def test_arms_with_documented_priors_are_asked_for_by_name() -> None:
    assert "documented auto+asha" not in chosen_arms("all")
    assert "documented auto+asha" in chosen_arms("documented")
    settings = Settings(trainings=2)
    names = ("auto+asha", "documented auto+asha")
    assert len({digest(arm_of(name), NAME, settings) for name in names}) == 2


@pytest.mark.parametrize("name", ["random+asha", "documented prior-only+asha"])
def test_a_search_of_a_table_ends_with_one_of_its_scores(name: str) -> None:
    found = run(arm_of(name), NAME, 0, Settings(trainings=3, beyond=1.0, workers=2))
    assert found.best[-1][1] <= finetuning(NAME).best()
    assert sum(found.ends.values()) <= found.trials
