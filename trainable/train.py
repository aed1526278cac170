"""Trains one recipe from beginning to end and writes its files: the function behind the command `train`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from trainable.bench import HERE, Bench, Say
from trainable.checks.finding import causes_of_gaps, kept
from trainable.data import DataInfo, DataSet
from trainable.data.assembly import MakeData, make_own
from trainable.data.loading import statistics_of
from trainable.debug_tools import tools_named
from trainable.diagnosis import Diagnosis, diagnose
from trainable.errors import DataError
from trainable.files.folders import check_can_be_made
from trainable.models.own import BuildModel, name_of
from trainable.models.weights import METADATA, STATISTICS
from trainable.origins import DIGITS, Origins, differences, digests_of, provenance_of
from trainable.outcome import Outcome
from trainable.probes.speed import measure_speeds
from trainable.recipe import Recipe
from trainable.recipe.data import ChannelStatistics
from trainable.recipe.network_cost import fastest, pays_to_compile, pays_to_time
from trainable.recipe.provenance import Provenance
from trainable.recipe.trained_files import (
    METRICS_FILE,
    MODEL_FILE,
    RECIPE_FILE,
    check_keeps_teacher,
    with_absolute_teacher,
)
from trainable.recipe.training import Compiling
from trainable.recipe.yamlfile import write_recipe, write_whole
from trainable.run import make_run
from trainable.stages import counting, stage
from trainable.tasks.exporters import exporter_of
from trainable.tasks.kits import load_for
from trainable.training.bootstrap import Intervals, resampled_scores
from trainable.training.debug import debugging
from trainable.training.devices import problem_here, threads
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import Own
from trainable.training.metrics import EpochResult
from trainable.training.network import make_network, stands_alone
from trainable.training.pixels import as_weights_know
from trainable.training.run import PREFIXES, Run
from trainable.training.score_gap import ScoredPart, ScoreGaps, score_gaps
from trainable.training.seeds import global_generators


def train(  # noqa: PLR0913 - a person types these by name
    recipe: Recipe,
    *,
    data: DataSet | MakeData | None = None,
    model: nn.Module | BuildModel | None = None,
    out: str | Path | None = None,
    test: bool = False,
    predict: str | Path | None = None,
    bench: Bench = HERE,
    metrics: Own | None = None,
    debug: Sequence[str] = (),
) -> Outcome:
    """Train a recipe; score the test part if `test`; write three files to `out` if it is not None.

    `data` and `model` are images and a network of your own, or the functions that make them.

    The number of threads in the recipe's provenance is used again, and torch's setting is restored
    afterwards. `bench.say` gets a line for each epoch, and one for each way in which this machine or these
    data differ from the provenance. `out` receives `model.safetensors` (not if the run diverged: there is no
    model), `metrics.json` and `recipe.yaml`, each whole or not at all; the recipe names its
    teacher by an absolute path. `debug` names the tools of
    `trainable.training.debug` that are on; `profile` writes `profile.json` too.
    `predict` is a new folder that receives the masks which a segmentation predicts for the images of the test
    part, or of validation where there is none; nothing if the run diverged. `metrics` are functions of the
    caller's, as in `make_run`. Raises UserError before training if the run is impossible, and RunError for a
    crash.
    """
    tools = tools_named(debug)
    folder, masks = _checked("--out", out), _checked("--predict", predict)
    recipe = with_absolute_teacher(recipe)
    if folder is not None:
        check_keeps_teacher(folder, recipe)
    with threads_of(recipe.provenance, bench):
        images = images_of(recipe, data, bench, own_model=stands_alone(model, recipe.model))
        if test and images.test is None:
            raise DataError(f"data.path {recipe.data.path}: there is no test part to score")
        predictions = None
        if masks is not None:
            predictions = exporter_of(recipe, images.info).predictions(images, masks, folder)
        images.refuse_leaks(recipe.data)
        bench.say(recipe.sentence_at(images.info.image_size))
        for line in images.info.remarks:
            bench.say(line)
        with stage("decoding the images"):
            images.be_here(bench.say)
        if model is None:
            recipe = _as_timed(recipe, images, bench)
        else:
            recipe = _not_compiled(recipe, bench.say, "steps of a network of your own are not timed")
        with stage("building the network"):
            run = make_run(recipe, data=images, model=model, bench=bench, metrics=metrics)
        if run.compiled:
            bench.say(f"loop.compile: the first step compiles {run.compiled}")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            # before the run trains: a file of weights that is replaced meanwhile is not what it began from
            origins = Origins.of_run(run, digests_of(model=model, data=data))
            for line in differences(recipe.provenance, run, origins):
                bench.say(line)
            with debugging(tools, bench, folder):
                _train(run, bench.say)
            outcome = _finish(run, folder, test, origins)
            if predictions is not None and not run.diverged:
                scores = run.score(predictions.part, answers=True, take=predictions.take)
                bench.say(predictions.write(scores))
            return outcome
        finally:
            run.close()


def images_of(
    recipe: Recipe,
    data: DataSet | MakeData | None,
    bench: Bench = HERE,
    *,
    own_model: bool = False,
) -> DataSet:
    """Return the images of a run: those that are given, that a given function makes, or the recipe's."""
    if data is None:
        return load_for(recipe, bench, own_model=own_model)
    if isinstance(data, DataSet):
        return data
    spec = as_weights_know(recipe, bench, own_model=own_model).data
    if not spec.own:
        spec = spec.model_copy(update={"path": name_of(data), "format": "own"})
    return make_own(spec, data, resize=recipe.evaluation.resize, bench=bench)


