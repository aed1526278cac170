"""Takes a trial's weights from its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search.results.export import chosen_trial, recipe_of
from search.results.search import Search
from trainable.bundle.trained import Trained, scored_weights, trained
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.errors import UserError

if TYPE_CHECKING:
    from trainable.data import DataSet
    from trainable.data.own import MakeData
    from trainable.models.own import BuildModel


def trained_trial(
    search: Search,
    trial: int | None = None,
    *,
    model: BuildModel | None = None,
    data: DataSet | MakeData | None = None,
) -> Trained:
    """Returns the best trial, or the named one, with the weights of its newest checkpoint: the averaged ones
    if it was scored with these.

    `model` and `data` are the functions of a search that used a person's own. Raises UserError where there is
    no such trial, no checkpoint of it that can be read, or where the images are others now.
    """
    chosen = chosen_trial(search, trial)
    if chosen.end == "diverged":
        raise UserError(f"trial {chosen.id} diverged: its weights are of no use; choose another one")
    address = search.home.checkpoints(chosen.id)
    state = CheckpointStore.at(address).newest_state()
    if state is None:
        raise UserError(
            f"{address}: no checkpoint of trial {chosen.id} that can be read; `tunebook export` its recipe "
            "and `tunebook train` it again, with --out"
        )
    recipe, weights = recipe_of(search, chosen), scored_weights(state)
    return trained(recipe, weights, epochs=state["epoch"], model=model, data=data)
