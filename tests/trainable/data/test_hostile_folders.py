"""Tests folders that hold what is no image, or the same image twice: an error names it, at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.trainable.small_images import write_classes, write_image
from trainable.data import FilePart
from trainable.data.assembly import load
from trainable.data.folder import read
from trainable.data.image_files import fingerprint
from trainable.data.source import FORMATS, FileSource
from trainable.errors import DataError
from trainable.recipe.data import Data

TWO = {"cat": 6, "dog": 6}
EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n"
    b"0 0 20 20 rectfill\n(started) = flush\nshowpage\n%%EOF\n"
)


def test_a_program_is_never_started_to_read_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gs that leaves a trace stands for Ghostscript."""
    trace = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] || touch {trace}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # Pillow looks for it once
    root = write_classes(tmp_path / "set", TWO)
    (root / "cat" / "picture.jpg").write_bytes(EPS)
    with pytest.raises(DataError, match=r"cat/picture\.jpg: cannot identify image file"):
        load(Data(path=str(root)))
    assert not trace.exists()
    with Image.open(root / "cat" / "picture.jpg") as image, pytest.raises(OSError):  # noqa: PT011
        image.load()
    assert trace.exists(), "the test would have seen it"


@pytest.mark.parametrize("format", [each for each in FORMATS if each != "TGA"])
def test_the_content_decides_how_an_image_is_read_and_not_its_ending(tmp_path: Path, format: str) -> None:
    Image.new("RGB", (12, 10), (10, 200, 30)).save(tmp_path / "image.jpg", format=format)
    with FileSource(str(tmp_path), ["image.jpg"], labels=None).open(0) as image:  # type: ignore[arg-type]
        assert image.convert("RGB").size == (12, 10)


def test_every_ending_that_counts_as_an_image_is_read(tmp_path: Path) -> None:
    for ending in ("jpg", "jfif", "png", "bmp", "gif", "webp", "tif", "ppm", "pgm", "tga", "jp2", "avif"):
        write_image(tmp_path / f"image.{ending}", mode="L" if ending == "pgm" else "RGB")
        with FileSource(str(tmp_path), [f"image.{ending}"], labels=None).open(0) as image:  # type: ignore[arg-type]
            assert image.convert("RGB").size == (12, 10)


@pytest.mark.timeout(60)
def test_a_named_pipe_a_socket_a_device_and_a_dead_link_are_named_and_not_opened(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", TWO)
    odd = root / "cat" / "odd.jpg"
    os.mkfifo(odd)
    with pytest.raises(DataError, match=r"cat/odd\.jpg: is a named pipe; expected a regular file; remove it"):
        read(root)
    odd.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(odd))
        with pytest.raises(DataError, match=r"cat/odd\.jpg: is a socket"):
            read(root)
    odd.unlink()
    odd.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"cat/odd\.jpg: is a device"):
        read(root)
    odd.unlink()
    odd.symlink_to("nowhere.jpg")
    with pytest.raises(DataError, match=r"cat/odd\.jpg: is a link that leads to no file"):
        read(root)
    odd.unlink()
    odd.symlink_to("odd.jpg")
    with pytest.raises(DataError, match=r"cat/odd\.jpg: is a link that leads to no file"):
        read(root)


