"""Writes docs/heuristics.md from the rules' own text: `python -m spaces.rules.page docs/heuristics.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import assert_never

from spaces.conditions import scalars_of
from spaces.domains import Values, shown
from spaces.facts import Backbone, Facts
from spaces.priors import ODDS, SPREADS, Normal, Uniform, Weights, describe
from spaces.rules.heuristics import fixed_by_rule, rulings
from spaces.rules.rules import RULES, Rule
from spaces.rules.rulings import Distribution, RuleWords, anchor, shown_parameters
from trainable.recipe import Recipe
from trainable.recipe.base import with_guide_names

DIGITS = Facts(
    train_images=1_257,
    classes=10,
    class_balance=0.95,
    channels=1,
    image_size=8,
    parameters=77_754,
    epochs=20,
    cpus=1,
    gpus=0.0,
)
CIFAR = Facts(
    train_images=42_500,
    classes=10,
    class_balance=1.0,
    channels=3,
    image_size=32,
    flips=("horizontal",),
    parameters=11_181_642,
    epochs=100,
    cpus=8,
    gpus=1.0,
)
TEACHER_PARAMETERS = 60_192_808  # ResNet-152's
IMAGENET = CIFAR.model_copy(
    update={
        "train_images": 1_280_000,
        "classes": 1000,
        "image_size": 224,
        "parameters": 25_557_032,
        "epochs": 120,
    }
)
FEW_PHOTOGRAPHS = IMAGENET.model_copy(
    update={
        "train_images": 1_000,
        "classes": 10,
        "parameters": 23_528_522,
        "epochs": 30,
        "pretrained": True,
        "stored_side": 500,
        "backbone": Backbone(name="resnet50.a1_in1k"),
    }
)
UNEQUAL_CLASSES = FEW_PHOTOGRAPHS.model_copy(
    update={"backbone": None, "train_images": 10_000, "class_balance": 0.02, "classes_count_alike": True}
)
FEW_MASKS = Facts(
    task="segmentation",
    train_images=42,
    classes=2,
    class_balance=0.09,
    classes_count_alike=True,
    channels=3,
    image_size=128,
    flips=("horizontal", "vertical"),
    parameters=482_834,
    epochs=20,
    cpus=1,
    gpus=0.0,
    longer_side=256,
)
VOC = FEW_MASKS.model_copy(
    update={
        "train_images": 10_582,
        "classes": 21,
        "class_balance": 0.004,
        "image_size": 512,
        "flips": ("horizontal",),
        "parameters": 32_523_413,
        "epochs": 45,
        "cpus": 8,
        "gpus": 1.0,
        "pretrained": True,
        "longer_side": 500,
        "stored_side": 375,
        "backbone": Backbone(name="resnet50.a1_in1k"),
    }
)
# The page asks the rules about these: facts, and what the recipe pins for them
EXAMPLES = {
    "digits": (DIGITS, {}),
    "CIFAR10": (CIFAR, {"model.kind": "torchvision", "model.name": "resnet18"}),
    "ImageNet": (
        IMAGENET.model_copy(update={"teacher_parameters": TEACHER_PARAMETERS}),
        {"model.kind": "torchvision", "model.name": "resnet50"},
    ),
    "fine-tuning": (
        FEW_PHOTOGRAPHS,
        {"model.kind": "timm", "model.name": "resnet50.a1_in1k", "model.weights": "default"},
    ),
    "unequal classes": (
        UNEQUAL_CLASSES,
        {"model.kind": "torchvision", "model.name": "resnet50", "model.weights": "default"},
    ),
    "masks": (FEW_MASKS, {"model.kind": "unet_small"}),
    "masks, pretrained": (
        VOC,
        {
            "model.kind": "smp",
            "model.name": "unet",
            "model.encoder": "resnet50.a1_in1k",
            "model.weights": "default",
        },
    ),
}

WIDTH = 106  # of the lines of a rule's text, before guides are named in them
MARK = "<!-- Made by `python -m spaces.rules.page docs/heuristics.md`; a test keeps it so. -->"


def page(head: str) -> str:
    """Return the whole page, in Markdown: `head`, which is written by hand, and then what the rules say."""
    return "\n".join([head, MARK, "", *with_guide_names([*_rules(), *_fixed()])]) + "\n"


def head_of(text: str) -> str:
    """Return the text before the mark in the page as it is."""
    return text.partition(MARK)[0].rstrip("\n") + "\n"


def _confidences() -> Iterator[str]:
    spreads = ", ".join(f"{name} {spread:g}" for name, spread in SPREADS.items())
    odds = ", ".join(f"{name} {weight:g}" for name, weight in ODDS.items())
    yield f"- of a number, its standard deviation as a share of the domain's length: {spreads};"
    yield f"- of one option that you believe in, how many times the weight of each other it has: {odds}."


def _examples() -> Iterator[str]:
    yield "| example | training images | side | parameters | epochs | hardware |"
    yield "|-|-|-|-|-|-|"
    for name, (facts, values) in EXAMPLES.items():
        model = values.get("model.name", values.get("model.kind", "resnet_small"))
        kind = f"{model}{', pretrained' if facts.pretrained else ''}"
        taught = f", taught by {facts.teacher_parameters:,}" if facts.teacher_parameters else ""
        size = f"{shown_parameters(facts)} ({kind}){taught}"
        where = "a GPU" if facts.gpus else "a CPU"
        yield (
            f"| {name} | {facts.train_images:,} | {facts.image_size} px | {size} | {facts.epochs} | {where} |"
        )


def _rules() -> Iterator[str]:
    """Yield a section for each field; rules of the field that share their text share a part of it."""
    yield from ("## Confidence", "", *_confidences(), "", "## The rules", "", *_examples(), "")
    path_of_words: dict[RuleWords, str] = {}
    for path, of_path in groupby(RULES, lambda rule: rule.path):
        yield from (f"### `{path}`", "")
        for words, alike in groupby(of_path, lambda rule: rule.words):
            before = path_of_words.setdefault(words, path)
            rules = list(alike)
            yield from _condition(rules)
            if before != path:
                text = f"As for `{before}`."
            else:
                text = fill(words.text, WIDTH, break_long_words=False, break_on_hyphens=False)
                why = "" if words.page is None else f"[Why](rules/{words.page}#{anchor(path)}) · "
                text += f"\n{why}[Say otherwise](#saying-otherwise)"
            yield from (text, "", *_table(rules), "")
            yield from (f"Source: {_linked(_sources(rules))}.", "")


def _table(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a line for each example of the rules' tasks, or for each variant if there are several."""
    names = [name for name, (facts, _) in EXAMPLES.items() if facts.task in rules[0].tasks]
    if len(rules) == 1:
        yield from ("| example | believed |", "|-|-|")
        yield from (f"| {name} | {_asked(rules[0], name)} |" for name in names)
        return
    yield from (f"| | {' | '.join(names)} |", f"|-|{'-|' * len(names)}")
    for rule in rules:
        yield f"| {rule.variant} | {' | '.join(_asked(rule, name) for name in names)} |"


