"""Makes one program of the best trial's network and of what is done to an image before; it imports torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from search.results.search import Search
from search.study.code import NO_CODE, Code
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.data import DataInfo
from trainable.data.loading import statistics_of
from trainable.errors import StateError, UserError
from trainable.models.pretrained_input import pretrained_input
from trainable.recipe import Recipe
from trainable.training.network import make_network


def winner_program(search: Search, code: Code = NO_CODE) -> ExportedProgram:
    """Returns the best trial's network as a program: uint8 images [N, height, width, channels] of the size
    that it was trained on -> probabilities [N, classes], in fp32 on the CPU.

    Its weights are those that were scored, averaged ones where the recipe averages. `code` makes a network of
    a person's own. Raises UserError before a trial has finished, StateError where the best one has no
    checkpoint, and ModelError where its network cannot be made here.
    """
    if search.best is None:
        raise UserError(f"{search.home.address}: no trial has finished")
    recipe, info = search.best.whole_recipe, search.info
    spec = recipe.model.model_copy(update={"weights": None})  # the checkpoint has them
    network = make_network(spec, info, build=code.model)
    network.load_state_dict(_weights(search.home.checkpoints(search.best.id)))
    example = torch.zeros(2, info.image_size, info.image_size, info.channels, dtype=torch.uint8)
    classifier = _Classifier(network, *_statistics(recipe, info)).eval()
    with torch.no_grad():
        return torch.export.export(classifier, (example,), dynamic_shapes=({0: Dim("images")},))


def _weights(address: str) -> dict[str, Tensor]:
    state = CheckpointStore.at(address).newest_state()
    if state is None:
        raise StateError(f"{address}: expected a checkpoint of the best trial, found none")
    found: dict[str, Tensor] = (state["ema"] or state)["model"]
    return found


class _Classifier(nn.Module):
    """Normalises pixels [N, height, width, channels] in 0 to 255, and makes probabilities of the answers."""

    def __init__(self, network: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.network = network
        self.mean = nn.Buffer(255.0 * torch.tensor(mean).view(1, -1, 1, 1))
        self.std = nn.Buffer(255.0 * torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32)
        answers: Tensor = self.network((pixels - self.mean) / self.std)
        return answers.softmax(1)


def _statistics(recipe: Recipe, info: DataInfo) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and deviation by which the trial's images were normalised."""
    spec = recipe.data
    if spec.normalisation in (None, "pretrained"):
        known = pretrained_input(recipe.model)
        numbers = "data" if known is None else known.statistics(info.channels)
        spec = spec.model_copy(update={"normalisation": numbers})
    return statistics_of(spec, info)
