"""Tests data sets from end to end: found, split, measured, decoded and checked."""

import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits

from tests.trainable.small_images import truncate, write_classes, write_image, write_noise_jpeg
from trainable.bench import Bench
from trainable.data import ArrayPart, DataInfo, DataSet, FilePart, resolve
from trainable.data.array_files import read_digits
from trainable.data.assembly import from_arrays, load
from trainable.data.source import ArraySource
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.training import CenterCrop

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 9, 7), dtype=np.uint8)
LABELS = np.arange(40) % 4


def sizes(data: DataSet) -> tuple[int, int, int]:
    return len(data.train), len(data.validation), len(data.test or ())


def test_digits_need_no_file_and_are_split_in_three() -> None:
    data = load(Data())

    assert sizes(data) == (1259, 269, 269)
    assert data.info.classes == tuple("0123456789")
    assert (data.info.channels, data.info.image_size) == (1, 8)
    assert data.info.flips == ()
    assert isinstance(data.train, ArrayPart)
    assert data.train.images.dtype == np.uint8
    assert data.train.images.max() == 255
    assert data.info.class_counts == tuple(np.bincount(data.train.labels))


def test_digits_are_those_that_scikit_learn_loads() -> None:
    theirs = load_digits()
    ours = read_digits().parts["train"]
    assert isinstance(ours, ArraySource)
    np.testing.assert_array_equal(ours.images, np.rint(theirs.images * (255.0 / 16.0)))
    np.testing.assert_array_equal(ours.labels, theirs.target)


@pytest.mark.slow("splits many times")
def test_digits_always_have_the_same_members() -> None:
    assert load(Data()).info.digest == load(Data(image_size=16)).info.digest
    assert load(Data()).info.digest != load(Data(split_seed=1)).info.digest


def test_mean_and_spread_are_those_of_the_training_part() -> None:
    data = load(Data())
    assert isinstance(data.train, ArrayPart)

    pixels = data.train.images / 255.0

    np.testing.assert_allclose(data.info.mean, [pixels.mean()])
    np.testing.assert_allclose(data.info.std, [pixels.std()])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), (28, 6, 6)),
        (("train", "test"), (34, 6, 40)),
        (("train", "val"), (40, 40, 0)),
        (("train", "val", "test"), (40, 40, 40)),
    ],
)
def test_what_is_missing_is_split_off_and_a_test_part_only_from_one_tree(
    tmp_path: Path, parts: tuple[str, ...], expected: tuple[int, int, int]
) -> None:
    for part in parts or ("",):
        write_classes(tmp_path / part, {"cat": 20, "dog": 20})

    data = load(Data(path=str(tmp_path)))

    assert sizes(data) == expected
    assert data.info.test_images == expected[2]
    assert (data.test is None) == (expected[2] == 0)


def test_the_parts_of_a_tree_have_no_image_in_common(tmp_path: Path) -> None:
    for number in range(40):
        write_image(tmp_path / ("cat", "dog")[number % 2] / f"{number}.png", value=number, size=(4, 4))

    data = load(Data(path=str(tmp_path), channels=1))

    assert isinstance(data.train, ArrayPart)
    assert isinstance(data.validation, ArrayPart)
    assert isinstance(data.test, ArrayPart)
    values = np.concatenate([part.images[:, 0, 0, 0] for part in (data.train, data.validation, data.test)])
    assert sorted(values.tolist()) == list(range(40))
    for part in (data.train, data.validation, data.test):
        np.testing.assert_array_equal(part.images[:, 0, 0, 0] % 2, part.labels)


def test_a_limit_takes_from_the_training_part_alone() -> None:
    whole, limited = load(Data()), load(Data(train_limit=100))

    assert sizes(limited) == (100, *sizes(whole)[1:])
    assert min(limited.info.class_counts) >= 9
    assert limited.info.digest != whole.info.digest


