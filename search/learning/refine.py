"""`tunebook refine`: what a search that is over says about the next one, and the study that follows.

The questions are those of Google's Deep Learning Tuning Playbook, "Extracting insight from experimental
results": is the search space large enough, what part of the trials diverged, what do the best trials' curves
say, and ("Determining whether to adopt a training pipeline change") is the winner known? Where the playbook
has no number, the number is ours, and is marked so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from search.deciding.pruning import choose_pruning
from search.facts.start import Start
from search.learning.best_trials import of_curves, of_noise
from search.learning.evidence import Edit, Evidence, LeftAlone, ProposedEdit, SearchFinding
from search.learning.next_steps import NextStep, caution_of, next_steps, of_ceiling, of_plateau
from search.learning.ranges import of_ranges
from search.learning.search import Search
from search.learning.standings import LEAST_TRIALS
from search.learning.verdicts import effect
from search.record.code import extend_call
from search.record.home import names_below
from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.study import Study
from search.study.space import build_space, check_trials
from spaces.catalog.overrides import OVERRIDES, Varying, WrittenPrior, parse, path_of
from spaces.conditions import has
from spaces.domains import shown
from spaces.facts import Facts
from spaces.priors import describe
from spaces.space import Dimension, Space
from trainable.data import DataInfo
from trainable.errors import FaultyInput, UserError
from trainable.recipe.trees import value_at
from trainable.recipe.yamlfile import to_yaml, write_whole
from trainable.terminal import program_name

NUMBERED = re.compile(r"(.*)-(\d{1,3})")  # more digits are those of a date or a time
LONGEST_NAME = 100


def findings_of(evidence: Evidence) -> Iterator[SearchFinding | LeftAlone]:
    """Yield the findings, and what was examined and left alone, in the order of the questions.

    At a ceiling only what moves it is asked about. Yield nothing where fewer than `LEAST_TRIALS` trials say
    something.
    """
    if (ceiling := caution_of(evidence.search.cautions, "ceiling")) is not None:
        yield from of_ceiling(evidence, ceiling)
        return
    if len(evidence.compared_trials) < LEAST_TRIALS:
        return
    changed: set[str] = set()
    for question in (of_ranges, of_curves, of_noise, of_plateau):
        for each in question(evidence, frozenset(changed)):
            yield each
            if isinstance(each, SearchFinding):
                changed |= {proposed.path for proposed in each.proposed_edits}


@dataclass(frozen=True)
class Draft:
    """A study with what was measured for it."""

    study: Study
    facts: Facts
    info: DataInfo

    @cached_property
    def space(self) -> Space:
        """The ranges that the next search would draw from, with the beliefs of rules and of a person, without
        those that `space.learn_from` teaches. Raises UserError where the search could not start."""
        epochs = self.study.budget.epochs
        facts = self.facts.model_copy(update={"epochs": epochs})
        space = build_space(self.study, facts, self.info)
        check_trials(self.study, space, facts)
        choose_pruning(self.study, space)
        return space

    def changed(self, path: str, to: Any) -> Draft:
        """Return a draft with plain data at a path; `space.overrides.NAME` replaces the old override.

        Raises UserError where that makes no valid search.
        """
        name = path.removeprefix(f"{OVERRIDES}.")
        study = self._overridden(name, to) if name != path else self.study.with_values({path: to})
        draft = Draft(study, self.facts, self.info)
        _ = draft.space
        return draft

    def _overridden(self, name: str, to: Any) -> Study:
        """Return the study with an override: of a field by path, or of its variants by name, never both."""
        path = path_of(name)
        old = self.study.space.overrides
        beside = {} if name == path else self._variants_beside(name, old)
        mine = {name: to, **beside}
        placed = [
            each
            for key in old
            for each in (mine if path_of(key) == path and key not in mine else [key])  # at its first position
        ]
        overrides = {each: mine.get(each, old.get(each)) for each in (*placed, *mine)}
        space = self.study.space.model_copy(update={"overrides": overrides})
        return Study.from_tree(self.study.model_copy(update={"space": space}).model_dump(mode="json"))

    def _variants_beside(self, name: str, old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the overrides of the field's other variants; one of the whole field is copied to each."""
        path = path_of(name)
        if path not in old:
            return {each: old[each] for each in old if path_of(each) == path and each != name}
        others = [each for each in self.space.dimensions if each.path == path and each.name != name]
        return {each.name: old[path] for each in others if _fits(old[path], each)}


