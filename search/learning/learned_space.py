"""The space of a study, with what the earlier searches that it names teach as beliefs in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from search.learning.lessons import LEARN_FROM, Lesson, Likeness, likeness, with_lessons
from search.learning.standings import LEAST_TRIALS, positions
from search.record.folder import read_facts, read_record, read_search
from search.record.home import Home
from search.record.record import Record
from search.record.storage import local_folder
from search.study import Study, StudyError
from search.study.space import LearnedSpace, SpaceBuilder, build_space
from search.study.study import absolute
from spaces.catalog.overrides import OVERRIDES
from spaces.conditions import holds, kind_of, options_of, scalars_of, value_of
from spaces.domains import Value, Values, counted
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rules import RULES
from spaces.space import NOTHING_BELIEVED, Dimension, Space
from trainable.data import DataInfo
from trainable.errors import Fault, UserError
from trainable.files.paths import without_tilde
from trainable.files.store import is_uri
from trainable.recipe import LEARNING_RATES
from trainable.recipe.metrics import Mode
from trainable.recipe.models import MODEL_NAME

if TYPE_CHECKING:  # SciPy takes a second to import
    from search.deciding.observations import Observation
    from search.learning.optimum import Optimum


@dataclass(frozen=True)
class Earlier:
    """An earlier search: its facts, its settled space and its record."""

    address: str
    facts: Facts
    space: Space
    record: Record
    metric: str
    mode: Mode

    @property
    def name(self) -> str:
        """The search's name."""
        return self.record.name

    @cached_property
    def observed(self) -> list[Observation]:
        """Its trials that are points of its space and have a result: a score, or an end that says as much
        (diverged, infeasible)."""
        from search.deciding.cube import Cube
        from search.deciding.observations import Observations

        observations = Observations(Cube(self.space), self.mode)
        for trial in self.record.trials:
            if trial.is_repeat or positions(self.space, trial) is None:
                continue
            observations.add(trial.id, trial.values)
            excesses = self.record.excesses(trial.id)
            observations.tell(trial.id, trial.end or "stopped", trial.scores(self.metric), excesses)
        return observations.observed

    @cached_property
    def optima(self) -> Mapping[str, Optimum]:
        """Where the best value of each dimension may lie, by its name; empty after too few trials, and where
        nothing varies."""
        from search.learning.optimum import optima

        teaches = self.space.dimensions and len(self.observed) >= LEAST_TRIALS
        return optima(self.space, self.observed) if teaches else {}

    def best_values(self, dimension: Dimension) -> Values | None:
        """Return the values of the best trial that has a dimension; None where none has."""
        for each in sorted(self.observed, key=lambda observed: observed.rank):
            values = self.record.trials[each.trial].values
            if dimension.name in self.space.named(values):
                return values
        return None


def earlier_searches(study: Study) -> tuple[Earlier, ...]:
    """Return the searches that a study learns from, in its order; a search in a store is copied first.

    Raises StudyError with every fault: a folder that is no search, a journal that is damaged or has another
    format, a search without an ended trial or with another objective, the search itself, and one that is
    named twice.
    """
    own = absolute(Home.of(study).address) if study.name is not None else None
    opened: dict[str, Earlier] = {}
    faults: list[Fault] = []
    for at, address in enumerate(study.space.learn_from):
        where = f"{LEARN_FROM}.{at}"
        if absolute(address) == own:
            faults.append(Fault(where, f"{address}: is this search itself; leave it out"))
            continue
        try:
            earlier = _opened(address)
        except UserError as error:
            faults.append(Fault(where, str(error)))
            continue
        if fault := _objective_fault(earlier, study):
            faults.append(Fault(where, f"{address}: {fault}"))
        if (twice := opened.setdefault(str(earlier.record.search_id), earlier)) is not earlier:
            faults.append(Fault(where, f"{address}: is the search {twice.address} again; leave it out"))
    if faults:
        raise StudyError(faults)
    return tuple(opened.values())


def _opened(address: str) -> Earlier:
    """Return a search. Raises UserError where there is none, and where no trial of it has ended."""
    folder = local_folder(address) if is_uri(address) else without_tilde(address)
    if folder.is_file():
        raise UserError(f"{address}: is a file; give a search's folder, or write a recipe in first")
    if not folder.is_dir():
        raise UserError(f"{address}: no such folder")
    study, record = read_search(folder), read_record(folder)
    facts, _ = read_facts(folder)
    space, settled = record.space(), record.settled
    if space is None or settled is None or not any(each.ended for each in record.trials):
        raise UserError(f"{address}: no trial of this search has ended, so there is nothing to learn")
    metric = settled.objective
    return Earlier(address, facts, space, record, metric, settled.mode or study.objective.direction)


def _objective_fault(earlier: Earlier, study: Study) -> str | None:
    ours, theirs = (
        f"{study.objective.metric} ({study.objective.direction})",
        f"{earlier.metric} ({earlier.mode})",
    )
    if ours == theirs:
        return None
    return f"its objective is {theirs}, that of this study is {ours}: its trials say nothing of that"