@contextmanager
def threads_of(provenance: Provenance | None, bench: Bench) -> Iterator[None]:
    """Set torch's threads to the number in a provenance, which decides the last digits, or else to the
    bench's, and restore them afterwards."""
    wanted, say = provenance.threads if provenance is not None else None, bench.say
    with threads(wanted or bench.threads) as got:
        if wanted is not None and got != wanted:
            say(f"the recipe was trained with {wanted} threads, torch gives {got}: {DIGITS}")
        elif wanted is not None and wanted > (cores := os.cpu_count() or 1):
            say(f"the recipe was trained with {wanted} threads, this machine has {cores} cores: slower")
        yield


def _as_timed(recipe: Recipe, data: DataSet, bench: Bench) -> Recipe:
    """Return the recipe with what timed steps of its network say in place of `auto`, where timing them pays:
    number format and layout, as far as `precision` leaves them open, and whether to compile by blocks."""
    info, chooses, say = data.info, recipe.loop.compile == "auto", bench.say
    images = recipe.loop.epochs * info.train_images
    if not recipe.awaits_timing:
        return recipe
    if not pays_to_time(bench.kind, images):
        return _not_compiled(recipe, say, f"timing steps does not pay in {images:,} images of training")
    problem = problem_here(bench.kind, may_compile=True) if chooses else None
    compiling: Compiling = "blocks" if chooses and problem is None else False
    with global_generators(bench.device, recipe.loop.seed):
        model = make_network(recipe.model.model_copy(update={"weights": None}), info, bench=bench)
    speeds = measure_speeds(model, info, bench.device, recipe.precision, compiling=compiling)
    timed = ", ".join(map(str, speeds))
    if chooses:
        if problem is None and not any(each.compile_seconds is not None for each in speeds):
            problem = "steps of the compiled network cannot be timed here: memory runs out, or torch fails"
        if problem is None and pays_to_compile(speeds, images):
            say(f"loop.compile: blocks, which saves twice what it takes (timed, images a second: {timed})")
            recipe = recipe.with_values({"loop.compile": "blocks"})
        else:
            recipe = _not_compiled(recipe, say, problem or f"it does not save twice what it takes ({timed})")
    if recipe.precision.kind != "auto" or not speeds:
        return recipe
    best = fastest(speeds)
    say(f"precision: {best} images a second (timed: {timed})")
    return recipe.with_values(
        {"precision.kind": best.number_format, "precision.channels_last": best.channels_last}
    )


def _not_compiled(recipe: Recipe, say: Say, why: str) -> Recipe:
    if recipe.loop.compile != "auto":
        return recipe
    say(f"loop.compile: false: {why}")
    return recipe.with_values({"loop.compile": False})


