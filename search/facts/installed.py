"""What a driver runs with: the versions of packages, and the commit of the person's own tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from trainable.origins import versions as run_versions


def versions() -> dict[str, str]:
    """Return the versions that a run's numbers and a search's course depend on."""
    return run_versions("ray", "optuna", "mlflow")


def git_commit(folder: Path) -> str | None:
    """Return the commit of the user's tree, `+changes` where files differ; None outside a repository.

    It is None, too, where git cannot tell without what is to be fetched.
    """
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
        changed = _git(folder, *_without_programs(folder), "--no-optional-locks", *status)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit


# The repository may be somebody else's: what it lacks is not fetched, since its settings name the programs
# that fetch. Versions of git before 2.45 know the second of these alone.
_FETCHES_NOTHING = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
_OF_A_FILTER = ("clean", "process", "required")
_NOTHING = "TUNEBOOK_NOTHING"  # a variable of the environment that is set, and empty


def _without_programs(folder: Path) -> list[str]:
    """Return the options with which git starts none of the programs that a repository's own settings name.

    Its filters change what is compared, never what is committed.
    """
    names = _git(folder, "config", "--list", "--name-only", "-z").split("\0")
    filters = sorted({name.rpartition(".")[0] for name in names if name.startswith("filter.")})
    # git cuts `-c NAME=VALUE` at the first `=`, which may be in the name of a filter, and this at the last
    off = [f"--config-env={name}.{key}={_NOTHING}" for name in filters for key in _OF_A_FILTER]
    return ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *off]


def _git(folder: Path, *arguments: str) -> str:
    command, quiet = ["git", "-C", str(folder), *arguments], {**os.environ, **_FETCHES_NOTHING, _NOTHING: ""}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, errors="surrogateescape", timeout=10, env=quiet
    )
    return done.stdout.strip()
