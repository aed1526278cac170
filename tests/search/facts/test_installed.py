"""Tests which commit of a person's own tree is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from search.facts.installed import git_commit

PERSON = ("-c", "user.name=x", "-c", "user.email=x")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "file.txt").write_text("before")
    (folder / ".gitattributes").write_text("*.txt filter=ours")
    for words in (("init", "-q"), ("add", "."), (*PERSON, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_changes_are_named_and_no_program_of_the_repository_is_started(repository: Path) -> None:
    commit = git_commit(repository)
    assert commit is not None
    assert len(commit) == 40
    (repository / "file.txt").write_text("behind")
    started = repository.parent / "started"
    settings = f"""
[core]
    fsmonitor = "touch {started}; false"
    hooksPath = {repository}
[filter "ours"]
    clean = "touch {started}; cat"
    process = "touch {started}; false"
    required = true
"""
    with (repository / ".git" / "config").open("a") as file:
        file.write(settings)
    assert git_commit(repository) == f"{commit}+changes"
    assert not started.exists()


def test_a_folder_outside_of_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
