"""Loads the weights that torchvision and timm publish for their networks;
fetches them only if that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import torch
from torch import Tensor

from trainable.errors import ModelError, first_line
from trainable.models.libraries import check_timm_name, timm_options, title_of
from trainable.models.weights import read_weights
from trainable.recipe import models as specs


def torchvision_weights(spec: specs.TorchvisionModel, *, download: bool) -> dict[str, Tensor]:
    """Returns torchvision's best weights for a network, from torch's cache or,
    with `download`, from its server.

    A fetched file is checked against the hash in its name. Raises ModelError if there are no weights, or if
    they must be fetched and that is not allowed or fails.
    """
    from torchvision import models

    published = list(models.get_model_weights(spec.name))
    if not published:
        raise _none_published(spec)
    url = models.get_model_weights(spec.name).DEFAULT.url
    file = _in_torch_cache(url)
    if not file.is_file():
        _refuse_unless(download, spec, file)
        file.parent.mkdir(parents=True, exist_ok=True)
        digest = file.stem.rpartition("-")[2]
        with _fetching(spec):
            torch.hub.download_url_to_file(url, str(file), hash_prefix=digest, progress=False)
    return read_weights(file)


def timm_weights(
    spec: specs.TimmModel, *, channels: int, classes: int, image_size: int, download: bool
) -> dict[str, Tensor]:
    """Returns timm's weights for a network, fitted by timm to the channels and the size of the images.

    They come from the cache of Hugging Face or torch or, with `download`, from a server. Raises ModelError as
    `torchvision_weights` does.
    """
    import timm

    check_timm_name(spec.name)
    configuration = timm.get_pretrained_cfg(spec.name)
    if configuration is None or not configuration.has_weights:
        raise _none_published(spec)
    repository, url = configuration.hf_hub_id or "", str(configuration.url or "")
    cached = _cached_for_timm(repository, configuration.hf_hub_filename, url)
    if cached is None:
        _refuse_unless(download, spec, repository or url)
    overlay = {"file": str(cached)} if cached is not None else None  # read there, without asking the server
    options = timm_options(spec.name, classes=classes, channels=channels, image_size=image_size)
    with _fetching(spec):
        model = timm.create_model(spec.name, pretrained=True, pretrained_cfg_overlay=overlay, **options)
    state: dict[str, Tensor] = model.state_dict()
    return state


def _cached_for_timm(repository: str, filename: str | None, url: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

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


def _refuse_unless(download: bool, spec: specs.Model, where: Path | str) -> None:
    if not download:
        raise ModelError(
            f"model.weights: the published weights of {title_of(spec)} are not on this machine ({where}): "
            "pass --download to fetch them, or name a local file"
        )


@contextmanager
def _fetching(spec: specs.Model) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of urllib, huggingface_hub or httpx, and of a hash that differs
        raise ModelError(
            f"model.weights: the published weights of {title_of(spec)} cannot be fetched: "
            f"{first_line(error)}; name a local file"
        ) from error


def _none_published(spec: specs.Model) -> ModelError:
    return ModelError(f"model.weights: there are no published weights of {title_of(spec)}: name a local file")
