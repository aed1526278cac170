"""Tests what reading every mask once finds: sizes, classes, and all that is wrong."""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from tests.trainable.small_images import write_image
from tests.trainable.small_masks import bands, write_mask, write_pairs
from trainable.bench import HERE
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.tasks import IGNORED, Masks
from trainable.tasks.segmentation.data.collection import REPAIR_MASKS
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import read

FOUR = {"a": (0, 1), "b": (1, 2), "c": (0, 2), "d": (0,)}


def collection(root: Path, **values: Any) -> Collection:
    return read(Data(path=str(root)), HERE, Masks(**values))


def fault_of(root: Path, **values: Any) -> str:
    with pytest.raises(DataError) as caught:
        collection(root, **values)
    return str(caught.value)


def train(found: Collection) -> MaskedSource:
    source = found.parts["train"]
    assert isinstance(source, MaskedSource)
    return source


def test_sizes_and_pixels_of_each_class_are_counted(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    write_mask(tmp_path / "masks" / "d.png", bands(0, 255, 255, 2, 2))

    found = collection(tmp_path)

    assert found.classes == ("0", "1", "2")
    assert found.surveys is not None
    survey = found.surveys["train"]
    assert survey.sizes.tolist() == [[10, 12]] * 4
    assert survey.pixels.tolist() == [[60, 60, 0], [0, 60, 60], [60, 0, 60], [24, 0, 48]]
    assert survey.ignored.tolist() == [0, 0, 0, 48]


def test_a_source_gives_an_image_with_the_classes_of_its_pixels(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"a": (0, 1, 255), "b": (2, 3)})

    source = pickle.loads(pickle.dumps(train(collection(tmp_path, void=("1",)))))

    np.testing.assert_array_equal(source.masks.raw(0), bands(0, 1, 255))
    np.testing.assert_array_equal(source.class_mask(0), bands(0, IGNORED, IGNORED))
    np.testing.assert_array_equal(source.class_mask(1), bands(1, 2))
    assert source.open(0).size == (12, 10)
    assert (source.name(0), source.masks.name(0), len(source)) == ("images/a.jpg", "masks/a.png", 2)