def _train(run: Run, say: Say) -> None:
    """Train all epochs and say a line for each;
    it says one more if memory ran out and the micro-batch was cut."""
    asked, total = run.micro_batch, run.recipe.loop.epochs
    with stage("training"), counting("epoch", total) as epochs:
        while not run.finished:
            say(_line(run.step(), total))
            epochs.done = run.epoch
    if run.micro_batch < asked:
        say(
            f"memory ran out: {run.micro_batch} images at once instead of {asked}; loop.batch_size stayed "
            f"{run.recipe.loop.batch_size}"
        )


def _finish(run: Run, folder: Path | None, test: bool, origins: Origins) -> Outcome:
    if folder is not None and not run.diverged:
        write_whole(folder / MODEL_FILE, model_file(run.weights(), run.recipe, run.info))
    with stage("scoring the test part"):
        scores = run.score("test", confusion=True, answers=True) if test else None
        sure, gaps = _sureness(run, scores)
    named = {
        **_scores_in(run.history[-1]),
        **(scores.metrics(PREFIXES["test"]) if scores is not None else {}),
    }
    recipe = run.recipe.model_copy(update={"provenance": provenance_of(run, named, origins)})
    outcome = Outcome(recipe, run.history, scores, diagnosed(run), sure, gaps)
    if folder is not None:
        write_recipe(folder / RECIPE_FILE, recipe)
        write_whole(folder / METRICS_FILE, outcome.metrics_file())
    return outcome


def model_file(weights: Mapping[str, Tensor], recipe: Recipe, info: DataInfo) -> bytes:
    """Return the content of `model.safetensors`. Its metadata say which recipe it is of, and by what images
    were normalised, as `data.normalisation` for a run that begins from it."""
    mean, std = statistics_of(recipe.data, info)
    statistics = ChannelStatistics(mean=mean, std=std).model_dump(mode="json")
    # One entry: safetensors writes several in any order, and equal weights would differ in their bytes.
    metadata = {METADATA: json.dumps({"recipe": recipe.digest(), STATISTICS: statistics})}
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in weights.items()}
    return safetensors_bytes(tensors, metadata=metadata)


def _sureness(run: Run, test: Scores | None) -> tuple[Intervals | None, ScoreGaps | None]:
    """Return the intervals of the test scores, and how far those of validation are from them."""
    seed, extra = run.recipe.loop.seed, run.extra_metrics
    on_test = resampled_scores(test, extra, seed) if test is not None else None
    if test is None or on_test is None:
        return None, None
    validation = run.score("validation", answers=True)
    on_validation = resampled_scores(validation, extra, seed + 1)  # others than those of the test
    if on_validation is None:
        return on_test.intervals(), None
    spoken_of = ("accuracy", *(spec.kind for spec in extra.specs), *extra.own)
    parts = (
        ScoredPart(validation.by_name(), on_validation.metrics, validation.images, on_validation.images),
        ScoredPart(test.by_name(), on_test.metrics, test.images, on_test.images),
    )
    causes = causes_of_gaps(kept(run.info) or ())
    return on_test.intervals(), score_gaps(*parts, (*spoken_of, *run.task.compared), causes)


def diagnosed(run: Run) -> Diagnosis:
    """Return what the learning curves of a run say."""
    info = run.info
    return diagnose(
        run.history,
        run.recipe,
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )


def _checked(option: str, out: str | Path | None) -> Path | None:
    """Return the folder if it can be made and written to. It is made later, when nothing else prevents the
    run, so that a fault leaves nothing behind."""
    if out is None:
        return None
    folder = Path(out)
    check_can_be_made(folder, option)
    return folder


def _scores_in(result: EpochResult) -> dict[str, float]:
    """Return what the model scored, without how long it took."""
    return {name: value for name, value in result.metrics().items() if name.startswith(("train_", "val_"))}


def _line(result: EpochResult, epochs: int) -> str:
    state = "  diverged" if result.diverged else ""
    extra = "".join(f"{name} {value:.4f}  " for name, value in result.extra_metrics.items())
    return (
        f"epoch {result.epoch}/{epochs}  train_loss {result.train_loss:.4f}  val_loss {result.val_loss:.4f}  "
        f"val_accuracy {result.val_accuracy:.4f}  {extra}{result.epoch_seconds:.1f} s{state}"
    )
