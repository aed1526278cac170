"""Loads the weights that torchvision and timm publish for their networks;
fetches them only if that is allowed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from trainable.errors import ModelError, first_line
from trainable.models.libraries import (
    backbone_of_name,
    check_torchvision_name,
    labels_pixels,
    timm_options,
    title_of,
)
from trainable.models.timm_names import configuration_of, located, weights_in
from trainable.models.weights import read_weights
from trainable.recipe import models as specs
from trainable.stages import stage

HUB_LOGGER = logging.getLogger("huggingface_hub")


def torchvision_weights(spec: specs.TorchvisionModel, *, may_fetch: bool) -> dict[str, Tensor]:
    """Return torchvision's weights for a network, its best ones by `default`, from torch's cache or,
    with `may_fetch`, from its server.

    A fetched file is checked against the hash in its name. Raises ModelError if there are no weights of this
    name, or if they must be fetched and that is not allowed or fails.
    """
    published = published_entry(spec)
    if published is None:
        raise _none_published(spec)
    url = published.url
    file = _in_torch_cache(url)
    if not file.is_file():
        _refuse_unless(may_fetch, spec, file)
        file.parent.mkdir(parents=True, exist_ok=True)
        digest = file.stem.rpartition("-")[2]
        with fetching(spec):
            torch.hub.download_url_to_file(url, str(file), hash_prefix=digest, progress=False)
    return read_weights(file)


def published_entry(spec: specs.TorchvisionModel) -> Any:
    """Return torchvision's entry of the weights that a spec names, with `url` and `transforms`.

    It is the entry of its best weights for `default` and for a file, and None if it publishes none. A network
    for segmentation has those of its backbone, too. Raises ModelError for a network or a name of weights that
    it does not have.
    """
    from torchvision import models

    has_backbone = labels_pixels(spec.name)
    if not has_backbone:
        check_torchvision_name(spec.name)
    published = models.get_model_weights(spec.name)
    if not list(published):
        return None
    asked = spec.weights or specs.OWN_WEIGHTS
    if asked == specs.OWN_WEIGHTS or not specs.is_published(asked):
        return published.DEFAULT
    below = _with_prefix(models.get_model_weights(backbone_of_name(spec.name))) if has_backbone else {}
    known = {**published.__members__, **_with_prefix(published), **below}
    if asked not in known:
        names = ", ".join([*published.__members__, *below])
        raise ModelError(f"model.weights: {title_of(spec)} has no weights {asked!r}; it has {names}")
    return known[asked]


def _with_prefix(published: Any) -> dict[str, Any]:
    """Return torchvision's entries of weights by their whole names, such as ResNet50_Weights.DEFAULT."""
    return {f"{published.__name__}.{name}": each for name, each in published.__members__.items()}


def timm_weights(
    spec: specs.TimmModel, *, channels: int, classes: int, image_size: int, may_fetch: bool
) -> dict[str, Tensor]:
    """Return timm's weights for a network, fitted by timm to the channels and the size of the images.

    They come from the cache of Hugging Face or torch or, with `may_fetch`, from a server. Raises ModelError
    as `torchvision_weights` does.
    """
    refuse_torchvisions(spec, "model.name")
    name = located(spec.name, may_fetch=may_fetch)
    source = source_of_timm(spec, name, may_fetch=may_fetch)
    options = timm_options(name, classes=classes, channels=channels, image_size=image_size)
    import timm

    with fetching(spec):
        model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=source, **options)
    state: dict[str, Tensor] = model.state_dict()
    return state


def refuse_torchvisions(spec: specs.TimmModel | specs.SmpModel, field: str) -> None:
    """Raise ModelError for published weights of another name than `default`: timm has a tag in `field`."""
    if spec.weights != specs.OWN_WEIGHTS:
        raise ModelError(
            f"model.weights: {spec.weights!r} is torchvision's; for one of timm's write its tag behind "
            f"{field}, as in resnet50.a1_in1k, and weights: default"
        )


def as_timm_reads(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a file as timm gives them to this network of its own: embeddings of positions
    resampled to the size of its images, and names of other libraries replaced.

    They stay as they are where they fit, and where timm cannot read them: then what does not fit is named.
    """
    reads = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    own = model.state_dict()
    if reads is None or all(name in own and own[name].shape == each.shape for name, each in state.items()):
        return state
    with suppress(Exception):  # of weights of another network
        read = reads(dict(state), model)
        if all(isinstance(each, Tensor) for each in read.values()):
            return dict(read)
    return state


def is_at_hand(name: str) -> bool:
    """Say whether the published weights of one of timm's networks are on this machine. Raises ModelError
    for a name that timm does not have."""
    return _cached_for_timm(configuration_of(located(name))) is not None


def source_of_timm(
    spec: specs.TimmModel | specs.SmpModel, name: str, *, may_fetch: bool
) -> dict[str, str] | None:
    """Return where timm finds the weights of a `located` network on this machine, which it reads without
    asking a server; None if they are to be fetched. Raises ModelError if there are none, or if they must be
    fetched and that is not allowed."""
    if weights_in(name) is not None:
        return None  # timm looks into the folder itself
    configuration = configuration_of(name)
    repository, url = _sources_in(configuration)
    if not repository and not url:
        raise _none_published(spec)
    cached = _cached_for_timm(configuration)
    if cached is None:
        _refuse_unless(may_fetch, spec, repository or url)
        return None
    return {"file": str(cached)}


def _sources_in(configuration: Mapping[str, Any]) -> tuple[str, str]:
    """Return the Hub's repository and the URL of weights in timm's configuration, empty if there is none."""
    return configuration.get("hf_hub_id") or "", str(configuration.get("url") or "")


def _cached_for_timm(configuration: Mapping[str, Any]) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    repository, url = _sources_in(configuration)
    filename = configuration.get("hf_hub_filename")
    if repository:
        for name in [filename] if filename else ["model.safetensors", "pytorch_model.bin"]:
            found = try_to_load_from_cache(repository, name)
            if isinstance(found, str):
                return Path(found)
    if url and _in_torch_cache(url).is_file():
        return _in_torch_cache(url)
    return None


def _in_torch_cache(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(url).path).name


def _refuse_unless(may_fetch: bool, spec: specs.Model, where: Path | str) -> None:
    if not may_fetch:
        raise ModelError(
            f"model.weights: the published weights of {title_of(spec)} are not on this machine ({where}): "
            "add --download to fetch them (to `tunebook check`, `search` or `train`), or name a file by "
            "--weights PATH"
        )


@contextmanager
def fetching(spec: specs.Model) -> Iterator[None]:
    """Turn what fails while published weights are read or fetched into a ModelError. The stage stands for
    the lines in which Hugging Face's client announces each of its ten retries."""
    level = HUB_LOGGER.level
    HUB_LOGGER.setLevel(logging.ERROR)
    try:
        with stage(f"getting the published weights of {title_of(spec)}"):
            yield
    except Exception as error:  # of urllib, huggingface_hub or httpx, and of a hash that differs
        raise ModelError(
            f"model.weights: the published weights of {title_of(spec)} cannot be fetched: "
            f"{first_line(error).rstrip('.')}; name a local file, or train from scratch (--weights none)"
        ) from error
    finally:
        HUB_LOGGER.setLevel(level)


def _none_published(spec: specs.Model) -> ModelError:
    return ModelError(f"model.weights: there are no published weights of {title_of(spec)}: name a local file")
