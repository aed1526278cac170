"""Implements `tunebook refine`: a search's audit, and the next study with a reason for each change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from search.facts.start import Start
from search.learning.audit import audit
from search.learning.draft import Draft, content_at
from search.learning.evidence import Evidence, LeftAlone, ProposedEdit, SearchFinding
from search.learning.search import Search
from search.learning.verdict_words import effect
from search.record.home import names_below
from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.study import Study
from spaces.catalog.overrides import OVERRIDES
from trainable.errors import FaultyInput, UserError
from trainable.recipe.yamlfile import to_yaml, write_whole

NUMBERED = re.compile(r"(.*)-(\d+)")
LONGEST_NAME = 100


@dataclass(frozen=True)
class Edit:
    """One change of the study: the field, its value before and after, and why."""

    path: str
    before: str
    after: str
    why: str

    @property
    def field(self) -> str:
        """The name that a person uses: a dimension's name, or the path in the study."""
        return self.path.removeprefix(f"{OVERRIDES}.")


@dataclass(frozen=True)
class Refined:
    """The result of an audit."""

    summary: Summary
    compared_trials: int  # the number of trials that say something
    findings: tuple[SearchFinding, ...]
    left_alone: tuple[LeftAlone, ...]
    edits: tuple[Edit, ...]
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
    for each in audit(evidence):
        if isinstance(each, LeftAlone):
            left_alone.append(each)
            continue
        applied, refusals, draft = _apply_edits(each.proposed_edits, evidence, draft)
        left_alone += refusals
        for edit in applied:
            edits[edit.path] = _merged(edits.get(edit.path), edit)
        if applied or each.advice or not each.proposed_edits:
            findings.append(each)
    changed = tuple(edits.values())
    verdicts = search.verdicts or Verdicts()
    left = tuple(_with_contradicted(verdicts, left_alone, {each.field for each in changed}))
    following = _next(evidence, draft.study)
    return Refined(evidence.summary, len(evidence.compared_trials), tuple(findings), left, changed, following)


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
        found, refusal = _first_valid(proposed, draft)
        if found is None:
            refusals.append(LeftAlone(proposed.path.removeprefix(f"{OVERRIDES}."), refusal))
            continue
        path = proposed.path
        before = content_at(path, evidence.search.study, evidence.space)
        edits.append(Edit(path, before, content_at(path, found.study, found.space), proposed.why))
        draft = found
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


def _merged(before: Edit | None, edit: Edit) -> Edit:
    return edit if before is None else replace(edit, before=before.before, why=f"{before.why}; {edit.why}")


def _next(evidence: Evidence, study: Study) -> Study:
    """Return the study with a free name and a new seed; the old seed would repeat the first draws."""
    name = next_name(study.name or evidence.summary.search or "search", names_below(study.storage))
    return study.model_copy(update={"name": name, "seed": (study.seed + 1) % 2**32})


def _shown(to: Any) -> str:
    if isinstance(to, Mapping):
        return "{" + ", ".join(f"{name}: {value}" for name, value in to.items()) + "}"
    return str(to)
