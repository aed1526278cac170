"""Tests what an image file becomes, and what the images say of themselves."""

import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.trainable.small_images import truncate, write_image, write_noise_jpeg
from trainable.array_types import Integers
from trainable.data.decode import (
    Broken,
    Form,
    decode,
    jpeg_pixels,
    raise_broken,
    square,
    squares,
    to_array,
    upright,
)
from trainable.data.measure import (
    channels_and_side,
    count_values,
    deep_span,
    detail_size_of,
    may_be_held,
    mean_and_std,
    membership_digest,
    sample,
)
from trainable.data.source import (
    TILELENGTH,
    TILEWIDTH,
    ArraySource,
    FileSource,
    Pixels,
    Selection,
    open_image,
)
from trainable.errors import DataError
from trainable.recipe.data import Split
from trainable.recipe.training import CenterCrop, Stretch

RAMP = np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3)


def select(root: Path, *names: str) -> Selection:
    source = FileSource(str(root), names, np.arange(len(names)))
    return Selection(source, np.arange(len(names)))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "I;16"])
@pytest.mark.parametrize(("channels", "expected"), [(1, "L"), (3, "RGB")])
def test_every_mode_becomes_grey_or_colour_with_the_same_white(
    mode: str, channels: int, expected: str
) -> None:
    white = Image.new(mode, (4, 3), 65535) if mode == "I;16" else Image.new("L", (4, 3), 255).convert(mode)

    shown = upright(white, 1 if channels == 1 else 3)

    assert shown.mode == expected
    assert np.asarray(shown).min() == 255


def test_sixteen_bits_keep_their_upper_eight() -> None:
    pixels = np.array([[0, 255, 256, 32768, 65535]], np.uint16)

    assert np.asarray(upright(Image.fromarray(pixels), 1)).tolist() == [[0, 0, 1, 128, 255]]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_thirty_two_bits_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match="save it with 8 or 16 bits"):
        upright(Image.new(mode, (4, 4)), 1)


def test_what_is_transparent_becomes_white() -> None:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))

    assert np.asarray(upright(image, 3)).tolist() == [[[255, 255, 255], [255, 0, 0]]]


def test_a_transparent_palette_becomes_white_too(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png", transparency=0)

    with Image.open(tmp_path / "a.png") as loaded:
        assert np.asarray(upright(loaded, 3)).tolist() == [[[255, 255, 255], [10, 20, 30]]]


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_the_rotation_in_exif_is_applied(tmp_path: Path, ending: str) -> None:
    image = Image.fromarray(RAMP)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    image.save(tmp_path / f"a.{ending}", exif=exif)

    with open_image(str(tmp_path / f"a.{ending}")) as loaded:
        np.testing.assert_array_equal(np.asarray(upright(loaded, 3)), np.rot90(RAMP, -1))


def test_stretching_keeps_everything_and_the_central_crop_the_middle() -> None:
    image = Image.new("L", (30, 10), 0)
    image.paste(255, (10, 0, 20, 10))

    stretched = square(image, Form(1, 10, Stretch()))
    cropped = square(image, Form(1, 10, CenterCrop(ratio=1.0)))

    assert stretched.shape == cropped.shape == (1, 10, 10)
    assert stretched[0, :, 0].max() == 0
    assert cropped.min() == 255


def test_the_central_crop_leaves_out_what_its_ratio_says() -> None:
    image = Image.fromarray(np.tile(np.arange(0, 200, 2, dtype=np.uint8), (100, 1)))

    cropped = square(image, Form(1, 50, CenterCrop(ratio=0.5)))

    assert cropped[0, 0].tolist() == np.arange(50, 150, 2).tolist()


def test_large_jpegs_are_decoded_small_with_nearly_the_same_result(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 1024).astype(np.uint8)
    pixels = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(100)), axis=-1)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)

    with Image.open(tmp_path / "a.jpg") as drafted:
        small = square(drafted, Form(3, 32)).astype(int)
        assert drafted.size == (128, 128)
    resized = Image.fromarray(pixels).resize((32, 32), Image.Resampling.BILINEAR)
    whole = to_array(resized).astype(int)

    assert np.abs(small - whole).max() <= 6


def test_arrays_come_channels_first() -> None:
    assert to_array(Image.fromarray(RAMP)).shape == (3, 8, 12)
    np.testing.assert_array_equal(to_array(Image.fromarray(RAMP))[1], RAMP[..., 1])
    assert to_array(Image.fromarray(RAMP[..., 0])).shape == (1, 8, 12)


