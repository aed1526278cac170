"""Carries a person's own function to other processes and machines, with their modules that it uses."""

from __future__ import annotations

import pickle
import site
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from trainable.errors import ModelError, UserError, code_named, first_line
from trainable.models.own import name_of

PROJECT = Path(__file__).parents[2]
OURS = ("search", "spaces", "trainable")


@dataclass(frozen=True)
class Carried:
    """Holds a function as bytes. Functions and classes of modules that are not installed are in them whole,
    so that another machine needs none of a person's files; installed packages must be there."""

    name: str
    content: bytes

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Carried:
        """Raises UserError where the function, or a value that it uses, cannot be copied."""
        name = name_of(function)
        try:
            with _written_out(_modules_of_theirs()):
                return cls(name, cloudpickle.dumps(function))
        except Exception as error:  # whatever the values that it uses raise
            raise UserError(
                f"{name}: cannot be copied to the processes that train: {first_line(error)}; make such "
                "a value inside the function"
            ) from error

    def load(self) -> Callable[..., Any]:
        """Returns the function. Raises ModelError where this machine lacks a package that it uses."""
        with code_named(f"{self.name}: cannot be used on {socket.gethostname()}", ModelError):
            function: Callable[..., Any] = pickle.loads(self.content)
        return function


@contextmanager
def _written_out(modules: list[ModuleType]) -> Iterator[None]:
    """Has cloudpickle write what these modules define, instead of their names, for the block."""
    known = cloudpickle.list_registry_pickle_by_value()
    new = [each for each in modules if each.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of_theirs() -> list[ModuleType]:
    """Returns the modules that are a person's own files: imported, not installed, and none of ours."""
    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    folders = [Path(each).resolve() for each in installed] + [PROJECT / each for each in OURS]
    return [
        module
        for name, module in list(sys.modules.items())
        if name not in ("__main__", "__mp_main__")
        and isinstance(module, ModuleType)
        and module.__name__ == name
        and (file := _python_file(module)) is not None
        and not any(file.is_relative_to(folder) for folder in folders)
    ]


def _python_file(module: ModuleType) -> Path | None:
    """Returns a module's file, or the folder of a package without one; None if it is not Python's."""
    file = getattr(module, "__file__", None)
    if file is None:
        folder = next(iter(getattr(module, "__path__", ())), None)
        return Path(folder).resolve() if folder is not None else None
    return Path(file).resolve() if file.endswith(".py") else None