def test_the_time_of_a_source_changes_with_the_mask_and_with_the_image(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    source, every = train(collection(tmp_path)), np.arange(4)
    before = source.sizes_and_times(every)

    write_mask(tmp_path / "masks" / "b.png", bands(2, 1))
    write_image(tmp_path / "images" / "c.jpg", value=9)

    assert (source.sizes_and_times(every) != before).any(axis=1).tolist() == [False, True, True, False]


def test_every_mask_with_a_fault_is_named_in_one_message(tmp_path: Path) -> None:
    write_pairs(tmp_path, dict.fromkeys("abcdefg", (0, 1)))
    noise = np.random.default_rng(0).integers(0, 3, (10, 12), dtype=np.uint8)
    broken = write_mask(tmp_path / "masks" / "b.png", noise)
    broken.write_bytes(broken.read_bytes()[:60])
    write_mask(tmp_path / "masks" / "c.png", bands(0, 1, size=(10, 12)))
    write_mask(tmp_path / "masks" / "d.png", bands(0, 1), "RGB")
    write_mask(tmp_path / "masks" / "e.png", bands(0, 4, 7, 9))
    (tmp_path / "images" / "f.jpg").write_bytes(b"no image")
    (tmp_path / "names.txt").write_text("one\ntwo\nthree\n")

    found = fault_of(tmp_path, classes=str(tmp_path / "names.txt"))

    head, *faults = found.split("\n  ")
    assert head == f"{tmp_path}: 5 of 7 masks cannot be used; {REPAIR_MASKS}:"
    for fault, expected in zip(
        sorted(faults),
        [
            "masks/b.png: ",
            "masks/c.png: has 10 x 12 pixels, and its image images/c.jpg 12 x 10 as it is shown",
            "masks/d.png: has mode RGB; expected a mask of one channel",
            "masks/e.png: has pixels of 4, 7, 9, of none of the 3 classes",
            "masks/f.png: its image images/f.jpg cannot be opened: cannot identify image file",
        ],
        strict=True,
    ):
        assert fault.startswith(expected)


def test_masks_of_colours_are_named_though_no_class_is_known_then(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    for name in FOUR:
        write_mask(tmp_path / "masks" / f"{name}.png", bands(0, 1), "RGB")

    found = fault_of(tmp_path)

    assert found.startswith(f"{tmp_path}: 4 of 4 masks cannot be used; {REPAIR_MASKS}:")
    assert "masks/a.png: has mode RGB; expected a mask of one channel" in found


def test_ten_masks_are_named_and_the_others_counted(tmp_path: Path) -> None:
    write_pairs(tmp_path, {f"{number:02}": (0, 5) for number in range(13)})
    (tmp_path / "names.txt").write_text("one\ntwo\n")

    faults = fault_of(tmp_path, classes=str(tmp_path / "names.txt")).split("\n  ")

    assert (len(faults), faults[-1]) == (12, "and 3 more")


@pytest.mark.parametrize(("turned", "size"), [(6, (10, 12)), (3, (12, 10)), (1, (12, 10))])
@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
def test_a_mask_has_the_sides_of_the_image_as_it_is_shown(
    tmp_path: Path, ending: str, turned: int, size: tuple[int, int]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    write_image(tmp_path / "images" / "plain.png", size=(7, 9))
    Image.new("RGB", (12, 10)).save(tmp_path / "images" / f"photo.{ending}", exif=exif)
    write_mask(tmp_path / "masks" / "photo.png", bands(0, 1, size=size))
    write_mask(tmp_path / "masks" / "plain.png", bands(0, 1, size=(7, 9)))

    found = collection(tmp_path)

    assert found.surveys is not None
    assert found.surveys["train"].sizes[0].tolist() == [size[1], size[0]]


def test_a_mask_as_its_image_is_stored_does_not_fit_the_turned_image(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.new("RGB", (12, 10)).save(tmp_path / "images" / "a.jpg", exif=exif)

    assert "masks/a.png: has 12 x 10 pixels, and its image images/a.jpg 10 x 12 as it is shown" in fault_of(
        tmp_path
    )


def test_masks_of_0_and_255_are_probably_binary(tmp_path: Path) -> None:
    write_pairs(tmp_path, dict.fromkeys("abc", (0, 255)))

    assert "no other values than 0 and 255: if 255 is a class, set task.masks.values: bi" in fault_of(
        tmp_path
    )
    found = collection(tmp_path, values="binary")
    assert found.classes == ("background", "foreground")
    np.testing.assert_array_equal(train(found).class_mask(0), bands(0, 1))


def test_a_stray_value_is_named_with_its_mask_where_numbers_are_the_classes(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"a": (0, 1), "b": (0, 1, 77), "c": (0, 9), "d": (1, 9)})

    fault = fault_of(tmp_path)
    assert "9 in 2 of 4 masks, such as masks/c.png; 77 in 1 of 4 masks, such as masks/b.png. Expect" in fault
    assert all(f"in {path}" in fault for path in ("task.masks.classes", "task.masks.void"))
    assert collection(tmp_path, ignore_index=77, void=("2",), classes=names(tmp_path, 10)).classes[-1] == "9"


def names(folder: Path, count: int) -> str:
    file = folder / "names.txt"
    file.write_text("\n".join(map(str, range(count))) + "\n")
    return str(file)


def test_masks_of_nothing_but_ignored_pixels_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path, dict.fromkeys("abc", (255,)))
    assert "every pixel of the masks is 255, which task.masks.ignore_index ignores" in fault_of(tmp_path)


def test_binary_masks_with_a_border_of_255_are_refused(tmp_path: Path) -> None:
    """There 255 would be foreground, which nobody means."""
    write_pairs(tmp_path, dict.fromkeys("abc", (0, 1, 255)))
    assert "the masks have the values 0, 1 and 255" in fault_of(tmp_path, values="binary")
    assert collection(tmp_path).classes == ("0", "1")


def test_binary_classes_may_have_other_names(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    (tmp_path / "names.txt").write_text("slide\nnucleus\n")
    assert collection(tmp_path, values="binary", classes=str(tmp_path / "names.txt")).classes == (
        "slide",
        "nucleus",
    )
    (tmp_path / "names.txt").write_text("slide\nnucleus\nborder\n")
    assert "3 names; with task.masks.values: binary expected two" in fault_of(
        tmp_path, values="binary", classes=str(tmp_path / "names.txt")
    )


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    write_pairs(tmp_path, dict.fromkeys("abc", (0,)))

    assert "two classes that count are needed, and there is 0; see that task.masks.folder" in fault_of(
        tmp_path
    )


def test_a_mask_in_which_nothing_counts_is_allowed_where_others_show_something(tmp_path: Path) -> None:
    write_pairs(tmp_path, {**FOUR, "e": (255,)})

    found = collection(tmp_path)

    assert found.surveys is not None
    assert found.surveys["train"].pixels[4].tolist() == [0, 0, 0]
    assert found.surveys["train"].ignored[4] == 120


def test_a_part_in_which_nothing_counts_is_an_error(tmp_path: Path) -> None:
    write_pairs(tmp_path / "train", FOUR)
    write_pairs(tmp_path / "val", {"a": (255,)})

    assert "every pixel of the validation part's masks is ignored" in fault_of(tmp_path)


def soft(values: NDArray[np.uint8], kind: str) -> Image.Image:
    """Return the mask of a square, 255 on 0, with borders as programs leave them."""
    image = Image.fromarray(values)
    match kind:
        case "jpeg":
            file = io.BytesIO()
            image.save(file, "JPEG", quality=60)
            return Image.open(file)
        case "resized":
            return image.resize((24, 24)).resize((40, 40))
        case "brush":
            return image.filter(ImageFilter.GaussianBlur(3))
        case "faint brush":
            return image.filter(ImageFilter.GaussianBlur(3)).point(lambda value: value * 200 // 255)
        case "brush of 16 bits":
            return Image.fromarray(
                np.asarray(image.filter(ImageFilter.GaussianBlur(3))).astype(np.uint16) * 257
            )
        case "palette of greys":
            return image.filter(ImageFilter.GaussianBlur(3)).quantize(16)
    raise AssertionError(kind)


KINDS = ("jpeg", "resized", "brush", "faint brush", "brush of 16 bits", "palette of greys")


@pytest.mark.parametrize("kind", KINDS)
def test_greys_of_binary_masks_are_refused_until_a_threshold_says_what_they_mean(
    tmp_path: Path, kind: str
) -> None:
    square = np.zeros((40, 40), np.uint8)
    square[10:30, 8:28] = 255
    for name in "abc":
        write_image(tmp_path / "images" / f"{name}.png", size=(40, 40))
        (tmp_path / "masks").mkdir(exist_ok=True)
        soft(square, kind).save(tmp_path / "masks" / f"{name}.png")

    fault = fault_of(tmp_path, values="binary")
    named = re.search(r"set task.masks.threshold: (\d+) if foreground begins at half", fault)
    assert named is not None
    found = train(collection(tmp_path, values="binary", threshold=int(named[1]))).class_mask(0)

    assert "% of the masks' pixels, in 3 of 3 masks, lie between 0 and" in fault
    assert "most in masks/a.png (" in fault
    assert int(named[1]) == pytest.approx(100 if kind == "faint brush" else 128, abs=2)
    assert (found != square // 255).mean() < 0.05


def test_a_threshold_lets_masks_of_jpeg_in(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"a": (0,)})
    (tmp_path / "masks" / "a.png").unlink()
    write_mask(tmp_path / "masks" / "a.jpg", bands(*[0] * 5, *[255] * 5))

    assert "set task.masks.threshold: 128 with task.masks.values: binary" in fault_of(
        tmp_path, values="binary"
    )
    found = train(collection(tmp_path, values="binary", threshold=128))
    np.testing.assert_array_equal(found.class_mask(0), bands(*[0] * 5, *[1] * 5))


@pytest.mark.parametrize("masks", [{"a": (0, 1, 2, 3)}, {"a": (0, 1), "b": (0, 1, 2)}, {"a": (0, 255)}])
def test_numbers_of_objects_and_two_values_need_no_threshold(
    tmp_path: Path, masks: dict[str, tuple[int, ...]]
) -> None:
    write_pairs(tmp_path, masks)

    found = train(collection(tmp_path, values="binary"))

    np.testing.assert_array_equal(found.class_mask(0), bands(*[min(each, 1) for each in masks["a"]]))


def test_numbers_of_objects_with_gaps_are_foreground_from_1_on_if_the_study_says_so(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"a": (0, 1, 1, 7)})

    assert "or task.masks.threshold: 1 if all but 0 is foreground" in fault_of(tmp_path, values="binary")
    found = train(collection(tmp_path, values="binary", threshold=1))
    np.testing.assert_array_equal(found.class_mask(0), bands(0, 1, 1, 1))


def test_crisp_masks_of_any_form_keep_their_foreground_beside_soft_ones(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"grey": (0, 60, 200), "bit": (0,), "palette": (0,), "white": (0,)})
    write_mask(tmp_path / "masks" / "bit.png", bands(0, 255), "1")
    for name, values in {"palette": (0, 1), "white": (1,)}.items():
        image = Image.fromarray(bands(*values))
        image.putpalette([0] * 3 + [255] * 3)
        image.save(tmp_path / "masks" / f"{name}.png", bits=1)

    found = collection(tmp_path, values="binary", threshold=128)

    masks = {
        name: train(found).class_mask(row) for row, name in enumerate(("bit", "grey", "palette", "white"))
    }
    np.testing.assert_array_equal(masks["bit"], bands(0, 1))
    np.testing.assert_array_equal(masks["grey"], bands(0, 0, 1))
    np.testing.assert_array_equal(masks["palette"], bands(0, 1))
    np.testing.assert_array_equal(masks["white"], bands(1))
    assert found.found == ""


def test_masks_that_a_threshold_makes_all_background_are_named(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"none": (0,), "numbers": (0, 1), "red": (0,), "soft": (0, 60, 200)})
    write_mask(tmp_path / "masks" / "red.png", bands(0, 1, 2), "P")

    found = collection(tmp_path, values="binary", threshold=128)

    assert "2 of 4: masks/numbers.png (at most 1), masks/red.png (at most 2); unless" in found.found
    assert "or set task.masks.threshold: 1 if all but 0 is foreground" in found.found
    assert collection(tmp_path, values="binary", threshold=1).found == ""


BLACK, RED, GREEN = (0, 0, 0), (200, 0, 0), (0, 200, 0)


def greys(*values: int) -> list[tuple[int, ...]]:
    return [(value,) * 3 for value in values]


def write_palette(path: Path, indices: NDArray[np.uint8], *colours: tuple[int, ...]) -> None:
    """Write a mask as indices into these colours."""
    image = Image.fromarray(indices)
    image.putpalette([level for colour in colours for level in colour])
    image.save(path)


def test_a_colour_that_has_other_indices_in_other_masks_is_refused(tmp_path: Path) -> None:
    """Programs that make files smaller number the colours of each file anew."""
    write_pairs(tmp_path / "train", {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1)})
    write_pairs(tmp_path / "val", {"d": (0, 1), "e": (0, 1)})
    write_palette(tmp_path / "train/masks/a.png", bands(0, 1, 2), BLACK, RED, GREEN)
    write_palette(tmp_path / "train/masks/b.png", bands(0, 1), BLACK, RED)
    write_palette(tmp_path / "train/masks/c.png", bands(0, 1), *greys(0, 1, 2))  # as without a palette
    assert collection(tmp_path).classes == ("0", "1", "2")

    write_palette(tmp_path / "val/masks/d.png", bands(0, 1), BLACK, GREEN)

    fault = fault_of(tmp_path)
    assert (
        "(0, 200, 0) is index 2 in the palette of train/masks/a.png, and index 1 in that of val/masks/d"
        in fault
    )
    assert "write the number of each pixel's class as a grey PNG, of mode L" in fault
    (tmp_path / "out.csv").write_text("image\nval/images/d.jpg\n")
    assert read(Data(path=str(tmp_path), exclude=str(tmp_path / "out.csv")), HERE, Masks()).classes


