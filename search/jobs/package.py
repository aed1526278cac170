"""What is sent to a cluster: the study and, from a checkout, the project."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from search.followers.uri import without_password
from search.study import WEIGHTS, Study, StudyError
from spaces.catalog.catalog import named
from spaces.domains import SpaceError
from trainable.errors import Fault, UserError
from trainable.files.store import is_uri
from trainable.imports import PACKAGES
from trainable.recipe.distillation import TEACHER
from trainable.recipe.models import MODEL_NAME, folder_of_name, is_published
from trainable.recipe.trees import leaves

SCRIPT = "job.sh"
ROOT = Path(__file__).resolve().parents[2]


def check_for_cluster(study: Study) -> None:
    """Raise StudyError where something in the study refers to this machine.

    Nothing is looked up here: data, weights and storage are the cluster's.
    """
    faults = [*_paths(study)]
    uri = study.tracking.uri
    if uri is not None and without_password(uri) != uri:
        why = "a job's files and log can be read on the cluster: pass it by --env MLFLOW_TRACKING_URI instead"
        faults.append(Fault("tracking.uri", f"holds a password, and {why}"))
    elif uri is not None and uri.startswith("sqlite") and not re.match(r"^sqlite(\+\w+)?:////", uri):
        why = "write sqlite:////ABSOLUTE/PATH, or a server's address"
        faults.append(Fault("tracking.uri", f"{uri!r} is a path on this machine; {why}"))
    try:
        named(study.space.name or "document")
    except SpaceError as error:
        faults += error.faults
    if faults:
        raise StudyError(faults)


def pack(folder: Path) -> None:
    """Put into a folder what every job needs: the project, and the script that starts it."""
    shutil.copy(Path(__file__).with_name(SCRIPT), folder / SCRIPT)
    if from_checkout(ROOT):
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))


def entrypoint(*arguments: str) -> str:
    """Return the command of a job that runs `python -m ARGUMENTS` in the packed folder."""
    return shlex.join(["exec", "sh", SCRIPT, *arguments])


def from_checkout(root: Path) -> bool:
    """Say whether this program runs from its source tree; otherwise the cluster must have it installed."""
    try:
        described = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return False
    return bool(described.get("project", {}).get("name") == "tunebook")


def variables(texts: Sequence[str], environment: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of a job, from `NAME` (its value here) or `NAME=VALUE`.

    Raises UserError for a name that is not set here.
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in environment:
            raise UserError(f"--env {name}: is not set here; expected NAME or NAME=VALUE")
        values[name] = value if equals else environment[name]
    return values


def _paths(study: Study) -> Iterator[Fault]:
    weights = study.pinned.get(WEIGHTS)
    written = {"data.path": study.data.path, "storage": study.storage}
    if isinstance(weights, str) and not is_published(weights):
        written[f"base.{WEIGHTS}"] = weights
    if isinstance(teacher := study.pinned.get(TEACHER), str):
        written[f"base.{TEACHER}"] = teacher
    if (folder := folder_of_name(study.pinned.get(MODEL_NAME))) is not None:
        written[f"base.{MODEL_NAME}"] = folder
    chosen = {f"space.overrides.{MODEL_NAME}: {name}": folder_of_name(name) for name in study.networks}
    written |= {where: folder for where, folder in chosen.items() if folder is not None}
    written |= {f"first.{at}": entry for at, entry in enumerate(study.first) if isinstance(entry, str)}
    written |= {
        f"first.{at}.{TEACHER}": value
        for at, entry in enumerate(study.first)
        if isinstance(entry, dict)
        for path, value in leaves(entry)
        if path == TEACHER and isinstance(value, str)
    }
    written |= {f"space.learn_from.{at}": folder for at, folder in enumerate(study.space.learn_from)}
    if study.data.root is not None:
        written["data.root"] = study.data.root
    if study.data.exclude is not None:
        written["data.exclude"] = study.data.exclude
    if study.data.bundled or study.data.own:
        del written["data.path"]
    for where, path in written.items():
        if not path.startswith("/") and not is_uri(path):
            yield Fault(
                where,
                f"{path!r} is a path on this machine; write the absolute path on the cluster's machines, "
                "such as /shared/...",
            )
