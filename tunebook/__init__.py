"""Find the training recipe of an image model: `tunebook.search`, `train`, `check`, `explain` and the rest.

    import tunebook

    found = tunebook.search({"data": {"path": "flowers"}, "name": "flowers"})
    found.best  # <Trial 7: timm resnet18, pretrained, 64 px, SGD ...; val_accuracy 0.9312; finished>
    tunebook.train("searches/flowers/best.yaml", out="flowers-model", test=True)

Each name is imported when it is first used: `import tunebook` takes no time, and no torch.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search.from_python import SearchFailed as SearchFailed
    from search.from_python import audit_pruning as audit_pruning
    from search.from_python import extend as extend
    from search.from_python import forecast as forecast
    from search.from_python import resume as resume
    from search.from_python import search as search
    from search.functions import audit as audit
    from search.functions import backbones as backbones
    from search.functions import batch_find as batch_find
    from search.functions import bundle as bundle
    from search.functions import check as check
    from search.functions import delete as delete
    from search.functions import explain as explain
    from search.functions import export as export
    from search.functions import fetch as fetch
    from search.functions import list_searches as list_searches
    from search.functions import logs as logs
    from search.functions import lr_find as lr_find
    from search.functions import open_report as open_report
    from search.functions import refine as refine
    from search.functions import rename as rename
    from search.functions import report as report
    from search.functions import show as show
    from search.functions import shrink as shrink
    from search.functions import status as status
    from search.functions import stop as stop
    from search.functions import submit as submit
    from search.functions import sync as sync
    from search.functions import train as train
    from search.functions import ui as ui
    from search.results.search import Search as Search
    from search.study.study import Study as Study
    from spaces.domains import Choice as Choice
    from spaces.domains import Float as Float
    from spaces.domains import Integer as Integer
    from trainable.data.assembly import from_arrays as from_arrays
    from trainable.errors import UserError as UserError
    from trainable.recipe.recipe import Recipe as Recipe
    from trainable.recipe.yamlfile import read_recipe as read_recipe
    from trainable.recipe.yamlfile import write_recipe as write_recipe
    from trainable.training.extra_metrics import Metric as Metric

# Where each name is at home
_HOMES = {
    "search.from_python": ("SearchFailed", "audit_pruning", "extend", "forecast", "resume", "search"),
    "search.functions": (
        *("audit", "backbones", "batch_find", "bundle", "check", "delete", "explain", "export"),
        *("fetch", "list_searches", "logs", "lr_find", "open_report", "refine", "rename", "report"),
        *("show", "shrink", "status", "stop", "submit", "sync", "train", "ui"),
    ),
    "search.results.search": ("Search",),
    "search.study.study": ("Study",),
    "spaces.domains": ("Choice", "Float", "Integer"),
    "trainable.data.assembly": ("from_arrays",),
    "trainable.errors": ("UserError",),
    "trainable.recipe.recipe": ("Recipe",),
    "trainable.recipe.yamlfile": ("read_recipe", "write_recipe"),
    "trainable.training.extra_metrics": ("Metric",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_PACKAGES = ("search", "spaces", "trainable")  # as `trainable.imports` has it, if that is ours

__all__ = sorted(_HOME_OF)


if not TYPE_CHECKING:  # a type checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        """Import what is asked for when it is. Raises ImportError where somebody's file is in the way."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _refuse_shadows()
        _warn_of_sharing()
        from trainable.extras import needing_run

        with needing_run(f"tunebook.{name}"):
            found: object = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


@cache
def _warn_of_sharing() -> None:
    """Warn once of another distribution that has packages of our names in the same folder."""
    from trainable.imports import sharing_distributions

    for line in sharing_distributions():
        warnings.warn(f"tunebook: {line}", stacklevel=3)


def _refuse_shadows() -> None:
    """Raise ImportError where another file or package is imported in place of one of ours."""
    ours = Path(__file__).resolve().parents[1]
    for name in _PACKAGES:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None or Path(origin).resolve() != ours / name / "__init__.py":
            where = origin or (list(spec.submodule_search_locations or ()) if spec is not None else "nothing")
            raise ImportError(
                f"tunebook: {where} is imported as {name!r}, in place of tunebook's package of this name in "
                f"{ours}; rename it, or run from another folder"
            )
