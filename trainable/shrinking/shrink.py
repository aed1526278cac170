"""Prunes a trained network, trains it a little more with several seeds, and measures what that costs and
saves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import nn

from trainable.bench import HERE, Bench
from trainable.bundle.trained import Trained
from trainable.data import Split
from trainable.errors import DataError, UserError
from trainable.models.libraries import title_of
from trainable.models.widths import Widths, make_narrow, widths_between
from trainable.origins import Origins, versions
from trainable.probes.network_cost import count_flops
from trainable.recipe import Recipe
from trainable.recipe.distillation import TEACHER
from trainable.recipe.provenance import Provenance
from trainable.recipe.trained_files import MODEL_FILE, PRUNED_FILE, RECIPE_FILE, TRAINING_FILE, teacher_files
from trainable.recipe.yamlfile import write_recipe, write_whole
from trainable.run import make_run
from trainable.shrinking.fine_tuning import SeededRuns, Tuned, scores_of, seeds_of
from trainable.shrinking.latency import Latency, latencies
from trainable.shrinking.prune import Pruned, prune
from trainable.stages import stage
from trainable.train import model_file, threads_of
from trainable.training.devices import device_name
from trainable.training.evaluate import Scores
from trainable.training.metrics import OBJECTIVES, sign_of
from trainable.training.network import make_network
from trainable.training.run import PREFIXES
from trainable.training.seeds import Use, derive, global_generators

# The networks that are compared. The distilled one is fine-tuned for as many epochs, and learns from the
# unpruned one too. The last has the pruned one's layers and new weights (Liu et al., arXiv 1810.05270,
# section 3: Scratch-E).
UNPRUNED, PRUNED, TUNED, DISTILLED, SCRATCH = "unpruned", "pruned", "fine-tuned", "distilled", "from scratch"


@dataclass(frozen=True)
class NarrowCost:
    """What a network costs: numbers that training adjusts, operations an image, bytes of its file, and
    latencies by batch."""

    parameters: int
    flops: int
    file_bytes: int
    latencies: Mapping[int, Latency]


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A pruned network beside the one that it was made of: what both score, and what both cost."""

    trained: Trained
    recipe: Recipe  # of the fine-tuning that gave `tuned`, without its seeds
    pruned: Pruned
    widths: Widths  # as the network is narrower than the recipe's, which may have been pruned before
    # by the network's name the scores of each seed, by part; one for a network that was not trained here
    scores: Mapping[str, tuple[Mapping[Split, Scores], ...]]
    tuned: tuple[Tuned, ...]  # the distilled networks, or the fine-tuned ones: of these the best is kept
    costs: Mapping[str, NarrowCost]  # of the whole and the pruned network; every narrow one costs the same
    origins: Origins  # of the fine-tuning, read before it: it begins from no file of weights

    @property
    def parts(self) -> tuple[Split, ...]:
        """The parts that were scored."""
        return tuple(self.scores[UNPRUNED][0])

    @property
    def kept(self) -> str:
        """The name of the networks in `tuned`."""
        return DISTILLED if DISTILLED in self.scores else TUNED

    @property
    def metric(self) -> str:
        """The metric by which the networks are judged, such as `val_accuracy`."""
        return metric_of(self.trained, self.scores[UNPRUNED][0]["validation"])

    @property
    def best(self) -> Tuned:
        """The kept network with the best score on the validation part; of equals the first."""
        sign, name = sign_of(OBJECTIVES[self.metric]), self.metric.removeprefix("val_")
        return max(self.tuned, key=lambda each: sign * each.scores["validation"].by_name()[name])


