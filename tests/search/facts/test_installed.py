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


@pytest.mark.parametrize("name", ["ours", "a=b", "a.b"])
def test_changes_are_named_and_no_program_of_the_repository_is_started(repository: Path, name: str) -> None:
    (repository / ".git" / "info" / "attributes").write_text(f"*.txt filter={name}")
    commit = git_commit(repository)
    assert commit is not None
    assert len(commit) == 40
    (repository / "file.txt").write_text("behind")
    started = repository.parent / "started"
    settings = f"""
[core]
    fsmonitor = "touch {started}; false"
    hooksPath = {repository}
[filter "{name}"]
    clean = "touch {started}; cat"
    process = "touch {started}; false"
    required = true
"""
    with (repository / ".git" / "config").open("a") as file:
        file.write(settings)
    assert git_commit(repository) == f"{commit}+changes"
    assert not started.exists()


def test_what_the_repository_lacks_is_not_fetched(repository: Path) -> None:
    tree = subprocess.check_output(["git", "rev-parse", "HEAD^{tree}"], cwd=repository, text=True).strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    started = repository.parent / "started"
    settings = f"""
[core]
    repositoryFormatVersion = 1
[extensions]
    partialClone = origin
[remote "origin"]
    promisor = true
    url = {repository}
    uploadpack = "touch {started}; git-upload-pack"
"""
    with (repository / ".git" / "config").open("a") as file:
        file.write(settings)
    assert git_commit(repository) is None
    assert not started.exists()


def test_a_folder_outside_of_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
