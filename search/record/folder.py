"""Reads a search's folder, STORAGE/NAME/, also while a driver writes to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from search.record.chain import JournalError, synced_lines
from search.record.code import CodeRecord
from search.record.home import (
    ELSEWHERE_FILE,
    EVENTS_FILE,
    FACTS_FILE,
    FINDINGS_FILE,
    NO_SEARCH,
    TRIALS_FOLDER,
    VERIFICATION_FILE,
    Home,
)
from search.record.journal import check_format, read
from search.record.lock import is_locked
from search.record.record import Record
from search.study import STUDY_FILE, Study, read_study
from spaces.facts import Facts
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.files.regular import read_regular, why
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.data import Split
from trainable.recipe.provenance import Verification
from trainable.recipe.yamlfile import write_whole
from trainable.terminal import program_name

LARGEST_VERIFICATION = 2**24  # so many bytes are read
LARGEST_FACTS = 2**26  # so many bytes of facts are read: a data set of a million classes has fewer


def home_in(folder: Path) -> Home:
    """Return the home of the search in a folder; for a copied or moved folder, that folder alone."""
    home = Home.of(read_search(folder))
    return home if home.folder == folder else Home(folder)


def home_to_write(folder: Path) -> Home:
    """Return the home of the search in a folder. Raises UserError for a copy of one that is in a store."""
    home = Home.of(read_search(folder))
    if home.store is not None and home.folder != folder:
        raise UserError(
            f"{folder}: its study.yaml says that this search is stored in {home.address}: give that address"
        )
    return Home(folder, home.store)


def read_search(folder: Path) -> Study:
    """Return the resolved study of a search folder.

    Raises UserError where the folder holds no search, JournalError where another version wrote the search.
    """
    if not (folder / STUDY_FILE).exists():
        raise UserError(f"{folder}: {NO_SEARCH} (no {STUDY_FILE} in it); give STORAGE/NAME")
    check_format(folder / EVENTS_FILE)
    return read_study(folder / STUDY_FILE)


def read_facts(folder: Path) -> tuple[Facts, DataInfo]:
    """Return what was measured when the search began. Raises UserError where the file is missing."""
    if not (folder / FACTS_FILE).exists():
        raise UserError(f"{folder}: {NO_SEARCH} (no {FACTS_FILE} in it)")
    return facts_in(folder / FACTS_FILE)


def facts_in(file: Path) -> tuple[Facts, DataInfo]:
    """Return what `facts_text` wrote. Raises UserError where a file is missing or holds something else."""
    try:
        tree = json.loads(read_regular(file, LARGEST_FACTS))
        return Facts.from_tree(tree["facts"], str(file)), DataInfo.from_tree(tree["data"])
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{file}: {'.'.join(map(str, ('data', *first['loc'])))}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not valid JSON: {error}") from None
    except (KeyError, TypeError) as error:
        raise UserError(f"{file}: not what a search writes: {error}") from None


def facts_text(
    facts: Facts, info: DataInfo, code: CodeRecord | None = None, learned: Sequence[str] = ()
) -> bytes:
    """Return facts and what is known of the data, as JSON, of a person's own code, and in lines what earlier
    searches taught."""
    tree: dict[str, Any] = {"facts": facts.tree(), "data": info.tree()}
    if code is not None:
        tree["code"] = code.tree()
    if learned:
        tree["learned"] = list(learned)
    return json.dumps(tree, indent=2).encode()


def read_code(folder: Path) -> CodeRecord | None:
    """Return what is recorded of a person's own code; None where a search uses none.

    Raises UserError where the file is missing or holds something else.
    """
    with _read(folder / FACTS_FILE) as tree:
        return CodeRecord.from_tree(tree["code"]) if "code" in tree else None


def read_learned(folder: Path) -> tuple[str, ...]:
    """Return the lines that say what earlier searches taught when this one began, or why nothing.

    Raises UserError where the file is missing or holds something else.
    """
    with _read(folder / FACTS_FILE) as tree:
        return tuple(map(str, tree.get("learned", ())))


@contextmanager
def _read(file: Path) -> Iterator[Any]:
    """Give what a file of facts holds. What is wrong with that, also where the body finds it, is a
    UserError."""
    try:
        yield json.loads(read_regular(file, LARGEST_FACTS))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {why(error)}") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not what a search writes: {error}") from None


def read_record(folder: Path) -> Record:
    """Return what the journal says of a search; nothing where a driver was killed before it began.

    Raises JournalError where it is damaged or cannot be read, and where it is missing although the search had
    begun: old trials must not be mixed with new ones.
    """
    path = folder / EVENTS_FILE
    events = read(path) if path.exists() else []
    if not events and (synced_lines(folder) or any((folder / TRIALS_FOLDER).glob("*"))):
        raise JournalError(f"{path}: missing or empty, but the search had begun; put it back or start anew")
    return Record(events, str(path))


def is_driven(folder: Path) -> bool:
    """Say whether a driver is at work on a search, on this machine or on another one."""
    return is_locked(folder) or (folder / ELSEWHERE_FILE).exists()


class Verified(Spec):
    """A recipe that was trained again, and what that has shown."""

    trial: int
    # the digest of the recipe: another one than the trial's where it was made simpler or finalized
    recipe: str
    found: Verification


def keep_verification(folder: Path, recipe: Recipe) -> None:
    """Write what the provenance of a trial's recipe says of its verification."""
    known = recipe.provenance
    assert known is not None
    assert known.trial is not None
    assert known.verification is not None
    kept = Verified(trial=known.trial, recipe=recipe.digest(), found=known.verification)
    write_whole(folder / VERIFICATION_FILE, f"{kept.model_dump_json(indent=2)}\n".encode())


