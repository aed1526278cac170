"""Cuts a network before its head: a body that makes features of images, and a head that makes logits of
them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainable.errors import ModelError
from trainable.models.groups import head_of


@dataclass(frozen=True)
class Cut:
    """The head of a network; its layers are the network's own."""

    network: nn.Module
    head: nn.Sequential

    def features(self, images: Tensor) -> Tensor:
        """Return a copy of what the head is given for images [B, C, H, W], in the network's mode."""
        given: list[Tensor] = []
        first = next(iter(self.head))
        handle = first.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
        try:
            self.network(images)
        finally:
            handle.remove()
        return given[0]


def cut_before_head(network: nn.Module, images: Tensor) -> Cut | None:
    """Return the cut before the last layer with parameters, and before dropout that stands in front of it.

    None if the head's answers to the features are not the network's to these images [B, C, H, W]: it may use
    its head twice, or do something to its output. None, too, for a network that answers for each pixel: its
    features are as many as the pixels, and more than its head is trained on them. The network's mode and
    weights stay as they are.
    """
    try:
        head = head_layers(network)
    except ModelError:
        return None
    cut, training = Cut(network, head), network.training
    network.eval()
    try:
        with torch.no_grad():
            features = cut.features(images)
            answers = network(images)
            whole = isinstance(answers, Tensor) and answers.ndim == 2
            same = whole and isinstance(features, Tensor) and torch.equal(head(features), answers)
    except (RuntimeError, IndexError):  # a head that takes more than one tensor, or is not called
        same = False
    finally:
        network.train(training)
        head.train(training)
    return cut if same else None


def head_layers(network: nn.Module) -> nn.Sequential:
    """Return the head, with dropout that stands right before it in its container, and what follows there.

    The layers are the network's own. Raises ModelError for a network without a head.
    """
    name = head_of(network)
    head = network.get_submodule(name)
    parent = network.get_submodule(name.rpartition(".")[0]) if name else head
    if type(parent) is not nn.Sequential or parent is head:
        return nn.Sequential(head)
    layers = list(parent)
    start = layers.index(head)
    while start > 0 and isinstance(layers[start - 1], nn.modules.dropout._DropoutNd):
        start -= 1
    return nn.Sequential(*layers[start:])
