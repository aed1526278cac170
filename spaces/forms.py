"""What a Recipe's fields are for and may hold, which kinds have them, and how they are made to vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spaces.domains import Choice, Domain, Value, domain_tree, shown
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose
from trainable.recipe.models import ARGUMENTS

RANGES = ("uniform: [low, high]", "log: [low, high]", "int: [low, high]", "int_log: [low, high]")


def purpose_of(path: str) -> Purpose:
    """Return what a field is for, in every kind that has it.

    A `kind` that says nothing has its section's purpose. Raises LookupError for what is no field, and where
    kinds do not say the same.
    """
    section, _, name = path.rpartition(".")
    if any(get_origin(field.annotation) is dict for field in _fields_at(section)):
        return purpose_of(section)  # a key of a mapping has the mapping's purpose
    found = {
        next((each for each in field.metadata if isinstance(each, Purpose)), None)
        for field in _fields_at(path)
    }
    if found == {None} and name == "kind":
        return purpose_of(section)
    match list(found):
        case [Purpose() as purpose]:
            return purpose
        case _:
            raise LookupError(
                f"{path}: expected one purpose, the same in every kind, got {found or 'no field'}"
            )


def types_of(path: str) -> tuple[Any, ...]:
    """Return the types, words and numbers that any kind allows in a field; empty for an unknown field."""
    return tuple(dict.fromkeys(part for field in _fields_at(path) for part in _parts(field.annotation)))


def fields_of(path: str) -> tuple[str, ...]:
    """Return the paths of a section's fields, over all its kinds; empty if there is no such section."""
    names = [name for spec in _specs_at(path) for name in spec.model_fields]
    return tuple(f"{path}.{name}" for name in dict.fromkeys(names))


def kinds_having(path: str) -> tuple[str, ...]:
    """Return the kinds of a section that have a field which other kinds lack; empty if all have it."""
    section, _, name = path.rpartition(".")
    specs = _specs_at(section)
    having = [spec for spec in specs if name in spec.model_fields]
    return () if len(having) == len(specs) else tuple(spec.model_fields["kind"].default for spec in having)


def allowed(path: str, value: Value) -> bool:
    """Return whether a value is allowed by the field's list of words or numbers, if it has such a list."""
    words = _words_in(types_of(path))
    return not words or value in words


def forms(path: str) -> tuple[str, ...]:
    """Return the ranges that an override of a field may write, the usual one first; empty for a list."""
    types = types_of(path)
    if path.startswith(f"{ARGUMENTS}."):
        return (*RANGES, "choice: [option, ...]")
    if words := _words_in(types):
        return (f"choice: [{', '.join(map(shown, words))}]",)
    if ... in types:
        return ()
    if bool in types:
        return ("choice: [false, true]",)
    if float in types:
        return ("log: [low, high]", "uniform: [low, high]", "choice: [number, ...]")
    if int in types:
        return ("int: [low, high]", "int_log: [low, high]", "choice: [number, ...]")
    return ("choice: [word, ...]",)


def _words_in(types: tuple[Any, ...]) -> list[Value]:
    """Return the words and numbers that a field's types list; empty where some kind allows any text."""
    return [] if str in types else [each for each in types if isinstance(each, Value)]


def form_like(domain: Domain) -> str:
    """Return how a domain of the same form is written in an override."""
    (form,) = domain_tree(domain)
    return f"{form}: [option, ...]" if isinstance(domain, Choice) else f"{form}: [low, high]"


def _fields_at(path: str) -> list[FieldInfo]:
    """Return a field as each kind of its section declares it; empty for what is no field."""
    section, _, name = path.rpartition(".")
    return [spec.model_fields[name] for spec in _specs_at(section) if name in spec.model_fields]


def _specs_at(section: str) -> list[type[BaseModel]]:
    """Return the specs that a section may be, one for each of its kinds; empty for an unknown section."""
    found: list[type[BaseModel]] = [Recipe]
    for name in section.split(".") if section else []:
        fields = [spec.model_fields[name] for spec in found if name in spec.model_fields]
        parts = dict.fromkeys(part for field in fields for part in _parts(field.annotation))
        found = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types and literal values of an annotation, at any depth of unions and Annotated."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        yield from arguments
    elif get_origin(annotation) is Annotated:
        yield from _parts(arguments[0])
    elif arguments:
        for each in arguments:
            yield from _parts(each)
    else:
        yield annotation
