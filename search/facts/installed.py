"""Says what a driver runs with: the versions of packages, and the commit of the person's own tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from trainable.training.origins import versions as run_versions


def versions() -> dict[str, str]:
    """Returns the versions that a run's numbers and a search's course depend on."""
    return run_versions("ray", "optuna", "mlflow")


def git_commit(folder: Path) -> str | None:
    """Returns the commit of the user's tree, `+changes` where files differ; None outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()
