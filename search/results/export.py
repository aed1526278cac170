"""`best.yaml` of a search: a trial's whole recipe, with reasons and its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from search.facts.hardware import local_hardware, per_trial
from search.facts.measured import cached_or_measured
from search.learning.cautions import cautions_about, gap_of
from search.learning.search import Search
from search.record.code import train_call
from search.record.folder import Caution, read_verification
from search.record.trials import Trial
from search.results.recipe_file import bare_text, recipe_text, values_that_matter
from search.study import Resources, Study
from spaces.catalog.explain import reasons
from spaces.domains import counted
from spaces.facts import Facts
from trainable.checks.finding import kept
from trainable.data import DataInfo
from trainable.diagnosis import image_interval
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose
from trainable.recipe.models import network_name
from trainable.recipe.provenance import FreshRuns, Provenance, Verification
from trainable.recipe.trained_files import of_pruned_network
from trainable.recipe.yamlfile import read_recipe, write_whole
from trainable.training.metrics import total_teacher_seconds


def train_command(file: Path) -> str:
    """Return the command that trains a recipe's file."""
    return f"tunebook train {quote(file.name)} --out model"


@dataclass(frozen=True)
class Exported:
    """A recipe with its provenance, the reason for each value, which one it is in words, and what is
    known of its images and of the hardware that it was trained on."""

    recipe: Recipe
    reasons: Mapping[str, Purpose]
    words: str
    info: DataInfo
    facts: Facts
    varied: frozenset[str] = frozenset()  # the fields that the search drew, by dotted path
    title: str = ""  # what the file is, as a sentence
    matters: str = ""  # a sentence on those of its values that matter most
    cautions: tuple[Caution, ...] = ()  # what to know of its search before it is trusted
    ended: str = ""  # why its search ended, where that was before its trials were
    train: Callable[[Path], str] = train_command  # what to type to train a file of it

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the recipe is trusted, briefly, a line each: by its search, and by its own
        record, which alone has a verification that was just made."""
        known = self.recipe.provenance.verification if self.recipe.provenance is not None else None
        gap = () if known is None else gap_of(known, self.cautions)
        others = (each for each in self.cautions if each.kind != "gap")
        return tuple(each.brief for each in (*others, *gap))

    def text(self, file: Path) -> str:
        """Return the recipe as the text of a file, with a head for people."""
        return recipe_text(self.recipe, self.reasons, self.varied, tuple(self._head(file)))

    def write(self, out: Path, *, bare: bool = False) -> None:
        """Write the recipe to a file; a `bare` one has no comments."""
        write_whole(out, (bare_text(self.recipe, self.varied) if bare else self.text(out)).encode())

    def _head(self, file: Path) -> Iterator[str]:
        yield self.title or f"A recipe of tunebook: {self.words}."
        yield f"Trained: {self.recipe.sentence}."
        if self.warnings:
            more = "show DIR" if self.title else f"check {quote(file.name)}"
            yield f"Before you trust it (`tunebook {more}` says more): {'; '.join(self.warnings)}"
        if self.ended:
            yield f"The search ended early: {self.ended}."
        yield f"Score: {score_in_words(self.recipe, self.info)}."
        info = self.info
        sizes = f"{counted(info.train_images, 'image')} to train, {info.validation_images:,} to validate"
        yield f"Data: {self.recipe.data.path}; {sizes}, {counted(len(info.classes), 'class', 'classes')}."
        if self.matters:
            yield f"{self.matters}."
        yield f"To train it again: {self.train(file)}"
        order = "What was searched stands first in each section. " if self.varied else ""
        yield f"{order}A number such as [3] is a source, at the end of this file."
        yield "`tunebook export ... --bare` writes it without comments."


def exported(search: Search, trial: int | None = None) -> Exported:
    """Return the best trial's recipe, or the named trial's. Raises UserError where the search has no such
    trial, or no finished one yet."""
    chosen = chosen_trial(search, trial)
    recipe = recipe_of(search, chosen)
    words = _in_words(chosen, search.study, recipe)
    what = "The best recipe" if chosen == search.best else "A recipe"
    trained = f", {chosen.state_in_words} after {counted(chosen.epochs, 'epoch')}"
    how_far = "" if chosen.state == "finished" else trained
    number = f"trial {chosen.id} of {len(search.trials)}{how_far}"

    def train(file: Path) -> str:
        name = Path(file.name)  # a file may be moved
        return train_call(name, search.study, search.code) or search.train_command(name, "tunebook")

    return Exported(
        recipe,
        reasons(recipe, search.space),
        words,
        search.info,
        search.facts,
        varied=frozenset(chosen.values),
        title=f"{what} of the search {search.record.name or search.folder.name} ({number}).",
        matters=values_that_matter(search, chosen),
        cautions=known_of(search, chosen),
        ended=(search.progress.outcome_reason or "") if search.state == "finished" else "",
        train=train,
    )


def known_of(search: Search, chosen: Trial) -> tuple[Caution, ...]:
    """Return what to know of a trial before it is trusted: all of the best one, of others what is so of the
    images."""
    return search.cautions if chosen == search.best else search.findings


def exported_file(file: Path) -> Exported:
    """Return the recipe of a file, with what this machine measures of its data. Raises UserError."""
    recipe = read_recipe(file)
    if (pruned := of_pruned_network(file, recipe)) is not None:
        raise UserError(
            f"{pruned}. An export of it would train another network than the one that it describes; "
            "`tunebook bundle DIR -o OUT` writes the pruned network, of the folder DIR that `tunebook "
            "shrink` left"
        )
    measured = cached_or_measured(recipe, per_trial(Resources(), local_hardware()))
    facts, provenance = measured.facts, recipe.provenance
    if provenance is not None and provenance.device is not None:
        kind = provenance.device.partition(" ")[0]  # the model of the device follows
        facts = facts.model_copy(update={"gpus": float(kind == "cuda")})
    metric = None if provenance is None else provenance.objective
    return Exported(
        recipe,
        reasons(recipe, facts=facts),
        words=f"recipe {recipe.short_digest} of {file.name}",
        info=measured.info,
        facts=facts,
        cautions=cautions_about(kept(measured.info) or (), recipe, measured.info, metric),
    )


def recipe_of(search: Search, chosen: Trial) -> Recipe:
    """Return a trial's whole recipe, with its provenance. Raises JournalError as `Trial.whole_recipe`."""
    recipe, info, facts = chosen.whole_recipe, search.info, search.facts
    micro_batch = chosen.metrics.get("micro_batch")  # what fitted into memory in the last epoch
    provenance = Provenance(
        search=search.record.name,
        trial=chosen.id,
        first=chosen.first.source if chosen.first is not None else None,
        mlflow_run_id=chosen.mlflow_run_id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        objective=search.progress.objective,
        metrics=_metrics(chosen),
        final=_fresh_runs(search, chosen),
        verification=_verification(search, chosen, recipe),
        data_digest=info.digest,
        files_digest=info.files,
        weights_digest=chosen.weights.get(network_name(recipe.model)) if recipe.model.weights else None,
        teacher_digest=chosen.teacher_digest,
        teacher_recipe=chosen.teacher_recipe,
        class_names=info.classes,
        threads=facts.cpus,
        device="cuda" if facts.gpus else "cpu",
        micro_batch=None if micro_batch is None else int(micro_batch),
        versions=dict(chosen.versions),
        git_commit=chosen.git_commit,
        code=search.code.digests if search.code is not None else {},
    )
    return recipe.model_copy(update={"provenance": provenance})


