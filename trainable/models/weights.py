"""Loads weights from a file into a network: everything but the head, and it names whatever does not fit."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import torch
from torch import Tensor, nn

from trainable.errors import ModelError, first_line, listed
from trainable.files.host_memory import available_bytes
from trainable.files.paths import without_tilde
from trainable.files.regular import check_regular, why
from trainable.models.groups import head_parameters
from trainable.models.libraries import backbone_of_name, labels_pixels
from trainable.models.timm_names import located, weights_in
from trainable.recipe import models as specs
from trainable.recipe.data import ChannelStatistics

NAMES_SHOWN, MISFITS_SHOWN = 8, 2
COUNTER = "num_batches_tracked"  # of BatchNorm; older files lack it
# A tensor that tells a family of networks, the library, and the best known of the family
KNOWN_NETWORKS = (
    (
        "conv_stem.weight",
        "timm",
        (
            *("tf_efficientnet_lite0", "efficientnet_b0", "mobilenetv3_large_100", "mobilenetv3_small_100"),
            *("mobilenetv2_100", "tf_efficientnetv2_b0", "efficientnet_b1", "tf_efficientnet_lite1"),
        ),
    ),
    ("layer1.0.conv1.weight", "timm", ("resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d")),
    (
        "stages.0.blocks.0.conv_dw.weight",
        "timm",
        ("convnext_atto", "convnext_femto", "convnext_pico", "convnext_nano", "convnext_tiny"),
    ),
    (
        "blocks.0.attn.qkv.weight",
        "timm",
        ("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224"),
    ),
    ("s1.b1.conv1.conv.weight", "timm", ("regnety_002", "regnety_004", "regnety_008", "regnety_016")),
    (
        "features.0.0.weight",
        "torchvision",
        (
            *("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b0"),
            "convnext_tiny",
        ),
    ),
    ("features.conv0.weight", "torchvision", ("densenet121", "densenet169")),
    ("features.0.weight", "torchvision", ("vgg16", "vgg16_bn", "vgg11", "vgg11_bn")),
)
# The first is the entry of a safetensors file's metadata that has JSON; the second, in it, has mean and std,
# as `data.normalisation` in a recipe
METADATA, STATISTICS = "tunebook", "normalisation"

NUMBERS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64}) | {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.)+")  # of DistributedDataParallel and torch.compile
OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d\.)")  # torchvision's files: norm.1, not norm1
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # second heads of googlenet and inception, that we do not build


def weights_digest(spec: specs.Model) -> str | None:
    """Return twelve hexadecimal digits over the file of weights, or None if a run begins from no file, or
    from one that a library publishes under a name of its own: it does not change."""
    file = _file_that_may_change(spec)
    return None if file is None else file_digest(file)


def file_digest(file: Path) -> str:
    """Return twelve hexadecimal digits over a file's bytes. Raises ModelError where it cannot be read."""
    try:
        check_regular(file)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {why(error)}") from None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:12]


def _file_that_may_change(spec: specs.Model) -> Path | None:
    if spec.weights is None:
        return None
    if not specs.is_published(spec.weights):
        return weights_file(spec)
    return weights_in(located(spec.name)) if isinstance(spec, specs.TimmModel) else None


def weights_file(spec: specs.Model) -> Path:
    """Return the file that `model.weights` names: in a folder, the one that is called as the model is (or as
    its encoder or backbone), or `model`, as `tunebook train` calls it. Raises ModelError for a folder without
    such a file."""
    path = without_tilde(str(spec.weights))
    if not path.is_dir():
        return path
    stems = [*_stems_of(spec), "model"]
    names = [f"{stem}{suffix}" for stem in stems for suffix in specs.WEIGHTS_ENDINGS]
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        raise ModelError(
            f"model.weights: expected a file of weights in the folder {path}, called {stems[0]} with one of "
            f"the endings {', '.join(specs.WEIGHTS_ENDINGS)}; found none"
        )
    return found


