"""Makes what is written from the code: JSON Schemas, and the page of names to import from Python.

`python docs/make_pages.py` writes docs/study.schema.json and docs/recipe.schema.json; a test keeps them so.
The page of names is made for the site alone, by make_site.py.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from search.study import Study
from search.study.study import FIXED_BY_THE_STUDY
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance

DOCS = Path(__file__).parent

_ELLIPSIS = type("Default", (), {"__repr__": lambda _: "..."})()  # of a default that is an object

# what people import; a module that is not there is left out
PUBLIC = {
    "tunebook": None,
    "search": None,
    "search.results": ("Search",),
    "search.study": ("Study", "read_study"),
    "spaces.domains": ("Choice", "Float", "Integer"),
    "trainable.recipe": ("Recipe",),
    "trainable.recipe.yamlfile": ("read_recipe",),
    "trainable.train": ("train",),
    "trainable.check": ("check",),
    "trainable.run": ("make_run",),
    "trainable.training.run": ("Run",),
}


# written into recipes by a search, and no part of a study
PROVENANCE = {f"Base{name}" for name in Provenance.model_json_schema()["$defs"]} | {"BaseProvenance"}


# --- JSON Schemas: an editor completes YAML by them ---------------------------------------------------


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe; each field's description is its purpose and source."""
    return _titled(Recipe.model_json_schema(), "A recipe of tunebook")


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study, whose `base` is completed like a recipe."""
    schema, base = Study.model_json_schema(), _partial(Recipe.model_json_schema())
    for name in FIXED_BY_THE_STUDY:
        base["properties"].pop(name, None)
    schema["$defs"] |= {f"Base{name}": each for name, each in base.pop("$defs").items()}
    text = schema["properties"]["base"]["description"]
    schema["properties"]["base"] = {
        **_renamed(base),
        "description": text,
        "patternProperties": {r"\.": {}},  # dotted paths mean the same as nested keys
    }
    schema["$defs"] = {
        name: _renamed(each) if name.startswith("Base") else each
        for name, each in schema["$defs"].items()
        if name not in PROVENANCE
    }
    return _titled(schema, "A study of tunebook: one search")


def _titled(schema: dict[str, Any], title: str) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def _partial(node: Any) -> Any:
    """Return a schema of parts of a tree: nothing is required, and a section fits any kind that has its
    fields, or that it calls by name."""
    match node:
        case dict():
            parts = {name: _partial(each) for name, each in node.items() if name != "required"}
            parts.pop("discriminator", None)
            if "oneOf" in parts:
                parts["anyOf"] = parts.pop("oneOf")
            if parts.get("type") == "object" and "properties" in parts:
                parts["patternProperties"] = {r"\.": {}}
            return parts
        case list():
            return [_partial(each) for each in node]
        case _:
            return node


def _renamed(node: Any) -> Any:
    """Return a schema whose references lead to the parts of a recipe, called BaseNAME in a study's schema."""
    match node:
        case {"$ref": str(target)}:
            return {**node, "$ref": target.replace("#/$defs/", "#/$defs/Base")}
        case dict():
            return {name: _renamed(each) for name, each in node.items()}
        case list():
            return [_renamed(each) for each in node]
        case _:
            return node


SCHEMAS = {"study.schema.json": study_schema, "recipe.schema.json": recipe_schema}


def as_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


# --- names to import ----------------------------------------------------------------------------------


def api_page() -> str:
    """Return the page of what people import, from signatures and docstrings."""
    lines = ["# Names to import", "", "[Your own code](python.md) shows them at work.", ""]
    described: list[object] = []
    for module_name, chosen in PUBLIC.items():
        module = importlib.import_module(module_name)
        named = [(name, getattr(module, name)) for name in chosen or module.__all__]
        own = [(name, each) for name, each in named if not any(each is other for other in described)]
        described += [each for _, each in own]
        if own:
            lines += [f"## `{module_name}`", "", *_prose(module, chosen is None), ""]
        for name, each in own:
            lines += [f"### `{name}`", "", *_described(each, name), ""]
    return "\n".join(lines)


def _described(each: Any, name: str) -> Iterator[str]:
    if inspect.isclass(each):
        yield from [*_prose(each), ""]
        if issubclass(each, BaseModel) or is_dataclass(each):
            yield from [*_fields(each), ""]
        yield from _members(each)
    elif inspect.isroutine(each):
        yield from ["```python", _signature(each, name), "```", "", *_prose(each)]
    else:  # a type that is a union, say
        yield f"`{each}`"


def _signature(function: Any, name: str) -> str:
    """Return a function's head, on one line or with a line for each parameter."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        plain = each.default is each.empty or isinstance(each.default, int | float | str | tuple | None)
        shown = each if plain else each.replace(default=_ELLIPSIS)
        parts.append(re.sub(r": '(.*?)'", r": \1", str(shown)))
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {returned}"
    line = f"{name}({', '.join(parts)}){arrow}"
    return (
        line if len(line) <= 90 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])
    )


def _prose(each: Any, wanted: bool = True) -> Iterator[str]:
    """Yield a docstring as Markdown: a block such as `Args:` becomes a list."""
    text = inspect.getdoc(each) if wanted else None
    if text is None or (inspect.isclass(each) and "__doc__" not in vars(each)):
        return
    in_list = False
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises):", line):
            in_list = True
            yield from [f"**{line}**", ""]
        elif in_list and (item := re.match(r"    (\*{0,2}\w[\w, *]*): (.*)", line)):
            yield f"- `{item[1]}`: {item[2]}"
        elif in_list and line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            in_list = in_list and line.startswith("    ")
            yield line.strip() if in_list else line


def _fields(each: Any) -> Iterator[str]:
    if issubclass(each, BaseModel):
        yield from ["| field | what it is |", "|-|-|"]
        schema = each.model_json_schema()
        for name, field in schema["properties"].items():
            yield f"| `{name}` | {_cell(_about(field, schema))} |"
        return
    names = [
        f"`{name}: {each.__annotations__.get(name, '')}`"
        for name in each.__dataclass_fields__
        if name[0] != "_"
    ]
    yield f"Fields: {', '.join(names)}."


def _about(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return what a field is for: its own description, or that of its section."""
    section = field.get("$ref", "").removeprefix("#/$defs/")
    described = field.get("description") or schema.get("$defs", {}).get(section, {}).get("description", "")
    return str(described).split("\n\n")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _members(each: type) -> Iterator[str]:
    """Yield an item for each public method and property that a class itself defines, and documents."""
    for name, member in vars(each).items():
        if name.startswith("_") or isinstance(member, staticmethod):
            continue
        function = (
            getattr(member, "__func__", None)
            or getattr(member, "fget", None)
            or getattr(member, "func", member)
        )
        first = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        if not callable(function) or not first or inspect.isclass(function):
            continue
        is_value = isinstance(member, property) or hasattr(member, "attrname")
        yield f"- `.{name}{'' if is_value else '()'}`: {first}"


def main() -> None:
    """Write the schemas."""
    for name, make in SCHEMAS.items():
        (DOCS / name).write_text(as_text(make()), encoding="utf-8")


if __name__ == "__main__":
    main()
