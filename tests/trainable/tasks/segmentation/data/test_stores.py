"""Tests which numbers are read from mask files of all kinds, and which files are no masks."""

from __future__ import annotations

import pickle
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from numpy.typing import NDArray
from PIL import Image

from tests.trainable.small_images import truncate
from tests.trainable.small_masks import bands, write_mask
from trainable.tasks.segmentation.data.stores import MaskArray, MaskFiles, MaskStore, numbers_objects

MASK = bands(0, 1, 7, 255)


def raw(path: Path, *, binary: bool = False) -> NDArray[np.uint8]:
    return MaskFiles(str(path.parent), [path.name], binary).raw(0)


def fault_of(path: Path, *, binary: bool = False) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        raw(path, binary=binary)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("grey.png", None),
        ("palette.png", "P"),
        ("palette.gif", "P"),
        ("grey.bmp", None),
        ("grey.tif", None),
        ("palette.tif", "P"),
        ("grey.pgm", None),
    ],
)
def test_a_mask_has_the_numbers_of_its_pixels_whatever_its_colours(
    tmp_path: Path, name: str, mode: str | None
) -> None:
    found = raw(write_mask(tmp_path / name, MASK, mode))

    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, MASK)


@pytest.mark.parametrize("name", ["bits.png", "bits.tif", "bits.bmp"])
def test_a_mask_of_one_bit_has_the_values_0_and_1(tmp_path: Path, name: str) -> None:
    found = raw(write_mask(tmp_path / name, bands(0, 255), "1"))

    np.testing.assert_array_equal(found, bands(0, 1))


