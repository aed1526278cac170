"""Run the tests near a change: `make near`.

They are those of the rooms in which files differ from the last commit (or from SINCE), of the rooms whose
modules import a changed module, and the changed tests; without those that are slow or need other processes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("trainable", "spaces", "search")
QUICK = "not slow and not integration and not gpu"


def main(since: str = "HEAD") -> int:
    changed = sorted(changed_files(since))
    graph = grimp.build_graph(*PACKAGES)
    places = sorted(places_near(changed, graph))
    if not places:
        print(f"Nothing that has tests differs from {since}.")
        return 0
    print(f"Tests of what differs from {since}, and of what imports it:", *places, sep="\n    ", flush=True)
    command = [sys.executable, "-m", "pytest", "--numprocesses=2", "-q", "-m", QUICK, *places]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0 if code == 5 else code  # 5: all the tests there are slow


def changed_files(since: str) -> set[str]:
    """The files that differ from a commit, new ones among them, as paths from the root."""
    commands = (
        ["diff", "--name-only", "--diff-filter=d", since, "--"],
        ["ls-files", "--others", "--exclude-standard"],
    )
    lines = [
        subprocess.run(["git", *each], cwd=ROOT, check=True, capture_output=True, text=True)
        for each in commands
    ]
    return {line for done in lines for line in done.stdout.splitlines()}


def places_near(changed: Iterable[str], graph: grimp.ImportGraph) -> set[str]:
    """The folders and files of tests near changed files, as paths from the root."""
    files = [Path(each) for each in changed]
    modules = {module_of(each) for each in files if each.suffix == ".py" and each.parts[0] in PACKAGES}
    known = modules & graph.modules
    above = {importer for module in known for importer in graph.find_modules_that_directly_import(module)}
    rooms = {room_of(module, graph.modules) for module in known | above}
    tests = {
        str(each if each.name.startswith("test_") else each.parent) for each in files if is_of_tests(each)
    }
    return without_inner({place for room in rooms for place in tests_of(room)} | tests)


def module_of(path: Path) -> str:
    """The module of a file: `trainable/data/__init__.py` is `trainable.data`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str, modules: Collection[str]) -> str:
    """The package that a module is in: the module itself where it is one."""
    is_package = any(other.startswith(f"{module}.") for other in modules)
    return module if is_package else module.rpartition(".")[0]


def tests_of(room: str) -> Iterator[str]:
    """The folder of tests that mirrors a room; of a whole package, the files at its top."""
    folder = Path("tests", *room.split("."))
    if room in PACKAGES:
        yield from (str(each.relative_to(ROOT)) for each in (ROOT / folder).glob("test_*.py"))
    elif (ROOT / folder).is_dir():
        yield str(folder)


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def is_of_tests(path: Path) -> bool:
    """Only below a folder of tests: what lies at the top of `tests` is shared by all."""
    return path.parts[0] == "tests" and path.suffix == ".py" and (len(path.parts) > 2 or is_test(path))


def without_inner(places: Collection[str]) -> set[str]:
    """The places that lie in no other one: pytest would run their tests twice."""
    return {
        each for each in places if not {str(parent) for parent in Path(each).parents}.intersection(places)
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
