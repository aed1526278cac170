"""Makes a study of a file, a command's flags and its `--set` options, as a person types them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from search.study.study import FROM_SCRATCH, WEIGHTS, Study, data_name, study_tree_with
from trainable.errors import UserError
from trainable.recipe.yamlfile import parse_setting, read_tree


def study_from(path: Path | None, values: Mapping[str, Any]) -> Study:
    """Return the study in a file, or the default one, with values set by dotted path. Raises StudyError.

    `base.model` may be a name: `resnet_small`, `unet_small`, one of torchvision's, `timm/NAME` or
    `smp/DECODER/ENCODER`; weights may be `none`.
    """
    tree = read_tree(path) if path is not None else {}
    values = dict(values)
    if isinstance(name := values.get("base.model"), str):
        values["base.model"] = model_named(name)
    if values.get(f"base.{WEIGHTS}") == FROM_SCRATCH:
        values[f"base.{WEIGHTS}"] = None
    if path is None and "data.path" not in values:
        raise UserError("give a study file, or --data PATH")
    return Study.from_tree(study_tree_with(tree, values), where=str(path) if path is not None else "")


def study_asked(path: Path | None, flags: Mapping[str, Any], settings: Sequence[str]) -> Study:
    """Return the study in a file, or the default one, changed by a command's flags and its `--set` options.

    Flags whose value is None change nothing.
    """
    chosen = {name: value for name, value in flags.items() if value is not None}
    return study_from(path, chosen | settings_of(settings))


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of a study that texts of the form `path=value` set, by dotted path."""
    return dict(parse_setting(text, "base.optimizer.lr=0.1") for text in texts)


def model_named(name: str) -> dict[str, str]:
    """Return the model section that a name on the command line stands for."""
    if name in ("resnet_small", "unet_small"):
        return {"kind": name}
    if name.startswith("smp/"):
        decoder, _, encoder = name.removeprefix("smp/").partition("/")
        if not encoder:
            raise UserError(f"--model {name}: expected smp/DECODER/ENCODER, such as smp/unet/resnet18")
        return {"kind": "smp", "name": decoder, "encoder": encoder}
    if name.startswith("timm/"):
        return {"kind": "timm", "name": name.removeprefix("timm/")}
    return {"kind": "torchvision", "name": name}


def default_name(study: Study) -> str:
    """Return the data's name followed by the time, so that searches of one storage have different names."""
    name = data_name(study.data)
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name).strip("-")
    return f"{clean or 'search'}-{datetime.now():%Y%m%d-%H%M%S}"