def write_few_bits(path: Path, bits: int) -> Path:
    """Write a grey PNG with the stored numbers 0, 1, 2 and 3, of so many bits each, in a row."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    row = int("".join(f"{value:0{bits}b}" for value in (0, 1, 2, 3)), 2).to_bytes(bits // 2, "big")
    header = struct.pack(">2I5B", 4, 1, bits, 0, 0, 0, 0)
    content = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" + row)), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(content))
    return path


@pytest.mark.parametrize("bits", [2, 4])
def test_greys_of_few_bits_are_not_spread_over_255(tmp_path: Path, bits: int) -> None:
    assert raw(write_few_bits(tmp_path / "few.png", bits)).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(("bits", "levels"), [(2, [0, 85, 170, 255]), (4, [0, 17, 34, 51])])
def test_greys_of_few_bits_are_levels_of_255_where_masks_are_binary(
    tmp_path: Path, bits: int, levels: list[int]
) -> None:
    assert raw(write_few_bits(tmp_path / "few.png", bits), binary=True).tolist() == [levels]


@pytest.mark.parametrize("name", ["bits.png", "bits.tif", "bits.bmp"])
def test_the_foreground_of_binary_masks_of_one_bit_is_255(tmp_path: Path, name: str) -> None:
    path = write_mask(tmp_path / name, bands(0, 255), "1")

    np.testing.assert_array_equal(raw(path, binary=True), bands(0, 255))


@pytest.mark.parametrize("name", ["wide.png", "wide.tif"])
def test_a_mask_of_sixteen_bits_is_read_if_its_numbers_fit_a_byte(tmp_path: Path, name: str) -> None:
    found = raw(write_mask(tmp_path / name, MASK.astype(np.uint16)))

    np.testing.assert_array_equal(found, MASK)


def test_larger_numbers_are_a_fault_unless_they_only_mean_foreground(tmp_path: Path) -> None:
    wide = bands(0, 1).astype(np.uint16) * 256
    path = write_mask(tmp_path / "wide.png", wide)

    assert re.match("has the value 256; expected .* 0 to 255; .* task.masks.values: binary", fault_of(path))
    np.testing.assert_array_equal(raw(path, binary=True), bands(0, 1))


def test_more_objects_than_a_byte_numbers_stay_objects_of_binary_masks(tmp_path: Path) -> None:
    numbers = np.arange(20 * 20, dtype=np.uint16).reshape(20, 20)

    found = raw(write_mask(tmp_path / "wide.png", numbers), binary=True)

    assert numbers_objects(np.bincount(found.ravel(), minlength=256))
    np.testing.assert_array_equal(found > 0, numbers > 0)


@pytest.mark.parametrize("white_first", [False, True])
def test_a_palette_of_black_and_white_is_read_by_its_greys_where_masks_are_binary(
    tmp_path: Path, white_first: bool
) -> None:
    image = Image.fromarray(bands(0, 1) ^ white_first)
    image.putpalette([255] * 3 + [0] * 3 if white_first else [0] * 3 + [255] * 3)
    image.save(tmp_path / "palette.png")

    np.testing.assert_array_equal(raw(tmp_path / "palette.png", binary=True), bands(0, 255))


@pytest.mark.parametrize(
    ("colours", "value"), [([0] * 3 + [255] * 3, 255), ([255] * 3 + [0] * 3, 0), ([255] * 3 + [255, 0, 0], 1)]
)
def test_one_used_colour_of_a_palette_is_a_grey_where_the_whole_palette_is_grey(
    tmp_path: Path, colours: list[int], value: int
) -> None:
    image = Image.fromarray(bands(1))
    image.putpalette(colours)
    image.save(tmp_path / "palette.png")

    np.testing.assert_array_equal(raw(tmp_path / "palette.png", binary=True), bands(value))


@pytest.mark.parametrize("binary", [False, True])
def test_numbers_below_0_are_a_fault(tmp_path: Path, binary: bool) -> None:
    path = write_mask(tmp_path / "signed.tif", bands(0, 1).astype(np.int32) - 1)

    fault = fault_of(path, binary=binary)
    assert re.match("has the value -1; expected .* 0 to 255; write .* as task.masks.ignore_index", fault)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_a_mask_of_colours_is_refused(tmp_path: Path, mode: str) -> None:
    path = write_mask(tmp_path / "colours.png", MASK, mode)

    assert re.match(f"has mode {mode}; expected a mask of one channel.* as a PNG of mode L", fault_of(path))


def test_a_mask_of_fractions_is_refused(tmp_path: Path) -> None:
    assert "has mode F; expected" in fault_of(write_mask(tmp_path / "a.tif", MASK.astype(np.float32)))


def test_a_jpeg_is_no_mask_since_its_compression_makes_other_numbers(tmp_path: Path) -> None:
    assert "is a JPEG" in fault_of(write_mask(tmp_path / "a.jpg", MASK), binary=True)


def test_an_orientation_turns_a_mask_only_where_it_is_part_of_the_format(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.png", "a.tif"):
        Image.fromarray(MASK).save(tmp_path / name, exif=exif)

    np.testing.assert_array_equal(raw(tmp_path / "a.png"), MASK)
    np.testing.assert_array_equal(raw(tmp_path / "a.tif"), np.rot90(MASK, -1))


def test_a_mask_that_ends_early_raises_what_its_decoder_says(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 9, (64, 64), dtype=np.uint8)
    path = truncate(write_mask(tmp_path / "a.png", noise))

    with pytest.raises(OSError, match="truncated"):
        raw(path)


def test_a_file_of_matlab_is_read_as_torchvision_reads_it(tmp_path: Path) -> None:
    inner = np.array([(MASK,)], dtype=[("Segmentation", object)])
    scipy.io.savemat(tmp_path / "a.mat", {"GTcls": inner})
    scipy.io.savemat(tmp_path / "other.mat", {"masks": MASK})

    np.testing.assert_array_equal(raw(tmp_path / "a.mat"), MASK)
    assert fault_of(tmp_path / "other.mat") == (
        "holds no GTcls.Segmentation; expected a file of the Semantic Boundaries Dataset, or a mask as PNG"
    )


@pytest.mark.parametrize("kind", ["array", "files"])
def test_every_store_is_picklable_and_knows_names_and_sizes(tmp_path: Path, kind: str) -> None:
    write_mask(tmp_path / "a.png", MASK)
    store: MaskStore = MaskArray(MASK[None]) if kind == "array" else MaskFiles(str(tmp_path), ["a.png"])

    again = pickle.loads(pickle.dumps(store))

    np.testing.assert_array_equal(again.raw(0), MASK)
    assert (len(again), again.name(0)) == (1, "0" if kind == "array" else "a.png")
    size = MASK.size if kind == "array" else (tmp_path / "a.png").stat().st_size
    assert again.sizes_and_times(np.array([0]))[:, 0].tolist() == [size]


def test_a_small_matlab_file_that_unpacks_to_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(2**26))
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    content = header + (15).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(ValueError, match="unpacks to more than 67,108,864 bytes; expected those of one"):
        MaskFiles(str(tmp_path), ["a.mat"]).raw(0)


def element(kind: int, content: bytes) -> bytes:
    """Write an element as a MATLAB file has it."""
    head = kind.to_bytes(4, "little") + len(content).to_bytes(4, "little")
    return head + content + bytes(-len(content) % 8)


def matlab_array(
    kind: int, dimensions: tuple[int, ...], content: bytes = b"", name: bytes = b"GTcls"
) -> bytes:
    """Write an array of a kind (1 cells, 2 structures, 4 text, 9 numbers) with the dimensions that it is to
    declare."""
    sizes = b"".join(each.to_bytes(4, "little", signed=True) for each in dimensions)
    flags = element(6, kind.to_bytes(4, "little") + bytes(4))
    return element(14, flags + element(5, sizes) + element(1, name) + content)


def matlab_file(path: Path, content: bytes, *, packed: bool = False) -> Path:
    if packed:
        whole = zlib.compress(content)
        content = (15).to_bytes(4, "little") + len(whole).to_bytes(4, "little") + whole
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + content)
    return path


def structure(names: bytes, content: bytes, dimensions: tuple[int, ...] = (1, 1)) -> bytes:
    """Write a structure, each of whose fields has a name of one letter."""
    return matlab_array(2, dimensions, element(5, (2).to_bytes(4, "little")) + element(1, names) + content)


TEXT = matlab_array(4, (1, 20_000_000), element(4, b""))
NESTED = matlab_array(4, (-65_536, -65_536), element(4, b""), name=b"")
LYING = structure(b"a\0", NESTED).replace(NESTED[:8], (14).to_bytes(4, "little") + (8).to_bytes(4, "little"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        matlab_array(1, (1, 20_000_000)),
        matlab_array(1, (1, 2**31 - 1)),
        structure(b"a\0" * 100, b"", (1, 200_000)),
        structure(b"a\0", NESTED),
        structure(b"a\0b\0", element(14, b"") + matlab_array(1, (1, 1), matlab_array(1, (2**30,)), name=b"")),
        LYING,
    ],
    ids=["text", "cells", "more cells", "fields", "nested", "deeper", "a size that ends early"],
)
def test_a_matlab_file_whose_arrays_declare_far_more_than_it_has_is_refused(
    tmp_path: Path, content: bytes, packed: bool
) -> None:
    path = matlab_file(tmp_path / "a.mat", content, packed=packed)
    assert path.stat().st_size < 1024
    assert "unpacks to more than 67,108,864 bytes; expected those of one mask" in fault_of(path)


def test_a_matlab_file_of_very_many_arrays_is_refused(tmp_path: Path) -> None:
    cells = matlab_array(1, (1, 200_000), element(14, b"") * 200_000)
    assert "unpacks to more than" in fault_of(matlab_file(tmp_path / "a.mat", cells, packed=True))


def test_a_matlab_file_that_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    path = matlab_file(tmp_path / "a.mat", TEXT, packed=True)
    path.write_bytes(path.read_bytes()[:-4] + b"\xff" * 4)
    assert "cannot be unpacked" in fault_of(path)


def test_a_matlab_file_with_all_that_the_semantic_boundaries_dataset_writes_is_read(tmp_path: Path) -> None:
    borders = np.empty((20, 1), object)
    borders[:, 0] = [scipy.sparse.csc_matrix(MASK == 1)] * 20
    fields = [("Boundaries", object), ("Segmentation", object), ("CategoriesPresent", object)]
    scipy.io.savemat(
        tmp_path / "a.mat",
        {"GTcls": np.array([(borders, MASK, np.arange(3, dtype=np.uint8))], dtype=fields)},
        do_compression=True,
    )
    np.testing.assert_array_equal(raw(tmp_path / "a.mat"), MASK)
