"""What a check finds: its level, its figures, what it means and what to do about it.

What was found about images, rather than about one recipe, is kept in the person's cache folder by the digest
of the images: whoever trains on them, or searches, or ships what they taught, says it beside the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, assert_never, get_args

from pydantic import TypeAdapter

from trainable.data import DataInfo, Split
from trainable.data.decode import REPAIR
from trainable.data.info import is_split_here
from trainable.errors import BrokenImages, UserError, first_line
from trainable.files.paths import cache_root
from trainable.files.regular import read_regular
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import write_whole
from trainable.stages import stage

Level = Literal["error", "warning", "note", "passed"]
# How the parts of a data set compare: by what these find, scores may differ between parts
PartsCheck = Literal["label shares", "parts alike", "duplicates", "near-duplicates", "groups"]
# What is so of the images whatever is trained on them
DataCheck = Literal[
    PartsCheck,
    "class balance",
    "validation size",
    "accuracy",
    "ignored pixels",
    "mask values",
    "mask position",
    "decoding",
    "pixel values",
    "contradictions",
]
CheckName = Literal[
    DataCheck,
    "class weights",
    "window",
    "normalisation",
    "outputs",
    "resolution",
    "initial loss",
    "bias before norm",
    "unused parameters",
    "frozen parameters",
    "memory access",
    "training step",
    "first steps",
    "loader",
    "one batch",
    "learning",
    "horizontal flip",
    "vertical flip",
    "shuffled labels",
    "shuffled masks",
    "gradients",
    "GPU sharing",
]

CHECK_NAMES: tuple[CheckName, ...] = get_args(CheckName)
UNKNOWN = "nothing is known about it; the other findings stand"  # of a check that could not be made
FORM = 2  # of the kept files: raise it when the checks would find something else in the same images
LARGEST_KEPT = 2**20  # so many bytes are read


@dataclass(frozen=True)
class Advice:
    """One thing to do about a finding."""

    do: str
    # Only for recipes whose validation part tunebook splits off, whose data have one of their own, or whose
    # network begins without weights; None: for any
    only: Literal["split here", "own part", "from scratch"] | None = None

    def is_for(self, recipe: Recipe, info: DataInfo) -> bool:
        """Say whether a recipe of these images can do it, and does not do it already."""
        match self.only:
            case None:
                return True
            case "split here":
                return is_split_here(recipe.data, info)
            case "own part":
                return not is_split_here(recipe.data, info)
            case "from scratch":
                return recipe.model.weights is None
            case _:
                assert_never(self.only)


MORE_VALIDATION = (
    Advice("raise data.validation_fraction", "split here"),
    Advice("move images into the validation part", "own part"),
)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    `what` has the figures, `means` the consequence, and `do` the field or command to change; the last two are
    empty if the check passed. An `error` makes a search useless, a `warning` costs accuracy or time, and a
    `note` is worth knowing.

    Where the advice depends on the recipe, it is in `advice`, the first thing first, until `advised` puts
    what holds for one into `do`: findings about images are kept for whatever is trained on them.
    """

    check: CheckName
    level: Level
    what: str
    means: str = ""
    do: str = ""
    advice: tuple[Advice, ...] = ()
    of_accuracy: bool = False  # no fault of scores that count classes alike
    copies_in: Split | None = None  # images of this part are also in an earlier one, or nearly
    failed: bool = False  # the check ended in an error: nothing is known of what it looks for

    @property
    def about(self) -> str:
        """What it is about: the check."""
        return self.check

    @property
    def seen(self) -> str:
        """What was found and what it means, without what to do."""
        return f"{self.what}: {self.means}" if self.means else self.what

    @property
    def section(self) -> str:
        """The anchor of the check in docs/checks.md."""
        return f"#{self.check.lower().replace(' ', '-')}"

    def tree(self) -> dict[str, Any]:
        """Return plain data for `--json`, where what to do is in words."""
        return {name: value for name, value in asdict(self).items() if name != "advice"}