@pytest.mark.timeout(60)
def test_a_file_that_has_become_a_pipe_since_it_was_found_is_a_broken_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "image.jpg")
    source = FileSource(str(tmp_path), ["image.jpg"], labels=None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="is a named pipe"):
        source.open(0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("target", ["..", ".", "../.."])
def test_a_link_to_a_folder_above_is_an_error(tmp_path: Path, target: str) -> None:
    root = write_classes(tmp_path / "set", TWO)
    (root / "cat" / "up").symlink_to(target, target_is_directory=True)
    with pytest.raises(DataError, match=r"cat/up is "):
        read(root)


def test_a_folder_of_two_classes_is_an_error_that_names_both(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", TWO)
    (root / "dog" / "more").symlink_to("../cat", target_is_directory=True)
    with pytest.raises(DataError, match=r"set/dog/more is the same folder as .*set/cat"):
        read(root)
    (root / "dog" / "more").unlink()
    (root / "kitten").symlink_to("cat", target_is_directory=True)
    with pytest.raises(DataError, match=r"set/kitten is the same folder as .*set/cat"):
        read(root)


@pytest.mark.timeout(60)
def test_links_between_folders_are_not_walked_exponentially(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", TWO)
    for number in range(12):
        (root / "cat" / f"level{number}").mkdir()
    for number in range(12):
        for other in range(12):
            if number != other:
                link = root / "cat" / f"level{number}" / f"to{other}"
                link.symlink_to(f"../level{other}", target_is_directory=True)
    with pytest.raises(DataError, match="is the same folder as"):
        read(root)
    assert len(fingerprint(root)) == 16


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_image_of_two_classes_is_an_error_that_names_both(tmp_path: Path, link: object) -> None:
    root = write_classes(tmp_path / "set", TWO)
    link(str(root / "cat" / "000.png"), str(root / "dog" / "same.png"))
    with pytest.raises(
        DataError, match=r"cat/000\.png and .*dog/same\.png are one image.*labels cat and dog"
    ):
        read(root)


def test_an_image_that_is_linked_within_its_class_counts_as_often_as_it_is_there(tmp_path: Path) -> None:
    """So people show rare classes more often."""
    root = write_classes(tmp_path / "set", TWO)
    os.symlink(root / "cat" / "000.png", root / "cat" / "again.png")
    assert len(read(root).parts["train"]) == 13


def test_validation_images_may_be_the_training_images(tmp_path: Path) -> None:
    write_classes(tmp_path / "set" / "train", TWO)
    (tmp_path / "set" / "val").symlink_to("train", target_is_directory=True)
    assert len(read(tmp_path / "set").parts["validation"]) == 12


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", ["/proc/self", "/dev/fd", "/dev/zero", "/dev/stdin"])
def test_the_kernels_folders_are_no_data_and_not_walked_through(path: str) -> None:
    with pytest.raises(DataError):
        load(Data(path=path))


@pytest.mark.timeout(60)
def test_the_fingerprint_of_the_kernels_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="root is a link to /, which holds it"):
        fingerprint(Path("/proc/self"))


def test_names_that_are_not_utf8_work_for_images_and_are_refused_for_classes(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "set", TWO)
    before = load(Data(path=str(root))).info.digest
    odd = os.fsencode(root / "cat") + b"/caf\xe9.png"
    os.link(root / "cat" / "000.png", odd)
    for in_memory in (True, False):
        data = load(Data(path=str(root), in_memory=in_memory))
        assert data.info.digest != before
        parts = [part for part in data.parts.values() if isinstance(part, FilePart)]
        names = {part.selection.source.name(int(i)) for part in parts for i in part.selection.indices}
        assert in_memory or "cat/caf\\xe9.png" in names
    os.unlink(odd)
    assert load(Data(path=str(root))).info.digest == before
    os.rename(root / "cat", os.fsencode(root) + b"/k\xe4tzchen")
    with pytest.raises(DataError, match=r"the name of class folder k\\xe4tzchen is not UTF-8; rename it"):
        load(Data(path=str(root)))


def test_the_digest_of_ordinary_names_is_what_it_was(tmp_path: Path) -> None:
    """The digest of a search that has begun must not change with tunebook's version, but for its form."""
    root = write_classes(tmp_path / "set", {"Blüte": 3, "cat": 3, "with space": 3})
    for image in root.glob("*/*"):
        image.write_bytes(image.read_bytes().ljust(200, b"\0"))  # whatever Pillow's encoder makes of it
    assert load(Data(path=str(root))).info.digest == "2-82440603824f1e99"


def test_a_data_path_that_is_not_utf8_is_refused_by_the_command_line(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    done = subprocess.run(
        [sys.executable, "-m", "search", "explain", folder], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "data.path: expected text in UTF-8" in done.stderr
