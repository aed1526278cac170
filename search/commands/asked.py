"""Makes a study of a file, a command's flags and its `--set` options, as a person types them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from search.followers.uri import resolve_tracking_uri
from search.study.objective import without_default_metric
from search.study.study import RECIPE_SECTIONS, WEIGHTS, Study, data_name, study_tree_with
from trainable.errors import UserError
from trainable.models.network_names import model_named, other_library, with_library
from trainable.recipe.distillation import TEACHER
from trainable.recipe.models import FROM_SCRATCH, MODEL_NAME
from trainable.recipe.tasks import CLASSIFICATION, TASKS, AnyTask
from trainable.recipe.trees import NotPlain, as_json, leaves
from trainable.recipe.yamlfile import parse_setting, read_tree
from trainable.train_options import tell_library

MODEL_NAME_IN_STUDY = f"base.{MODEL_NAME}"


def study_from(path: Path | None, values: Mapping[str, Any]) -> Study:
    """Return the study in a file, or the default one, with values set by dotted path. Raises StudyError."""
    tree = tree_with(read_tree(path) if path is not None else {}, values)
    if path is None and "data.path" not in values:
        raise UserError("give a study file, or --data PATH")
    return Study.from_tree(tree, where=str(path) if path is not None else "")


def study_given(study: Study | Mapping[str, Any], values: Mapping[str, Any]) -> Study:
    """Return a study that Python code has, also as a mapping, with values set by dotted path. Raises
    StudyError."""
    tree = without_default_metric(study.model_dump(mode="json")) if isinstance(study, Study) else study
    return Study.from_tree(tree_with(tree, values))


def tree_with(tree: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's tree with values set by dotted path, and each network with its library.

    `base.model` may be a name (`trainable.models.network_names.model_named`), and the name in the tree may
    lack the kind of its library; weights may be `none`. Names are looked up before any data are read. Raises
    StudyError, ModelError.
    """
    values = dict(values)
    task = _task_of({**tree, **values})
    if isinstance(name := values.get("base.model"), str):
        values["base.model"] = model_named(name, task)
    if not {"base.model", "base.model.kind"} & values.keys():
        kind = _pinned(tree).get("model.kind")
        if (other := other_library(values.get(MODEL_NAME_IN_STUDY), kind, task)) is not None:
            values = {"base.model.kind": other, **values}
    if values.get(f"base.{WEIGHTS}") == FROM_SCRATCH:
        values[f"base.{WEIGHTS}"] = None
    return _with_library_of_model(study_tree_with(tree, values))


def _with_library_of_model(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a study's tree in which a network that has only a name has its library, too. Raises ModelError
    for a name that none has."""
    base = tree.get("base")
    if not isinstance(base, Mapping):
        return tree
    pinned = dict(leaves(base))
    model = {
        path.removeprefix("model."): value for path, value in pinned.items() if path.startswith("model.")
    }
    found = with_library(model, pinned.get("task.kind"))
    if found == model:
        return tree
    others = {path: value for path, value in pinned.items() if not path.startswith("model.")}
    return {**tree, "base": {**others, **{f"model.{path}": value for path, value in found.items()}}}


def _pinned(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe that a study's tree fixes, by dotted path."""
    base = tree.get("base")
    return dict(leaves(base)) if isinstance(base, Mapping) else {}


def _task_of(values: Mapping[str, Any]) -> AnyTask:
    """Return the task of a study's values, some by dotted path."""
    inner = _pinned(values)
    kind = values.get("base.task.kind", inner.get("task.kind"))
    return TASKS[kind]() if isinstance(kind, str) and kind in TASKS else CLASSIFICATION


def study_asked(path: Path | None, values: Mapping[str, Any]) -> Study:
    """Return what `study_from` does, and say whose network a bare name means that two libraries have."""
    tell_library(values.get("base.model", values.get(MODEL_NAME_IN_STUDY)), _task_of(values))
    return study_from(path, values)


def as_typed(settings: Mapping[str, Any] | None) -> list[str]:
    """Return values by dotted path as `--set` has them, such as `optimizer.lr=0.1`. Raises UserError."""
    try:
        return [f"{path}={as_json(value).decode()}" for path, value in (settings or {}).items()]
    except NotPlain as error:
        raise UserError(f"settings: {error}") from None


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of a study that texts of the form `path=value` set, by dotted path.

    A path that begins with a section of the recipe, such as `optimizer.lr`, means the field under `base`.
    """
    values = dict(parse_setting(text) for text in texts)
    return {
        f"base.{path}" if path.split(".")[0] in RECIPE_SECTIONS else path: value
        for path, value in values.items()
    }


def resolved_study(study: Study) -> Study:
    """Return the study with a name, absolute paths and tracking URI, so that it means the same anywhere.
    Raises UserError for a teacher or a tracking URI that cannot be used."""
    if TEACHER in study.pinned:
        from search.results.teachers import with_teacher  # earlier searches' files take a while to import

        study = with_teacher(study)
    named = study.resolved(study.name or default_name(study))
    uri = resolve_tracking_uri(study.tracking.uri, named.storage, os.environ)
    return named.model_copy(update={"tracking": named.tracking.model_copy(update={"uri": uri})})


def default_name(study: Study) -> str:
    """Return the data's name followed by the time, so that searches of one storage have different names."""
    name = data_name(study.data)
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name).strip("-")
    return f"{clean or 'search'}-{datetime.now():%Y%m%d-%H%M%S}"
