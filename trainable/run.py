"""Makes the run of a recipe: loads its images, makes its network and its task, and joins what trains them.

run = make_run(Recipe())
while not run.finished:
    print(run.step().val_accuracy)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from trainable.bench import HERE, Bench
from trainable.data import DataSet
from trainable.data.arrays import as_tensor
from trainable.data.info import DataInfo
from trainable.data.loading import check_form
from trainable.models.own import BuildModel
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.tasks.distilled.task import distilled
from trainable.tasks.kits import kit_of, load_for, make_loader
from trainable.training import precision, seeds
from trainable.training.batches import MicroBatches, Order
from trainable.training.compiling import compile_in_place
from trainable.training.extra_metrics import Own, make_extra_metrics
from trainable.training.frozen_features import FrozenFeatures
from trainable.training.images import Images
from trainable.training.network import (
    check_recipe,
    check_sizes,
    fewest_at_once,
    given_or_made,
    layout_of,
    placed,
    stands_alone,
    with_loop_layers,
)
from trainable.training.pixels import resolved, views_of
from trainable.training.precision import Compute
from trainable.training.run import Components, Run
from trainable.training.scoring import ReadParts, Scoring
from trainable.training.seeds import Use
from trainable.training.step import TrainingStep
from trainable.training.task import Task
from trainable.training.trainer import Trainer


def make_run(  # noqa: PLR0913 - a person types these by name
    recipe: Recipe,
    *,
    data: DataSet | None = None,
    model: nn.Module | BuildModel | None = None,
    task: Task | None = None,
    ranks: Ranks = ALONE,
    bench: Bench = HERE,
    metrics: Own | None = None,
    on_batch: Callable[[], None] = lambda: None,
    on_pause: Callable[[], None] = lambda: None,
) -> Run:
    """Return the run of a recipe on one device, as one of `ranks`.

    Args:
        recipe: what to train; `run.recipe` is the same recipe, with every open field of `data` filled in.
        data: the images, if they are loaded already; else they are loaded, and decoded as `data.cache` says.
        model: a network of your own, [B, C, H, W] -> logits [B, classes], instead of `recipe.model`, or the
            function that builds it. It is moved to the device and trained in its own number format.
        task: what is learnt, instead of `recipe.task`: docs/tasks.md says how one is written.
        ranks: the other processes of a data-parallel run. Every rank makes its run with the same recipe and
            data; the weights of rank 0 are used.
        bench: the device, the run's share of it, and whether weights that a library publishes may be fetched.
        metrics: functions that score the validation part beside `evaluation.metrics`, by name. Each takes
            probabilities [N, classes] and labels [N] of the whole part, on the CPU, and every rank calls it;
            `{"f_beta": f}` gives `val_f_beta`. Higher is better, unless it is a `Metric` that says otherwise.
        on_batch: called for each micro-batch, as a sign of progress.
        on_pause: called in long epochs, every `trainer.SEGMENT_STEPS` steps: a state saved then is whole.

    The caller's random generators do not change. Raises UserError, before any training, for what the recipe,
    the data or the model make impossible.
    """
    device, alone = bench.device, stands_alone(model, recipe.model)
    shown = data or load_for(recipe, bench, own_model=alone)
    recipe, info = resolved(recipe, shown, bench, own_model=alone), shown.info
    check_form(shown, recipe)  # before a network of another task is looked for
    check_recipe(recipe, info, ranks)
    compute = Compute(device, precision.resolve(recipe.precision, device), ranks)

    extra_metrics = make_extra_metrics(recipe.evaluation.metrics, metrics or {}, info.classes)
    task = task or kit_of(recipe.task).task(recipe, info, device, extra_metrics)
    if not task.measures_itself:
        extra_metrics.check_fits(max(info.validation_images, info.test_images), device)
    network, fewest = _network(recipe, info, model, compute, bench)
    task = distilled(task, recipe, network, info, compute.number_format, given=model)

    micro_batches = MicroBatches.of(recipe.loop, ranks, fewest)
    step = TrainingStep(recipe, network, task, compute, micro_batches)
    order = Order(as_tensor(shown.train.labels), recipe.loop)
    trainer = Trainer(recipe, step, order, info.image_size)
    one_size = recipe.augmentation.size.kind == "fixed"
    compiled = compile_in_place(network, recipe.loop.compile, one_size=one_size)

    if data is None:  # else it is the caller's choice: a probe reads a few images of millions
        shown.refuse_leaks(recipe.data)
        shown.be_here()
    images = Images(
        make_loader(shown, recipe, bench),
        network,
        device=device,
        layout=layout_of(recipe),
        decoded=info.in_memory or bool(shown.decoded_views()),
        on_batch=on_batch,
    )
    frozen = FrozenFeatures(
        recipe, info, network, images=images, compute=compute, views=views_of(recipe, info)
    )
    task.read_ahead(recipe, compute, images.train)
    read_parts = ReadParts(shown.parts, images.evaluate)
    scoring = Scoring(recipe, info, read_parts, task=task, extra_metrics=extra_metrics, compute=compute)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    components = Components(
        recipe=recipe,
        info=info,
        parts=shown.parts,
        trainer=trainer,
        images=images,
        scoring=scoring,
        frozen=frozen,
        extra_metrics=extra_metrics,
        own_network=alone,
        compiled=compiled,
    )
    return Run(components, on_pause)


def _network(
    recipe: Recipe,
    info: DataInfo,
    given: nn.Module | BuildModel | None,
    compute: Compute,
    bench: Bench,
) -> tuple[nn.Module, int]:
    """Return a run's network on its device, and how many images it trains on at once at least."""
    device, seed = compute.device, seeds.derive(recipe.loop.seed, Use.WEIGHTS)
    with seeds.global_generators(device, seed):
        network = given_or_made(given, recipe.model, info, bench)
        network = with_loop_layers(network, recipe, compute.ranks)
        if stands_alone(given, recipe.model):
            network = network.to(device)  # it may compute there alone
        # on the host, if it can be: a GPU would prepare kernels for these single images
        check_sizes(network, recipe, info)
        fewest = fewest_at_once(network, recipe, info, compute.ranks)
        return placed(network, recipe, compute.ranks, device), fewest
