"""Tests that docs/heuristics.md says what the rules say, and that its advice to a person works."""

import re
from pathlib import Path

import pytest

from spaces.catalog.catalog import NAMES, make_space
from spaces.rules.page import MARK, head_of, page
from spaces.rules.rules import RULES
from spaces.rules.rulings import anchor, heuristic
from tests.spaces.small_facts import base_recipe, imagenet_facts
from trainable.recipe.base import GUIDES
from trainable.recipe.yamlfile import parse_tree

FILE = Path(__file__).parents[3] / "docs" / "heuristics.md"
TEXT = FILE.read_text()
EVIDENCE = FILE.parent / "rules"


@pytest.mark.slow("asks every rule")
def test_the_page_is_what_the_rules_say_today() -> None:
    assert page(head_of(TEXT)) == TEXT, "run: python -m spaces.rules.page docs/heuristics.md"


def test_every_field_that_a_rule_speaks_of_has_one_section() -> None:
    found = re.findall(r"^### `(.+)`$", TEXT, flags=re.MULTILINE)
    assert found == list(dict.fromkeys(rule.path for rule in RULES))


def test_the_page_holds_the_words_of_every_rule() -> None:
    plain = " ".join(TEXT.split())
    for rule in RULES:
        assert rule.words.text in plain, rule.name


@pytest.mark.parametrize("page_of_rules", sorted(EVIDENCE.glob("*.md")), ids=lambda file: file.name)
def test_a_page_of_evidence_quotes_each_of_its_rules_below_the_rules_field(page_of_rules: Path) -> None:
    """Whoever changes a sentence looks at what it rests on, and a page has no rule that is gone."""
    sections = re.split(r"^## ", page_of_rules.read_text(), flags=re.MULTILINE)[1:]
    quoted = {
        (field[1], sentence)
        for section in sections
        if (field := re.match(r"`(.+)`\n", section))
        for sentence in re.findall(r"^\*([^*]+)\*$", section, flags=re.MULTILINE)
    }
    field_of = {rule.words: rule.path for rule in reversed(RULES)}  # the first that has these words
    mine = {(path, each.summary) for each, path in field_of.items() if each.page == page_of_rules.name}
    assert quoted == mine


def test_every_page_that_a_rule_names_exists() -> None:
    named = {rule.words.page for rule in RULES} - {None}
    assert named == {file.name for file in EVIDENCE.glob("*.md")}


@pytest.mark.parametrize(("number", "name"), GUIDES.items())
def test_the_rules_name_each_guide_where_they_cite_it_first(number: str, name: str) -> None:
    generated = TEXT.partition(MARK)[2]
    first = generated.index(f"{number}:")
    assert generated[:first].endswith(f"{name} ")
    assert generated.count(f"{name} {number}:") == 1


def test_a_rule_says_when_it_is_silent() -> None:
    words = heuristic("One.", silent="at night")(lambda: None).words
    assert words.text == "One. The rule gives no range at night."
    assert words.silent == "at night"


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


@pytest.mark.parametrize("file", [FILE, *sorted(EVIDENCE.glob("*.md"))], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    links = re.findall(r"\]\(\s*(?!http)([^)#\s]*)(?:#([^)]+))?\)", file.read_text())
    assert links
    for name, place in links:
        target = (file.parent / name).resolve() if name else file
        assert target.exists(), name
        headings = re.findall(r"^#+ (.+)$", target.read_text(), flags=re.MULTILINE) if place else []
        assert not place or place in map(anchor, headings), f"{name}#{place}"
