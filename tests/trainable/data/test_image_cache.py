"""Tests that a machine decodes a data set once, keeps what is whole, and says what it cannot keep."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainable.small_images import truncate, write_noise_jpeg
from tests.waiting import wait_until
from trainable.bench import ON_CPU
from trainable.data import DataSet, image_cache
from trainable.data.assembly import load
from trainable.data.image_cache import ImageCache, StoredArray
from trainable.data.loading import ArrayLoader, FileLoader, prefetched
from trainable.data.source import FileSource
from trainable.errors import DataError, RecipeError
from trainable.files.locks import alone
from trainable.recipe import Recipe
from trainable.recipe.augmentations import Augmentation, NoCrop, ResizedCrop
from trainable.recipe.data import Data
from trainable.recipe.training import Loop
from trainable.stages import Stage, shown_by
from trainable.tasks.kits import make_loader

SIDE, IMAGES = 16, 40
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have four images of three channels and 19 pixels, the larger side for crops."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_cache, "BLOCK_BYTES", 4 * 3 * 19 * 19)
    monkeypatch.setattr(image_cache, "SPARE_BYTES", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(IMAGES):
        path = (
            tmp_path / "pets" / ("train", "val")[number >= 30] / ("a", "b")[number % 2] / f"{number:02}.jpg"
        )
        write_noise_jpeg(path, seed=number, size=30)
    return tmp_path / "pets"


def loaded(folder: Path, cache: str = "auto") -> DataSet:
    return load(Data(path=str(folder), image_size=SIDE, in_memory=False, cache=cache))


def cache_of(data: DataSet) -> ImageCache:
    assert data.cache is not None
    return data.cache


def array(data: DataSet, side: int = SIDE) -> StoredArray:
    cache = cache_of(data)
    count = IMAGES if side == SIDE else 30
    return StoredArray(cache.folder, count, 3, side, 4)


def epoch(data: DataSet, augmentation: Augmentation) -> torch.Tensor:
    loader = make_loader(data, Recipe(augmentation=augmentation, loop=Loop(workers=0)), ON_CPU)
    batches = [*loader.train(torch.arange(30).split(7), 1), *loader.evaluate("validation")]
    loader.close()
    return torch.cat([images for images, _ in batches])


def paths(data: DataSet) -> tuple[str, ...]:
    """Return the training files, in the order of the data set."""
    source = data.selections["train"].source
    assert isinstance(source, FileSource)
    return source.paths


def said(data: DataSet) -> list[str]:
    lines: list[str] = []
    data.be_here(lines.append)
    return lines


def test_the_first_who_needs_it_decodes_and_later_ones_map_the_same_files(folder: Path) -> None:
    data = loaded(folder)
    assert isinstance(make_loader(data, Recipe(), ON_CPU), FileLoader)

    first, again = said(data), said(pickle.loads(pickle.dumps(loaded(folder))))

    assert len(first) == 1
    assert "decoding 40 images once" in first[0]
    assert again == []
    assert isinstance(make_loader(data, Recipe(), ON_CPU), ArrayLoader)
    views = data.decoded_views()
    assert {view: pixels.shape for view, pixels in views.items()} == {
        ("train", 16): (30, 3, 16, 16),
        ("validation", 16): (10, 3, 16, 16),
        ("train", 19): (30, 3, 19, 19),
    }
    assert all(isinstance(pixels, np.memmap) and not pixels.flags.writeable for pixels in views.values())


def test_larger_squares_are_stored_only_where_a_crop_may_ask_for_them(folder: Path) -> None:
    data = replace(loaded(folder), crops=False)

    data.be_here()

    assert data.decoded_views().keys() == {("train", 16), ("validation", 16)}
    cropped = Recipe(augmentation=Augmentation(crop=ResizedCrop()))
    assert isinstance(
        make_loader(data, Recipe(augmentation=Augmentation(crop=NoCrop())), ON_CPU), ArrayLoader
    )
    assert isinstance(make_loader(data, cropped, ON_CPU), FileLoader)
    plain_at = array(data)._pixels_file.stat().st_mtime_ns
    replace(data, crops=True).be_here()
    assert isinstance(make_loader(data, cropped, ON_CPU), ArrayLoader)
    assert array(data)._pixels_file.stat().st_mtime_ns == plain_at


def test_a_file_that_is_repainted_with_its_size_and_time_is_decoded_anew(folder: Path) -> None:
    file = next(folder.rglob("*.jpg"))
    before, found = cache_of(loaded(folder)).key, file.stat()
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)
    assert cache_of(loaded(folder)).key != before


def test_blocks_that_are_not_what_was_written_are_decoded_anew(folder: Path) -> None:
    data = loaded(folder)
    said(data)
    right = {view: pixels.copy() for view, pixels in data.decoded_views().items()}
    file = array(data)._pixels_file
    with file.open("r+b") as opened:
        for block in (2, 9):
            opened.seek(block * 4 * 3 * SIDE**2 + 7)
            opened.write(b"?!")
    found = file.stat()
    assert ("train", SIDE) not in data.decoded_views()
    lines = said(data)
    assert lines[0].startswith("2 blocks of decoded images in ")
    assert len(lines) == 2
    for view, pixels in data.decoded_views().items():
        np.testing.assert_array_equal(pixels, right[view])
    assert said(data) == []

    content = bytearray(file.read_bytes())  # bits that the disk loses change no time: they are found in a day
    content[0] ^= 255
    file.write_bytes(content)
    array(data).note_checked()
    assert said(data) == []
    os.utime(file.with_suffix(".checked"), (0, 0))
    assert said(data)[0].startswith("1 blocks of decoded images in ")
    assert found.st_size == file.stat().st_size


def test_decoded_images_that_are_painted_over_with_their_size_and_time_are_checked(folder: Path) -> None:
    data = loaded(folder)
    said(data)
    right, file = data.decoded_views()["train", SIDE].copy(), array(data)._pixels_file
    content, found = bytearray(file.read_bytes()), file.stat()
    content[0] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))

    assert ("train", SIDE) not in data.decoded_views()
    assert said(data)[0].startswith("1 blocks of decoded images in ")
    np.testing.assert_array_equal(data.decoded_views()["train", SIDE], right)


def test_a_copy_of_the_cache_that_can_only_be_read_is_used_as_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(loaded(folder, str(tmp_path / "first")))
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    copy = loaded(folder, str(tmp_path / "second"))
    assert ("train", SIDE) not in copy.decoded_views(), "where it may be written, it is checked first"

    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert said(copy) == []
    assert ("train", SIDE) in copy.decoded_views()


def test_files_or_forms_that_differ_are_kept_apart(folder: Path) -> None:
    keys = {cache_of(loaded(folder)).key}
    keys.add(cache_of(load(Data(path=str(folder), image_size=17, in_memory=False))).key)
    keys.add(cache_of(load(Data(path=str(folder), image_size=SIDE, channels=1, in_memory=False))).key)
    file = next(folder.rglob("*.jpg"))
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    keys.add(cache_of(loaded(folder)).key)

    assert len(keys) == 4, "an image that was replaced by one of equal size is another one"


def test_a_copy_of_the_files_finds_what_was_decoded(folder: Path, tmp_path: Path) -> None:
    first = cache_of(loaded(folder)).key
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    for file in (tmp_path / "copy").rglob("*.jpg"):
        file.chmod(0o600)
        os.utime(file, ns=(0, 10**18))
    assert cache_of(loaded(tmp_path / "copy")).key == first


def test_images_that_change_places_are_decoded_anew(folder: Path) -> None:
    """Bitmaps have one size; the set of what is in a class stays the same."""
    files = [folder / "train" / "a" / f"{number}.bmp" for number in (90, 91)]
    for number, file in enumerate(files):
        Image.new("RGB", (30, 30), (90 * number, 0, 0)).save(file)
    before, contents = loaded(folder), [file.read_bytes() for file in files]
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)
    after = loaded(folder)
    assert after.info.digest == before.info.digest
    assert cache_of(after).key != cache_of(before).key


def test_files_too_large_to_be_hashed_whole_count_by_their_times_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.data.measure.DIGEST_BYTES", 0)
    before = cache_of(loaded(folder)).key
    assert cache_of(loaded(folder)).key == before
    os.utime(next(folder.rglob("*.jpg")), ns=(0, 10**18))
    assert cache_of(loaded(folder)).key != before


def test_a_check_that_takes_long_is_announced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = loaded(folder)
    said(data)
    monkeypatch.setattr(image_cache, "TOLD_SECONDS", -1.0)
    os.utime(array(data)._pixels_file.with_suffix(".checked"), (0, 0))
    (line,) = said(data)
    assert line.startswith("checking 0 MB of decoded images in ")


def test_off_is_files_and_arrays_have_no_cache(folder: Path) -> None:
    assert loaded(folder, cache="off").cache is None
    assert load(Data(path="digits", in_memory=False)).cache is None
    assert load(Data(path=str(folder), in_memory=True)).cache is None


def test_the_cache_is_no_part_of_a_recipes_digest_and_no_uri() -> None:
    assert Recipe(data=Data(cache="off")).digest() == Recipe(data=Data(cache="/scratch")).digest()
    assert Recipe(data=Data(image_size=8)).digest() != Recipe().digest()
    with pytest.raises(RecipeError, match=r"data\.cache: .*own disk.*s3://bucket"):
        Recipe.from_tree({"data": {"cache": "s3://bucket/images"}})


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_blocks_without_a_mark_are_decoded_again_and_others_are_not(folder: Path, kept: int) -> None:
    data = loaded(folder)
    data.be_here()
    expected = epoch(data, Augmentation(crop=ResizedCrop()))
    for side in (16, 19):
        stored = array(data, side)
        pixels = np.memmap(stored._pixels_file, np.uint8, "r+", shape=(stored.count, 3, side, side))
        marks = stored.marks()
        marks[kept:] = 0
        stored._marks_file.write_bytes(marks.tobytes())
        pixels[4 * kept :] = 99  # as a block that was torn
        pixels.flush()
    for path in paths(data)[: 4 * kept]:  # those that are kept are not even opened
        (folder / path).unlink()
    assert isinstance(make_loader(data, Recipe(), ON_CPU), FileLoader), "what is not whole is not used"

    data.be_here()

    assert torch.equal(epoch(data, Augmentation(crop=ResizedCrop())), expected)


def test_files_of_another_length_are_not_taken_for_whole(folder: Path) -> None:
    data = loaded(folder)
    data.be_here()
    os.truncate(array(data)._pixels_file, 1000)

    assert ("train", 16) not in data.decoded_views()
    data.be_here()
    assert ("train", 16) in data.decoded_views()


SCRIPT = """
import pickle, sys, threading
from pathlib import Path
from trainable.data import image_cache
image_cache.BLOCK_BYTES, image_cache.SPARE_BYTES = 4 * 3 * 19 * 19, 0