def shrink(  # noqa: PLR0913 - a person types these by name
    trained: Trained,
    recipe: Recipe,
    share: float,
    *,
    seeds: int = 3,
    taught: Recipe | None = None,
    test: bool = False,
    scratch: bool = False,
    bench: Bench = HERE,
) -> Shrunk:
    """Return a network pruned to at most a share of its operations and fine-tuned by a recipe, once for each
    seed, compared with the one that it was made of.

    `taught` is the recipe of a second fine-tuning, from the same pruned network and with the same seeds,
    whose teacher is the network that is pruned; `test` scores the test part too; `scratch` trains the narrow
    layers from new weights as well, by the recipe that trained the whole network, also where that was pruned
    before. Raises ModelError for a network that cannot be pruned, DataError where there is no test part,
    UserError where it is not known what trained the whole network, and RunError where a run diverges.
    """
    data, info = trained.data, trained.data.info
    parts: tuple[Split, ...] = ("validation", "test") if test else ("validation",)
    _check_asked(trained, taught, test=test)
    anew = training_from_scratch(trained) if scratch else None
    for each in (recipe, anew):
        if each is not None:
            _check_same_teacher(trained, each)
    origins = replace(Origins.of_files(taught or recipe, info), weights=None)
    whole, title = trained.network(), title_of(trained.recipe.model)
    shape = (info.channels, info.image_size, info.image_size)
    with threads_of(trained.recipe.provenance, bench):
        with stage("pruning the network"):
            pruned = prune(whole, shape, share, title=title)
        widths = widths_between(recipe_network(trained), pruned.network)
        one = "a window" if info.task.windowed else "an image"
        bench.say(f"pruned to {pruned.share:.1%} of {pruned.before.total:,} operations {one}")
        scored = partial(scores_of, recipe=recipe, data=data, parts=parts, bench=bench)
        scores: dict[str, tuple[Mapping[Split, Scores], ...]] = {}
        with stage("scoring the network before and after pruning"):
            scores |= {UNPRUNED: (scored(whole),), PRUNED: (scored(pruned.network),)}
        metric = metric_of(trained, scores[UNPRUNED][0]["validation"])
        runs = SeededRuns(data, seeds_of(trained.recipe, seeds), parts, metric, bench)
        if taught is not None:
            _check_teacher(taught, trained, pruned, bench)
        tuned: tuple[Tuned, ...] = ()
        for name, tuning in {TUNED: recipe, DISTILLED: taught}.items():
            if tuning is not None:
                tuned = tuple(runs.of(tuning, lambda _: copy.deepcopy(pruned.network), name))
                scores[name] = tuple(each.scores for each in tuned)
        if anew is not None:
            made = runs.of(anew, partial(draw_narrow, trained, widths), SCRATCH)
            scores[SCRATCH] = tuple(each.scores for each in made)
        with stage("measuring how fast the networks answer"):
            costs = _costs(trained, recipe, pruned, whole, bench.device)
    return Shrunk(trained, taught or recipe, pruned, widths, scores, tuned, costs, origins)


def _check_same_teacher(trained: Trained, recipe: Recipe) -> None:
    """Raise UserError where the teacher that taught the whole network has other weights or another recipe
    now: networks that two teachers taught cannot be compared."""
    whole = trained.whole_training or trained.recipe
    own, now = whole.distillation, recipe.distillation
    if own is None or now is None or own.teacher != now.teacher:
        return
    known, files = Origins.of(whole.provenance), Origins.of_files(recipe, trained.data.info)
    teacher = replace(known, teacher=files.teacher, teacher_recipe=files.teacher_recipe)
    if changes := list(known.changes(teacher, recipe)):
        raise UserError(
            f"{'; '.join(changes)}: put the former back, or name another teacher, --set {TEACHER}=DIR"
        )


def _check_teacher(taught: Recipe, trained: Trained, pruned: Pruned, bench: Bench) -> None:
    """Raise ModelError where the teacher cannot be loaded, or has nothing that the pruned network learns."""
    make_run(taught, data=trained.data, model=copy.deepcopy(pruned.network), bench=bench).close()


def metric_of(trained: Trained, scores: Scores) -> str:
    """Return the metric by which networks made of a trained one are judged: the objective of the search that
    its recipe came from, if these scores have it, or else `val_mean_iou` for masks, `val_accuracy` for
    labels."""
    known = (trained.whole_training or trained.recipe).provenance
    objective = known.objective if known is not None else None
    measured = scores.metrics("val")
    default = trained.data.info.task.objectives[0]
    return objective if objective in OBJECTIVES and objective in measured else default


def _check_asked(trained: Trained, taught: Recipe | None, *, test: bool) -> None:
    """Raise UserError for what could not be compared, before any training."""
    recipe = trained.recipe
    if test and trained.data.test is None:
        raise DataError(f"data.path {recipe.data.path}: there is no test part to score")
    if taught is not None and trained.build is not None:
        raise UserError(
            f"distillation: {title_of(recipe.model)} is code of yours, which no file names: it cannot be "
            "loaded as the teacher of a pruned network"
        )