def _metrics(chosen: Trial) -> dict[str, float]:
    """Return the numbers of a trial's last epoch, what its network costs, and its teacher's time in all."""
    total = total_teacher_seconds(chosen.results)
    taught = {} if total is None else {"total_teacher_seconds": total}
    return {**chosen.metrics, **chosen.costs, **taught}


def _fresh_runs(search: Search, trial: Trial) -> FreshRuns | None:
    """Return what the trial's recipe came to in the final; None for a trial that has no estimate."""
    finals, settled = search.progress.finals, search.record.settled
    mine = [each for each in finals.finalists if each.trial == trial.id] if finals is not None else []
    if not mine or settled is None or settled.finalists is None:
        return None
    estimate, gap = mine[0].estimate, mine[0].gap
    if estimate is None or gap is None:
        return None
    return FreshRuns(
        metric=search.progress.objective,
        seeds=estimate.seeds,
        scores=estimate.scores,
        mean=estimate.mean,
        deviation=estimate.deviation,
        estimate=estimate.value,
        low=estimate.bounds[0],
        high=estimate.bounds[1],
        gap=gap,
        fresh_splits=settled.finalists.splits == "fresh",
    )


def _verification(search: Search, trial: Trial, recipe: Recipe) -> Verification | None:
    """Return what an earlier `--verify` has found of this very recipe; None where it was not asked."""
    kept = read_verification(search.folder)
    is_same = kept is not None and (kept.trial, kept.recipe) == (trial.id, recipe.digest())
    return kept.found if kept is not None and is_same else None


def chosen_trial(search: Search, trial: int | None) -> Trial:
    """Return the trial of this number, or else the best one. Raises UserError where there is none."""
    if trial is None:
        if search.best is None:
            raise UserError(f"{search.folder}: no trial has finished yet, so there is no best one to export")
        return search.best
    for candidate in search.trials:
        if candidate.id == trial:
            return candidate
    numbers = f"0 to {search.trials[-1].id}" if search.trials else "none yet"
    raise UserError(f"--trial {trial}: this search has no such trial; known: {numbers}")


def _in_words(trial: Trial, study: Study, recipe: Recipe) -> str:
    metric = study.objective.metric
    value = trial.metrics.get(metric)
    score = f"{metric} {value:.4f}" if value is not None else "no result yet"
    final = recipe.provenance.final if recipe.provenance is not None else None
    again = f", with fresh seeds {final.estimate:.4f} ({final.sureness})" if final else ""
    return f"trial {trial.id} ({trial.state_in_words}, {score}{again}, recipe {recipe.short_digest})"


def score_in_words(recipe: Recipe, info: DataInfo) -> str:
    """Return what a recipe scored, by its provenance, and how sure that is."""
    known = recipe.provenance
    if known is None or known.objective is None or known.objective not in known.metrics:
        return "not known"
    metric = known.objective
    score = known.metrics[metric]
    if (check := known.verification) is not None:
        return check.words()
    if (final := known.final) is not None:
        runs = counted(len(final.seeds), "run")
        mean = f"{metric} {final.estimate:.4f} ({final.sureness}) in {runs} with fresh seeds"
        return f"{mean}; {score:.4f} in the search"
    if (bounds := image_interval(metric, score, info.task, info.validation_images)) is None:
        return f"{metric} {score:.4f}, of one run"
    images = counted(info.validation_images, "image")
    return f"{metric} {score:.4f} (95 % interval {bounds[0]:.4f} to {bounds[1]:.4f}, of {images} and one run)"


def text_of_trial(trial: Trial, search: Search) -> str:
    """Return a trial's recipe as YAML; each value that a heuristic explains has its reason beside it."""
    recipe = trial.whole_recipe
    return recipe_text(recipe, reasons(recipe, search.space), trial.values.keys())
