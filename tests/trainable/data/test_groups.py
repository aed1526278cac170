"""Tests that a patient or a series stays in one part, and that a leak is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.trainable.data_forms import labelled, write_csv, write_datasets, write_forms
from tests.trainable.small_images import write_image
from trainable.bench import HERE
from trainable.checks.duplicates import Fingerprints, by_fingerprint, check_duplicates
from trainable.checks.groups import check_groups
from trainable.data import DataSet
from trainable.data.assembly import from_arrays, load, make_own
from trainable.data.groups import capture_in, captured
from trainable.data.reading import read
from trainable.data.split import SplitPlan, grouped_split, members_of
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.data import Columns, Data
from trainable.run import make_run
from trainable.tasks.classification.checks.label_checks import LabelChecks
from trainable.train import train

PATTERN = r"(.+)_\d+\.png"


def write_patients(root: Path, patients: int = 8, images: int = 3, part: str = "") -> Path:
    """Write images p0_0.png, ... in two classes: each patient has images of both."""
    for label in ("ill", "well"):
        for number in range(patients * images):
            write_image(root / part / label / f"p{number % patients}_{number}.png", value=number)
    return root


def patients_of(spec: Data) -> dict[str, set[str]]:
    """Return the patients in each part, from the names of the files."""
    members = members_of(read(spec, HERE), spec)
    return {
        name: {Path(part.source.name(index)).stem.split("_")[0] for index in part.indices.tolist()}
        for name, part in members.items()
    }


def disjoint(parts: dict[str, set[str]]) -> bool:
    return sum(map(len, parts.values())) == len(set().union(*parts.values()))


def level_of(data: DataSet) -> str:
    (finding,) = check_groups(Fingerprints(data), LabelChecks())
    return finding.level


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, list[str]]:
    """Draw groups of one class each, at least six of every class."""
    sizes = draw(st.lists(st.lists(st.integers(1, 12), min_size=6, max_size=30), min_size=2, max_size=4))
    labels = [label for label, of_class in enumerate(sizes) for size in of_class for _ in range(size)]
    groups = [
        f"{label}-{number}"
        for label, of_class in enumerate(sizes)
        for number, size in enumerate(of_class)
        for _ in range(size)
    ]
    return np.array(labels), groups


@given(drawn=grouped(), fraction=st.floats(0.05, 0.3), seed=st.integers(0, 2**32))
def test_a_class_misses_its_fraction_by_half_of_its_largest_group_or_has_one_group(
    drawn: tuple[np.ndarray, list[str]], fraction: float, seed: int
) -> None:
    labels, groups = drawn
    names = [str(label) for label in range(int(labels.max()) + 1)]
    parts = grouped_split(labels, groups, names, SplitPlan(fraction, fraction, seed))

    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    held = [{groups[position] for position in part.tolist()} for part in parts]
    assert sum(map(len, held)) == len(set(groups)), "each group is in one part"
    for label in range(len(names)):
        size = int((labels == label).sum())
        of_class = [name for name, each in zip(groups, labels, strict=True) if each == label]
        largest = max(map(of_class.count, set(of_class)))
        for part in parts[1:]:
            count = int((labels[part] == label).sum())
            assert count >= 1
            needed = len({groups[position] for position in part.tolist() if labels[position] == label}) == 1
            assert abs(count - fraction * size) <= (largest if needed else largest / 2) + 1e-9


@given(seed=st.integers(0, 2**32), validation=st.floats(0.05, 0.4))
def test_groups_of_several_classes_are_split_alike_with_a_seed(seed: int, validation: float) -> None:
    luck = np.random.default_rng(seed)
    groups = [f"p{each}" for each in luck.integers(0, 30, 300)]
    labels = luck.integers(0, 3, 300)
    first, again = (grouped_split(labels, groups, "abc", SplitPlan(validation, 0.2, seed)) for _ in range(2))
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert abs(len(first[2]) - 60) <= 25, "the size of the part is within the images of two groups"
    for part in first:
        assert set(labels[part].tolist()) == {0, 1, 2}


@given(seed=st.integers(0, 2**32), validation_seed=st.integers(0, 2**32))
def test_a_validation_seed_draws_groups_anew_from_all_but_the_test_part(
    seed: int, validation_seed: int
) -> None:
    luck = np.random.default_rng(seed)
    groups = [f"p{each}" for each in luck.integers(0, 30, 300)]
    labels = luck.integers(0, 3, 300)
    before = grouped_split(labels, groups, "abc", SplitPlan(0.2, 0.2, seed))
    train, validation, test = grouped_split(labels, groups, "abc", SplitPlan(0.2, 0.2, seed, validation_seed))
    assert test.tolist() == before[2].tolist()
    assert sorted([*train, *validation]) == sorted([*before[0], *before[1]])
    held = [{groups[position] for position in part.tolist()} for part in (train, validation)]
    assert not held[0] & held[1]
    assert set(labels[validation].tolist()) == {0, 1, 2}


def test_a_class_with_too_few_groups_is_named() -> None:
    labels, groups = np.repeat([0, 1], 20), [f"p{number % 5}" for number in range(20)] + ["q1", "q2"] * 10
    with pytest.raises(DataError, match="too few groups to split: class 'bee' has 2; 3 are needed"):
        grouped_split(labels, groups, ("ant", "bee"), SplitPlan(0.15, 0.15, 0))


def test_a_folders_patients_are_found_by_an_expression(tmp_path: Path) -> None:
    root = write_patients(tmp_path / "set")
    assert not disjoint(patients_of(Data(path=str(root))))
    spec = Data(path=str(root), group=PATTERN)
    assert disjoint(patients_of(spec)), "in both classes"
    data = load(spec)
    assert level_of(data) == "passed"
    assert data.groups is not None
    for part, numbers in data.groups.items():
        assert len(numbers) == len(data.parts[part])
        assert len(set(numbers.tolist())) == len(patients_of(spec)[part])
    assert len(set(np.concatenate(list(data.groups.values())).tolist())) == 8


def test_a_manifest_and_a_saved_data_set_have_a_column_for_them(tmp_path: Path) -> None:
    images = labelled({"train": [24, 24]})
    write_forms(images, tmp_path)
    patients = [f"p{number % 8}" for number in range(48)]
    rows = [
        {"path": f"folder/{each.path}", "label": each.label, "patient": patient}
        for each, patient in zip(images, patients, strict=True)
    ]
    write_csv(tmp_path / "images.csv", rows)
    write_datasets(images, tmp_path / "patients", patients)
    for name in ("images.csv", "patients"):
        by_columns = load(Data(path=str(tmp_path / name), columns=Columns(group="patient")))
        by_group = load(Data(path=str(tmp_path / name), group="patient"))
        assert by_columns.info == by_group.info
        assert (by_columns.grouped, by_columns.shared) == (True, ())
        assert by_columns.info.digest != load(Data(path=str(tmp_path / name))).info.digest
    assert load(Data(path=str(tmp_path / "images.csv"), group="patient")).info.digest == by_group.info.digest


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "is no regular expression"),
        ("p.*", "expected a regular expression with one capture"),
        (r"(x\d)_", "finds no group in 48 of 48 paths: ill/p0_0.png"),
    ],
)
def test_an_expression_that_finds_no_groups_is_refused(tmp_path: Path, pattern: str, problem: str) -> None:
    root = write_patients(tmp_path / "set")
    with pytest.raises(DataError, match=problem):
        load(Data(path=str(root), group=pattern))


def test_digits_have_no_groups_and_a_folder_no_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names no files"):
        load(Data(group=PATTERN))
    with pytest.raises(DataError, match=r"data\.columns: a manifest has columns.*format folder"):
        load(Data(path=str(write_patients(tmp_path)), columns=Columns(group="patient")))


def test_images_from_python_have_no_groups() -> None:
    spec = Data(path="mine", format="own", group=PATTERN)
    images, labels = np.zeros((12, 8, 8), np.uint8), np.repeat([0, 1], 6)
    with pytest.raises(DataError, match=r"names no files.*from_arrays"):
        make_own(spec, lambda: (images, labels))
    with pytest.raises(DataError, match="DataSet that data=mine returns knows no groups"):
        make_own(spec, lambda: from_arrays((images, labels)))


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("ill/site/p0_1.png", "site/p0"),
        ("train/ill/p0_1.png", "p0"),
        ("site/p0_1.png", "site/p0"),
        ("p0_1.png", "p0"),
    ],
)
def test_folders_of_parts_and_classes_are_no_part_of_a_groups_name(path: str, group: str) -> None:
    assert captured(capture_in(PATTERN), [path], ["ill", "well"], "here") == (group,)


@pytest.fixture
def leaking(tmp_path: Path) -> Recipe:
    """Return a recipe for parts that share the patients p0 to p3."""
    write_patients(tmp_path, 8, part="train")
    write_patients(tmp_path, 4, part="val")
    values: dict[str, Any] = {"data.path": str(tmp_path), "data.group": PATTERN, "loop.epochs": 1}
    return Recipe().with_values({**values, "model.width": 8, "loop.batch_size": 8})


def test_given_parts_that_share_a_patient_are_an_error_in_check(leaking: Recipe) -> None:
    (finding,) = check_groups(Fingerprints(load(leaking.data)), LabelChecks())
    assert finding.level == "error"
    assert (
        finding.what
        == "4 groups are in train and validation (p0, p1, p2 and 1 more), with 24 validation images"
    )


@pytest.mark.slow("trains networks")
def test_given_parts_that_share_a_patient_are_not_trained_unless_that_is_allowed(leaking: Recipe) -> None:
    with pytest.raises(DataError, match=r"4 groups are in train and validation .*data\.leaks=allow"):
        train(leaking)
    with pytest.raises(DataError, match="4 groups are in train and validation"):
        make_run(leaking)
    allowed = leaking.with_values({"data.leaks": "allow"})
    assert len(train(allowed).history) == 1
    assert allowed.digest() == leaking.digest()


def test_the_folder_below_the_class_is_proposed_after_it_was_tried(tmp_path: Path) -> None:
    """The names of files would make each image a group of its own."""
    for label in ("a", "b"):
        for series in range(6):
            for number in range(4):
                value = 40 * series + number // 2 if label == "a" else 100 + 40 * series // 3 + number
                write_image(
                    tmp_path / label / f"{label}{series}" / f"IMG_{series}{number}_1.png", value=value
                )
    data = load(Data(path=str(tmp_path)))
    (finding,) = check_groups(Fingerprints(data), LabelChecks())
    assert finding.level == "note"
    assert "'([^/]+)/[^/]+$' makes 12 groups of 48 images; " in finding.do
    assert re.search(r"; \d+ of the \d+ copies between parts could remain", finding.do)
    grouped = load(Data(path=str(tmp_path), group=data.series))
    assert level_of(grouped) == "passed"


def test_a_proposal_that_the_split_would_refuse_is_told_with_the_reason(tmp_path: Path) -> None:
    for label, series in (("a", 6), ("b", 6), ("c", 1)):
        for number in range(24):
            folder = f"{label}{number % series}"
            write_image(tmp_path / label / folder / f"{number}.png", value=9 * number)
    spec = Data(path=str(tmp_path))
    data = load(spec)
    (finding,) = check_groups(Fingerprints(data), LabelChecks(), spec=spec)
    assert finding.level == "note"
    assert "that is refused: data.group: too few groups to split: class 'c' has 1; 3 are needed" in finding.do
    assert "data.min_images" not in finding.do  # by images it is no smaller than the others
    with pytest.raises(DataError, match="class 'c' has 1"):
        load(spec.model_copy(update={"group": data.series}))


def test_a_proposal_that_would_refuse_the_parts_of_the_data_is_told_with_the_reason(tmp_path: Path) -> None:
    for part, value in (("train", 0), ("val", 100)):
        for label in "ab":
            for number in range(24):
                path = tmp_path / part / label / f"{label}{number % 6}" / f"{number}.png"
                write_image(path, value=value + number)
    spec = Data(path=str(tmp_path))
    data = load(spec)
    (finding,) = check_groups(Fingerprints(data), LabelChecks(), spec=spec)
    assert "As the parts are, that is refused: 12 series are in train and validation" in finding.do
    grouped = spec.model_copy(update={"group": data.series})
    with pytest.raises(DataError, match="12 groups are in train and validation"):
        load(grouped).refuse_leaks(grouped)


def test_classes_of_few_groups_and_images_may_be_left_out() -> None:
    labels, groups = np.repeat([0, 1, 2], [20, 20, 4]), [f"p{number % 5}" for number in range(40)] + ["q"] * 4
    with pytest.raises(DataError, match=r"or leave such classes out by data\.min_images: 5$"):
        grouped_split(labels, groups, "abc", SplitPlan(0.15, 0.15, 0))


def write_series(root: Path, names: dict[str, list[str]], *, alike: bool = False) -> DataSet:
    """Write four images in each of these series of each class: `alike` where they have one name."""
    luck = np.random.default_rng(0)
    scene = {name: luck.integers(0, 250, (12, 12)) for own in names.values() for name in own}
    for label, own in names.items():
        for name in own:
            before = scene[name] if alike else luck.integers(0, 250, (12, 12))
            for number in range(4):
                path = root / label / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray((before + luck.integers(0, 5, (12, 12))).astype(np.uint8)).save(path)
    return load(Data(path=str(root)))


COUNTED = [f"s{number}" for number in range(1, 6)]


@pytest.mark.parametrize("classes", [2, 6])
def test_series_that_each_class_counts_anew_are_several_of_one_name(tmp_path: Path, classes: int) -> None:
    data = write_series(tmp_path, dict.fromkeys("abcdef"[:classes], COUNTED))
    (finding,) = check_groups(Fingerprints(data), LabelChecks())
    series = classes * len(COUNTED)
    assert f"'(?P<in_class>[^/]+)/[^/]+$' makes {series} groups of {4 * series} images" in finding.do
    assert "if they are one, '([^/]+)/[^/]+$' makes 5 groups" in finding.do
    assert " series are in train and validation (" in finding.what
    assert "group" not in finding.what
    grouped = load(Data(path=str(tmp_path), group=data.series))
    assert level_of(grouped) == "passed"
    assert grouped.groups is not None
    assert len(set(np.concatenate(list(grouped.groups.values())).tolist())) == series


@pytest.mark.parametrize(
    "names",
    [
        {"ill": [f"p{number}" for number in range(6)], "well": [f"p{number}" for number in range(6)]},
        {f"gesture {number}": ["subject_1", "subject_2", "subject_3"] for number in range(4)},
        {"ill": ["2", "17", "30", "44"], "well": ["2", "9", "30", "51"]},
        {"ill": ["york", "bath", "hull", "ely", "wells"], "well": ["york", "bath", "hull", "ely", "wells"]},
    ],
)
def test_patients_and_places_are_the_same_in_all_classes(tmp_path: Path, names: dict[str, list[str]]) -> None:
    (finding,) = check_groups(Fingerprints(write_series(tmp_path, names)), LabelChecks())
    count = len({each for own in names.values() for each in own})
    assert f"'([^/]+)/[^/]+$' makes {count} groups" in finding.do
    assert "in_class" not in finding.do


def test_counted_series_are_one_where_most_classes_share_them_and_the_images_are_nearly_the_same(
    tmp_path: Path,
) -> None:
    (finding,) = check_groups(
        Fingerprints(write_series(tmp_path, dict.fromkeys("ab", COUNTED), alike=True)), LabelChecks()
    )
    assert "'([^/]+)/[^/]+$' makes 5 groups" in finding.do
    assert "in_class" not in finding.do


@pytest.mark.parametrize("visits", [["left", "right"], [f"visit{number}" for number in range(6)]])
def test_of_two_folders_below_the_class_the_upper_one_is_proposed(tmp_path: Path, visits: list[str]) -> None:
    """By the lower one, equal names of visits would join patients, and part each of them."""
    for label in ("ill", "well"):
        for patient in ("king", "lee", "moon", "nash", "owen", "park"):
            for visit in visits:
                for number in range(2):
                    write_image(tmp_path / label / patient / visit / f"{number}.png", value=number)
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    assert "'([^/]+)/[^/]+/[^/]+$' makes 6 groups" in finding.do


def test_a_number_that_names_begin_with_may_count_images_and_both_readings_are_named(tmp_path: Path) -> None:
    for label, first in (("a", 0), ("b", 6)):
        for clip in range(first, first + 6):
            for number in range(8):
                write_image(tmp_path / label / f"{number:03}_clip{clip}.png", value=20 * clip + number)
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    behind = r"(?:^|/)[0-9]+[ _.-]([^/]+)[.][A-Za-z0-9]+$"
    assert "makes 8 groups of 96 images" in finding.do
    assert f"counts the images of a series, {behind!r} makes 12 groups" in finding.do
    grouped = load(Data(path=str(tmp_path), group=behind))
    assert level_of(grouped) == "passed"


@pytest.mark.parametrize("day", ["2024-01-{:02}", "202401{:02}", "2024_01_{:02}", "{:02}.01.2024"])
def test_a_date_that_names_begin_with_counts_no_images(tmp_path: Path, day: str) -> None:
    for number in range(48):
        name = f"{day.format(1 + number // 2 % 6)}_{number // 12:03}.png"
        write_image(tmp_path / "ab"[number % 2] / name, value=5 * number)
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    assert "makes 6 groups of 48 images" in finding.do
    assert "counts the images" not in finding.do


@pytest.mark.parametrize("folders", ["session_00", "session_00/left"])
def test_people_who_are_the_classes_are_no_series_and_what_is_below_them_is(
    tmp_path: Path, folders: str
) -> None:
    """Each person in one part alone would be a class that the other parts lack."""
    for number in range(96):
        below = folders.replace("00", f"{number // 6 % 4:02}")
        write_image(tmp_path / f"person_{number % 6:02}" / below / f"{number}.png", value=number)
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    assert "makes 24 groups of 96 images" in finding.do
    assert "refused" not in finding.do


def test_people_who_are_the_classes_are_no_series(tmp_path: Path) -> None:
    for number in range(48):
        write_image(tmp_path / f"subject{number % 6:02}" / f"{number}.png", value=number)
    assert load(Data(path=str(tmp_path))).series is None


def test_the_folder_of_a_class_is_no_series(tmp_path: Path) -> None:
    """Two folders above an image is its kind or, where a kind has no sorts, its class; its own may be one."""
    kinds = ("fruit/apple/gala", "fruit/pear/red", "fruit/plum", "drink/milk/whole", "drink/juice/apple")
    for number in range(60):
        folder = tmp_path / kinds[number % len(kinds)]
        write_image(folder / f"{number}.png", value=4 * number)
    assert load(Data(path=str(tmp_path))).series == "([^/]+)/[^/]+$"


def test_each_reading_is_told_with_the_copies_that_it_leaves_between_parts(tmp_path: Path) -> None:
    write_series(tmp_path, dict.fromkeys("ab", COUNTED))
    for number in range(4):  # s1 of b is that of a
        (tmp_path / f"b/s1/{number}.png").write_bytes((tmp_path / f"a/s1/{number}.png").read_bytes())
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    in_class, joined = finding.do.split("if they are one, ")
    copies = "of the [1-4] copies between parts could remain"
    assert re.search(f"[1-4] {copies}", in_class)
    assert re.search(f"; 0 {copies}", joined)


def test_series_that_names_have_behind_a_number_alone_are_found(tmp_path: Path) -> None:
    for number in range(48):
        write_image(tmp_path / "ab"[number % 2] / f"{number}-user{number % 8}.png", value=number)
    (finding,) = check_groups(Fingerprints(load(Data(path=str(tmp_path)))), LabelChecks())
    assert r"[0-9]+[ _.-]([^/]+)" in finding.do
    assert "makes 8 groups of 48 images" in finding.do


def test_a_capture_of_its_class_needs_labels() -> None:
    pattern = capture_in("(?P<in_class>[^/]+)/[^/]+$")
    assert captured(pattern, ["a/s1/0.png", "b/s1/0.png"], "ab", "here", "ab") == ("a/s1", "b/s1")
    with pytest.raises(DataError, match="images with masks have none; write it without the name"):
        captured(pattern, ["s1/0.png"], "ab", "here")


def test_images_are_compared_once_for_all_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = write_series(tmp_path, dict.fromkeys("ab", COUNTED)), list[bool]()

    def counting(data: DataSet, full: bool) -> Any:
        calls.append(full)
        return by_fingerprint(data, full)

    monkeypatch.setattr("trainable.checks.duplicates.by_fingerprint", counting)
    compared = Fingerprints(data, full=True)
    assert [*check_duplicates(compared, LabelChecks()), *check_groups(compared, LabelChecks())]
    assert calls == [True]


def test_an_expression_that_makes_each_image_a_group_is_not_proposed(tmp_path: Path) -> None:
    for label in ("a", "b"):
        for number in range(20):
            write_image(tmp_path / label / f"IMG_{label}{number}_1.png", value=number)
    assert load(Data(path=str(tmp_path))).series is None


def test_names_like_those_of_series_are_noted(tmp_path: Path) -> None:
    assert level_of(load(Data(path=str(write_patients(tmp_path / "series"))))) == "note"
    for label in ("a", "b"):
        for number in range(20):
            write_image(tmp_path / "plain" / label / f"IMG_{number}.png", value=number)
    assert level_of(load(Data(path=str(tmp_path / "plain")))) == "passed"
