"""Keeps what lies in the folder where a command runs from being imported in place of what is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Where this variable is set, Python puts no script's folder, and not the one where it runs, before what is
# installed. Processes that are started inherit it: readers, Ray and its workers, trainings, MLflow's server.
SAFE_PATH = "PYTHONSAFEPATH"


def import_installed_alone() -> None:
    """Have this process, and those that it starts, import what is installed, and not what lies where it runs.

    Python has put the folder of the program before all others. The program itself takes out the one where it
    runs, which is there with `-m`, before it imports anything of others.
    """
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = [each for each in folders if each not in ("", os.curdir)]
    if len(folders) > 1 and named != folders:  # `:/opt/x` names the folder where the command runs, unmeant
        os.environ["PYTHONPATH"] = os.pathsep.join(named)
        if (here := os.getcwd()) not in (*named, str(Path(__file__).parents[1])):
            sys.path[:] = [each for each in sys.path if each not in ("", os.curdir, here)]
    if not imports_installed_alone() and Path(sys.path[0]).absolute() == Path(sys.argv[0]).resolve().parent:
        del sys.path[0]
    os.environ[SAFE_PATH] = "1"


def imports_installed_alone() -> bool:
    """Return whether this process was told so, by `import_installed_alone` or by whoever started it."""
    return bool(os.environ.get(SAFE_PATH))
