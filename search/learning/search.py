"""A search that exists, with all that it says: what its folder has, what it decided, what it teaches."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import quote

from search.deciding.finalists import Final, settled_final
from search.deciding.pruning import Pruning, settled_pruning
from search.learning.cautions import cautions_of
from search.learning.learned_space import space_of
from search.learning.pruning_audit import PruningAudit, audit_of
from search.learning.verdicts import verdicts_of
from search.record.chain import JournalError
from search.record.folder import Caution
from search.record.stored_search import StoredSearch
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import Verdicts
from spaces.rules.rules import rule_against
from spaces.space import Space
from trainable.data import DataInfo
from trainable.diagnosis import Diagnosis, diagnose
from trainable.terminal import program_name


class Search(StoredSearch):
    """A search that exists, by its folder or its URI, with what its trials say of the best and the rules."""

    @cached_property
    def space(self) -> Space:
        """The search's settled space; before that is recorded, the space that this version would build."""
        return self.record.space() or space_of(self.study, self.facts, self.info).space

    @cached_property
    def pruning(self) -> Pruning:
        """The rungs at which trials are compared, and how many go on."""
        return settled_pruning(self.record.settled, self.study, self.space)

    @cached_property
    def final(self) -> Final:
        """How the best trials are trained again, and what that costs in words."""
        return settled_final(self.record.settled, self.study, self.pruning)

    @cached_property
    def summary(self) -> Summary:
        """What the search has come to, with the diagnosis of its best trial, the verdicts on the rules, and
        what to know before that is trusted."""
        return replace(
            self.progress, diagnosis=self.diagnosis, verdicts=self.verdicts, cautions=self.cautions
        )

    @cached_property
    def cautions(self) -> tuple[Caution, ...]:
        """What to know before the answer is trusted: of the images, the test score, and how close the best
        trials are."""
        return cautions_of(self)

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """What the best trial's curves say, without changes that the documents' rules leave out here.

        It is None before a trial has finished, and where this version would train another recipe than the
        recorded one.
        """
        try:
            found = diagnosis_of(self.best, self.info) if self.best is not None else None
        except JournalError:
            return None
        if found is None or self.best is None:
            return None
        facts, recipe = self.facts, self.best.whole_recipe
        changes = [each for each in found.changes if rule_against(each.path, each.to, facts, recipe) is None]
        return replace(found, changes=tuple(changes))

    @cached_property
    def verdicts(self) -> Verdicts | None:
        """What the trials say of every rule; None before a trial has ended."""
        if not any(trial.ended for trial in self.trials):
            return None
        return verdicts_of(self.progress, self.space)

    def train_command(self, file: Path, program: str = "") -> str:
        """Return the command that trains a recipe of this search, without functions of a person's own."""
        test, out = " --test" if self.info.test_images else "", quote(f"{self.progress.search}-model")
        return f"{program or program_name()} train {quote(str(file))} --out {out}{test}"

    @cached_property
    def pruning_audit(self) -> PruningAudit | None:
        """What stopped trials came to that were trained to their end; None where none was."""
        return audit_of(self.progress, self.pruning)


def diagnosis_of(trial: Trial, info: DataInfo) -> Diagnosis | None:
    """Return what a trial's curves say; None before its first epoch."""
    if not trial.history:
        return None
    return diagnose(
        trial.results,
        trial.whole_recipe,
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )
