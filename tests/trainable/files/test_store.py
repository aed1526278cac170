"""Tests that a folder in an object store behaves the same whether it is S3's or a disk's."""

from __future__ import annotations

import pickle
import socket
import time
from pathlib import Path

import pytest

from search.study import Study
from tests.s3_server import KEYS, S3Server
from trainable.errors import UserError
from trainable.files.store import Store, StoreError, escaped, is_uri, without_credentials


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.integration), "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return Store((tmp_path / "store").as_uri())
    server: S3Server = request.getfixturevalue("s3")
    return Store(server.uri).at(request.node.name.replace("[", "-").replace("]", ""))


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("s3://b", True),
        ("gs://b/c?x=y", True),
        ("file:///tmp", True),
        ("/tmp", False),
        ("a", False),
        ("C:/x", False),
    ],
)
def test_a_uri_is_distinguished_from_a_path(text: str, uri: bool) -> None:
    assert is_uri(text) == uri


def test_folders_below_keep_the_query() -> None:
    assert Store("s3://b/c/?region=x").at("d", "e").uri == "s3://b/c/d/e?region=x"
    assert str(Store("s3://b/c?region=x")) == "s3://b/c"
    assert Store("s3://b/c/d/?region=x").parent.uri == "s3://b/c?region=x"
    assert Store("s3://b/c/d/?region=x").name == "d"


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("s3://b/my photo #1.jpg?region=x", "s3://b/my%20photo%20%231.jpg?region=x"),
        ("s3://b/my%20photo%20%231.jpg", "s3://b/my%20photo%20%231.jpg"),
        ("s3://b/100%.jpg", "s3://b/100%25.jpg"),
        ("file:///é/%C3%A9%3F.jpg", "file:///%C3%A9/%C3%A9%3F.jpg"),
        ("gs://b/date=2026-11-23/a,b+c@(1).jpg", "gs://b/date=2026-11-23/a,b+c@(1).jpg"),
        ("s3://b", "s3://b"),
    ],
)
def test_a_uri_is_one_with_or_without_its_escapes(written: str, uri: str) -> None:
    assert escaped(written) == escaped(uri) == uri


@pytest.mark.parametrize("name", ["my photo #1?.jpg", "100%.jpg", "%20.jpg", "\u00e9\u82b1.jpg"])
def test_names_that_a_uri_must_escape_are_found_by_it(store: Store, tmp_path: Path, name: str) -> None:
    store.write(f"of mine/{name}", b"petals")
    here = store.at("of mine", name)
    assert here.name == name
    assert here.parent.names() == [name]
    assert list(here.files()) == ["."]
    here.parent.get(name, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"petals"


@pytest.mark.parametrize(
    "uri",
    [
        "s3://KEY:HUSH@b/c",
        "s3://HUSH@b/c",
        "abfss://files:HUSH@account.dfs.core.windows.net/c",
        "gs://b/c?access_token=HUSH",
        "s3://b/c?region=x&secret_key=HUSH",
        "abfss://files@account.dfs.core.windows.net/c?sv=1&sig=HUSH",
    ],
)
def test_credentials_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ValueError, match="must hold no credentials") as caught:
        without_credentials(uri)
    assert "HUSH" not in str(caught.value)
    with pytest.raises(StoreError, match="must hold no credentials"):
        Store(uri)
    for tree in ({"data": {"path": uri}}, {"data": {"path": "digits"}, "storage": uri}):
        with pytest.raises(UserError, match=r"(data\.path|storage): a URI must hold") as refused:
            Study.from_tree(tree)
        assert "HUSH" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["s3://b/c?region=x", "abfss://files@account.dfs.core.windows.net/c", "/a:b@c/d?token=x", "a@b"]
)
def test_what_holds_none_stays_as_it_is(text: str) -> None:
    assert without_credentials(text) == text


def test_what_is_put_there_comes_back(store: Store, tmp_path: Path) -> None:
    assert (store.names(), store.files(), store.read("a")) == ([], {}, None)
    (tmp_path / "big").write_bytes(bytes(range(256)) * 50_000)
    store.put(tmp_path / "big", "one/two/big")
    store.write("small", b"few")
    assert store.names() == ["one", "small"]
    assert {name: size for name, (size, _) in store.files().items()} == {
        "one/two/big": 12_800_000,
        "small": 3,
    }
    assert store.at("one").names() == ["two"]
    assert store.read("small") == b"few"
    store.get("one/two/big", tmp_path / "new" / "back")
    assert (tmp_path / "new" / "back").read_bytes() == (tmp_path / "big").read_bytes()
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["back"], "nothing half copied is left"


def test_a_file_is_replaced_and_removed_with_its_folder(store: Store) -> None:
    for content in (b"first", b"second"):
        store.write("folder/file", content)
    assert store.read("folder/file") == b"second"
    store.write("folder/deeper/file", b"")
    store.remove("folder")
    store.remove("folder")
    assert store.files() == {}


def test_it_travels_to_other_processes(store: Store) -> None:
    store.write("a", b"b")
    again: Store = pickle.loads(pickle.dumps(store))
    assert (again, again.read("a")) == (store, b"b")


@pytest.mark.parametrize("text", ["s3://b//c?region=x", "s3://?region=x", "/a"])
def test_what_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        Store(text).names()
    with pytest.raises(StoreError, match="s3://b/folder"):
        Store("s3://b?region=x").parent.names()


@pytest.mark.integration
def test_a_store_that_cannot_be_reached_is_an_error_with_its_name(s3: S3Server) -> None:
    with pytest.raises(StoreError, match=r"^s3://nonsuch/a: .*(NO_SUCH_BUCKET|does not exist)"):
        Store(s3.uri.replace("tunebook", "nonsuch")).write("a", b"")
    with pytest.raises(StoreError, match=r"^nonsuch://place: .*[Uu]nrecognized filesystem"):
        Store("nonsuch://place").names()


@pytest.mark.integration
def test_a_store_that_is_silent_is_abandoned_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        store = Store(f"s3://b/c?scheme=http&endpoint_override=127.0.0.1:{port}&region=x", attempts=1)
        began = time.monotonic()
        with pytest.raises(StoreError, match="NETWORK_CONNECTION"):
            store.write("a", b"")
        assert time.monotonic() - began < 30.0, "from_uri's own patience is 99 s"


def test_a_disk_never_shows_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store((tmp_path / "store").as_uri())
    store.write("a", b"whole")
    monkeypatch.setattr("pyarrow.fs.copy_files", lambda *a, **b: (_ for _ in ()).throw(OSError("cut off")))
    with pytest.raises(StoreError, match="cut off"):
        store.put(tmp_path / "big", "a")
    assert store.read("a") == b"whole"