def space_of(study: Study, facts: Facts, info: DataInfo) -> LearnedSpace:
    """Return the space that a new search of a study draws from; `space.learn_from` is read.

    Raises UserError (StudyError, SpaceError).
    """
    return learning_space(study)(facts, info)


def learning_space(study: Study) -> SpaceBuilder:
    """Open the searches that a study learns from, and return what builds its space. Raises StudyError."""
    return partial(learned_space, study, earlier=earlier_searches(study))


def learned_space(
    study: Study, facts: Facts, info: DataInfo, earlier: Sequence[Earlier] = ()
) -> LearnedSpace:
    """Return what `space_of` returns, from earlier searches that are open already."""
    space = build_space(study, facts, info)
    if not earlier:
        return LearnedSpace(space)
    alike = [likeness(each.facts, facts) for each in earlier]
    pairs = list(zip(earlier, alike, strict=True))
    lessons = {
        dimension.name: [_lesson(each, likes, space, dimension, facts) for each, likes in pairs]
        for dimension in space.dimensions
        # what a person wrote to believe of a field is left as it is
        if dimension.beliefs == NOTHING_BELIEVED or not dimension.source.startswith(OVERRIDES)
    }
    learned = tuple(
        with_lessons(each, [lesson for lesson in lessons.get(each.name, ()) if lesson is not None])
        for each in space.dimensions
    )
    lines = tuple(
        _line(each, likes, space, {name: found[at] for name, found in lessons.items()})
        for at, (each, likes) in enumerate(pairs)
    )
    return LearnedSpace(replace(space, dimensions=learned), lines)


def _lesson(
    earlier: Earlier, likes: Likeness, space: Space, dimension: Dimension, facts: Facts
) -> Lesson | None:
    """Return what a search says of a dimension; None where that search does not vary the field."""
    theirs = next(
        (
            each
            for each in earlier.space.dimensions
            if each.path == dimension.path
            and each.name in earlier.optima
            and set(_kinds(space, dimension)) <= set(_kinds(earlier.space, each))
        ),
        None,
    )
    if theirs is None:
        return None
    rule = _rule_value(earlier, theirs, facts)
    return Lesson(earlier.name, earlier.optima[theirs.name], theirs.domain, rule, likes)


def _kinds(space: Space, dimension: Dimension) -> tuple[Value, ...]:
    """Return the kinds of its section that have a dimension: SGD's rate says nothing of Adam's."""
    kind = kind_of(dimension.path)
    if kind == dimension.path:
        return ()
    if dimension.when is not None and dimension.when.path == kind:
        return dimension.when.values
    return options_of(space.dimensions).get(kind, (value_of(space.base, kind),))


def _rule_value(earlier: Earlier, dimension: Dimension, facts: Facts) -> float | None:
    """Return where this version's rule looks first, given an earlier search's facts and its best trial.

    The rule is asked anew, since another version may have begun that search, or a person may have written
    beliefs for it. None where no rule says where to look, and where a sweep moved the rates of only one of
    the two searches.
    """
    swept = dimension.path in LEARNING_RATES and (facts.lr_band is None) != (earlier.facts.lr_band is None)
    rules = [rule for rule in RULES if rule.path == dimension.path]
    values = earlier.best_values(dimension)
    if swept or not rules or values is None:
        return None
    recipe = earlier.space.recipe(values)
    scalars = scalars_of(recipe)
    network = earlier.facts.of_network(scalars.get(MODEL_NAME))
    rulings = [rule.of(network, scalars) for rule in rules if holds(rule.when, recipe)]
    priors = [each.prior for each in rulings if each is not None]
    return next((each.centre for each in priors if isinstance(each, Normal)), None)


def _line(earlier: Earlier, likes: Likeness, space: Space, lessons: Mapping[str, Lesson | None]) -> str:
    """Return what a search taught and with what weight, or why it taught nothing."""
    common = [
        (dimension, lesson)
        for dimension in space.dimensions
        if (lesson := lessons.get(dimension.name)) is not None
    ]
    taught = sum(with_lessons(dimension, [lesson]) != dimension for dimension, lesson in common)
    if why := _why_nothing(earlier, len(common), taught):
        return f"{earlier.address}: nothing is learned: {why}"
    apart = f": {'; '.join(likes.words)}" if likes.words else ""
    weight = f"weight {likes.share:.0%} of that of a search with the same facts{apart}"
    which = f"{taught} of {counted(len(common), 'field')} that both vary"
    return f"{earlier.address}: {len(earlier.observed)} trials teach {which} ({weight})"


def _why_nothing(earlier: Earlier, common: int, taught: int) -> str | None:
    """Return why a search taught nothing; None where it taught `taught` of the `common` fields."""
    if (count := len(earlier.observed)) < LEAST_TRIALS:
        return f"only {count} of its trials have a result, and at least {LEAST_TRIALS} are needed"
    if not earlier.space.dimensions:
        return "nothing varies in it"
    if not earlier.optima:
        return f"luck explains the scores of its {count} trials as well as their values do"
    if not common:
        return "it varies none of the fields that are free here"
    if not taught:
        return f"its {count} trials show no best value of {counted(common, 'field')} that both vary"
    return None
