"""Tests arrays from files that ask for more than there is: they are refused before memory is allocated."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from trainable.data.array_files import read_idx_file, read_npz
from trainable.data.arrays import collect
from trainable.data.assembly import load
from trainable.data.kept import kept
from trainable.errors import DataError
from trainable.recipe.data import Data

IMAGES = np.zeros((8, 5, 4), np.uint8)
LABELS = np.arange(8) % 2
HUGE = 2**44


def header(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_an_idx_header_that_says_more_than_the_memory_is_refused(tmp_path: Path, name: str) -> None:
    content = header((2**31, 2**20, 2**10)) + bytes(100)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=rf"{name}: its header says 2,305,843,009,213,693,952 bytes, and"):
        read_idx_file(tmp_path / name)


def test_a_gzip_bomb_is_read_no_further_than_its_header_says(tmp_path: Path) -> None:
    """Its 4 GB would not fit under the limit on this process's memory."""
    path = tmp_path / "train-images-idx3-ubyte.gz"
    zeros = gzip.compress(bytes(2**26))
    with path.open("wb") as file:
        file.write(gzip.compress(header((2, 3, 3))))
        for _ in range(64):
            file.write(zeros)
    code = (
        "import resource, sys, pathlib; from trainable.data.array_files import read_idx_file\n"
        "import numpy; used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))\n"
        "read_idx_file(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "DataError" in done.stderr
    assert "more than 18 bytes of data where its header says [2, 3, 3]" in done.stderr


def test_an_idx_file_of_255_dimensions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4B", 0, 0, 8, 255) + struct.pack(">I", 1) * 255 + b"x")
    with pytest.raises(DataError, match="expected 1 to 4 dimensions, its header says 255"):
        read_idx_file(path)
    path.write_bytes(struct.pack(">4B", 0, 0, 8, 0) + b"x")
    with pytest.raises(DataError, match="expected 1 to 4 dimensions, its header says 0"):
        read_idx_file(path)


@pytest.mark.timeout(60)
def test_a_pipe_called_like_an_array_is_refused(tmp_path: Path) -> None:
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "set.npz"):
        os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / "set.npz"):
        with pytest.raises(DataError, match="is a named pipe; expected a regular file"):
            load(Data(path=str(path)))


@pytest.mark.parametrize("shape", [(8, 0, 4), (8, 5, 0), (8, 0, 0, 3)])
def test_images_without_pixels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="mine: train: the images have no pixels"):
        collect("mine", "npz", {"train": (np.zeros(shape, np.uint8), LABELS)})


def test_labels_of_64_bits_do_not_become_negative_names() -> None:
    labels = np.array([0, 2**64 - 1] * 4, np.uint64)
    with pytest.raises(DataError, match="label 18446744073709551615 has more than 63 bits"):
        collect("mine", "npz", {"train": (IMAGES, labels)})
    collection = collect("mine", "npz", {"train": (IMAGES, labels >> np.uint64(1))})
    assert collection.classes == ("0", str(2**63 - 1))


def test_a_message_names_some_of_many_labels() -> None:
    labels = np.arange(5000)
    images = np.zeros((5000, 1, 1), np.uint8)
    with pytest.raises(DataError) as caught:
        kept(
            collect("mine", "npz", {"train": (images, labels), "test": (images, labels + 5000)}),
            Data(path="mine"),
        )
    assert str(caught.value).startswith("mine: the parts have different classes: 0, 1, 2")
    assert all(len(line) < 400 for line in str(caught.value).splitlines()), "two lists in the first"


def npy(images: np.ndarray, **changes: object) -> bytes:
    """Return an array's file, with other words in its header."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {**np.lib.format.header_data_from_array_1_0(images), **changes})
    return out.getvalue() + images.tobytes()


def npz(
    path: Path, images: bytes, labels: bytes | None = None, compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("train_images.npy", images)
        file.writestr("train_labels.npy", npy(LABELS) if labels is None else labels)
    return path


def test_an_npz_file_with_true_headers_is_read(tmp_path: Path) -> None:
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        found = read_npz(npz(tmp_path / "set.npz", npy(IMAGES), compression=compression))
        assert len(found.parts["train"]) == 8


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (npy(IMAGES, shape=(HUGE, 5, 4)), r"160 bytes where its header says \[17592186044416, 5, 4\]"),
        (npy(IMAGES, shape=(7, 5, 4)), "160 bytes where its header says"),
        (npy(IMAGES, descr="|O"), "holds Python objects, which are never loaded"),
        (npy(IMAGES, descr=f"|V{HUGE}"), "cannot be read as an .npz file|where its header says"),
        (npy(IMAGES, shape=(-8, 5, 4)), "where its header says|cannot be read"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{}", "cannot be read as an .npz file"),
        (b"\x93NUMPY\x03\x00" + struct.pack("<I", 2) + b"{}", "version 3.0 of .npy is for named fields"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "cannot be read as an .npz file"),
        (b"", "cannot be read as an .npz file"),
    ],
)
def test_an_npz_file_whose_headers_lie_is_refused(tmp_path: Path, images: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(npz(tmp_path / "set.npz", images))


def test_an_npz_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = npz(tmp_path / "set.npz", npy(IMAGES), compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    content[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)  # the size in the directory
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"its header says 4,294,967,294 bytes, and|cannot be read|where its"):
        read_npz(path)