def test_sizes_and_channels_are_the_images_own_up_to_what_the_device_takes(tmp_path: Path) -> None:
    for number in range(8):
        write_image(tmp_path / ("a", "b")[number % 2] / f"{number}.png", size=(300, 90), mode="L")

    def form(device_kind: str, **fields: int) -> tuple[int, int]:
        info = load(Data(path=str(tmp_path), **fields), bench=Bench(device_name=device_kind)).info  # type: ignore[arg-type]
        return info.channels, info.image_size

    assert form("cpu") == (1, 64)
    assert form("cuda") == (1, 90)
    assert form("cpu", image_size=20, channels=3) == (3, 20)


def test_the_resize_is_applied_to_every_part(tmp_path: Path) -> None:
    for number in range(8):
        write_noise_jpeg(tmp_path / ("a", "b")[number % 2] / f"{number}.jpg", seed=number, size=32)
    spec = Data(path=str(tmp_path), image_size=16)

    stretched, cropped = load(spec), load(spec, resize=CenterCrop(ratio=0.5))

    for one, other in ((stretched.train, cropped.train), (stretched.validation, cropped.validation)):
        assert isinstance(one, ArrayPart)
        assert isinstance(other, ArrayPart)
        assert one.images.shape == other.images.shape
        assert not np.array_equal(one.images, other.images)
    assert cropped.resize == CenterCrop(ratio=0.5)


@pytest.mark.parametrize("in_memory", [True, False])
def test_broken_images_are_named_in_one_error_from_all_parts(tmp_path: Path, in_memory: bool) -> None:
    for part in ("train", "val", "test"):
        for number in range(6):
            write_noise_jpeg(tmp_path / part / ("a", "b")[number % 2] / f"{number}.jpg")
    truncate(tmp_path / "train" / "a" / "0.jpg")
    truncate(tmp_path / "test" / "b" / "1.jpg")

    with pytest.raises(DataError, match=r"2 of 18 images cannot be decoded") as caught:
        load(Data(path=str(tmp_path), in_memory=in_memory))

    assert "train/a/0.jpg: image file is truncated" in str(caught.value)
    assert "test/b/1.jpg" in str(caught.value)


def test_a_set_of_broken_images_alone_is_that_error_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.png").write_text("no image")

    with pytest.raises(DataError, match="6 of 6 images cannot be decoded"):
        load(Data(path=str(tmp_path)))


def test_images_not_in_memory_stay_files_and_are_measured_from_a_sample(tmp_path: Path) -> None:
    write_classes(tmp_path, {"cat": 20, "dog": 20})

    files = load(Data(path=str(tmp_path), in_memory=False))
    arrays = load(Data(path=str(tmp_path), in_memory=True))

    assert isinstance(files.train, FilePart)
    assert not files.info.in_memory
    assert files.info.mean == arrays.info.mean
    assert files.info.digest == arrays.info.digest
    np.testing.assert_array_equal(files.validation.labels, arrays.validation.labels)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", r"nowhere does not exist; expected `digits`, a folder of class folders"),
        ("notes.txt", r"notes\.txt is no data set known here"),
    ],
)
def test_a_path_that_is_no_data_set_is_an_error(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "notes.txt").write_text("no images")

    with pytest.raises(DataError, match=message):
        load(Data(path=str(tmp_path / path)))


@pytest.mark.parametrize("form", ["folder", "npz", "idx"])
def test_a_missing_path_is_an_error_when_the_format_is_named_too(tmp_path: Path, form: str) -> None:
    with pytest.raises(DataError, match=r"data\.path: .*nowhere does not exist"):
        load(Data.model_validate({"path": str(tmp_path / "nowhere"), "format": form}))


def test_a_file_where_a_folder_is_expected_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no images")

    with pytest.raises(DataError, match="cannot be read"):
        load(Data(path=str(tmp_path / "notes.txt"), format="folder"))


def test_a_resolved_section_has_everything_written_in_and_gives_the_same_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_classes(tmp_path / "set", {"cat": 20, "dog": 20})
    monkeypatch.chdir(tmp_path)
    first = load(Data(path="set"))

    resolved = resolve(Data(path="set"), first.info)

    assert resolved.path == str(tmp_path / "set")
    assert (resolved.format, resolved.channels, resolved.image_size) == ("folder", 3, 10)
    assert (resolved.flips, resolved.in_memory) == ((), True)
    assert load(resolved).info == first.info
    assert resolve(resolved, first.info) == resolved