def read_verification(folder: Path) -> Verified | None:
    """Return what was kept; None where there is nothing that this version can read."""
    try:
        return Verified.model_validate_json(read_regular(folder / VERIFICATION_FILE, LARGEST_VERIFICATION))
    except (OSError, ValidationError):
        return None


TITLES = {"gap": "test against validation", "ceiling": "ceiling", "luck": "luck"}  # of a caution's kinds


class Caution(Spec):
    """What whoever reads a search's answer should know before they trust it.

    Of the images (`data`); a test score that is another than validation's by more than chance allows (`gap`);
    a validation part that cannot show what is better (`ceiling`), or which of the best trials is (`luck`).
    """

    kind: Literal["data", "gap", "ceiling", "luck"]
    about: str  # the check that found it, such as `parts alike`, or the metric
    what: str
    means: str = ""  # both are empty where `what` says all
    do: str = ""
    copies_in: Split | None = None  # images of this part are also in an earlier one, or nearly
    failed: bool = False  # the check ended in an error: nothing is known of what it looks for

    def __str__(self) -> str:
        """The caution in one line."""
        check = f"{self.about}: " if self.failed else ""
        return check + "; ".join(filter(None, (self.seen, self.do)))

    @property
    def seen(self) -> str:
        """What was seen and what it means, without what to do."""
        return ": ".join(filter(None, (self.what, self.means)))

    @property
    def title(self) -> str:
        """What it is about, in a word or two: of the images the check that found it."""
        return self.about if self.kind == "data" else TITLES[self.kind]

    @property
    def brief(self) -> str:
        """In a line: of the images what it means, or which check failed; of the test score also why it is
        another, else what was seen."""
        match self.kind:
            case "data" if self.failed:
                return f"{self.about}: {self.what}"
            case "data":
                return self.means or self.what
            case "gap":
                return self.seen
            case "ceiling" | "luck":
                return self.what


def keep_findings(folder: Path, found: Sequence[Caution]) -> None:
    """Write what was found about the images of the search in a folder, in the place of what is there."""
    write_whole(folder / FINDINGS_FILE, CAUTIONS.dump_json(tuple(found), indent=2) + b"\n")


def read_findings(folder: Path) -> tuple[Caution, ...] | None:
    """Return what was found about a search's images, which may be nothing; None where there is no file, as no
    look was made, or by an earlier version, which wrote none of sound images.

    Raises UserError where the file cannot be read or holds something else.
    """
    file = folder / FINDINGS_FILE
    if not file.exists():
        return None
    try:
        return CAUTIONS.validate_json(read_regular(file, LARGEST_VERIFICATION))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{file}: not what a search writes: {f'{at}: ' if at else ''}{first['msg']}; remove it, and "
            f"`{program_name()} check {quote(str(folder))}` looks at the images again"
        ) from None


CAUTIONS = TypeAdapter(tuple[Caution, ...])