def stop_there(event, arguments):
    if event == "open" and str(arguments[0]) == sys.argv[2]:
        threading.Event().wait()

sys.addaudithook(stop_there)
data = pickle.loads(Path(sys.argv[1]).read_bytes())
data.be_here(lambda line: print(line, flush=True))
"""


def start(
    data: DataSet, tmp_path: Path, before: Callable[[], None] | None = None, stop_at: Path | None = None
) -> subprocess.Popen[str]:
    """Start a process that fills the cache, and that stops for ever when it opens `stop_at`."""
    file = tmp_path / "data.pickle"
    file.write_bytes(pickle.dumps(data))
    command = [sys.executable, "-c", SCRIPT, str(file), str(stop_at)]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=before
    )


@pytest.mark.integration
def test_a_killed_process_leaves_what_is_whole_and_one_that_waits_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    data = loaded(folder)
    expected = epoch(data, Augmentation(crop=ResizedCrop()))

    first = start(data, tmp_path, stop_at=folder / paths(data)[17])
    wait_until(lambda: int(array(data).marks().sum()) >= 4)
    second = start(data, tmp_path)
    assert second.stdout is not None
    assert "waiting for another process" in second.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    told, errors = second.communicate()

    assert second.returncode == 0, errors
    assert "decoding 40 images once" in told
    assert torch.equal(epoch(data, Augmentation(crop=ResizedCrop())), expected)


@pytest.mark.integration
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor decodes one block at a time")
def test_processors_decode_blocks_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    data = loaded(folder)

    stopped = start(data, tmp_path, stop_at=folder / paths(data)[17])
    wait_until(lambda: int(array(data).marks().sum()) == 9)

    stopped.kill()
    stopped.communicate()
    assert array(data).marks().tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]


def no_large_files() -> None:
    """Let this process write files of 10 kB at most, as a quota or a full disk would."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