@pytest.mark.parametrize("resize", [Stretch(), CenterCrop(ratio=1.0)], ids=lambda resize: resize.kind)
@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_that_have_the_form_are_taken_as_they_are(resize: Stretch | CenterCrop, channels: int) -> None:
    shape = (5, 8, 8) if channels == 1 else (5, 8, 8, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    selection = Selection(ArraySource(images, np.arange(5)), np.array([4, 0, 2]))

    pixels, broken = decode(selection, Form(1 if channels == 1 else 3, 8, resize))

    assert not broken
    expected = np.stack([to_array(selection.source.open(index)) for index in (4, 0, 2)])
    np.testing.assert_array_equal(pixels, expected)
    assert pixels.flags.c_contiguous


def test_truncated_images_are_found_though_verify_passes_them(tmp_path: Path) -> None:
    write_noise_jpeg(tmp_path / "good.jpg")
    truncate(write_noise_jpeg(tmp_path / "bad.jpg"))
    (tmp_path / "text.png").write_text("no image at all")
    with Image.open(tmp_path / "bad.jpg") as image:
        image.verify()

    pixels, broken = decode(select(tmp_path, "good.jpg", "bad.jpg", "text.png"), Form(3, 16))

    assert [name for name, _ in broken] == ["bad.jpg", "text.png"]
    assert "truncated" in broken[0].reason
    assert pixels[0].std() > 0


def test_an_image_with_far_more_pixels_than_bytes_is_not_decoded_and_a_blank_page_is(tmp_path: Path) -> None:
    for name, size in (("page.tif", (4960, 7016)), ("bomb.tif", (8000, 8000))):
        Image.new("1", size, 1).save(tmp_path / name, compression="group4")
    stored = (tmp_path / "bomb.tif").stat().st_size

    pixels, broken = decode(select(tmp_path, "page.tif", "bomb.tif"), Form(1, 8))

    assert broken == [Broken("bomb.tif", f"it declares 8,000 x 8,000 pixels in {stored:,} bytes")]
    np.testing.assert_array_equal(pixels[0], 255)


def test_a_small_image_of_huge_tiles_is_not_decoded(tmp_path: Path) -> None:
    save_tile(tmp_path / "tiled.tif", 16)
    save_tile(tmp_path / "bomb.tif", 8_192)

    _, broken = decode(select(tmp_path, "tiled.tif", "bomb.tif"), Form(1, 8))

    assert broken == [Broken("bomb.tif", "it declares tiles of 8,192 x 8,192 pixels for 10 x 10")]


def save_tile(path: Path, side: int) -> None:
    """Save a grey image of 10 x 10 as one deflated tile of black (TIFF 6.0, sections 2 and 15)."""
    tile = zlib.compress(bytes(side * side))
    size, bits, deflate, offset, length = (
        ((256, 10), (257, 10)),
        (258, 8),
        (259, 8),
        (324, 8),
        (325, len(tile)),
    )
    fields = [*size, bits, deflate, (262, 1), (TILEWIDTH, side), (TILELENGTH, side), offset, length]
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields)
    head = struct.pack("<2sHI", b"II", 42, 8 + len(tile))
    path.write_bytes(head + tile + struct.pack("<H", len(fields)) + directory + bytes(4))


def test_the_order_is_kept_although_threads_decode(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(150)]
    for number, name in enumerate(names):
        write_image(tmp_path / name, value=number, size=(4, 4))

    pixels, _ = decode(select(tmp_path, *names), Form(1, 4))

    assert pixels[:, 0, 0, 0].tolist() == list(range(150))


def test_broken_images_are_named_and_counted() -> None:
    broken = [Broken(f"{number}.jpg", "truncated") for number in range(12)]

    with pytest.raises(DataError, match=r"12 of 1,000[^$]*9\.jpg: truncated[^$]*\b2 more"):
        raise_broken(broken, 1000, "pets")
    raise_broken([], 1000, "pets")


