import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from spaces.catalog.catalog import make_space
from spaces.catalog.explain import Row, evidence, reasons, recipe_rows, sections, space_rows
from spaces.facts import Facts
from spaces.forms import fields_of, purpose_of
from spaces.rules.rulings import PAGE, anchor
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts, masks_facts
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, write_recipe

REPOSITORY = Path(__file__).parents[3]


def choices(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the value of every `kind` of every union in a section, unions inside unions too."""
    for name, field in section.model_fields.items():
        for each in members(field.annotation):
            path = f"{prefix}{name}"
            if "kind" in each.model_fields:
                for kind in members_of_kind(each):
                    yield f"{path}.kind", kind
            yield from choices(each, f"{path}.")


def members(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that an annotation allows, however deep in unions and Annotated they are.

    Sections in a list are none: a list is one value.
    """
    if get_origin(annotation) is tuple:
        return []
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [each for part in get_args(annotation) for each in members(part)]


def members_of_kind(section: type[BaseModel]) -> tuple[str, ...]:
    return get_args(section.model_fields["kind"].annotation)


# Recipes of a classification cannot have these kinds
OF_MASKS = ("segmentation", "unet_small", "smp", "scaled", "classmix")


def with_kind(path: str, kind: str) -> Recipe:
    """Return a recipe with a kind, and with what it cannot be without: a network's name, a teacher."""
    named = {"smp": {"encoder": "resnet18"}, "resnet_small": {}, "unet_small": {}}
    fields = named.get(kind, {"name": "resnet18"}) if path.endswith("model.kind") else {}
    fields = {f"{path.removesuffix('kind')}{name}": value for name, value in fields.items()}
    teacher = {"distillation.teacher": "teacher"} if path.startswith("distillation.") else {}
    if path.startswith("distillation.model."):
        teacher["distillation.model.kind"] = "resnet_small"
    masks = {"task.kind": "segmentation", "model.kind": "unet_small"} if kind in OF_MASKS else {}
    return Recipe().with_values({**masks, **teacher, path: kind, **fields})


ALL_KINDS = [with_kind(path, kind) for path, kind in dict.fromkeys(choices(Recipe))]


def row(rows: list[Row], path: str) -> Row:
    (found,) = (each for each in rows if each.path == path)
    return found


def test_all_kinds_are_looked_at() -> None:
    """A walk that missed a union would let its fields go without a purpose."""
    chosen = dict.fromkeys(choices(Recipe))
    for path, kind in [
        ("model.kind", "timm"),
        ("model.layer_rates.kind", "decayed"),
        ("optimizer.kind", "adam_then_sgd"),
        ("schedule.kind", "cyclic"),
        ("augmentation.policy.kind", "autoaugment"),
        ("augmentation.masking.kind", "hide_and_seek"),
        ("augmentation.size.kind", "progressive"),
        ("evaluation.resize.kind", "center_crop"),
        ("distillation.kind", "dkd"),
        ("distillation.model.kind", "timm"),
    ]:
        assert (path, kind) in chosen
        assert with_kind(path, kind) in ALL_KINDS


SECTIONS = [name for name in Recipe.model_fields if name not in ("version", "provenance")]


def fields_below(section: str) -> Iterator[str]:
    for path in fields_of(section):
        below = tuple(fields_below(path))
        yield from below or (path,)


WRITTEN = {path for recipe in ALL_KINDS for path, _ in recipe.leaves()}


@pytest.mark.parametrize("path", sorted(WRITTEN.union(*map(fields_below, SECTIONS))))
def test_every_field_has_a_purpose_and_a_source_the_same_in_every_kind(path: str) -> None:
    assert all(purpose_of(path))


@pytest.mark.parametrize("recipe", ALL_KINDS, ids=lambda recipe: recipe.digest())
def test_every_value_of_a_recipe_has_a_row_with_reason_and_source(recipe: Recipe) -> None:
    for rows in (recipe_rows(recipe), recipe_rows(recipe, facts=digits_facts())):
        assert [each.path for each in rows] == [path for path, _ in recipe.leaves()]
        assert all(each.what and each.reason and each.source for each in rows)


def test_a_space_explains_what_varies_and_what_is_fixed() -> None:
    facts = imagenet_facts()
    base = base_recipe(facts, optimizer__weight_decay=0.003)
    overrides = {"loop.batch_size": {"choice": [128, 512]}}
    space = make_space("document", base, frozenset({"optimizer.weight_decay"}), facts, overrides)
    rows = space_rows(space)
    rate = row(rows, "optimizer.lr[sgd]")
    assert re.fullmatch(
        r"around 0\.1 \(medium confidence\) within [\d.]+ to [\d.]+, log; at batch 256 \(0\.05 at 128\); "
        r"when kind is sgd",
        rate.what,
    )
    assert rate.source.startswith("003:13")
    options = r"sgd \d+%, adamw \d+%, lamb \d+%, timm's nadamw or muon \d+%"
    assert re.fullmatch(options, row(rows, "optimizer.kind").what)
    assert row(rows, "regularisation.averaging.decay").what.endswith("; when kind is ema")
    assert row(rows, "loop.batch_size").what == "one of 128, 512"
    assert row(rows, "loop.batch_size").source == "space.overrides"
    assert row(rows, "optimizer.weight_decay").what == "0.003"
    assert row(rows, "optimizer.weight_decay").source == "written in the study"
    assert row(rows, "optimizer.scaling").source.startswith("000:25")
    assert row(rows, "loop.prefetch").what == "2"


def test_what_a_person_believes_is_shown_with_the_rule_that_it_replaces() -> None:
    facts = imagenet_facts()
    overrides = {"optimizer.lr[sgd]": {"prior": 0.3, "confidence": "low"}}
    space = make_space("document", base_recipe(facts), frozenset(), facts, overrides)
    shown = row(space_rows(space), "optimizer.lr[sgd]")
    assert shown.what.startswith("around 0.3 (low confidence) within ")
    assert shown.reason == "believed in the study; the rule: 0.1 at batch 256"
    assert shown.source.startswith("space.overrides; the range: 003:13")


@pytest.mark.parametrize(
    ("overrides", "name", "ending"),
    [
        ({}, "optimizer.lr[sgd]", "; at batch 256 (0.25 at 32); when kind is sgd"),
        ({}, "optimizer.lr[adamw]", "; at batch 256 (0.018 at 32); when kind is adamw"),
        (
            {"optimizer.lr": {"log": [0.01, 1.0]}},
            "optimizer.lr",
            "(at 32: x0.12 for sgd, x0.35 for adamw and lamb and timm's nadamw or muon)",
        ),
        (
            {"optimizer.lr": {"log": [0.01, 1.0]}, "optimizer.kind": {"fixed": "sgd"}},
            "optimizer.lr",
            "0.01 to 1, log; at batch 256 (0.0013 to 0.12 at 32)",
        ),
        (
            {"optimizer.lr": {"prior": 1.0}, "optimizer.kind": {"fixed": "adadelta"}},
            "optimizer.lr",
            "; at batch 256 (1 at 32)",
        ),
        (
            {"optimizer.lr": {"prior": 2.0}, "optimizer.scaling": {"fixed": "none"}},
            "optimizer.lr[sgd]",
            "; at batch 256 (2 at 32); when kind is sgd",
        ),
    ],
)
def test_rates_are_shown_at_batch_256_and_at_the_recipes_own(
    overrides: dict[str, Any], name: str, ending: str
) -> None:
    facts = digits_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, overrides)
    assert space.base.loop.batch_size == 32
    assert row(space_rows(space), name).what.endswith(ending)


