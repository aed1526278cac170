"""A recipe with the weights that it gave: what a bundle is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from trainable.checks.finding import causes_of_gaps, kept
from trainable.data import DataInfo, DataSet
from trainable.data.assembly import MakeData
from trainable.errors import ModelError, UserError, first_line
from trainable.files.regular import read_regular
from trainable.models.make import NetworkEnds, make_model
from trainable.models.own import BuildModel
from trainable.models.widths import Widths, make_narrow, read_widths
from trainable.origins import Origins, digests_of
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION
from trainable.recipe.models import OwnModel, network_name
from trainable.recipe.provenance import ExplainedGap
from trainable.recipe.trained_files import METRICS_FILE, MODEL_FILE, RECIPE_FILE, TRAINING_FILE
from trainable.recipe.yamlfile import read_recipe
from trainable.tasks.exporter import Exporter
from trainable.tasks.exporters import exporter_of
from trainable.train import images_of
from trainable.training.network import make_network
from trainable.training.pixels import resolved

LARGEST_METRICS = 2**26  # so many bytes are read: the scores of a million classes have fewer


@dataclass(frozen=True)
class Trained:
    """A recipe in which no field of `data` is open, its images, and weights by name, on the CPU."""

    recipe: Recipe
    data: DataSet
    weights: Mapping[str, Tensor]
    epochs: int  # the weights were trained for so many
    build: BuildModel | None = None  # builds the network if it is a person's own
    widths: Widths | None = None  # as the network is narrower than the recipe's, if it was pruned
    training: Recipe | None = None  # what trained the whole network, if it was pruned and then fine-tuned
    changed_code: tuple[str, ...] = ()  # a line for each function of a person's own that is another one now
    warnings: tuple[str, ...] = ()  # what to know before the network is trusted, a line each
    causes: tuple[str, ...] = ()  # what these say of how the parts compare
    # That test scores are others than validation scores: of this training, or of others of its recipe
    gap: ExplainedGap | None = None

    @property
    def whole_training(self) -> Recipe | None:
        """The recipe that trained the whole network; None if the network was pruned and its folder
        does not say it."""
        return self.recipe if self.widths is None else self.training

    @property
    def exporter(self) -> Exporter:
        """What its task says of the network's files."""
        return exporter_of(self.recipe, self.data.info)

    def network(self) -> nn.Module:
        """Return the network, made anew, with the weights. Raises ModelError where they do not fit it."""
        return network_with(self.weights, self.recipe, self.data.info, self.build, self.widths)


def trained(
    recipe: Recipe,
    weights: Mapping[str, Tensor],
    *,
    epochs: int,
    model: BuildModel | None = None,
    data: DataSet | MakeData | None = None,
) -> Trained:
    """Return a recipe with its weights and images, which are loaded; `model` and `data` as in `train`.

    Raises UserError where they are not the images that the provenance names: they would be split otherwise,
    and images of training be scored. Raises DataError, ModelError as a run does.
    """
    _refuse_code_that_is_not_given(recipe, model, data)
    images = images_of(recipe, data)
    known = Origins.of(recipe.provenance)
    now = known.with_images(images.info)
    if changes := list(known.changes(now, recipe)):
        means = ": they are not what the weights were trained with; put the former back"
        raise UserError("; ".join(changes) + (means if known.comparable(now) else ""))
    images.be_here()
    code = tuple(known.changes(replace(known, code=digests_of(model=model, data=data)), recipe))
    found = kept(images.info) or ()
    return Trained(
        resolved(recipe, images),
        images,
        weights,
        epochs,
        model,
        changed_code=code,
        warnings=tuple(each.seen for each in found),
        causes=causes_of_gaps(found),
    )


def network_with(
    weights: Mapping[str, Tensor],
    recipe: Recipe,
    info: DataInfo,
    build: BuildModel | None = None,
    widths: Widths | None = None,
) -> nn.Module:
    """Return a recipe's network, made anew, in these widths and with these weights. Raises ModelError where
    they do not fit."""
    spec = recipe.model.model_copy(update={"weights": None})
    network = make_network(spec, info, build=build)
    return _with_weights(network, weights, widths)


