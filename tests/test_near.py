"""Tests of which tests are near a change."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest

from tests.near import PACKAGES, places_near, with_tests


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


def test_the_tests_of_a_changed_room_and_of_those_that_import_it_are_near(graph: grimp.ImportGraph) -> None:
    near = places_near(["trainable/probes/lr_find.py"], graph)
    assert {"tests/trainable/probes", "tests/search/commands"} <= near
    assert not near & {"tests/trainable/data", "tests/spaces/rules"}


def test_a_room_within_a_changed_room_is_not_named_twice(graph: grimp.ImportGraph) -> None:
    near = places_near(
        [
            "trainable/tasks/segmentation/task.py",
            "trainable/tasks/segmentation/data/mask_values.py",
            "spaces/facts.py",
        ],
        graph,
    )
    assert "tests/trainable/tasks/segmentation" in near
    assert "tests/trainable/tasks/segmentation/data" not in near
    assert "tests/spaces/test_facts.py" in near


def test_a_changed_test_is_near_itself_and_what_tests_share_is_near_its_folder(
    graph: grimp.ImportGraph,
) -> None:
    changed = ["tests/spaces/test_facts.py", "tests/search/followers/conftest.py"]
    assert places_near(changed, graph) == {"tests/spaces/test_facts.py", "tests/search/followers"}
    assert places_near(["tests/waiting.py", "spaces/facts.py"], graph) == {"tests"}, "all tests share it"


@pytest.mark.parametrize("name", ["templates/page.html", "removed.py"])
def test_a_template_or_a_removed_module_is_near_its_room(name: str, graph: grimp.ImportGraph) -> None:
    assert "tests/search/reporting" in places_near([f"search/reporting/{name}"], graph)


def test_a_document_or_an_example_is_near_the_tests_at_the_top(graph: grimp.ImportGraph) -> None:
    near = places_near(["docs/tasks.md"], graph)
    assert {"tests/test_tasks_page.py", "tests/test_examples.py", "tests/benchmarks"} <= near
    assert places_near(["tests/golden/page.txt", "tests/conftest.py"], graph) == {"tests"}


def test_what_lies_in_a_folder_without_tests_is_near_those_around_it() -> None:
    assert with_tests(Path("tests/golden/pages")) == Path("tests")
    assert with_tests(Path("tests/spaces/rules")) == Path("tests/spaces/rules")
