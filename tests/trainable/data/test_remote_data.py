"""Tests that data behind a URI are copied once a machine, and are the same as from the folder itself."""

from __future__ import annotations

import pickle
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.s3_server import S3Server
from tests.trainable.data_forms import write_csv
from tests.trainable.small_images import write_classes
from trainable.data import ArrayPart, DataSet, manifest, remote_data
from trainable.data.assembly import load
from trainable.data.remote_data import cached
from trainable.errors import DataError
from trainable.files.store import Store
from trainable.recipe.data import Data

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(s3: S3Server) -> str:
    return s3.uri


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_classes(tmp_path / "pets", {"cat": 12, "dog": 12})
    return tmp_path / "pets"


@pytest.fixture
def uri(
    folder: Path, bucket: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(bucket).at(request.function.__name__, "pets")
    for file in folder.rglob("*.*"):
        store.put(file, file.relative_to(folder).as_posix())
    return store.uri


def images(data: DataSet) -> np.ndarray:
    assert isinstance(data.train, ArrayPart)
    return data.train.images


def test_it_is_the_same_data_set_as_the_folder(folder: Path, uri: str) -> None:
    here, there = load(Data(path=str(folder))), load(Data(path=uri))
    np.testing.assert_array_equal(images(here), images(there))
    assert there.info == replace(here.info, path=uri), "a recipe names the URI, which means the same anywhere"


def test_it_is_copied_once_and_again_when_a_file_changes(folder: Path, uri: str) -> None:
    first = cached(uri)
    stamp = first.stat().st_mtime_ns
    assert (cached(uri), first.stat().st_mtime_ns) == (first, stamp)
    Store(uri).put(next(folder.rglob("*.*")), "dog/another.png")
    assert cached(uri) != first


def test_processes_that_want_it_at_once_copy_it_once(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, copied, get_all = list[Path](), list[Path](), Store.get_all

    def counting(store: Store, copy: Path) -> None:
        copied.append(copy)
        get_all(store, copy)

    monkeypatch.setattr(Store, "get_all", counting)
    threads = [threading.Thread(target=lambda: found.append(cached(uri))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(found), len(set(found)), len(copied)) == (4, 1, 1)
    assert sorted(each.name for each in found[0].parent.iterdir()) == [".lock", "pets"]


def test_files_that_are_read_while_training_are_copied_on_each_machine(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: DataSet = pickle.loads(pickle.dumps(load(Data(path=uri, in_memory=False))))
    assert data.copy is not None
    shutil.rmtree(data.copy.parent)
    data.be_here()
    assert len(list(data.copy.rglob("*.*"))) == 24
    shutil.rmtree(data.copy.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="XDG_CACHE_HOME"):
        data.be_here()


def test_a_slash_at_the_end_is_the_same_address_and_another_server_is_not(uri: str) -> None:
    address, _, query = uri.partition("?")
    assert cached(f"{address}/?{query}") == cached(uri)
    assert cached(uri.replace("endpoint_override=", "endpoint_override=http://")) != cached(uri)
    with pytest.raises(DataError, match=r"allow_bucket_creation;.*scheme, endpoint_override"):
        cached(f"{uri}&allow_bucket_creation=true")


def test_one_of_several_files_is_refused(bucket: str) -> None:
    with pytest.raises(DataError, match="give the URI of their folder"):
        load(Data(path=Store(bucket).at("mnist", "train-images-idx3-ubyte.gz").uri))


def test_what_a_killed_process_left_goes_with_the_next_copy(uri: str) -> None:
    copy = cached(uri)
    shutil.rmtree(copy)
    (copy.parent / ".coming-killed" / "pets").mkdir(parents=True)
    assert cached(uri) == copy
    assert sorted(each.name for each in copy.parent.iterdir()) == [".lock", "pets"]


def test_a_search_does_not_go_on_with_files_that_have_changed(folder: Path, uri: str) -> None:
    data = load(Data(path=uri, in_memory=False))
    assert data.copy is not None
    shutil.rmtree(data.copy)
    Store(uri).put(next(folder.rglob("*.*")), "dog/another.png")
    with pytest.raises(DataError, match=r"s3://.*changed"):
        data.be_here()


def test_a_disk_without_room_is_named_before_anything_is_copied(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_data, "SPARE_BYTES", 2**60)

    with pytest.raises(DataError, match=r"data\.path: s3://.*: a copy needs [\d,]+ bytes in .*free"):
        load(Data(path=uri))
    assert not list((tmp_path / "cache").rglob("*.png"))


def test_a_single_file_and_nothing_at_all(uri: str, bucket: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", a=np.arange(3))
    Store(bucket).put(tmp_path / "set.npz", "sets/set.npz")
    assert cached(Store(bucket).at("sets", "set.npz").uri).read_bytes() == (tmp_path / "set.npz").read_bytes()
    with pytest.raises(DataError, match=r"data\.path: s3://tunebook/nonsuch"):
        load(Data(path=Store(bucket).at("nonsuch").uri))


def listing(folder: Path, file: Path, address: str = "", query: str = "") -> Path:
    """Write a manifest of a folder's images, by paths relative to it or by URIs."""
    images = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*.*"))
    rows = [{"path": f"{address}{name}{query}", "label": name.partition("/")[0]} for name in images]
    return write_csv(file, rows)


def test_a_manifest_beside_its_images_in_a_store_is_the_same_data_set(
    folder: Path, uri: str, tmp_path: Path
) -> None:
    Store(uri).put(listing(folder, tmp_path / "images.csv"), "images.csv")
    Store(uri).put(folder / "cat" / "000.png", "unlisted.png")
    there = load(Data(path=Store(uri).at("images.csv").uri))
    assert there.info.digest == load(Data(path=str(folder))).info.digest
    assert there.info.path == Store(uri).at("images.csv").uri
    assert there.copy is not None
    assert len(list(there.copy.rglob("*.png"))) == 24, "only what is listed is copied"


@pytest.mark.parametrize("by_root", [True, False], ids=["root", "URIs in rows"])
def test_a_manifest_here_may_name_images_in_a_store(
    folder: Path, uri: str, tmp_path: Path, by_root: bool
) -> None:
    address, _, query = uri.partition("?")
    rows = ("", "") if by_root else (f"{address}/", f"?{query}")
    spec = Data(path=str(listing(folder, tmp_path / "images.csv", *rows)), root=uri if by_root else None)
    data: DataSet = pickle.loads(pickle.dumps(load(spec.model_copy(update={"in_memory": False}))))
    assert data.info.digest == load(Data(path=str(folder))).info.digest
    assert data.copy is not None
    shutil.rmtree(data.copy.parent)
    data.be_here()
    assert len(list(data.copy.rglob("*.png"))) == 24
    before = manifest.manifest_fingerprint(spec)
    Store(uri).put(folder / "cat" / "001.png", "cat/000.png")
    assert manifest.manifest_fingerprint(spec) != before
    shutil.rmtree(data.copy)
    with pytest.raises(DataError, match="files of the manifest have changed"):
        data.be_here()


def test_files_of_a_manifest_that_are_not_in_the_store_are_named(
    folder: Path, uri: str, tmp_path: Path
) -> None:
    Store(uri).remove("dog/003.png")
    with pytest.raises(DataError, match=r"1 files of the manifest are not there: s3://.*/dog/003\.png"):
        load(Data(path=str(listing(folder, tmp_path / "images.csv")), root=uri))
