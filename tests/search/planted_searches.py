"""Makes searches with known faults: real spaces, samplers, pruning and journals, but invented curves."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search.deciding.ledger import Decision, Ledger
from search.deciding.make import make_sampler
from search.deciding.pruning import choose_pruning
from search.deciding.scheduler import Asha
from search.record.folder import keep_findings
from search.record.home import FACTS_FILE
from search.record.journal import DriverStart, Journal
from search.study import Study
from search.study.first_trials import first_trials
from search.study.space import build_space
from search.study.study import Finalists
from spaces.domains import Choice, Domain, Value, Values, fraction_of, is_number
from spaces.facts import Facts
from spaces.space import Space
from tests.epoch_results import epoch_result
from tests.spaces.small_facts import digits_facts
from trainable.data import DataInfo
from trainable.data.measure import DIGEST_FORM
from trainable.training.metrics import EpochResult

EPOCHS = 20
CLASSES = 10


@dataclass(frozen=True)
class Run:
    """How a trial goes: where its curves end, and how."""

    # That of validation, at the end; after two thirds of the run it is off by a thousandth at most
    accuracy: float
    train: float  # that of clean training images, at the end
    rise: float = 0.0  # what validation still gains with each epoch
    swing: float = 0.0  # how far validation jumps up and down, to the end
    diverges: bool = False  # the trial diverges in its second epoch


# How a trial goes, from luck and each value's position in its domain (by dimension name)
Landscape = Callable[[Mapping[str, float], random.Random], Run]


@dataclass(frozen=True)
class Images:
    train: int = 7_000
    validation: int = 1_500
    test: int = 1_500
    side: int = 8  # it counts pixels

    @property
    def info(self) -> DataInfo:
        return DataInfo(
            path="digits",
            format="digits",
            classes=tuple(map(str, range(CLASSES))),
            channels=1,
            image_size=self.side,
            train_images=self.train,
            validation_images=self.validation,
            test_images=self.test,
            class_counts=(self.train // CLASSES,) * CLASSES,
            mean=(0.3,),
            std=(0.3,),
            flips=(),
            digest=f"{DIGEST_FORM}{'0' * 16}",
            in_memory=True,
        )


def planted(
    storage: Path,
    landscape: Landscape,
    *,
    trials: int = 24,
    seed: int = 0,
    images: Images = Images(),
    last: int | None = None,
    **values: Any,
) -> Path:
    """Return the folder of a search whose trials went as the landscape says, one after the other.

    `values` are the study's, by dotted path with __ for dots; `last` ends it early, after so many trials.
    """
    written = {path.replace("__", "."): value for path, value in values.items()}
    study = Study.from_tree({"data": {"path": "digits"}, "storage": str(storage), "name": "planted"})
    study = study.with_values({"budget.trials": trials, "budget.epochs": EPOCHS, "seed": seed, **written})
    folder = storage / "planted"
    folder.mkdir(parents=True)
    study.write(folder)
    facts = digits_facts(train_images=images.train, epochs=study.budget.epochs, image_size=images.side)
    record = {"facts": facts.tree(), "data": images.info.tree()}
    (folder / FACTS_FILE).write_text(json.dumps(record))
    keep_findings(folder, ())  # the images were looked at, and are sound
    with Journal(folder) as journal:
        _drive(study, facts, images.info, journal, landscape, last)
    return folder


def _drive(
    study: Study, facts: Facts, info: DataInfo, journal: Journal, landscape: Landscape, last: int | None
) -> None:
    space = build_space(study, facts, info)
    pruning = choose_pruning(study, space)
    mode = study.objective.direction
    ledger = Ledger(
        journal,
        space,
        make_sampler(space, study.sampler.kind, study.seed, mode),
        Asha(pruning.rungs, pruning.factor, mode),
        trials=study.budget.trials,
        epochs=study.budget.epochs,
        metric=study.objective.metric,
        first=first_trials(study, space, info),
        finalists=study.finalists if isinstance(study.finalists, Finalists) else None,
    )
    ledger.begin("planted", start=DriverStart(seconds=2.0, slots=1, gpus=0.0))
    while (last is None or ledger.trials < last) and (proposal := ledger.propose()) is not None:
        luck = random.Random(f"{study.seed} {proposal.trial}")
        run = landscape(_at(space, proposal.values), luck)
        ledger.start(proposal.trial, 0)
        for epoch in range(1, study.budget.epochs + 1):
            if ledger.epoch(proposal.trial, _result(run, epoch, study.budget.epochs, luck)) is Decision.STOP:
                break
    ledger.close("finished" if last is None else "interrupted")


def _at(space: Space, values: Values) -> dict[str, float]:
    """Return each value's position in its domain; a documented value outside of it counts as its end."""
    named = space.named(values)
    return {
        each.name: _position(each.domain, named[each.name]) for each in space.dimensions if each.name in named
    }


def _position(domain: Domain, value: Value) -> float:
    if value in domain or isinstance(domain, Choice):
        return fraction_of(domain, value)
    assert is_number(value)
    return 0.0 if value < domain.low else 1.0


def _result(run: Run, epoch: int, epochs: int, luck: random.Random) -> EpochResult:
    left = 0.3 * math.exp(-10.0 * epoch / epochs) + run.rise * (epochs - epoch)
    swing = run.swing * (1 if epoch % 2 else -1) * luck.uniform(0.7, 1.3) if epoch < epochs else 0.0
    diverged = run.diverges and epoch == 2
    accuracy = 0.0 if diverged else min(1.0, max(0.0, run.accuracy - left + swing))
    train = max(0.0, run.train - left)
    return epoch_result(
        epoch,
        accuracy,
        train_loss=2.0 - 1.5 * train,
        train_accuracy=train,
        val_loss=23.0 if diverged else 2.0 - 1.5 * accuracy,
        applied_lr=0.1 * (1.0 + math.cos(math.pi * epoch / epochs)) / 2.0,
        clean_train_accuracy=train if epoch == epochs else None,
        diverged=diverged,
    )