def _fixed() -> Iterator[str]:
    """Yield the values of the documented recipe for the examples:
    those of the first trial, and of what does not vary."""
    introduction = (
        "These are the values of the documented recipe: the first trial has all of them, every other trial "
        "those that do not vary."
    )
    yield from ("## What is fixed", "", introduction, "")
    yield from (f"| | {' | '.join(EXAMPLES)} | source |", f"|-|{'-|' * len(EXAMPLES)}-|")
    found = [rulings(facts, _base(facts, values), frozenset()) for facts, values in EXAMPLES.values()]
    for path in dict.fromkeys(path for each in found for path in each):
        cells = [shown(each[path].what) if path in each else "" for each in found]
        source = "; ".join(dict.fromkeys(each[path].source for each in found if path in each))
        yield f"| `{path}` | {' | '.join(cells)} | {_linked(source)} |"


def _asked(rule: Rule, example: str) -> str:
    """Return what a rule says of an example."""
    facts, values = EXAMPLES[example]
    found = rule.of(facts, _own_values(facts, values))
    return "no range" if found is None else _cell(found)


def _cell(found: Distribution) -> str:
    match found.prior:
        case Normal(centre=centre, confidence=confidence):
            return f"{centre:.3g} ({confidence}) in {found.domain}"
        case Uniform() | Weights():
            return describe(found.domain, found.prior)
        case _:
            assert_never(found.prior)


def _sources(rules: Iterable[Rule]) -> str:
    found: list[Distribution | None] = [
        rule.of(facts, _own_values(facts, values)) for rule in rules for facts, values in EXAMPLES.values()
    ]
    return "; ".join(dict.fromkeys(part for each in found if each for part in each.source.split("; ")))


def _own_values(facts: Facts, values: Values) -> Values:
    """Return every value of the documented recipe for an example."""
    base = _base(facts, values)
    return scalars_of(base.with_values(fixed_by_rule(facts, base, frozenset())))


def _base(facts: Facts, values: Values) -> Recipe:
    return Recipe.from_tree({"task": {"kind": facts.task}}).with_values(
        {"loop.epochs": facts.epochs, **values}
    )


def _condition(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield when the field is drawn at all; the variants of a table say it themselves."""
    whens = {rule.when for rule in rules}
    parts = [f"drawn when {when}" for when in whens if when is not None and len(whens) == 1]
    parts += ["only where you ask for it"] if all(rule.optional for rule in rules) else []
    if parts:
        condition = "; ".join(parts)
        yield from (f"*{condition[0].upper()}{condition[1:]}.*", "")


def _linked(source: str) -> str:
    """Return the source with every arXiv number as a link."""
    return re.sub(r"(?:arXiv )?\b(\d{4}\.\d{4,5})\b", r"[\1](https://arxiv.org/abs/\1)", source)


def main() -> None:
    """Write the page again, with its head as it is."""
    file = Path(sys.argv[1])
    file.write_text(page(head_of(file.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
