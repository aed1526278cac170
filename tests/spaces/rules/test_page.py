"""Tests that docs/heuristics.md says what the rules say, and that its advice to a person works."""

import re
from pathlib import Path

import pytest

from spaces.catalog.catalog import NAMES, make_space
from spaces.rules.page import MARK, head_of, page
from spaces.rules.rules import RULES
from spaces.rules.rulings import heuristic
from tests.spaces.small_facts import base_recipe, imagenet_facts
from trainable.recipe.sources import GUIDES
from trainable.recipe.yamlfile import parse_tree

FILE = Path(__file__).parents[3] / "docs" / "heuristics.md"
TEXT = FILE.read_text()


@pytest.mark.slow("asks every rule")
def test_the_page_is_what_the_rules_say_today() -> None:
    assert page(head_of(TEXT)) == TEXT, "run: python -m spaces.rules.page docs/heuristics.md"


def test_every_field_that_a_rule_speaks_of_has_one_section() -> None:
    found = re.findall(r"^### `(.+)`$", TEXT, flags=re.MULTILINE)
    assert found == list(dict.fromkeys(rule.path for rule in RULES))


def test_the_page_holds_the_words_of_every_rule() -> None:
    plain = " ".join(TEXT.split())
    for number, name in GUIDES.items():
        plain = plain.replace(f"{name} {number}:", f"{number}:")
    for rule in RULES:
        assert all(each in plain for each in rule.words.paragraphs), rule.name


@pytest.mark.parametrize(("number", "name"), GUIDES.items())
def test_the_rules_name_each_guide_where_they_cite_it_first(number: str, name: str) -> None:
    generated = TEXT.partition(MARK)[2]
    first = generated.index(f"{number}:")
    assert generated[:first].endswith(f"{name} ")
    assert generated.count(f"{name} {number}:") == 1


def test_what_a_rule_says_of_its_silence_stands_among_its_details() -> None:
    words = heuristic("One.", "Two. {silent} Three.", silent="at night")(lambda: None).words
    assert words.paragraphs == ("One.", "Two. The rule gives no range at night. Three.")
    assert words.silent == "at night"


@pytest.mark.parametrize(("details", "silent"), [("Two.", "at night"), ("Two. {silent}", None)])
def test_a_rule_that_says_when_it_is_silent_says_where(details: str, silent: str | None) -> None:
    with pytest.raises(ValueError, match=r"expected \{silent\} in the details"):
        heuristic("One.", details, silent=silent)


def test_every_named_space_is_described() -> None:
    assert all(f"| `{name}` |" in head_of(TEXT) for name in NAMES)


def test_the_overrides_that_the_page_shows_make_a_space() -> None:
    (block,) = re.findall(r"```yaml\n(.+?)```", head_of(TEXT), flags=re.DOTALL)
    written = parse_tree(block, "the page")["space"]
    facts = imagenet_facts()
    space = make_space(written["name"], base_recipe(facts), frozenset(), facts, written["overrides"])
    assert "model.dropout" in space.pins
    assert "schedule.kind" in space.own


@pytest.mark.slow("asks every rule")
def test_a_page_without_its_mark_gets_one() -> None:
    assert head_of("# Title\n") == "# Title\n"
    assert page("# Title\n").startswith(f"# Title\n\n{MARK}\n")


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", TEXT))
def test_links_lead_somewhere(link: str) -> None:
    assert (FILE.parent / link).exists()
