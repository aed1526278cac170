"""Trains recipes again, each in a fresh process, and with what they were found with."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.retraining.processes import Done, Work, in_processes, refuse_own_code
from spaces.domains import counted
from trainable.bench import HERE, Bench
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.stages import stage, track

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.origins import Origins

BESIDE = "the figures of these runs would stand beside digests that are not theirs"
REMEDY = f"{BESIDE}: put back what the recipe was found with, or search again with what is there now"
OLDER = f"{BESIDE}: search again with this version"


class OriginsChanged(UserError):
    """Images, weights or a teacher that became others while runs trained with them."""

    section = "data-or-weights-that-changed"
    exit_code = 1


@dataclass(frozen=True)
class Fresh:
    """What one recipe came to: what `tunebook train --json` prints, or why it came to nothing."""

    recipe: Recipe
    result: Mapping[str, Any]
    fault: str | None = None

    @property
    def seed(self) -> int:
        return self.recipe.loop.seed

    def score(self, name: str) -> float | None:
        """Return a score by its name, such as `val_accuracy`; None where the run came to nothing."""
        return None if self.fault is not None else self.result.get(name)


@dataclass(frozen=True)
class Retraining:
    """A way to train variants of one recipe, all with the same images, weights and teacher."""

    origins: Origins
    bench: Bench = HERE

    def train(self, recipes: Sequence[Recipe], *, test: bool = False) -> Generator[Fresh]:
        """Train recipes and yield what each came to, in their order; `test` asks for the test scores too.

        Raises OriginsChanged as `work` does.
        """
        with closing(self.work(_trained, recipes, test=test)) as found:
            for done in found:
                result, diverged = done.result or ({}, False)
                yield Fresh(done.recipe, result, "the run diverged" if diverged else done.fault)

    def work(self, work: Work, recipes: Sequence[Recipe], *, test: bool = False) -> Generator[Done]:
        """Do the work on each recipe in a process of its own, and yield what came of it, in their order.

        The work returns its result and the Origins of that. Raises OriginsChanged where a run has used other
        images, weights or another teacher.
        """
        with (
            stage("training again"),
            closing(in_processes(work, recipes, test=test, bench=self.bench)) as found,
        ):
            for done in track(found, "run", len(recipes)):
                result, origins = done.result or (None, self.origins)
                _refuse(self.origins, origins, done.recipe, f"seed {done.recipe.loop.seed}: ")
                yield done._replace(result=result)


@contextmanager
def retraining(recipe: Recipe, bench: Bench = HERE) -> Iterator[Retraining]:
    """Yield what trains a recipe again, if all that its figures rest on is what it was found with.

    It is compared before the block and after it: a run reads the images of the test part last. Raises
    UserError for what is another one now, for a recipe with functions of a person's own, and OriginsChanged
    for what changes while the block trains.
    """
    from trainable.origins import Origins

    refuse_own_code(recipe)
    with stage("comparing the images and weights with those of the search"):
        known, before = Origins.of(recipe.provenance), _origins_now(recipe, bench)
    if changes := list(known.changes(before, recipe)):
        raise UserError(f"{'; '.join(changes)}; {REMEDY if known.comparable(before) else OLDER}")
    yield Retraining(before, bench)
    _refuse(before, _origins_now(recipe, bench), recipe)


def _refuse(before: Origins, now: Origins, recipe: Recipe, where: str = "") -> None:
    if changes := list(before.changes(now, recipe)):
        raise OriginsChanged(f"{where}while the runs trained: {'; '.join(changes)}; {REMEDY}")


def _origins_now(recipe: Recipe, bench: Bench) -> Origins:
    """Return what a run of the recipe would use now: its images are looked for and read anew."""
    from trainable.origins import Origins
    from trainable.tasks.kits import load_for

    return Origins.of_files(recipe, load_for(recipe, bench).info)


def effort(recipe: Recipe, runs: int) -> str:
    """Return in words how much so many runs of a recipe train."""
    return f"{counted(runs, 'run')} of {counted(recipe.loop.epochs, 'epoch')}"


def _trained(recipe: Recipe, test: bool, bench: Bench) -> tuple[tuple[dict[str, Any], bool], Origins]:
    from trainable.origins import Origins
    from trainable.train import train

    outcome = train(recipe, test=test, bench=bench)
    return (outcome.tree(), outcome.diverged), Origins.of(outcome.recipe.provenance)
