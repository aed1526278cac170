"""A reader learns which guide a source code is of where the code stands for the first time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spaces.catalog.explain import reasons
from tests.spaces.small_facts import digits_facts
from trainable.recipe import Recipe
from trainable.recipe.base import GUIDES, spelled_out, with_guide_names

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


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("003:26-40", "lines 26-40 of the PaddleClas guide"),
        (
            "003:4, 001:136; ours",
            "line 4 of the PaddleClas guide, line 136 of the PyTorch tuning guide; ours",
        ),
        ("arXiv 1706.02677, section 2.1", "https://arxiv.org/abs/1706.02677, section 2.1"),
        (
            "arXiv 2306.07179, 2502.16982",
            "https://arxiv.org/abs/2306.07179, https://arxiv.org/abs/2502.16982",
        ),
        ("JMLR 15:1929", "JMLR 15:1929"),
        ("torch's documentation", "torch's documentation"),
    ],
)
def test_a_source_is_spelled_out_so_that_it_can_be_looked_up(source: str, words: str) -> None:
    assert spelled_out(source) == words


def test_no_source_of_a_recipe_keeps_a_code_when_it_is_spelled_out() -> None:
    found = {spelled_out(each.source) for each in reasons(Recipe(), facts=digits_facts()).values()}
    assert any("PaddleClas guide" in each for each in found)
    assert not [each for each in found if re.search(r"\b00[0-4]:\d|arXiv \d", each)]


def test_the_page_of_sources_calls_the_guides_the_same() -> None:
    text = PAGE.read_text()
    assert all(f"| {number} | {name} |" in text for number, name in GUIDES.items())
