"""A reader learns which guide a source code is of where the code stands for the first time."""

from __future__ import annotations

from pathlib import Path

from spaces.catalog.explain import reasons
from tests.spaces.small_facts import digits_facts
from trainable.recipe import Recipe
from trainable.recipe.base import GUIDES, with_guide_names

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"


def test_the_first_source_of_each_guide_has_its_name() -> None:
    sources = ["003:13, 000:27; arXiv 1608.03983", "ours", "003:26-40", "000:29, 003:20"]
    assert with_guide_names(sources) == [
        "PaddleClas guide 003:13, training tricks notes 000:27; arXiv 1608.03983",
        "ours",
        "003:26-40",
        "000:29, 003:20",
    ]


def test_numbers_of_papers_are_no_guides() -> None:
    assert with_guide_names(["arXiv 2003.10555", "1003:4"]) == ["arXiv 2003.10555", "1003:4"]


def test_the_comments_of_a_recipe_name_every_guide_once() -> None:
    text = "\n".join(reasons(Recipe(), facts=digits_facts()).values())
    assert "003:" in text
    for number, name in GUIDES.items():
        assert text.count(f"{name} {number}:") == (1 if f"{number}:" in text else 0)


def test_the_page_of_sources_calls_the_guides_the_same() -> None:
    text = PAGE.read_text()
    assert all(f"| {number} | {name} |" in text for number, name in GUIDES.items())
