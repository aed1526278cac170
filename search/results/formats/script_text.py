"""The text of a script: its head, the imports that its body needs, and its body, from templates."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from search.results.formats.sheet import Sheet
from search.results.formats.winner import Winner
from trainable.errors import one_line
from trainable.models.libraries import title_of

DIGITS = 12  # of numbers
PARTS = ("settings", "images", "network", "training", "loop")  # the templates, in the order of a script
HEAD = """Trains {network}: {title}.

    python {file} [--data FOLDER] [--seed NUMBER]

FOLDER holds train/, val/ and test/, each with a folder of images for each class. After each epoch the
accuracy on val/ is printed, and at the end that on test/; the weights are written to model.pt. It needs
{packages}.

{notes}
"""
# What a script may import, in groups: modules, with the names from them; no names mean the module
IMPORTS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"argparse": (), "functools": (), "math": (), "random": (), "pathlib": ("Path",)},
    {
        "timm": (),
        "torch": (),
        "PIL": ("Image", "ImageOps"),
        "safetensors.torch": ("load_file",),
        "timm.optim": ("create_optimizer_v2",),
        "timm.optim.lamb": ("Lamb",),
        "timm.optim.lars": ("Lars",),
        "torch ": ("nn",),
        "torch.nn": ("functional",),
        "torch.optim.swa_utils": ("AveragedModel", "update_bn"),
        "torch.utils.data": ("DataLoader", "Subset", "WeightedRandomSampler"),
        "torchvision": ("datasets", "models"),
        "torchvision.ops": ("stochastic_depth",),
        "torchvision.transforms": ("InterpolationMode", "v2"),
    },
)
PACKAGES = {  # by the names of their modules
    "torch": "torch",
    "torchvision": "torchvision",
    "PIL": "pillow",
    "timm": "timm",
    "safetensors": "safetensors",
}


def script_text(winner: Winner, sheet: Sheet, out: Path) -> str:
    """Return the script."""
    body = "".join(_template(part).render(**sheet.arguments) for part in PARTS)
    packages = [PACKAGES[name] for name in PACKAGES if name in "".join(_imports(body))]
    spec = winner.recipe.model
    head = HEAD.format(
        network=one_line(title_of(spec)),
        title=one_line(winner.title),
        file=one_line(out.name),
        packages=", ".join(packages),
        notes=_notes(winner, sheet),
    )
    # nothing that somebody wrote can end the three quotes
    quoted = head.replace("\\", "\\\\").replace('"""', "'''")
    return "".join([f'"""{quoted}"""\n', *_imports(body), "\n", body])


@functools.cache
def _template(part: str) -> jinja2.Template:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("search.results.formats", "script_parts"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["py"] = _python
    return templates.get_template(f"{part}.py.jinja")


def _python(value: Any) -> str:
    """Return a value as Python: texts in ASCII and double quotes, numbers with all digits that matter."""
    match value:
        case str():
            ascii_text = value.encode("unicode_escape").decode()  # a letter beyond 16 bits stays one letter
            return '"' + ascii_text.replace('"', '\\"') + '"'
        case float():
            return repr(float(f"{value:.{DIGITS}g}"))
        case tuple():
            return f"({', '.join(map(_python, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(_python, value))}]"
        case _:
            return repr(value)


def _imports(body: str) -> Iterator[str]:
    """Yield the imports of what a script's body names, as lines."""
    for group in IMPORTS:
        yield "\n"
        for module, names in group.items():
            if used := [name for name in names if re.search(rf"\b{name}\b", body)]:
                yield f"from {module.strip()} import {', '.join(used)}\n"
            elif not names and re.search(rf"\b{module}\.", body):
                yield f"import {module}\n"


def _notes(winner: Winner, sheet: Sheet) -> str:
    """Return what was changed and not seen, and what the script does not do, as lines of its head."""
    left_out = [f"  {line}" for line in sheet.lines()]
    said = (
        ["What it does in another way than the recipe:", *left_out]
        if left_out
        else ["It does all that the recipe says."]
    )
    return "\n".join([*map(one_line, winner.notes), *said])
