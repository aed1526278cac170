"""Run the tests near a change: `make near`.

They are those of the rooms in which files differ from the last commit (or from SINCE), of the rooms whose
modules import a changed module, and the changed tests; without those that are slow or need other processes.
For any other file, such as a document or an example, they are the tests at the top of tests/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("trainable", "spaces", "search")
QUICK = "not slow and not integration and not gpu"


def main(since: str = "HEAD") -> None:
    changed = sorted(changed_files(since))
    graph = grimp.build_graph(*PACKAGES)
    places = sorted(places_near(changed, graph))
    if not places:
        print(f"Nothing differs from {since}.")
        return
    print(f"Tests of what differs from {since}, and of what imports it:", *places, sep="\n    ", flush=True)
    processes = os.environ.get("PROCESSES", "3")
    os.chdir(ROOT)
    command = [sys.executable, "-m", "pytest", "--numprocesses", processes, "-q", "-m", QUICK, *places]
    os.execv(sys.executable, command)  # so a signal for this process is one for pytest


def changed_files(since: str) -> set[str]:
    """The files that differ from a commit, new and removed ones among them, as paths from the root."""
    differ = _git("diff", "--name-only", "--no-renames", "-z", since, "--")
    return {*differ, *_git("ls-files", "--others", "--exclude-standard", "-z")}


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.split("\0")[:-1]


def places_near(changed: Iterable[str], graph: grimp.ImportGraph) -> set[str]:
    """The folders and files of tests near changed files, as paths from the root."""
    files = [Path(each) for each in changed]
    if any(each.parts[0] == "tests" and len(each.parts) == 2 and not is_test(each) for each in files):
        return {"tests"}  # all tests share it
    modules = {module_of(each, graph.modules) for each in files if each.parts[0] in PACKAGES}
    above = {importer for module in modules for importer in graph.find_modules_that_directly_import(module)}
    rooms = {room_of(module, graph.modules) for module in modules | above}
    tests = {
        str(each if is_test(each) else with_tests(each.parent))
        for each in files
        if each.parts[0] == "tests" and (ROOT / each).exists()
    }
    if any(each.parts[0] not in {*PACKAGES, "tests"} for each in files):
        tests |= {*tests_at_the_top(Path("tests")), "tests/benchmarks"}
    return without_inner({place for room in rooms for place in tests_of(room)} | tests)


def module_of(path: Path, modules: Collection[str]) -> str:
    """The module of a file; of a template, or of a file that was removed, the package around it."""
    names = [".".join(each.parts) for each in (path.with_suffix(""), *path.parents)]
    return next(name for name in names if name in modules)


def room_of(module: str, modules: Collection[str]) -> str:
    """The package that a module is in: the module itself where it is one."""
    is_package = any(other.startswith(f"{module}.") for other in modules)
    return module if is_package else module.rpartition(".")[0]


def tests_of(room: str) -> Iterator[str]:
    """The folder of tests that mirrors a room; of a whole package, the files at its top."""
    folder = Path("tests", *room.split("."))
    if room in PACKAGES:
        yield from tests_at_the_top(folder)
    elif (ROOT / folder).is_dir():
        yield str(folder)


def tests_at_the_top(folder: Path) -> Iterator[str]:
    """The files of tests in a folder, without those in folders inside it."""
    return (str(each.relative_to(ROOT)) for each in (ROOT / folder).glob("test_*.py"))


def with_tests(folder: Path) -> Path:
    """The folder, or the next one around it that has tests."""
    return next(each for each in (folder, *folder.parents) if any((ROOT / each).rglob("test_*.py")))


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def without_inner(places: Collection[str]) -> set[str]:
    """The places that lie in no other one: pytest would run their tests twice."""
    return {
        each for each in places if not {str(parent) for parent in Path(each).parents}.intersection(places)
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
