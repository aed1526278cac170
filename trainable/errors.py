"""Collects the faults in what a person wrote, finds their paths, and puts them into words."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

from pydantic import BaseModel, ValidationError

FAULTS_SHOWN = 50  # so many faults of one file are listed; the rest are counted
LONGEST_LINE = 2000  # no line of a message is longer; the longest that is meant names all models of a library
LONGEST_QUOTE = 200  # a value that a person wrote is quoted up to this length


UNION = "one of: "  # tags of unions that begin so are no part of a path
KEY = "[key]"  # a location of pydantic's that ends so is of a key, and not of its value


class Fault(NamedTuple):
    """One fault: its dotted path, and a message with what was expected and what was got."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class UserError(Exception):
    """What the person who called can correct; it is shown without a traceback.

    Long lines are shortened, and characters that a terminal would obey, or cannot show, are escaped.
    """

    exit_code = 2  # the command ends with this exit code
    section = ""  # of docs/errors.md, where there is more to say than the message does

    def __init__(self, message: str = "") -> None:
        super().__init__("\n".join(map(shown, message.split("\n"))))


class FaultyInput(UserError):
    """A file or mapping has faults; the message lists them all, one a line."""

    subject = "input"

    def __init__(self, faults: Sequence[Fault], where: str = "") -> None:
        self.faults = tuple(faults)
        self.where = where
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        head = f"{where or self.subject}: {count}"
        more = len(self.faults) - FAULTS_SHOWN
        rest = [f"and {more:,} more"] if more > 0 else []
        super().__init__("\n  ".join([head, *map(str, self.faults[:FAULTS_SHOWN]), *rest]))

    @classmethod
    def at(cls, path: str, message: str) -> Self:
        """Return the error of one fault; an empty path stands for the whole."""
        return cls([Fault(path, message)])

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Fault, ...], str]]:
        """Pickle the faults: by default an exception is rebuilt from its message, which would be read as the
        faults."""
        return type(self), (self.faults, self.where)


class RecipeError(FaultyInput):
    """A recipe is not valid, with the faults."""

    subject, section = "recipe", "a-recipe"


class DataError(UserError):
    """Images or labels cannot be used; the message names the file or folder and what to do."""

    section = "images-and-labels"


class BrokenImages(DataError):
    """Images that cannot be decoded."""

    section = "images-that-cannot-be-decoded"


class ModelError(UserError):
    """A model does not exist or does not fit the images."""

    section = "a-network"


class StateError(UserError):
    """A saved state belongs to another recipe or other data."""

    section = "a-saved-state"


class RunError(Exception):
    """A run crashed; the message has the recipe's digest, and the cause is the original error."""


@contextmanager
def crashes_named(where: str) -> Iterator[None]:
    """Turn a crash into a RunError that says which run it was, and where.
    UserErrors pass unchanged: they are clear."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise RunError(f"{where}: {type(error).__name__}: {error}") from error


@contextmanager
def code_named(what: str, kind: type[UserError]) -> Iterator[None]:
    """Turn an error of a person's own code into one message of this kind: the error, and its line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {first_line(error)}{_line_of(error)}") from error


def _line_of(error: Exception) -> str:
    """Return where a person's own code raised an error: the last line that is in no installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not _is_installed(Path(each.filename))]
    if not own:
        return ""
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name})"


def _is_installed(file: Path) -> bool:
    installed = any(part in ("site-packages", "dist-packages") for part in file.parts)
    return installed or file.is_relative_to(Path(__file__).parent)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def shown(text: str, most: int = LONGEST_LINE) -> str:
    """Return a line for a terminal: its middle is left out if it is longer than `most`, and characters that
    a terminal would obey, or that are in no encoding, are escaped."""
    if len(text) > most:
        text = f"{text[: most // 2]} [...] {text[-most // 2 :]}"
    return visible(text)


def visible(text: str) -> str:
    """Return a text in which every character is escaped, as Python writes it, that a terminal would obey,
    that turns the order of others around, or that is in no encoding; line ends and tabs are such, too."""
    seen = "\u200c\u200d\u3000"  # joiners in Persian, Indian languages and emoji; the space of Japanese
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in seen else each.encode("unicode_escape").decode()
        for each in text
    )


def one_line(text: str) -> str:
    """Return a text as one visible line, as a comment needs it; line ends and tabs become spaces."""
    return visible(" ".join(text.split()))


def quoted(value: object) -> str:
    """Return a value as Python writes it, without its middle where that is long."""
    return shown(repr(value), LONGEST_QUOTE)


def listed(names: Sequence[str], most: int = 5) -> str:
    """List the first of some names, and say how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def faults_of(error: ValidationError, tree: Any, model: type[BaseModel]) -> list[Fault]:
    """Turn pydantic's errors into Faults with the paths that the person wrote (without union tags)."""
    return [_fault(dict(item), tree, model) for item in error.errors(include_url=False)]