def test_two_colours_of_an_index_are_said_where_no_colour_has_two_indices(tmp_path: Path) -> None:
    """Two programs may have written one class, or one program two that never meet in one mask."""
    write_pairs(tmp_path, dict.fromkeys("ab", (0, 1)))
    for name, colour in {"a": RED, "b": GREEN}.items():
        write_palette(tmp_path / "masks" / f"{name}.png", bands(0, 1), BLACK, colour)

    said = "index 1 is (200, 0, 0) in the palette of masks/a.png, and (0, 200, 0) in that of masks/b.png"
    assert said in collection(tmp_path).found
    assert collection(tmp_path, values="binary").found == "", "objects in any colours"


ZEROS = [BLACK] * 256
# of PASCAL VOC, whose index 7 is a grey
VOC = [BLACK, (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 0, 128), (0, 128, 128), (128,) * 3]
# As of ADE20K, whose index 1 is the grey 120: the number of another class
ADE = [BLACK, (4, 4, 4), (180, 120, 120), (6, 230, 230)]
SPREAD = greys(*range(0, 252, 12))


@pytest.mark.parametrize(
    ("classes", "ignored", "palettes"),
    [
        pytest.param(21, (), [SPREAD], id="greys spread over 0 to 255"),
        pytest.param(21, (), [SPREAD, SPREAD[:2]], id="and cut behind the last that is used"),
        pytest.param(2, (), [greys(255, 0)], id="white and black"),
        pytest.param(2, (255,), [greys(0, 255) + ZEROS[2:]], id="black, white, and zeros"),
        pytest.param(2, (255,), [ZEROS], id="zeros"),
        pytest.param(3, (255,), [greys(0, 127, 255) + ZEROS[4:] + greys(255)], id="ignored in white"),
        pytest.param(
            3,
            (255,),
            [[*VOC, *ZEROS[9:], colour] for colour in ((224, 224, 192), (255, 255, 255), RED)],
            id="ignored in other colours",
        ),
        pytest.param(8, (), [VOC, [*VOC[:1], *ZEROS[1:7], VOC[7]]], id="a class of VOC in grey"),
        pytest.param(5, (), [ADE, ADE[:2], None], id="a class in the grey of another's number"),
        pytest.param(
            3, (), [[BLACK, RED, GREEN], [BLACK], greys(0, 1, 2), None], id="some without a palette"
        ),
        pytest.param(3, (), [[BLACK, RED, GREEN], [BLACK, RED]], id="cut behind the last that is used"),
    ],
)
def test_colours_for_people_to_see_may_be_any(
    tmp_path: Path, classes: int, ignored: tuple[int, ...], palettes: list[list[tuple[int, ...]] | None]
) -> None:
    """Each mask uses what its palette has of the classes, and the first one all of them."""
    write_pairs(tmp_path, {str(number): (0, 1) for number in range(len(palettes))})
    for number, palette in enumerate(palettes):
        used = [value for value in (*range(classes), *ignored) if palette is None or value < len(palette)]
        indices = np.array(used, np.uint8)[np.arange(120) % len(used)].reshape(10, 12)
        path = tmp_path / "masks" / f"{number}.png"
        if palette is None:
            Image.fromarray(indices).save(path)
        else:
            write_palette(path, indices, *palette)

    found = collection(tmp_path)

    assert (len(found.classes), found.found) == (classes, "")