def test_a_resolved_section_names_the_list_of_images_to_leave_out_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copies.csv").write_text("image\n0\n")
    monkeypatch.chdir(tmp_path)
    spec = Data(exclude="copies.csv", train_limit=40)
    first = load(spec)
    resolved = resolve(spec, first.info)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resolved.exclude == str(tmp_path / "copies.csv")
    assert load(resolved).info == first.info


def test_flips_that_are_asked_for_stand_in_the_info() -> None:
    assert load(Data(flips=("vertical",))).info.flips == ("vertical",)


def test_a_persons_own_arrays_are_a_data_set() -> None:
    data = from_arrays((IMAGES, LABELS), classes=("n", "e", "s", "w"))

    assert sizes(data) == (24, 8, 8)
    assert data.info.classes == ("n", "e", "s", "w")
    assert (data.info.channels, data.info.image_size) == (1, 7)
    assert resolve(Data(path="arrays"), data.info).image_size == 7


def test_a_persons_own_parts_stay_as_they_are() -> None:
    square = IMAGES[:, :7]

    data = from_arrays((square, LABELS), (square[:8], LABELS[:8]), (square[8:], LABELS[8:]))

    assert isinstance(data.train, ArrayPart)
    np.testing.assert_array_equal(data.train.images[:, 0], square)
    assert sizes(data) == (40, 8, 32)


def test_a_pickled_set_keeps_its_pixels_in_buffers_and_is_read_only_without_a_warning() -> None:
    data = from_arrays((IMAGES, LABELS))
    buffers: list[pickle.PickleBuffer] = []

    head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    read_only = [bytes(buffer.raw()) for buffer in buffers]
    copy = pickle.loads(head, buffers=read_only)

    assert len(head) < 5000
    assert not copy.train.images.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images, labels = copy.train.tensors()
    assert images.shape == (24, 1, 7, 7)
    assert labels.tolist() == data.train.labels.tolist()


INFO = DataInfo(
    path="digits",
    format="digits",
    classes=tuple("0123456789"),
    channels=1,
    image_size=8,
    train_images=7_000,
    validation_images=1_500,
    test_images=1_500,
    class_counts=(700,) * 10,
    mean=(0.3,),
    std=(0.3,),
    flips=(),
    digest="0" * 12,
    in_memory=True,
)
TREE = INFO.tree()


def test_what_was_written_as_json_is_read() -> None:
    info = load(Data()).info
    assert DataInfo.from_tree(json.loads(json.dumps(info.tree()))) == info


def test_a_file_names_a_kind_of_task_only_where_its_counts_do_not_say_it() -> None:
    assert "task_kind" not in TREE
    masks = replace(INFO, task_kind="segmentation", pixel_counts=(9,) * 10)
    assert "task_kind" not in masks.tree()
    assert DataInfo.from_tree(masks.tree()) == masks
    for info in (replace(INFO, task_kind="segmentation"), replace(masks, task_kind="classification")):
        assert DataInfo.from_tree(info.tree()) == info
        assert info.task.kind == info.tree()["task_kind"]


def test_where_no_classes_are_learnt_none_is_rare() -> None:
    assert replace(INFO, class_counts=(350, *INFO.class_counts[1:])).class_balance == 0.5
    assert replace(INFO, class_counts=()).class_balance == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["one"], "class_counts": [7000]},
        {"class_counts": TREE["class_counts"][1:]},
        {"class_counts": [0, *TREE["class_counts"][1:]]},
        {"class_counts": [-1, *TREE["class_counts"][1:]]},
        {"classes": [], "class_counts": []},
        {"train_images": 0},
        {"validation_images": -5},
        {"test_images": -1},
        {"image_size": 0},
        {"mean": []},
        {"channels": 3},
        {"std": [0.0]},
        {"std": [-1.0]},
    ],
)
def test_what_no_data_set_is_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected"):
        DataInfo.from_tree({**TREE, **change})
