"""Carries a person's own function to other processes and machines, with their modules that it may use."""

from __future__ import annotations

import pickle
import site
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_loader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import cloudpickle

from trainable.errors import ModelError, UserError, code_named, first_line
from trainable.models.own import name_of
from trainable.recipe.metrics import Mode
from trainable.training.extra_metrics import Function, Metric

PROJECT = Path(__file__).parents[2]
OURS = ("search", "spaces", "trainable")


@dataclass(frozen=True)
class CodeSource:
    """The text of a module that is not installed; a folder of modules without a file has none."""

    text: str
    file: str
    is_package: bool


@dataclass(frozen=True)
class Carried:
    """A function as bytes, and the sources of a person's own modules that were imported with it.

    So another machine needs none of their files; installed packages must be there.
    """

    name: str
    content: bytes
    sources: Mapping[str, CodeSource]

    @classmethod
    def of(cls, function: Callable[..., Any], name: str | None = None) -> Carried:
        """Pickle a function, with the sources of the modules that it may use. Raises UserError where it, or a
        value that it uses, cannot be copied."""
        name = name or name_of(function)
        try:
            scripts = _running_scripts()
            with _written_out(scripts):
                return cls(name, cloudpickle.dumps(function), _sources_of_theirs(scripts))
        except Exception as error:  # whatever the values that it uses raise
            raise UserError(
                f"{name}: cannot be copied to the processes that train: {first_line(error)}; make such "
                "a value inside the function"
            ) from error

    def load(self) -> Callable[..., Any]:
        """Return the function, and let this process import its modules from now on.

        Raises ModelError where this machine lacks a package that it uses.
        """
        sys.meta_path.insert(0, CarriedModules(self.sources))
        with code_named(f"{self.name}: cannot be used on {socket.gethostname()}", ModelError):
            function: Callable[..., Any] = pickle.loads(self.content)
        return function


@dataclass(frozen=True)
class CarriedMetric:
    """A metric of a person's own, its function as bytes."""

    compute: Carried
    mode: Mode
    worst: float | None

    @classmethod
    def of(cls, name: str, metric: Metric | Function) -> CarriedMetric:
        """Pickle a metric's function. Raises UserError as `Carried.of` does."""
        whole = metric if isinstance(metric, Metric) else Metric(metric)
        return cls(Carried.of(whole.compute, f"metrics[{name!r}]"), whole.mode, whole.worst)

    def load(self) -> Metric:
        return Metric(self.compute.load(), self.mode, self.worst)


@dataclass(frozen=True)
class PickledCode:
    """A person's own functions that every trial needs: what builds the network, and metrics by name."""

    model: Carried | None = None
    metrics: Mapping[str, CarriedMetric] = field(default_factory=dict)


NOTHING = PickledCode()


class CarriedModules(MetaPathFinder, ExecutionLoader):
    """An importer of modules from their sources, which were read in another process."""

    def __init__(self, sources: Mapping[str, CodeSource]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self._sources.get(fullname)
        spec = None if found is None else spec_from_loader(fullname, self, origin=found.file)
        if spec is not None:
            spec.has_location = True  # so that the module has its `__file__`
        return spec

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname].text

    def get_filename(self, fullname: str) -> str:
        return self._sources[fullname].file

    def is_package(self, fullname: str) -> bool:
        return self._sources[fullname].is_package


def _running_scripts() -> list[str]:
    """Return the modules whose lines call this function: imported elsewhere, they would do so again."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if frame.f_code.co_name == "<module>" and name in sys.modules and name != "__main__":
            found.append(name)
        frame = frame.f_back
    return found


@contextmanager
def _written_out(modules: Sequence[str]) -> Iterator[None]:
    """Make cloudpickle write what these modules define, instead of their names, for the block."""
    known = cloudpickle.list_registry_pickle_by_value()
    new = [sys.modules[name] for name in dict.fromkeys(modules) if name not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _sources_of_theirs(scripts: Sequence[str]) -> dict[str, CodeSource]:
    """Return the sources of modules that are a person's own: imported, not installed, none of ours, and no
    script that runs."""
    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    folders = [Path(each).resolve() for each in installed] + [PROJECT / each for each in OURS]
    found = {}
    for name, module in list(sys.modules.items()):
        file = _place_of(module) if name not in ("__main__", "__mp_main__", *scripts) else None
        if file is None or not file.exists() or any(file.is_relative_to(folder) for folder in folders):
            continue
        text = decode_source(file.read_bytes()) if file.is_file() else ""
        found[name] = CodeSource(text, str(file), "__path__" in vars(module))
    return found


def _place_of(module: object) -> Path | None:
    """Return a module's file, or the folder of a package without one; None if it is not Python's."""
    known = getattr(module, "__dict__", {})  # a lazy module would import what is asked of it
    file = known.get("__file__")
    if file is None:
        try:
            folder = next(iter(known.get("__path__", ())), None)
        except KeyError:  # a namespace package whose parent is no longer imported
            return None
        return Path(folder).resolve() if isinstance(folder, str) else None
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") else None