def _stems_of(spec: specs.Model) -> list[str]:
    match spec:
        case specs.ResNetSmall() | specs.UNetSmall():
            return []
        case specs.SmpModel():
            return [spec.encoder]
        case specs.TorchvisionModel():
            return [spec.name, backbone_of_name(spec.name)] if labels_pixels(spec.name) else [spec.name]
        case specs.TimmModel() | specs.OwnModel():
            return [spec.name]
        case _:
            assert_never(spec)


def statistics_in(file: Path) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and the std by which images were normalised for these weights, if the file says so:
    `tunebook train` writes them into the metadata of its safetensors."""
    if file.suffix != ".safetensors" or not file.is_file():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            written = (opened.metadata() or {}).get(METADATA)
    except SafetensorError:
        return None  # read_weights names the fault
    return None if written is None else _statistics(written, file)


def _statistics(written: str, file: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    try:
        found = ChannelStatistics.model_validate_json(json.dumps(json.loads(written)[STATISTICS]))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"model.weights: {file}: {STATISTICS} in its metadata: {first_line(error)}"
        ) from None
    return found.mean, found.std


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file, by name, on the CPU:
    safetensors, or a torch file of nothing but tensors.

    A torch file is a state dict, or has one under `state_dict` or `model`; it is read with
    `weights_only=True`, so that nothing in it is run. Prefixes of wrappers (`module.`, `_orig_mod.`) are
    removed. Raises ModelError for a file that is missing or is neither.
    """
    file = without_tilde(str(path))
    if not file.is_file():
        other = "is no regular file" if file.exists() else "there is none"
        found = "is a folder; name the file in it" if file.is_dir() else other
        raise ModelError(f"model.weights: expected a file of weights (or `default`), {file}: {found}")
    try:
        content = _content(file)
    except Exception as error:  # torch raises nearly anything for bytes that are not its own
        reason = first_line(error).split(". ")[0]
        raise ModelError(
            f"model.weights: {file} cannot be read: {reason}; expected safetensors, or a torch file of "
            "nothing but a state dict (torch.load with weights_only=True)"
        ) from error
    state = _state_in(content, file)
    if faults := [f"{name} {fault}" for name, each in state.items() if (fault := _fault(each)) is not None]:
        raise ModelError(f"model.weights: {file}: {listed(faults, NAMES_SHOWN)}")
    return {OLD_DENSENET.sub(r"\1\2", WRAPPERS.sub("", name)): tensor for name, tensor in state.items()}


class PartWeights(NamedTuple):
    """Weights by their names in a network, and the beginning of the names of the part that they are of."""

    state: Mapping[str, Tensor]
    prefix: str = ""  # the whole network


def load_weights(model: nn.Module, state: Mapping[str, Tensor], *, source: str, part: str = "") -> None:
    """Copy a state into a network, except its head, which stays as it was drawn: the classes are others.

    With `part`, such as `backbone.`, the state is that of this module alone, by the names of the network.

    The head stays new even if its shape agrees. A first convolution of three channels is summed over them for
    grey images (as timm does), so that it answers as to a grey image stored as RGB. Missing counters of
    BatchNorm, which older files lack, are no fault. Raises ModelError that names whatever else is missing,
    unexpected or of another shape; the network is unchanged then.
    """
    head = head_parameters(model)
    own = {name: tensor for name, tensor in model.state_dict().items() if name not in head}
    expected = {name: tensor for name, tensor in own.items() if name.startswith(part)}
    auxiliary = {name for name in state if name.startswith(AUXILIARY) and name not in expected}
    left_out = tuple(name for name in state if name in head or name in auxiliary)
    body = _for_grey(model, {name: each for name, each in state.items() if name not in left_out})
    if faults := _misfits(expected, body):
        what = looks_like({name.removeprefix(part): each for name, each in state.items()})
        if what:
            fault, advice = (
                f"these look like {what}",
                "name that one: model.kind and model.name, or model.encoder",
            )
        else:
            fault, advice = faults, "name the network that the weights are of, by model.kind and model.name"
        raise ModelError(f"model.weights: {source} does not fit the network:\n  {fault}\n  {advice}")
    model.load_state_dict(body, strict=False)