def content_at(path: str, study: Study, space: Space) -> str:
    """Return in words what a path of a study holds: a range with the belief in it, or a value."""
    name = path.removeprefix(f"{OVERRIDES}.")
    if name == path:
        return shown(value_at(study.model_dump(mode="json"), path))
    for dimension in space.dimensions:
        if dimension.name == name:
            return describe(dimension.domain, dimension.prior(space.own))
    base = space.base
    return shown(base.get(path_of(name))) if has(base, path_of(name)) else "not there"


def _fits(written: Any, dimension: Dimension) -> bool:
    """Say whether an override for all variants of a field fits this one: its rule, or a belief in it."""
    override = parse(written)
    if override == Varying(None):
        return True
    believed = override.prior if isinstance(override, Varying) else None
    return isinstance(believed, WrittenPrior) and believed.value in dimension.domain


@dataclass(frozen=True)
class Refined:
    """The result of an audit."""

    summary: Summary
    compared_trials: int  # the number of trials that say something
    findings: tuple[SearchFinding, ...]
    left_alone: tuple[LeftAlone, ...]
    edits: tuple[Edit, ...]
    steps: tuple[NextStep, ...]  # what helps, the first thing first; the last may be to stop
    following: Study  # the old study with the changes, a free name and another seed

    @property
    def study(self) -> Study | None:
        """The next study; None where nothing is to be changed."""
        return self.following if self.edits else None

    def json(self) -> dict[str, Any]:
        """Return plain data, as `refine --json` prints it."""
        return {
            "schema": 1,
            "search": self.summary.search,
            "trials": self.compared_trials,
            "steps": [asdict(each) for each in self.steps],
            "findings": [each.json() for each in self.findings],
            "changes": [asdict(each) for each in self.edits],
            "left_alone": [asdict(each) for each in self.left_alone],
            "study": self.study.model_dump(mode="json") if self.study is not None else None,
        }


def refine(search: Search) -> Refined:
    """Audit a search that is over, or was interrupted, and draft the study that follows from it.

    Proposals are applied one by one; those that make no valid search are left out, with the reason. Raises
    UserError for a search that is running, and for one of which no trial has finished.
    """
    if search.summary.state == "running":
        raise UserError(f"{search.folder}: this search is running; wait for its end, or interrupt it")
    if search.best is None:
        raise UserError(f"{search.folder}: no trial has finished, so nothing can be learnt from it yet")
    study = Start.of(search.facts).written_in(search.study)
    evidence, draft = Evidence(search), Draft(study, search.facts, search.info)
    findings: list[SearchFinding] = []
    left_alone: list[LeftAlone] = []
    edits: dict[str, Edit] = {}
    for each in findings_of(evidence):
        if isinstance(each, LeftAlone):
            left_alone.append(each)
            continue
        applied, refusals, draft = _apply_edits(each.proposed_edits, evidence, draft)
        left_alone += refusals
        for edit in applied:
            if (before := edits.get(edit.path)) is not None:
                edit = replace(edit, before=before.before, why=f"{before.why}; {edit.why}")
            edits[edit.path] = edit
        if applied or each.advice or not each.proposed_edits:
            findings.append(each)
    changed = tuple(edits.values())
    verdicts = search.verdicts or Verdicts()
    left = tuple(_with_contradicted(verdicts, left_alone, {each.field for each in changed}))
    name = next_name(
        draft.study.name or evidence.summary.search or "search", names_below(draft.study.storage)
    )
    # the old seed would repeat the first draws
    following = draft.study.model_copy(update={"name": name, "seed": (draft.study.seed + 1) % 2**32})
    return Refined(
        evidence.summary,
        len(evidence.compared_trials),
        tuple(findings),
        left,
        changed,
        next_steps(search, findings, changed, _more_trials(search, study)),
        following,
    )