@pytest.mark.integration
@pytest.mark.parametrize("where", ["auto", "named"])
def test_a_disk_that_fills_up_is_said_and_only_a_named_folder_is_an_error(
    folder: Path, tmp_path: Path, where: str
) -> None:
    data = loaded(folder, "auto" if where == "auto" else str(tmp_path / "named"))

    process = start(data, tmp_path, no_large_files)
    told, errors = process.communicate()

    if where == "auto":
        assert process.returncode == 0
        assert "File too large; images are read from their files" in told
    else:
        assert "DataError: data.cache: " in errors
    assert data.decoded_views() == {}


@pytest.mark.parametrize("where", ["auto", "named"])
def test_too_little_room_is_said_before_anything_is_decoded(
    folder: Path, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "SPARE_BYTES", 2**60)
    data = loaded(folder, "auto" if where == "auto" else str(tmp_path / "named"))
    message = r"data\.cache: decoded images need [\d,]+ bytes in .*, which has [\d,]+ free"

    if where == "named":
        with pytest.raises(DataError, match=message):
            data.be_here()
    else:
        (line,) = said(data)
        assert line.endswith("images are read from their files")
    assert not array(data)._pixels_file.exists()
    assert isinstance(make_loader(data, Recipe(), ON_CPU), FileLoader)