def _content(file: Path) -> Any:
    if zipfile.is_zipfile(file):  # torch's own; torch.load would unpack a compressed one without a limit
        with zipfile.ZipFile(file) as archive:
            size = sum(each.file_size for each in archive.infolist())
        if size > (free := available_bytes()):
            raise ValueError(f"it unpacks to {size:,} bytes, and {free:,} are free in memory")
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def _fault(tensor: Tensor) -> str | None:
    """Return why a tensor cannot be weights; None for plain and finite numbers in memory."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return "is sparse, quantised or without content, expected plain numbers"
    if tensor.dtype not in NUMBERS:
        return f"is {tensor.dtype}, expected real numbers"
    if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        return f"says {tensor.numel():,} numbers, and the file holds fewer"
    return None if bool(torch.isfinite(tensor).all()) else "holds numbers that are not finite"


def _state_in(content: Any, file: Path) -> dict[str, Tensor]:
    for candidate in (content, _get(content, "state_dict"), _get(content, "model")):
        if isinstance(candidate, Mapping) and candidate:
            tensors = {str(name): each for name, each in candidate.items() if isinstance(each, Tensor)}
            if len(tensors) == len(candidate):
                return tensors
    keys = isinstance(content, Mapping) and f"the keys {listed(list(map(str, content)), NAMES_SHOWN)}"
    got = keys or type(content).__name__
    raise ModelError(
        f"model.weights: {file}: expected tensors by name, alone or under `state_dict` or `model`; got {got}"
    )


def _get(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, Mapping) else None


def _for_grey(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    convolutions = ((name, each) for name, each in model.named_modules() if isinstance(each, nn.Conv2d))
    name, first = next(convolutions, ("", None))
    weight = state.get(f"{name}.weight")
    if first is None or weight is None or weight.ndim != 4 or (first.in_channels, weight.shape[1]) != (1, 3):
        return state
    return {**state, f"{name}.weight": weight.sum(1, keepdim=True)}


def _misfits(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> str:
    """Return which tensors do not fit, the first of each kind; empty where all do."""
    missing = [name for name in expected if name not in got and not name.endswith(COUNTER)]
    unexpected = [name for name in got if name not in expected]
    reshaped = [
        f"{name} (expected {tuple(expected[name].shape)}, got {tuple(each.shape)})"
        for name, each in got.items()
        if name in expected and each.shape != expected[name].shape
    ]
    faults = {"missing": missing, "unexpected": unexpected, "of another shape": reshaped}
    return "; ".join(
        f"{len(names)} {fault}: {listed(names, MISFITS_SHOWN)}" for fault, names in faults.items() if names
    )


def looks_like(state: Mapping[str, Tensor]) -> str:
    """Return which of the best known networks has tensors of these names and shapes, its head aside, such as
    `timm's resnet18`; empty if none of them has. The networks are built without content, which takes a second
    or two: it is asked of weights that do not fit."""
    for tensor, library, names in KNOWN_NETWORKS:
        if tensor not in state:
            continue
        for name in names:
            if _has_tensors(_without_content(library, name), state):
                return f"{library}'s {name}"
    return ""


def _without_content(library: str, name: str) -> nn.Module:
    with torch.device("meta"):
        if library == "timm":
            import timm

            return timm.create_model(name)
        from torchvision import models

        options = {"init_weights": False} if name.startswith(("vgg", "squeezenet")) else {}
        network: nn.Module = models.get_model(name, weights=None, **options)
        return network


def _has_tensors(network: nn.Module, state: Mapping[str, Tensor]) -> bool:
    """Say whether a state has all tensors of a network and no others, whatever the shapes in its head."""
    own = {name: each for name, each in network.state_dict().items() if not name.endswith(COUNTER)}
    head = head_parameters(network)
    below = {name: each for name, each in own.items() if name not in head}
    return below.keys() == {
        name for name in state if name not in head and not name.endswith(COUNTER)
    } and all(each.shape == state[name].shape for name, each in below.items())