def test_channels_and_side_are_those_of_most_images(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", size=(20, 30), mode="L")
    write_image(tmp_path / "b.png", size=(40, 22), mode="LA")
    write_image(tmp_path / "c.png", size=(300, 300), mode="RGB")
    (tmp_path / "d.png").write_text("no image")

    assert channels_and_side(select(tmp_path, "a.png", "b.png", "c.png", "d.png")) == (1, 22)
    assert channels_and_side(select(tmp_path, "c.png")) == (3, 300)
    assert channels_and_side(select(tmp_path, "d.png")) is None


def test_mean_and_std_are_exact() -> None:
    pixels = np.random.default_rng(0).integers(0, 200, (1500, 3, 4, 4), dtype=np.uint8)
    pixels[:, 2] = 51

    mean, std = mean_and_std(count_values(pixels))

    reference = pixels / 255.0
    np.testing.assert_allclose(mean, reference.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std[:2], reference.std(axis=(0, 2, 3))[:2], rtol=1e-12)
    assert std[2] == 1.0


def test_a_sample_is_seeded_ordered_and_no_more_than_asked_for() -> None:
    selection = Selection(
        ArraySource(np.zeros((50, 2, 2), np.uint8), np.zeros(50, np.int64)), np.arange(10, 50)
    )

    some = sample(selection, 8).indices

    assert some.tolist() == sorted(set(some.tolist()))
    assert len(some) == 8
    assert some.min() >= 10
    assert some.tolist() == sample(selection, 8).indices.tolist()
    assert sample(selection, 40) is selection


def test_the_digest_tells_parts_labels_and_files_apart_but_not_their_order(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_image(tmp_path / f"{name}.png", value=ord(name))
    paths = ("a.png", "b.png", "c.png")

    def digest(train: list[int], validation: list[int], labels: tuple[int, ...] = (0, 1, 0)) -> str:
        source = FileSource(str(tmp_path), paths, np.array(labels))
        parts: dict[Split, Selection] = {
            "train": Selection(source, np.array(train)),
            "validation": Selection(source, np.array(validation)),
        }
        return membership_digest(parts)

    first = digest([0, 1], [2])
    assert digest([1, 0], [2]) == first
    assert digest([0, 2], [1]) != first
    assert digest([0, 1], [2], (1, 0, 1)) != first
    write_image(tmp_path / "a.png", value=1)
    assert digest([0, 1], [2]) != first


MANY = 2_300  # more than are looked at as pixels
ARRAY = np.random.default_rng(0).integers(0, 256, (MANY, 4, 4), dtype=np.uint8)
LABELS = np.arange(MANY) % 2


def digest_of_arrays(images: Pixels, labels: Integers) -> str:
    return membership_digest({"train": Selection(ArraySource(images, labels), np.arange(MANY))})


@pytest.mark.parametrize("position", [0, 3, 511, 1_024, 2_047, MANY - 1])
def test_every_image_and_every_label_of_an_array_counts(position: int) -> None:
    images, labels, first = ARRAY.copy(), LABELS.copy(), digest_of_arrays(ARRAY, LABELS)
    images[position, 3, 3] ^= 1
    assert digest_of_arrays(images, LABELS) != first
    labels[[position, position - 1]] = labels[[position - 1, position]]
    assert digest_of_arrays(ARRAY, labels) != first
    assert digest_of_arrays(ARRAY.copy(), LABELS.copy()) == first


def test_images_of_another_height_and_width_are_others() -> None:
    assert digest_of_arrays(ARRAY.reshape(MANY, 2, 8), LABELS) != digest_of_arrays(ARRAY, LABELS)


@pytest.mark.parametrize("name", ["0.bmp", "1.bmp", "2.bmp", "3.bmp"])
def test_every_file_counts_up_to_a_size_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("trainable.data.measure.SAMPLE", 1)
    paths = [f"{number}.bmp" for number in range(4)]
    for number, path in enumerate(paths):
        write_image(tmp_path / path, value=number)
    files: dict[Split, Selection] = {
        "train": Selection(FileSource(str(tmp_path), paths, np.zeros(4, np.int64)), np.arange(4))
    }
    first, of_a_large_set = membership_digest(files), membership_digest(files, 2**40)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert membership_digest(files) != first
    assert of_a_large_set != first


def test_every_bit_of_a_16_bit_image_counts(tmp_path: Path) -> None:
    digests = set()
    for value in (256, 257):
        Image.fromarray(np.full((2, 2), value, np.uint16)).save(tmp_path / "a.png")
        source = FileSource(str(tmp_path), ["a.png"], np.zeros(1, np.int64))
        digests.add(membership_digest({"train": Selection(source, np.arange(1))}))
    assert len(digests) == 2


def test_a_cpu_holds_a_gibibyte_at_most() -> None:
    assert may_be_held(1000, "cpu")
    assert not may_be_held(2**30 + 1, "cpu")
    assert not may_be_held(2**60, "cuda")


def photograph(seed: int = 0) -> Image.Image:
    """Soft spots of colour with some noise."""
    generator = np.random.default_rng(seed)
    spots = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    pixels = np.asarray(spots.resize((250, 187), Image.Resampling.BICUBIC)) + generator.normal(
        0, 6, (187, 250, 3)
    )
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_has_the_pixels_that_pillow_reads(
    tmp_path: Path, mode: str, channels: int, options: dict[str, Any]
) -> None:
    photograph().convert(mode).save(tmp_path / "a.jpg", **options)

    with Image.open(tmp_path / "a.jpg") as image:
        image.draft("L" if channels == 1 else "RGB", image.size)
        found = jpeg_pixels(image, channels)
    with Image.open(tmp_path / "a.jpg") as image:
        image.draft("L" if channels == 1 else "RGB", image.size)
        expected = to_array(upright(image, channels))

    assert found is not None
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("kind", ["turned", "cmyk", "png", "broken"])
def test_pillow_reads_what_torchcodec_does_not(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / ("a.png" if kind == "png" else "a.jpg")
    photograph().convert("CMYK" if kind == "cmyk" else "RGB").save(
        path, exif=exif if kind == "turned" else b""
    )
    if kind == "broken":
        truncate(path)

    with Image.open(path) as image:
        assert jpeg_pixels(image, 3) is None


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}])
def test_of_a_damaged_jpeg_both_decoders_read_the_same_or_pillow_decides(options: dict[str, Any]) -> None:
    file = BytesIO()
    photograph().save(file, "JPEG", **options)
    whole, generator = np.frombuffer(file.getvalue(), np.uint8), np.random.default_rng(0)
    equal = 0
    for _ in range(60):
        damaged = whole.copy()
        damaged[generator.integers(700, len(whole), 3)] ^= np.uint8(1 << generator.integers(8))
        with Image.open(BytesIO(damaged.tobytes())) as image:
            found = jpeg_pixels(image, 3)
        if found is not None:
            with Image.open(BytesIO(damaged.tobytes())) as image:
                np.testing.assert_array_equal(found.numpy(), to_array(upright(image, 3)))
            equal += 1
    assert equal > 5