def test_what_others_have_stored_already_needs_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = loaded(folder)
    cache = cache_of(data)
    with alone(cache.folder):  # as one that waited while another process stored all
        pass
    data.be_here()
    monkeypatch.setattr(image_cache, "SPARE_BYTES", 2**60)
    lines: list[str] = []

    cache._fill([array(data)], [data.selections["train"], data.selections["validation"]], lines.append)

    assert lines == []


def test_a_cache_that_cannot_be_written_leaves_the_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")

    (line,) = said(loaded(folder))

    assert line.startswith("data.cache: ")


def test_all_broken_images_are_named_and_mended_ones_complete_the_cache(folder: Path) -> None:
    data = loaded(folder)
    files = sorted(folder.rglob("*.jpg"))
    broken = [files[3], files[35]]
    whole = [file.read_bytes() for file in broken]
    for file in broken:
        truncate(file)

    with pytest.raises(
        DataError, match=rf"2 of 40 images cannot be decoded[^$]*{broken[0].name}[^$]*{broken[1].name}"
    ):
        data.be_here()

    for file, content in zip(broken, whole, strict=True):
        file.write_bytes(content)
    data.be_here()
    assert isinstance(make_loader(data, Recipe(), ON_CPU), ArrayLoader)


def test_a_test_part_is_read_from_its_files(tmp_path: Path) -> None:
    for number in range(24):
        path = (
            tmp_path / "set" / ("train", "val", "test")[number % 3] / ("a", "b")[number % 2] / f"{number}.png"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (number, 0, 0)).save(path)
    data = loaded(tmp_path / "set")
    data.be_here()
    loader = make_loader(data, Recipe(loop=Loop(workers=0)), ON_CPU)
    assert isinstance(loader, ArrayLoader)

    images = torch.cat([images for images, _ in loader.evaluate("test")]) * loader.std + loader.mean

    assert sorted(images[:, 0, 0, 0].round().int().tolist()) == list(range(2, 24, 3))


def test_one_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    waited: list[str] = []

    def fail() -> None:
        raise RuntimeError("this would wait")

    with alone(tmp_path / "here", lambda: waited.append("first")):
        pass
        with pytest.raises(RuntimeError), alone(tmp_path / "here", fail):
            pass
    assert waited == []


@pytest.mark.parametrize("sizes", [[5], [4, 4, 4, 4, 4, 2], []])
def test_prefetched_batches_are_those_of_the_array_in_order(sizes: list[int]) -> None:
    held = torch.arange(60, dtype=torch.uint8).view(20, 3)
    batches = [np.random.default_rng(size).permutation(20)[:size] for size in sizes]

    found = list(prefetched(held, batches, CPU))

    assert [each.tolist() for each in found] == [held[batch].tolist() for batch in batches]


def test_an_error_while_prefetching_is_raised_where_the_batch_is_asked_for() -> None:
    batches = prefetched(torch.zeros(4, 3), [np.array([0, 1]), np.array([7, 8])], CPU)
    assert len(next(batches)) == 2

    with pytest.raises(IndexError):
        next(batches)


def test_prefetching_ends_with_its_iterator() -> None:
    import threading

    before = threading.active_count()
    batches = prefetched(torch.zeros(4, 3), [np.array([0])] * 50, CPU)
    next(batches)

    batches.close()  # type: ignore[attr-defined]

    assert threading.active_count() == before


def test_it_is_said_how_many_blocks_are_decoded(folder: Path) -> None:
    units: set[str] = set()

    class Onlooker:
        def began(self, stage: Stage) -> None:
            units.add(stage.unit)

        def ended(self, stage: Stage) -> None:
            pass

    with shown_by(Onlooker()):
        said(loaded(folder))
    assert "block" in units  # of which several are "blocks"
