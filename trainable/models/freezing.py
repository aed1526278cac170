"""Decides which parameters are trained in an epoch, and which normalisations do not update their statistics.

What holds in an epoch is a function of the epoch alone, so a resumed run sets it the same way: on a new
model, `freeze_norm` if the recipe says so, then `freeze_body` while the body is frozen, then `set_training`.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from trainable.models.dense_networks import DenseNetwork
from trainable.models.groups import head_of, new_parameters
from trainable.models.layers import BATCH_NORMS, batch_norms, parameters_in

_HELD = "_held_back"


def freeze_body(model: nn.Module) -> None:
    """Freeze all but the head; what was frozen before stays so after `unfreeze`.

    In a network for segmentation of torchvision or smp the backbone is frozen, and the decoder is trained
    with the head: both are new. Raises ModelError for a network without a head.
    """
    new = new_parameters(model)
    body = [name for name, each in model.named_parameters() if each.requires_grad and name not in new]
    _stop(model, body)
    setattr(model, _HELD, (*_held_back(model), *body))


def unfreeze(model: nn.Module) -> None:
    """Unfreeze the body, except what the model itself, or `freeze_norm`, has frozen."""
    for name in _held_back(model):
        model.get_parameter(name).requires_grad_(True)
    setattr(model, _HELD, ())


def freeze_norm(model: nn.Module) -> None:
    """Freeze scale and shift of every BatchNorm; `set_training` freezes the statistics.

    In a network for segmentation of torchvision or smp they are those of the backbone: a decoder's are new,
    and have neither statistics nor a scale to keep.
    """
    names = parameters_in(model, BATCH_NORMS)
    if isinstance(model, DenseNetwork):
        names = {name for name in names if name.startswith(f"{model.backbone_name}.")}
    _stop(model, names)
    setattr(model, _HELD, tuple(name for name in _held_back(model) if name not in names))


def set_training(model: nn.Module, *, freeze_norm: bool, body_frozen: bool) -> None:
    """Put the model into training mode, except the BatchNorms that normalise by their statistics.

    With `freeze_norm` those are the BatchNorms that the function of this name means. While the body is frozen
    they are those of the body: else its features would drift although no weight of it is trained. Call this
    wherever `model.train()` was called.
    """
    model.train()
    if freeze_norm:
        frozen = _norms_of_body(model) if isinstance(model, DenseNetwork) else batch_norms(model)
    elif body_frozen:
        frozen = _norms_of_body(model)
    else:
        frozen = []
    for module in frozen:
        module.eval()


def _norms_of_body(model: nn.Module) -> list[nn.Module]:
    if isinstance(model, DenseNetwork):
        return batch_norms(model.get_submodule(model.backbone_name))
    in_head = set(batch_norms(model.get_submodule(head_of(model))))
    return [each for each in batch_norms(model) if each not in in_head]


def _stop(model: nn.Module, names: Iterable[str]) -> None:
    for name in names:
        parameter = model.get_parameter(name)
        parameter.requires_grad_(False)
        parameter.grad = None  # an optimizer that has it would go on stepping with the last one


def _held_back(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters that `freeze_body` froze;
    the model stores them, so that they go with it."""
    held: tuple[str, ...] = getattr(model, _HELD, ())
    return held
