"""Keeps what lies in the folder where a command runs from being imported in place of what is installed."""

from __future__ import annotations

import os  # and nothing else: a module of this name may lie where the command runs
import sys

# Where this variable is set, Python puts no script's folder, and not the one where it runs, before what is
# installed. Processes that are started inherit it: readers, Ray and its workers, trainings, MLflow's server.
SAFE_PATH = "PYTHONSAFEPATH"
PACKAGES = ("search", "spaces", "trainable")  # ours beside `tunebook`, by names that others may have


def import_installed_alone() -> None:
    """Have this process, and those that it starts, import what is installed, and not what lies where it runs.

    Python has put the folder of the program before all others. The program itself takes out the one where it
    runs, which is there with `-m`, before it imports anything of others.
    """
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = [each for each in folders if os.path.normpath(each) != os.curdir]
    if len(folders) > 1 and named != folders:  # `:/opt/x` names the folder where the command runs, unmeant
        os.environ["PYTHONPATH"] = os.pathsep.join(named)
        if (here := os.getcwd()) not in (*named, os.path.dirname(os.path.dirname(__file__))):
            sys.path[:] = [each for each in sys.path if os.path.normpath(each) not in (os.curdir, here)]
    if not imports_installed_alone() and os.path.abspath(sys.path[0]) == _folder_of_program():
        del sys.path[0]
    os.environ[SAFE_PATH] = "1"


def _folder_of_program() -> str:
    return os.path.dirname(os.path.realpath(sys.argv[0]))


def sharing_distributions(folder: str = "") -> list[str]:
    """Return a line for each other distribution that has a package of one of our names in the same folder:
    the one that was installed last has overwritten files of the other.

    Read by its lists of files, as pip writes them; `importlib.metadata` takes ten times as long.
    """
    ours = folder or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    lines = []
    for name in sorted(os.listdir(ours)):
        if not name.endswith(".dist-info") or name.startswith("tunebook-"):
            continue
        try:
            with open(os.path.join(ours, name, "RECORD"), "rb") as record:
                files = b"\n" + record.read()
        except OSError:  # some packages of systems have none
            continue
        shared = [each for each in (*PACKAGES, "tunebook") if b"\n%s/__init__.py," % each.encode() in files]
        if shared:
            other, packages = name.removesuffix(".dist-info").replace("-", " "), " and ".join(shared)
            lines.append(
                f"{other} has a package {packages} in {ours}, as tunebook has: one has overwritten the "
                "other's files; give tunebook an environment of its own"
            )
    return lines


def imports_installed_alone() -> bool:
    """Return whether this process was told so, by `import_installed_alone` or by whoever started it."""
    return bool(os.environ.get(SAFE_PATH))