@pytest.mark.parametrize("side", [32, 200, 300])
def test_squares_are_pillows_up_to_a_level(side: int) -> None:
    expected = to_array(photograph().resize((side, side), Image.Resampling.BILINEAR)).astype(int)

    assert np.abs(square(photograph(), Form(3, side)) - expected).max() <= 1


def test_a_square_is_the_same_alone_and_beside_a_larger_one(tmp_path: Path) -> None:
    """The size at which a JPEG is decoded must not depend on which squares are made of it."""
    for size in range(90, 180, 3):
        photograph().resize((size, size)).save(tmp_path / "a.jpg")
        with Image.open(tmp_path / "a.jpg") as image:
            plain, detail = squares(image, Form(3, 28), [28, 32])
        with Image.open(tmp_path / "a.jpg") as image:
            np.testing.assert_array_equal(square(image, Form(3, 28)), plain)
        with Image.open(tmp_path / "a.jpg") as image:
            np.testing.assert_array_equal(squares(image, Form(3, 28), [32])[0], detail)


@pytest.mark.parametrize(
    ("size", "expected"), [((20, 16), None), ((16, 20), None), ((20, 17), 19), ((40, 40), 19)]
)
def test_there_is_more_detail_for_crops_if_most_images_are_larger(
    tmp_path: Path, size: tuple[int, int], expected: int | None
) -> None:
    names = [f"{number}.png" for number in range(3)]
    for name in names:
        write_image(tmp_path / name, size=size)

    assert detail_size_of(select(tmp_path, *names), Form(3, 16)) == expected


def test_of_large_images_of_sixteen_bits_one_at_least_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.png" for number in range(3)]
    for number, name in enumerate(names):
        levels = 5 * 2**12 * number + np.arange(2**12).reshape(64, 64)
        Image.fromarray(levels.astype(np.uint16)).save(tmp_path / name)
    train = Selection(FileSource(str(tmp_path), names, np.zeros(3, np.int64)), np.arange(3))

    assert deep_span(train) == 175, "from the darkest to the brightest of all"
    for pixels in (1, 2 * 64 * 64 - 1):
        monkeypatch.setattr("trainable.data.measure.DEEP_PIXELS", pixels)
        assert deep_span(train) == 15
    (tmp_path / "0.png").write_bytes(b"")
    assert deep_span(Selection(train.source, np.arange(1))) is None
