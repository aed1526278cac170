"""Tests what changes the fingerprint of a data set's files, and what does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainable.data.image_files import fingerprint


def a_tree(root: Path) -> Path:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"image")
        os.utime(path, ns=(1, 1))
    return root


def rename(root: Path) -> None:
    (root / "cat/1.png").rename(root / "cat/3.png")


def move(root: Path) -> None:
    (root / "cat/1.png").rename(root / "dog/2.png")


def rewrite(root: Path) -> None:
    (root / "cat/1.png").write_bytes(b"other")


def lengthen(root: Path) -> None:
    (root / "cat/1.png").write_bytes(b"images")
    os.utime(root / "cat/1.png", ns=(1, 1))


def repaint(root: Path) -> None:
    found = (root / "cat/1.png").stat()
    (root / "cat/1.png").write_bytes((root / "cat/1.png").read_bytes()[::-1])
    os.utime(root / "cat/1.png", ns=(found.st_atime_ns, found.st_mtime_ns))


def remove(root: Path) -> None:
    (root / "dog/1.png").unlink()


@pytest.mark.parametrize("change", [rename, move, rewrite, lengthen, repaint, remove])
def test_any_file_that_changes_changes_it(tmp_path: Path, change: Callable[[Path], None]) -> None:
    root = a_tree(tmp_path / "pets")
    before = fingerprint(root)
    assert fingerprint(root) == before
    change(root)
    assert fingerprint(root) != before


def test_hidden_files_count_for_nothing(tmp_path: Path) -> None:
    root = a_tree(tmp_path / "pets")
    before = fingerprint(root)
    (root / ".DS_Store").write_bytes(b"x")
    (root / ".cache").mkdir()
    (root / ".cache" / "1.png").write_bytes(b"x")
    assert fingerprint(root) == before


def test_linked_folders_are_looked_into_and_links_to_nothing_are_borne(tmp_path: Path) -> None:
    elsewhere = a_tree(tmp_path / "elsewhere")
    root = tmp_path / "pets"
    root.mkdir()
    (root / "linked").symlink_to(elsewhere, target_is_directory=True)
    (root / "gone.png").symlink_to(tmp_path / "nowhere.png")
    before = fingerprint(root)
    rewrite(elsewhere)
    assert fingerprint(root) != before


def test_a_file_stands_for_those_beside_it(tmp_path: Path) -> None:
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    images.write_bytes(b"12")
    labels.write_bytes(b"34")
    before = fingerprint(images)
    labels.write_bytes(b"345")
    assert fingerprint(images) != before


def test_what_is_not_there_has_one_too(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "gone") == fingerprint(tmp_path / "lost")