@pytest.mark.parametrize("others", ["", "b"])
def test_an_index_whose_grey_is_the_number_of_another_class_is_refused(tmp_path: Path, others: str) -> None:
    """Greys for people to see, as 0, 127 and 255 of the classes 0, 1 and 2, are no such numbers."""
    write_pairs(tmp_path, dict.fromkeys("ab", (0, 1, 2)))
    written = [tmp_path / "masks" / f"{name}.png" for name in "ab" if name != others]
    for path in written:
        write_palette(path, bands(0, 1, 2), *greys(0, 127, 255))
    assert collection(tmp_path).classes == ("0", "1", "2")

    for path in written:
        write_palette(path, bands(0, 1, 2), *greys(0, 2, 1))

    assert "index 1 is the grey 2 in the palette of masks/a.png, and 2 is a class, too; an index" in fault_of(
        tmp_path
    )


def test_the_grey_of_ignored_pixels_hides_no_other_that_is_a_number(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"a": (0, 1), "b": (0, 1, 2, 255)})
    write_palette(tmp_path / "masks" / "a.png", bands(0, 1, 2), *greys(0, 2, 255))

    assert "index 1 is the grey 2 in the palette of masks/a.png, and 2 is a class, too" in fault_of(tmp_path)


def test_the_background_of_binary_masks_has_one_colour_in_every_palette(tmp_path: Path) -> None:
    write_pairs(tmp_path, dict.fromkeys("abc", (0, 255)))
    write_palette(tmp_path / "masks" / "a.png", bands(0, 1), BLACK, RED)
    write_palette(tmp_path / "masks" / "b.png", bands(0, 1, 2), BLACK, GREEN, RED)  # objects in any colours
    assert collection(tmp_path, values="binary", threshold=1).classes == ("background", "foreground")

    write_palette(tmp_path / "masks" / "c.png", bands(1, 0), RED, BLACK)

    assert (
        "(200, 0, 0) is index 1 in the palette of masks/a.png, and index 0 in that of masks/c.png; 0 is "
        "background, so expected every colour to mean one class" in fault_of(tmp_path, values="binary")
    )