def network_in(folder: Path, *, model: BuildModel | None = None) -> nn.Module:
    """Return the network that `tunebook train --out` or `tunebook shrink --out` left in a folder, on the CPU
    in evaluation mode: images [B, channels, size, size], normalised as the recipe says -> its answers; for
    masks windows of this size -> logits [B, classes, h, w].

    It needs no images. `model` builds a network of a person's own. Raises UserError for what is missing
    there, and ModelError where weights and network do not fit.
    """
    recipe = read_recipe(folder / RECIPE_FILE)
    data, known = recipe.data, recipe.provenance
    if data.channels is None or data.image_size is None or known is None or not known.class_names:
        raise UserError(
            f"{folder / RECIPE_FILE}: expected data.channels, data.image_size and provenance.class_names, "
            "as a trained recipe has them; `tunebook train RECIPE --out DIR` writes them"
        )
    network = make_model(
        recipe.model.model_copy(update={"weights": None}),
        NetworkEnds(classes=len(known.class_names), channels=data.channels, image_size=data.image_size),
        build=model,
        task=recipe.task,
    )
    return _with_weights(network, _weights_in(folder), read_widths(folder)).eval()


def _with_weights(network: nn.Module, weights: Mapping[str, Tensor], widths: Widths | None) -> nn.Module:
    if widths is not None:
        make_narrow(network, widths)
    try:
        network.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise ModelError(f"the weights do not fit the recipe's network: {first_line(error)}") from None
    return network


def _refuse_code_that_is_not_given(recipe: Recipe, model: object, data: object) -> None:
    needed = (
        ("model", network_name(recipe.model), isinstance(recipe.model, OwnModel) and model is None),
        ("data", recipe.data.path, recipe.data.own and data is None),
    )
    if missing := ", ".join(f"{word}={name}" for word, name, lacks in needed if lacks):
        raise UserError(
            f"this network uses code of yours, {missing}, which no file names: write the bundle from Python, "
            f"write_bundle(trained_in(DIR, {missing}), OUT), or trained_trial(Search(DIR), {missing}) for a "
            "search (docs/python.md)"
        )


def trained_in(
    folder: Path, *, model: BuildModel | None = None, data: DataSet | MakeData | None = None
) -> Trained:
    """Return what `tunebook train --out` or `tunebook shrink --out` left in a folder. Raises UserError for
    what is missing there."""
    recipe, weights, widths = read_recipe(folder / RECIPE_FILE), _weights_in(folder), read_widths(folder)
    file = folder / TRAINING_FILE  # of a pruned network: the recipe that trained the whole one
    training = read_recipe(file) if widths is not None and file.is_file() else None
    found = trained(recipe, weights, epochs=recipe.loop.epochs, model=model, data=data)
    if training is not None:
        training = training.model_copy(update={"data": found.recipe.data})
    return replace(found, widths=widths, training=training, gap=_gap_in(folder))


def _gap_in(folder: Path) -> ExplainedGap | None:
    """Return what the training found of its test scores against its validation scores; None where chance
    allows the difference, and where no test part was scored."""
    with suppress(OSError, ValueError, LookupError, TypeError):  # another version has written the file
        gap = json.loads(read_regular(folder / METRICS_FILE, LARGEST_METRICS))["validation_test_gap"]
        words = str(gap["words"])
        causes = gap.get("causes")  # earlier versions have them in the words
        return ExplainedGap(words, None if causes is None else tuple(map(str, causes))) if words else None
    return None


def _weights_in(folder: Path) -> dict[str, Tensor]:
    file = folder / MODEL_FILE
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; a run that diverged leaves none; `tunebook train RECIPE --out DIR` does"
        )
    try:
        weights: dict[str, Tensor] = load_file(file)
    except Exception as error:  # safetensors has its own, and OSError
        raise UserError(f"{file}: cannot be read: {first_line(error)}") from None
    return weights


def scored_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a run is scored with, of its state (`Run.state_dict`): the averaged ones, if
    there are."""
    average = state["ema"]
    weights: dict[str, Tensor] = (state if average is None else average)["model"]
    return {name: each.detach().to("cpu", copy=True) for name, each in weights.items()}


def in_fp32(recipe: Recipe) -> Recipe:
    """Return the recipe that scores given weights as exported files compute: in fp32, as they are, without a
    teacher."""
    alone = {"precision.kind": "fp32", "regularisation.averaging.kind": "none", SECTION: None}
    return recipe.with_values({**alone, "loop.compile": False})