def test_rates_at_batch_256_are_shown_once() -> None:
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts, loop__batch_size=256), frozenset(), facts, {})
    assert "; at batch 256; when kind is sgd" in row(space_rows(space), "optimizer.lr[sgd]").what


def test_every_field_of_the_base_is_in_a_spaces_rows() -> None:
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, {})
    explained = {each.path.partition("[")[0] for each in space_rows(space)}
    assert {path for path, _ in space.base.leaves()} <= explained


def test_a_value_is_explained_by_its_rule_its_prior_or_its_field() -> None:
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, {})
    drawn = space.recipe({**space.own, "optimizer.lr": 0.3}).with_values({"loop.batch_size": 64})
    rows = recipe_rows(drawn, facts=facts)
    assert row(rows, "optimizer.momentum").reason.startswith("SGD with momentum")
    assert row(rows, "optimizer.lr").reason.startswith("around 0.1 (medium confidence) within ")
    assert row(rows, "optimizer.lr").reason.endswith(": 0.1 at batch 256")
    assert row(rows, "loop.batch_size").reason.startswith("other than the rule's 256: ")
    assert row(rows, "loop.seed").reason == purpose_of("loop.seed").reason


def test_a_drawn_value_is_explained_by_the_prior_of_the_values_beside_it() -> None:
    """The decay's centre is lower in a recipe that distorts its images."""
    facts = imagenet_facts()
    plain = base_recipe(facts, optimizer__weight_decay=3e-4)
    strong = plain.with_values({"augmentation.policy.kind": "trivialaugment"})
    assert row(recipe_rows(plain, facts=facts), "optimizer.weight_decay").reason.startswith("around 0.0001 (")
    assert row(recipe_rows(strong, facts=facts), "optimizer.weight_decay").reason.startswith("around 7e-05 (")


