"""`tunebook explain`: every range or value with a reason and a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from search.commands.facts_table import fact_rows, facts_table
from search.commands.forecast import Prospect, decoded, forecast_line, forecast_or_reason, forecast_tree
from search.commands.named import Input
from search.commands.options import ExplainOptions, bench_of, tell_fields
from search.commands.plan import PLAN, Plan, plan_rows, plan_table
from search.deciding.forecast import Forecast
from search.facts.hardware import check_gpu_hours, concurrent_trials, local_hardware, per_trial
from search.facts.measured import (
    Measured,
    cached_or_measured,
    load_data,
    with_networks,
    with_written_facts,
)
from search.facts.start import find_start
from search.learning.learned_space import space_of
from search.learning.search import Search
from search.learning.verdicts import untested
from search.reporting.tables import TextTable, full_table
from search.reporting.terminal import console, rows_table
from search.results.teachers import first_of, teacher_path
from search.study import Resources, Study
from search.study.first_trials import first_trials
from search.study.space import check_trials, far_rates, space_name
from spaces.catalog.catalog import just_missed
from spaces.catalog.explain import Row, evidence, recipe_rows, sections, space_rows
from trainable.bench import Bench
from trainable.collector import load_torch
from trainable.data import DataSet
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.data import refuse_missing


def run_explain(named: Input, options: ExplainOptions) -> None:
    """Print the explanation of a study, a recipe, a search, or of the default study of data alone.

    For a study and a search, the fields that are fixed are listed only where everything is asked for. Raises
    UserError, also for a study that `search` would refuse.

    The data and the model are inspected, since the ranges follow from them, unless an earlier command has
    inspected the same ones. For the forecast a few recipes of a study are tried for a second, as `search`
    tries them; nothing else is trained. Where a recipe's data are not available, its values are
    explained without what the documents would say for these data.
    """
    bench = bench_of(options)
    from search.commands.inputs import with_teachers

    parts = _parts(with_teachers(named), options.everything, bench)
    if options.as_json:
        _tell_trees(parts)
        return
    out = console()
    for part in parts:
        out.print(_drawn(part))
        out.print()


# a line, a table, what a search does, and what it takes, or why that is not known
Part = str | TextTable | Plan | Forecast | UserError


def _drawn(part: Part) -> RenderableType:
    match part:
        case str():
            return Text(part)
        case TextTable():
            return part
        case Plan():
            return plan_table(part)
        case Forecast() | UserError():
            return Text(forecast_line(part))


def _tell_trees(parts: Iterable[Part]) -> None:
    """Print the parts of an explanation as JSON; the forecast stands beside them."""
    trees, forecast = list[dict[str, object]](), dict[str, object]()
    for part in parts:
        match part:
            case str():
                trees.append({"line": part})
            case TextTable():
                rows = [dict(zip(part.columns, map(str, row), strict=True)) for row in part.rows]
                trees.append({"title": part.title.strip(), "rows": rows})
            case Plan():
                lines = [{"name": name, "words": words} for name, words in plan_rows(part)]
                trees.append({"title": PLAN, "rows": lines})
            case Forecast() | UserError():
                forecast = forecast_tree(part)
    tell_fields({"parts": trees, **forecast})


def _parts(named: Input, everything: bool, bench: Bench) -> Iterator[Part]:
    match named:
        case Recipe() as recipe:
            yield from _of_recipe(recipe, bench)
        case Study() as study:
            yield from _of_space(*_planned(study, bench), everything)
        case Path() as folder:
            yield from _of_search(folder, everything)


def explained_rows(named: Input, everything: bool, bench: Bench) -> list[Row]:
    """Return every range of a study or a search, or every value of a recipe, with its reason and source;
    with `everything` also what is fixed in a study or a search."""
    match named:
        case Recipe() as recipe:
            trial = per_trial(Resources(), local_hardware())
            try:
                return recipe_rows(recipe, facts=cached_or_measured(recipe, trial, bench=bench).facts)
            except UserError:  # its data are not there
                return recipe_rows(recipe)
        case Study() as study:
            space = _planned(study, bench)[0].space
        case Path() as folder:
            space = Search(folder).space
    rows = space_rows(space)
    return rows if everything else rows[: len(space.dimensions)]


def _of_search(folder: Path, everything: bool) -> Iterator[Part]:
    """Yield a search that has begun, with its recorded facts, whatever has become of the data since."""
    search = Search(folder)
    study, measured = search.study, Measured(search.facts, search.info, recorded=True)
    facts = with_written_facts(measured.facts, study)
    plan = Plan(
        study=study,
        space=search.space,
        pruning=search.pruning,
        final=search.final,
        facts=facts,
        has_begun=True,
        first=first_of(search),
        learned=search.learned,
    )
    yield from _of_space(plan, measured, everything)
    if (verdicts := search.verdicts) is not None:
        few = "" if everything else untested(verdicts)
        if few and not verdicts.clear:
            yield f"{few}; --all lists them"
        else:
            yield full_table(verdicts, untested=few)


def _planned(study: Study, bench: Bench) -> tuple[Plan, Measured]:
    """Return what a search of a study would do, and what was measured for it. Raises UserError."""
    load_torch()
    hardware = local_hardware()
    trial = per_trial(study.resources, hardware)
    check_gpu_hours(study.budget, trial, hardware)
    start = find_start(study, trial.bench(bench))
    measured = cached_or_measured(start.recipe(study), trial, trials=study.budget.trials, bench=bench)
    facts = start.known_in(with_written_facts(measured.facts, study))
    facts = with_networks(facts, study, measured.info, bench=bench)
    learned = space_of(study, facts, measured.info)
    space = learned.space
    check_trials(study, space, facts)
    first = first_trials(study, space, measured.info, teacher_path)
    asked = Prospect(
        study=study,
        space=space,
        trial=trial,
        concurrent=concurrent_trials(study.concurrent, trial, hardware),
        info=measured.info,
        first=first,
    )

    def images() -> DataSet:
        data = load_data(start.recipe(study), trial.bench(bench))
        return decoded(data, bench)

    plan = Plan(
        study=study,
        space=space,
        pruning=asked.pruning,
        final=asked.final,
        forecast=lambda: asked.forecast(images, bench),
        facts=facts,
        start=start,
        first=first,
        learned=learned.lines,
    )
    return plan, measured


def _of_space(plan: Plan, measured: Measured, everything: bool) -> Iterator[Part]:
    study, space, facts = plan.study, plan.space, plan.facts
    yield facts_table(fact_rows(facts, measured, study.data, study))
    yield from measured.info.remarks
    yield plan
    if plan.forecast is not None:
        yield forecast_or_reason(plan.forecast)  # it takes seconds: what is known is printed before
    if not plan.has_begun and (warning := far_rates(study, space, facts)):
        yield warning
    rows = space_rows(space)
    varying, fixed = rows[: len(space.dimensions)], rows[len(space.dimensions) :]
    yield rows_table(f"space {space_name(study, facts)}: what varies", varying)
    if not plan.has_begun:
        for threshold, paths in just_missed(space_name(study, facts), space, facts).items():
            yield f"just missed: {' and '.join(paths)}: fixed, since {threshold}"
    if not plan.has_begun and (pages := evidence(space)):  # a search may have begun with other rules
        yield f"more on each rule, in tunebook's repository: {sections(space)[0]} and the sections below it"
        yield f"what these rules rest on: {', '.join(pages)}"
    if everything:
        yield rows_table("fixed", fixed)
    else:
        yield f"{len(fixed)} fields are fixed: --all lists them with reason and source"


def _of_recipe(recipe: Recipe, bench: Bench) -> Iterator[Part]:
    facts, sentence = None, recipe.sentence
    try:
        refuse_missing(recipe.data)  # torch takes seconds to import, and would find nothing
        measured = cached_or_measured(recipe, per_trial(Resources(), local_hardware()), bench=bench)
    except UserError as error:
        yield f"(explained without the facts of its data: {error})"
    else:
        facts, sentence = measured.facts, recipe.sentence_at(measured.info.image_size)
        yield facts_table(fact_rows(facts, measured, recipe.data))
        yield from measured.info.remarks
    yield rows_table(f"recipe {recipe.short_digest}: {sentence}", recipe_rows(recipe, facts=facts))