def _more_trials(search: Search, study: Study) -> str:
    """Return the command that goes on with an interrupted search, or draws as many trials again."""
    if search.state == "interrupted":
        return search.how_to_go_on
    trials, address = study.budget.trials, search.home.address
    if call := extend_call(address, trials, study, search.code):
        return f"in Python: {call}"
    return f"{program_name()} extend {quote(address)} --trials {trials}"


def write_next(refined: Refined, out: Path) -> None:
    """Write the next study, if there is one, with a comment beside each changed line.

    Only its owner can read it: a tracking URI may hold a password.
    """
    if refined.study is None:
        return
    comments = {each.path: f"was {each.before}: {each.why}" for each in refined.edits}
    comments |= {"name": "a new search", "seed": "other draws than before"}
    write_whole(out, to_yaml(refined.study.model_dump(mode="json"), comments).encode(), mode=0o600)


def next_name(name: str, used: Iterable[str]) -> str:
    """Return the first of NAME-2, NAME-3 and so on that is not used yet."""
    stem, number = (found[1], int(found[2])) if (found := NUMBERED.fullmatch(name)) else (name, 1)
    names = set(used)
    while True:
        number += 1
        ending = f"-{number}"
        candidate = f"{stem[: LONGEST_NAME - len(ending)]}{ending}"
        if candidate not in names:
            return candidate


def _with_contradicted(
    verdicts: Verdicts, left_alone: Sequence[LeftAlone], changed: Set[str]
) -> Iterator[LeftAlone]:
    """Yield what is left alone, with a remark on each contradicted rule for which nothing changed."""
    contradicted = {
        each.rule: f"the trials contradict the rule ({each.says}): {effect(each)} places of 100"
        for each in verdicts.of("contradicted")
        if each.rule not in changed
    }
    for each in left_alone:
        why = contradicted.pop(each.about, None)
        yield each if why is None else LeftAlone(each.about, f"{each.why}; {why}")
    for rule, why in contradicted.items():
        yield LeftAlone(rule, f"{why}; no finding says what to change")


def _apply_edits(
    proposed_edits: Sequence[ProposedEdit], evidence: Evidence, draft: Draft
) -> tuple[list[Edit], list[LeftAlone], Draft]:
    """Return what is applied, what is refused, and the draft that follows.

    What was before is what the search drew from, also where today's rules give another range.
    """
    edits, refusals = [], []
    for proposed in proposed_edits:
        valid, refusal = _first_valid(proposed, draft)
        if valid is None:
            refusals.append(LeftAlone(proposed.path.removeprefix(f"{OVERRIDES}."), refusal))
            continue
        path = proposed.path
        before = content_at(path, evidence.search.study, evidence.space)
        edits.append(Edit(path, before, content_at(path, valid.study, valid.space), proposed.why))
        draft = valid
    return edits, refusals, draft


def _first_valid(proposed: ProposedEdit, draft: Draft) -> tuple[Draft | None, str]:
    """Return the draft with the first change that makes a valid search, or why none does."""
    refusal = "no wider range is valid"
    for to in proposed.to:
        try:
            return draft.changed(proposed.path, to), ""
        except FaultyInput as error:
            refusal = f"{proposed.why}, but {_shown(to)} is refused: {'; '.join(map(str, error.faults))}"
        except UserError as error:
            refusal = f"{proposed.why}, but {_shown(to)} is refused: {error}"
    return None, refusal


def _shown(to: Any) -> str:
    if isinstance(to, Mapping):
        return "{" + ", ".join(f"{name}: {value}" for name, value in to.items()) + "}"
    return str(to)
