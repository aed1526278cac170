"""Records which functions of a person's own a search uses: digests of their sources, and their script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from shlex import quote
from typing import Any

from search.study import Study
from search.study.code import Code

METRICS = "metrics."  # the words of functions that score begin so


@dataclass(frozen=True)
class CodeRecord:
    """Which code a search uses, and none of that code itself."""

    script: str | None  # the file that called `search`; None in a notebook
    # the digest of each function's source, by the word that gives it, such as `model`; None where Python does
    # not know the source
    sources: Mapping[str, str | None]

    def tree(self) -> dict[str, Any]:
        return {"script": self.script, "sources": dict(self.sources)}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> CodeRecord:
        """Read what `tree` returned. Raises TypeError or ValueError for anything else."""
        script, sources = tree.get("script"), tree.get("sources")
        texts = [script, *sources.values()] if isinstance(sources, Mapping) else [0]
        if not all(isinstance(each, str | None) for each in texts):
            raise ValueError("expected the code of a search as a script and digests of sources")
        return cls(script, dict(sources or {}))

    @property
    def digests(self) -> dict[str, str]:
        """The digests that are known."""
        return {word: digest for word, digest in self.sources.items() if digest is not None}

    @property
    def again(self) -> str:
        """How the search goes on."""
        if self.script is None:
            return "call tunebook.search(...) again in its notebook"
        return f"run its script again: python {quote(self.script)}"

    def lacking(self, code: Code) -> list[str]:
        """Return the words of the recorded functions that are not given now, such as `metrics.f1`."""
        return sorted(self.sources.keys() - record_of(code).sources.keys())

    def changes(self, code: Code) -> Iterator[str]:
        """Yield a line for each function whose source is not the recorded one."""
        for word, digest in record_of(code).sources.items():
            before = self.sources.get(word)
            if None not in (before, digest) and before != digest:
                yield (
                    f"{word}: the source of this function has changed since the search began; its earlier "
                    "trials used the older one"
                )


def record_of(code: Code) -> CodeRecord:
    """Return the record of the functions that are given now."""
    from trainable.models.own import source_digest
    from trainable.training.extra_metrics import Metric

    scored = {
        f"{METRICS}{name}": each.compute if isinstance(each, Metric) else each
        for name, each in code.metrics.items()
    }
    given: dict[str, Callable[..., Any] | None] = {"model": code.model, "data": code.data, **scored}
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    script = str(Path(file).absolute()) if file is not None else None
    return CodeRecord(script, {name: source_digest(each) for name, each in given.items() if each is not None})


def functions_of(study: Study, code: CodeRecord | None) -> str:
    """Return a person's own functions that a study uses, and those of a search's record that score, as
    arguments of a call in Python; empty if none. `...` stands for a function whose name is no name there."""
    own: dict[str, str] = {}
    if study.pinned.get("model.kind") == "own":
        own["model"] = _in_python(study.pinned.get("model.name"))
    if study.data.own:
        own["data"] = _in_python(study.data.path)
    scored = [word.removeprefix(METRICS) for word in code.sources if word.startswith(METRICS)] if code else []
    if scored:
        own["metrics"] = "{" + ", ".join(f"{name!r}: {_in_python(name)}" for name in scored) + "}"
    return ", ".join(f"{word}={name}" for word, name in own.items())


def _in_python(name: object) -> str:
    return name if isinstance(name, str) and name.isidentifier() and not iskeyword(name) else "..."


def extend_call(address: str, trials: int, study: Study, code: CodeRecord | None) -> str:
    """Return the call in Python that extends a search; empty if it has no functions of a person's own."""
    own = functions_of(study, code)
    return f"tunebook.extend({address!r}, {trials}, {own})" if own else ""


def train_call(file: Path, study: Study, code: CodeRecord | None) -> str:
    """Return the call in Python that trains a recipe of a search; empty if no function is a person's own."""
    own = functions_of(study, code)
    return f"tunebook.train({str(file)!r}, {own})" if own else ""
