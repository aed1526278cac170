"""A trial's weights, from its checkpoints: to ship them, or as a program that answers images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from search.learning.search import Search
from search.results.export import chosen_trial, known_of, recipe_of
from search.study.code import NO_CODE, Code
from trainable.bundle.programs import export_program
from trainable.bundle.trained import Trained, network_with, scored_weights, trained
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.checks.finding import causes_of_gaps
from trainable.errors import UserError
from trainable.tasks.exporters import exporter_of
from trainable.training.pixels import resolved_for

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from search.record.trials import Trial
    from trainable.data import DataSet
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel


def trained_trial(
    search: Search,
    trial: int | None = None,
    *,
    model: BuildModel | None = None,
    data: DataSet | MakeData | None = None,
) -> Trained:
    """Return the best trial, or the named one, with the weights of its newest checkpoint: the averaged ones
    if it was scored with these.

    `model` and `data` are the functions of a search that used a person's own. Raises UserError where there is
    no such trial, no checkpoint of it that can be read, or where the images are others now.
    """
    chosen = chosen_trial(search, trial)
    state, recipe = newest_state(search, chosen, "bundle DIR"), recipe_of(search, chosen)
    found = trained(recipe, scored_weights(state), epochs=state["epoch"], model=model, data=data)
    known, verified = known_of(search, chosen), search.verified if chosen == search.best else None
    return replace(
        found,
        warnings=tuple(each.seen for each in known if each.kind != "gap"),
        causes=causes_of_gaps(known),
        gap=None if verified is None else verified.found.gap,
    )


def best_program(search: Search, code: Code = NO_CODE) -> ExportedProgram:
    """Return the best trial's network as the program that a bundle has (`export_program`); no image is read.

    `code` makes a network of a person's own. Raises UserError before a trial has finished and where the best
    one has no checkpoint, ModelError where its network cannot be made here, and ExportError where torch
    cannot trace it.
    """
    best, info = chosen_trial(search, None), search.info
    recipe = resolved_for(best.whole_recipe, info)
    network = network_with(scored_weights(newest_state(search, best, "bundle DIR")), recipe, info, code.model)
    return export_program(exporter_of(recipe, info), network)


def newest_state(search: Search, chosen: Trial, then: str) -> Mapping[str, Any]:
    """Return the newest checkpoint of a trial. Raises UserError where it is of no use or there is none;
    `then` says what to do with the folder of a network that is trained instead."""
    if chosen.end == "diverged":
        raise UserError(f"trial {chosen.id} diverged: its weights are of no use; choose another one")
    address = search.home.checkpoints(chosen.id)
    state = CheckpointStore.at(address).newest_state()
    if state is None:
        why = ", as a stopped trial keeps none" if chosen.state == "stopped" else ""
        export = f"tunebook export {quote(str(search.folder))} --trial {chosen.id} -o recipe.yaml"
        raise UserError(
            f"{address}: no checkpoint of trial {chosen.id} that can be read{why}; train it: `{export}`, "
            f"`tunebook train recipe.yaml --out DIR`, and {then}"
        )
    return state