def test_the_ranges_of_the_other_optimizer_explain_nothing() -> None:
    facts = imagenet_facts()
    adam = base_recipe(facts, optimizer__kind="adamw", optimizer__lr=0.3)
    assert row(recipe_rows(adam, facts=facts), "optimizer.lr").reason.startswith(
        "other than the rule's 0.001: "
    )
    assert row(recipe_rows(adam, facts=facts), "optimizer.kind").reason.startswith("from sgd 70%, adamw 12%")


def test_a_recipe_is_explained_by_the_space_that_it_was_drawn_from() -> None:
    facts = imagenet_facts()
    space = make_space(
        "wide", base_recipe(facts, loop__batch_size=64), frozenset({"loop.batch_size"}), facts, {}
    )
    rows = recipe_rows(space.recipe({**space.own, "optimizer.lr": 7.0}), space)
    assert row(rows, "optimizer.lr").reason.startswith("from 0.0001 to 10, log: a wide range")
    assert row(rows, "loop.batch_size").reason.startswith("pinned; ")
    assert row(rows, "optimizer.momentum").reason.startswith("SGD with momentum")


def test_reasons_are_comments_that_leave_the_recipe_as_it_is(tmp_path: Path) -> None:
    facts = imagenet_facts()
    recipe = base_recipe(facts, optimizer__lr=0.3, data__flips=["horizontal", "vertical"])
    comments = {path: each.reason for path, each in reasons(recipe, facts=facts).items()}
    write_recipe(tmp_path / "best.yaml", recipe, comments)
    assert read_recipe(tmp_path / "best.yaml") == recipe
    text = (tmp_path / "best.yaml").read_text()
    assert "around 0.1 (medium confidence)" in text
    assert all(comments[path] in text for path, _ in recipe.leaves())


def test_provenance_is_not_explained() -> None:
    tree = {**Recipe().tree(), "provenance": {"search": "digits"}}
    assert not [
        path for path in reasons(Recipe.from_tree(tree), facts=digits_facts()) if "provenance" in path
    ]


def test_every_rule_of_a_space_has_a_section_on_the_page_of_rules() -> None:
    headings = re.findall(r"^### (.+)$", (REPOSITORY / PAGE).read_text(), flags=re.MULTILINE)
    found = sections(make_space("document", base_recipe(imagenet_facts()), frozenset(), imagenet_facts(), {}))
    assert found[0] == "docs/heuristics.md#optimizerkind"
    assert {place.partition("#")[2] for place in found} <= {*map(anchor, headings)}


def test_pages_say_what_the_rules_of_a_space_rest_on_and_none_what_a_person_wrote() -> None:
    def pages(facts: Facts, name: str = "document", **overrides: Any) -> list[str]:
        return evidence(make_space(name, base_recipe(facts), frozenset(), facts, overrides))

    found = pages(imagenet_facts())
    assert found[0] == "docs/rules/optimizers.md"
    assert all((REPOSITORY / page).exists() for page in found)
    assert "docs/rules/masks.md" in pages(masks_facts())
    assert "docs/rules/masks.md" not in found
    assert pages(imagenet_facts(), "quick") == ["docs/rules/learning-rate.md"]
    assert pages(imagenet_facts(), "quick", **{"optimizer.lr": {"log": [0.1, 1.0]}}) == []
    assert pages(imagenet_facts(), "wide") == []