def training_from_scratch(trained: Trained) -> Recipe:
    """Return the recipe by which the narrow layers are trained from new weights: the one that trained the
    whole network. Raises UserError where it is not known, or begins from weights, and ModelError where the
    files of its teacher are missing."""
    recipe = trained.whole_training
    if recipe is None:
        raise UserError(
            f"--scratch: the network was pruned before, and there is no {TRAINING_FILE} beside it: the "
            "recipe of its fine-tuning has too few epochs for new weights; put the recipe that trained the "
            f"whole network there as {TRAINING_FILE}, or leave --scratch out"
        )
    if recipe.model.weights is not None:
        raise UserError(
            f"--scratch: the recipe begins from the weights {recipe.model.weights!r}, which fit no "
            "narrower network: from new weights it would lose for want of them"
        )
    if recipe.distillation is not None:
        teacher_files(recipe.distillation)
    return recipe


def draw_narrow(trained: Trained, widths: Widths, seed: int) -> nn.Module:
    """Return the narrow network with new weights: the first of those that the recipe draws for a layer."""
    with global_generators(torch.device("cpu"), derive(seed, Use.WEIGHTS)):
        network = recipe_network(trained)
    make_narrow(network, widths)
    return network


def recipe_network(trained: Trained) -> nn.Module:
    """Return the recipe's own network, untrained and as wide as the recipe builds it."""
    spec = trained.recipe.model.model_copy(update={"weights": None})
    return make_network(spec, trained.data.info, build=trained.build)


def _costs(
    trained: Trained, recipe: Recipe, pruned: Pruned, whole: nn.Module, device: torch.device
) -> dict[str, NarrowCost]:
    info = trained.data.info
    networks = {UNPRUNED: copy.deepcopy(whole), PRUNED: copy.deepcopy(pruned.network)}
    times = latencies(networks, (info.channels, info.image_size, info.image_size), recipe, device)
    flops = {UNPRUNED: pruned.before.total, PRUNED: pruned.after.total}
    return {
        name: NarrowCost(
            sum(each.numel() for each in network.parameters()),
            flops[name],
            len(model_file(network.state_dict(), recipe, info)),
            times[name],
        )
        for name, network in networks.items()
    }


def write_shrunk(shrunk: Shrunk, folder: Path) -> None:
    """Write the best of the kept networks, as `tunebook train --out` would, and in what it is narrower.

    The folder then holds `recipe.yaml`, the fine-tuning, `model.safetensors`, `pruned.json`, and in
    `training.yaml` the recipe that trained the whole network, where that is known; `trained_in(FOLDER)` and
    `network_in(FOLDER)` read them.
    """
    recipe, best = _with_provenance(shrunk), shrunk.best
    write_recipe(folder / RECIPE_FILE, recipe)
    write_whole(folder / MODEL_FILE, model_file(best.weights, recipe, shrunk.trained.data.info))
    write_whole(folder / PRUNED_FILE, shrunk.widths.content())
    if (training := shrunk.trained.whole_training) is not None:
        write_recipe(folder / TRAINING_FILE, training)


def _with_provenance(shrunk: Shrunk) -> Recipe:
    """Return the recipe of the best network's fine-tuning, with what it scored and by what it was made.

    It names no objective: trained again, from the recipe's own network, it would not score the same.
    """
    best = shrunk.best
    scores = {
        name: value
        for part, each in best.scores.items()
        for name, value in each.metrics(PREFIXES[part]).items()
    }
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=scores,
        pruned=_share_of_own(shrunk),
        threads=torch.get_num_threads(),
        device=device_name(HERE.device),
        versions=versions("torch-pruning"),
    )
    seeded = shrunk.recipe.with_values({"loop.seed": best.seed})
    rests_on = shrunk.origins.provenance()
    return seeded.model_copy(update={"provenance": provenance.model_copy(update=rests_on)})


def _share_of_own(shrunk: Shrunk) -> float:
    """Return the share that is left of the operations of the recipe's network, which may have been pruned
    before."""
    info = shrunk.trained.data.info
    own = count_flops(recipe_network(shrunk.trained), (info.channels, info.image_size, info.image_size))
    return round(shrunk.pruned.after.total / own.total, 4)
