"""Tests what raw values mean: classes by name, those without meaning, and files of names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainable.errors import DataError
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.mask_values import (
    CITYSCAPES_LABEL_IDS,
    CITYSCAPES_TRAIN_IDS,
    PETS,
    VOC,
    binary,
    code_of,
    consecutive,
    names_in,
)

NAMES = ("sky", "tree", "road", "car")


@given(st.data())
def test_every_raw_value_means_its_class_or_nothing(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 255))
    ignored = data.draw(st.none() | st.integers(0, 255))
    void = data.draw(st.sets(st.integers(0, count - 1), max_size=count // 2))
    names = [f"class {number}" for number in range(count)]
    left = [name for number, name in enumerate(names) if number != ignored and number not in void]
    if len(left) < 2:
        return

    code = code_of(consecutive(names), ignored, [names[number] for number in void], "here")

    assert list(code.classes) == left
    for raw in range(256):
        name = names[raw] if raw < count else None
        meant = left.index(name) if name in left else IGNORED
        assert code.table[raw] == meant
        assert code.known[raw] == (raw < count or raw == ignored)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60))
def test_counts_of_classes_are_those_of_the_class_mask(values: list[int]) -> None:
    code = code_of(consecutive("abcdefg"), 3, ["b", "f"], "here")
    raw = np.array([values], np.uint8)

    counts, ignored = code.class_counts(np.bincount(raw.ravel(), minlength=256)[None])

    found = np.bincount(code.class_mask(raw).ravel(), minlength=256)
    assert counts.tolist() == [found[: len(code.classes)].tolist()]
    assert ignored.tolist() == [found[IGNORED]]


def test_a_class_without_meaning_is_removed_and_the_others_keep_their_order() -> None:
    code = code_of(consecutive(NAMES), 255, ["tree"], "here")

    assert code.classes == ("sky", "road", "car")
    raw = np.array([[0, 1, 2, 3, 255]], np.uint8)
    assert code.class_mask(raw).tolist() == [[0, IGNORED, 1, 2, IGNORED]]


def test_the_number_of_a_class_may_be_the_one_that_is_ignored() -> None:
    assert code_of(consecutive(NAMES), 0, (), "here").classes == ("tree", "road", "car")


def test_binary_masks_have_foreground_wherever_they_are_not_0() -> None:
    code = code_of(binary(), None, (), "here")

    assert code.classes == ("background", "foreground")
    assert code.class_mask(np.array([[0, 1, 128, 255]], np.uint8)).tolist() == [[0, 1, 1, 1]]
    assert code.known.all()


@pytest.mark.parametrize(
    ("names", "void", "problem"),
    [
        (NAMES, ["boat"], r"task\.masks\.void: 'boat' is no class of here; its classes are sky, tree, road"),
        (NAMES[:2], ["sky"], r"here: two classes that count are needed, and there is tree"),
        (NAMES[:2], ["sky", "tree"], r"and there is none"),
        ([str(each) for each in range(256)], [], r"here: 256 classes; expected at most 255"),
    ],
)
def test_names_that_leave_no_classes_are_an_error(
    names: tuple[str, ...], void: list[str], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        code_of(consecutive(names), 255, void, "here")


@pytest.mark.parametrize(
    ("naming", "classes", "meant"),
    [
        (VOC, 21, {0: "background", 15: "person", 20: "tvmonitor", 255: None}),
        (CITYSCAPES_TRAIN_IDS, 19, {0: "road", 18: "bicycle", 255: None}),
        (CITYSCAPES_LABEL_IDS, 19, {7: "road", 33: "bicycle", 0: None, 29: None, 31: "train"}),
        (PETS, 3, {1: "pet", 2: "background", 3: "border"}),
    ],
)
def test_published_data_sets_have_their_own_numbers(
    naming: object, classes: int, meant: dict[int, str | None]
) -> None:
    code = code_of(naming, None, (), "here")  # type: ignore[arg-type]

    assert len(code.classes) == classes
    for raw, name in meant.items():
        assert code.known[raw]
        assert code.table[raw] == (IGNORED if name is None else code.classes.index(name))


def test_a_file_of_names_has_one_on_each_line(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(b"\xef\xbb\xbfsky \r\nbig tree\r\n\r\n\n")

    assert names_in(str(tmp_path / "names.txt")) == ("sky", "big tree")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; expected the name of a class on each line"),
        (b"sky\n\nroad\n", "line 2 is blank; expected the name of a class on each line"),
        (b"sky\nroad\nsky\n", "sky is there more than once; expected another name on each line: rename one"),
        (b"sky\n\xff\n", "is not UTF-8 at byte 4; save it as UTF-8"),
        (b"name%d\n" * 256 % (*range(256),), "256 names; expected at most 255, one on each line: remove"),
    ],
)
def test_a_file_of_names_with_a_fault_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(content)

    with pytest.raises(DataError) as caught:
        names_in(str(path))
    assert str(caught.value).startswith(f"task.masks.classes: {path}: {problem}")


def test_a_file_of_names_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"task\.masks\.classes: .*none\.txt: cannot be read: No such file"):
        names_in(str(tmp_path / "none.txt"))
