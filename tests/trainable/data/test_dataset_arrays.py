"""Tests data sets in arrays: .npz files, IDX files and a person's own."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainable.data.array_files import is_idx_folder, read_idx, read_idx_file, read_npz
from trainable.data.arrays import collect
from trainable.data.assembly import from_arrays
from trainable.data.source import ArraySource
from trainable.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, part: str, zipped: bool = False, separator: str = "-") -> None:
    for name, array in ((f"images{separator}idx3", IMAGES), (f"labels{separator}idx1", LABELS)):
        path = folder / f"{part}-{name}-ubyte"
        if zipped:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx_bytes(array)))
        else:
            path.write_bytes(idx_bytes(array))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("separator", ["-", "."])
def test_idx_files_are_read_and_t10k_is_the_test_part(tmp_path: Path, zipped: bool, separator: str) -> None:
    write_idx(tmp_path, "train", zipped, separator)
    write_idx(tmp_path, "t10k", zipped, separator)

    collection = read_idx(tmp_path)

    assert is_idx_folder(tmp_path)
    assert isinstance(collection.parts["train"], ArraySource)
    np.testing.assert_array_equal(collection.parts["train"].images, IMAGES)
    assert collection.parts["train"].labels.tolist() == LABELS.tolist()
    assert "validation" not in collection.parts
    assert "test" in collection.parts
    assert collection.classes == ("0", "1", "2")


def test_unpacked_and_gzipped_twins_are_one_file(tmp_path: Path) -> None:
    write_idx(tmp_path, "train")
    write_idx(tmp_path, "train", zipped=True)

    assert read_idx(tmp_path).whole


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:-3], r"117 bytes of data where its header says \[6, 5, 4\]"),
        (lambda content: content + b"x", "more than 120 bytes of data"),
        (lambda content: content[:9], "ends after 9 bytes, before any data"),
        (lambda content: b"\x89PNG" + content[4:], "not an IDX file of unsigned bytes; it begins with 89"),
        (lambda content: content[:2] + b"\x0d" + content[3:], "not an IDX file of unsigned bytes"),
        (lambda content: b"", "not an IDX file"),
    ],
    ids=["short", "long", "header only", "png", "floats", "empty"],
)
def test_a_spoilt_idx_file_is_an_error_that_names_it(
    tmp_path: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(spoil(idx_bytes(IMAGES)))

    with pytest.raises(DataError, match=rf"train-images-idx3-ubyte: ({message})"):
        read_idx_file(path)


def test_a_cut_gzip_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(IMAGES))[:-12])

    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz"):
        read_idx_file(path)


def test_missing_idx_files_are_an_error_that_says_which(tmp_path: Path) -> None:
    write_idx(tmp_path, "t10k")
    with pytest.raises(DataError, match="expected train-images-idx3-ubyte"):
        read_idx(tmp_path)

    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"labels.*\btest\b"):
        read_idx(tmp_path)


def test_idx_files_of_a_test_part_that_do_not_fit_are_refused_with_what_leaves_it_out(tmp_path: Path) -> None:
    write_idx(tmp_path, "train", False, "-")
    write_idx(tmp_path, "t10k", False, "-")
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS[:4].astype(np.uint8)))
    with pytest.raises(
        DataError, match=r"test: there are 6 images and 4 labels; .*; data\.test: none leaves"
    ):
        read_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"cut")
    with pytest.raises(DataError, match=r"not an IDX file .*; data\.test: none leaves the test part out"):
        read_idx(tmp_path)
    assert list(read_idx(tmp_path, ("test",)).parts) == ["train"]


def test_an_npz_file_in_medmnists_layout_is_read(tmp_path: Path) -> None:
    colour = np.repeat(IMAGES[..., None], 3, axis=-1)
    arrays: dict[str, Any] = {}
    for part in ("train", "val", "test"):
        arrays |= {f"{part}_images": colour, f"{part}_labels": LABELS[:, None]}
    np.savez(tmp_path / "blood.npz", **arrays)

    collection = read_npz(tmp_path / "blood.npz")

    assert collection.parts["train"].open(1).mode == "RGB"
    np.testing.assert_array_equal(np.asarray(collection.parts["train"].open(1)), colour[1])
    assert "validation" in collection.parts
    assert "test" in collection.parts


def test_an_npz_file_of_another_layout_is_an_error_with_its_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=IMAGES, y_train=LABELS)

    with pytest.raises(DataError, match=r"train_images.*train_labels.*x_train, y_train"):
        read_npz(tmp_path / "mnist.npz")


def test_an_npz_file_with_images_but_no_labels_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=IMAGES, train_labels=LABELS, val_images=IMAGES)

    with pytest.raises(DataError, match="expected val_images and val_labels"):
        read_npz(tmp_path / "a.npz")


def test_a_file_that_is_no_npz_and_one_with_objects_in_it_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"not an \.npz file"):
        read_npz(path)

    np.savez(path, train_images=np.array([{}], dtype=object), train_labels=LABELS)
    with pytest.raises(DataError, match=r"\.npz"):
        read_npz(path)


def test_any_integers_are_labels_and_their_order_is_the_classes() -> None:
    collection = collect("mine", "auto", {"train": (IMAGES, np.array([7, -1, 7, 3, 3, 7]))})

    assert collection.classes == ("-1", "3", "7")
    assert collection.parts["train"].labels.tolist() == [2, 0, 2, 1, 1, 2]
    assert collection.whole


def test_classes_may_be_named() -> None:
    names = ("ant", "bee", "cow")

    assert collect("mine", "auto", {"train": (IMAGES, LABELS)}, names).classes == names
    with pytest.raises(DataError, match="2 class names for 3 labels"):
        collect("mine", "auto", {"train": (IMAGES, LABELS)}, ("ant", "bee"))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), LABELS, "images must be uint8 from 0 to 255, got float32"),
        (IMAGES[0], LABELS, r"images must be \[N, H, W\] or \[N, H, W, 1 or 3\], got \[5, 4\]"),
        (np.zeros((6, 3, 5, 4), np.uint8), LABELS, r"got \[6, 3, 5, 4\]"),
        (IMAGES, LABELS.astype(float), r"one integer an image, \[N\] or \[N, 1\], got float64"),
        (IMAGES, np.zeros((6, 14), int), r"got int64 \[6, 14\]"),
        (IMAGES[:4], LABELS, "there are 4 images and 6 labels"),
        (IMAGES[:0], LABELS[:0], "there are 0 images"),
        (IMAGES, np.zeros(6, int), r"one class only, \[0\]"),
    ],
)
def test_arrays_of_another_form_are_errors(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        collect("mine", "auto", {"train": (images, labels)})


def test_labels_that_differ_between_parts_are_an_error_that_names_them() -> None:
    with pytest.raises(DataError, match=r"classes: 2 is not in the test part"):
        from_arrays((IMAGES, LABELS), test=(IMAGES[:2], LABELS[:2]))