def _fault(item: dict[str, Any], tree: Any, model: type[BaseModel]) -> Fault:
    location = list(_without_tags(item["loc"], tree))
    path = shown(".".join(str(part) for part in location), LONGEST_QUOTE)
    got = item["input"]
    match item["type"]:
        case "extra_forbidden":
            return Fault(path, _unknown_key(str(item["loc"][-1]), item["loc"][:-1], model))
        case "missing":
            return Fault(path, "is required")
        case "union_tag_invalid":
            expected, got = item["ctx"]["expected_tags"], item["ctx"]["tag"]
            timms = "; what is timm's is written kind: timm, name: NAME" if "'timm'" in expected else ""
            return Fault(f"{path}.kind", f"expected one of {expected}, got {quoted(got)}{timms}")
        case "union_tag_not_found":
            return Fault(f"{path}.kind", f"is required, to say which {path or 'kind'} this is")
        case "value_error":
            return Fault(path, str(item["ctx"]["error"]))
        case "model_type" | "dict_type":
            return Fault(path, f"expected a mapping{_example(item, model)}, got {quoted(got)}")
        case "tuple_type" | "list_type":
            return Fault(path, f"expected a list, such as [...], got {quoted(got)}")
        case _:
            message = item["msg"].removeprefix("Input should be ").removeprefix("Value should be ")
            return Fault(path, f"expected {message}, got {quoted(got)}")


def _example(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Return how the mapping may look that a person wrote as a name alone."""
    written, fields = item["input"], known_fields(item["loc"], model)
    if isinstance(written, str) and "kind" in fields:
        return f", such as {{kind: {shown(written, LONGEST_QUOTE)}}}"
    return f" of {', '.join(fields)}" if fields else ""


def _without_tags(location: Sequence[str | int], tree: Any) -> Iterator[str | int]:
    """Yield pydantic's location without union tags, which are not in what the person wrote."""
    node = tree
    for part in location:
        if str(part).startswith(UNION) or part == KEY:
            continue
        if isinstance(node, Mapping):
            if part not in node and node.get("kind") == part:
                continue
            yield part
            node = node.get(part)
        elif isinstance(node, list | tuple) and isinstance(part, int):
            yield part
            node = node[part] if part < len(node) else None
        elif node == part:  # a kind that was written as a name alone
            continue
        else:
            yield part
            node = None


def _unknown_key(name: str, location: Sequence[str | int], model: type[BaseModel]) -> str:
    known = known_fields(location, model)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown key{hint} (known: {', '.join(known)})"


def known_fields(location: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    """Return the field names of the section at a pydantic location,
    in which union tags select the member."""
    candidates: list[type[BaseModel]] = [model]
    for part in location:
        if str(part).startswith(UNION):
            continue
        tagged = [each for each in candidates if _tag(each) == part]
        if tagged and len(candidates) > 1:
            candidates = tagged
            continue
        candidates = [
            each
            for candidate in candidates
            if str(part) in candidate.model_fields
            for each in _models_in(candidate.model_fields[str(part)].annotation)
        ]
    return list(dict.fromkeys(name for candidate in candidates for name in candidate.model_fields))


def _tag(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("kind")
    return field.default if field is not None else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
