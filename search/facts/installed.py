"""Says what a driver runs with: the versions of packages, and the commit of the person's own tree."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from trainable.training.origins import versions as run_versions


def versions() -> dict[str, str]:
    """Returns the versions that a run's numbers and a search's course depend on."""
    return run_versions("ray", "optuna", "mlflow")


def git_commit(folder: Path) -> str | None:
    """Returns the commit of the user's tree, `+changes` where files differ; None outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        quiet = [word for name, value in _no_programs(folder) for word in ("-c", f"{name}={value}")]
        status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
        changed = _git(folder, *quiet, "--no-optional-locks", *status)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit


def _no_programs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings with which git starts none of the programs that a repository's own settings name.

    The repository may be somebody else's. Its filters change what is compared, never what is committed.
    """
    yield from (("core.fsmonitor", "false"), ("core.hooksPath", "/dev/null"))
    for name in set(re.findall(r"^(filter\..*)\.[^.=]+=", _git(folder, "config", "--list"), re.MULTILINE)):
        yield from ((f"{name}.clean", ""), (f"{name}.process", ""), (f"{name}.required", "false"))


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()