def advised(found: Finding, recipe: Recipe, info: DataInfo) -> Finding:
    """Return a finding with what this recipe can do about it in words."""
    if not found.advice:
        return found
    do = ", or ".join(each.do for each in found.advice if each.is_for(recipe, info))
    return replace(found, do=do, advice=())


def passed(check: CheckName, what: str) -> Finding:
    return Finding(check, "passed", what)


def unchecked(check: CheckName, why: str, do: str = "") -> Finding:
    """Return the finding of a check that could not be made, which is no sign of a fault."""
    return Finding(check, "note", f"not checked: {why}", "nothing is known about it", do)


def counts(findings: Sequence[Finding]) -> tuple[int, int]:
    """Return how many errors there are, and how many warnings."""
    levels = [finding.level for finding in findings]
    return levels.count("error"), levels.count("warning")


def guarded(name: CheckName, findings: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; if it fails, yield that, so that the findings of others are not lost."""
    try:
        with stage(f"checking {name}"):
            yield from findings()
    except Exception as error:
        yield from failed(name, error)


def failed(name: CheckName, error: Exception) -> Iterator[Finding]:
    """Yield the findings about a check that ended in an error."""
    match error:
        case BrokenImages():  # many checks open images, and each meets others of the broken ones
            repair = f"{REPAIR}; `tunebook check DATA --full` names all"
            yield Finding("decoding", "error", str(error), "training stops at the first of them", repair)
            yield unchecked(name, "an image cannot be decoded", "see decoding")
        case UserError():
            what = f"the check cannot be made: {error}"
            mend = "mend what is named there, and check again"
            yield Finding(name, "error", what, UNKNOWN, mend, failed=True)
        case _:
            what = f"the check fails: {type(error).__name__}: {first_line(error)}"
            own = "if neither the network nor a function is your own, this is a fault of tunebook: report it"
            yield Finding(name, "error", what, UNKNOWN, own, failed=True)


# --- what is kept of images ---------------------------------------------------------------------------

KEPT = TypeAdapter(tuple[Finding, ...])


def of_images(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the warnings and errors about the images themselves, whatever is trained on them."""
    return tuple(
        each
        for each in findings
        if each.level in ("warning", "error") and each.check in get_args(DataCheck) and not each.failed
    )


class Observation(Protocol):
    """What a check says of images, as it was found or as a search has recorded it."""

    @property
    def about(self) -> str: ...
    @property
    def means(self) -> str: ...
    @property
    def failed(self) -> bool: ...


Seen = TypeVar("Seen", bound=Observation)


def joined(earlier: Iterable[Seen], later: Sequence[Seen]) -> tuple[Seen, ...]:
    """Return what two looks at the same images have found: of a check that found something twice, what it
    found later. What one look did not find the other may have, which saw more of the images."""
    again = {each.about for each in later}
    return (*(each for each in earlier if each.about not in again), *later)


def keep(info: DataInfo, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Keep what was found about images, beside what earlier looks at them have found; return all of it.

    A cache folder that cannot be written is ignored.
    """
    known = joined(kept(info) or (), of_images(findings))
    with suppress(UserError, OSError):
        write_whole(_file(info), KEPT.dump_json(known, indent=2))
    return known


def kept(info: DataInfo) -> tuple[Finding, ...] | None:
    """Return what this machine keeps about images, which may be nothing; None where it has looked at none of
    them, or the file cannot be read."""
    try:
        return KEPT.validate_json(read_regular(_file(info), LARGEST_KEPT))
    except (OSError, ValueError):
        return None


def causes_of_gaps(findings: Iterable[Observation]) -> tuple[str, ...]:
    """Return in words what was found of how the parts compare, by which their scores may differ."""
    return tuple(each.means for each in findings if each.about in get_args(PartsCheck) and not each.failed)


def _file(info: DataInfo) -> Path:
    names = "-".join(filter(None, (f"{FORM}", info.digest, info.files)))
    return cache_root() / "findings" / f"{names}.json"
