"""Tests where MLflow stores the runs: the URI becomes absolute, or is refused with a way out."""

from pathlib import Path

import pytest

from search.followers.uri import (
    artifact_location,
    database_file,
    file_system,
    resolve_tracking_uri,
    without_password,
)
from trainable.errors import UserError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mounts(folder: Path, *lines: str) -> Path:
    path = folder / "mounts"
    path.write_text("\n".join(["/dev/root / ext4 rw 0 0", *lines]) + "\n")
    return path


def test_without_a_uri_it_is_a_database_beside_the_searches(here: Path) -> None:
    uri = resolve_tracking_uri(None, here / "searches", {})
    assert uri == f"sqlite:///{here}/searches/mlflow.db"
    assert uri.startswith("sqlite:////"), "absolute"


def test_a_storage_folder_that_is_relative_is_made_absolute(here: Path) -> None:
    assert resolve_tracking_uri(None, "searches", {}) == f"sqlite:///{here}/searches/mlflow.db"


def test_the_environment_is_asked_when_nothing_is_written(here: Path) -> None:
    env = {"MLFLOW_TRACKING_URI": "http://tracker:5000"}
    assert resolve_tracking_uri(None, here, env) == "http://tracker:5000"
    assert resolve_tracking_uri("https://other/x", here, env) == "https://other/x"
    assert resolve_tracking_uri(None, here, {"MLFLOW_TRACKING_URI": ""}).startswith("sqlite:////")


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("sqlite:///runs.db", "sqlite:///{here}/runs.db"),
        ("sqlite:///sub/runs.db?timeout=5", "sqlite:///{here}/sub/runs.db?timeout=5"),
        ("sqlite+pysqlite:///runs.db", "sqlite+pysqlite:///{here}/runs.db"),
        ("sqlite:////else/where.db", "sqlite:////else/where.db"),
    ],
)
def test_a_relative_database_lies_in_the_folder_where_it_was_written(
    here: Path, written: str, resolved: str
) -> None:
    assert resolve_tracking_uri(written, here, {}) == resolved.format(here=here)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:5000",
        "https://user:word@host/mlflow",
        "postgresql://me@host/runs",
        "mysql+pymysql://h/d",
        "databricks",
        "databricks://profile",
    ],
)
def test_servers_stay_as_they_are(here: Path, uri: str) -> None:
    assert resolve_tracking_uri(uri, here, {}) == uri


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "/data/mlruns", "file:///data/mlruns", "file:mlruns"])
def test_plain_folders_are_refused_with_what_to_use_instead(here: Path, uri: str) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri: .* is a folder.*sqlite:///PATH/mlflow\.db.*http://"):
        resolve_tracking_uri(uri, here, {})


def test_the_error_names_the_variable_where_that_is_the_culprit(here: Path) -> None:
    with pytest.raises(UserError, match=r"^MLFLOW_TRACKING_URI: "):
        resolve_tracking_uri(None, here, {"MLFLOW_TRACKING_URI": "./mlruns"})


def test_object_stores_keep_no_runs(here: Path) -> None:
    with pytest.raises(UserError, match="stores files, but no runs"):
        resolve_tracking_uri("s3://bucket/runs", here, {})


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:runs.db"])
def test_a_database_needs_a_file(here: Path, uri: str) -> None:
    with pytest.raises(UserError, match="sqlite:///FILE"):
        resolve_tracking_uri(uri, here, {})


@pytest.mark.parametrize(
    ("uri", "storage"), [("sqlite:///s3://bucket/runs.db", "/tmp"), (None, "s3://bucket/searches")]
)
def test_a_database_on_an_object_store_is_refused(here: Path, uri: str | None, storage: str) -> None:
    with pytest.raises(UserError, match=r"object store.*--tracking-uri"):
        resolve_tracking_uri(uri, storage, {})


def test_a_database_on_nfs_is_refused_and_a_server_is_not(here: Path) -> None:
    table = mounts(here, "fs:/home /mnt/shared nfs4 rw 0 0", "/dev/sdb /mnt/shared/local ext4 rw 0 0")
    with pytest.raises(UserError, match=r"/mnt/shared/searches/mlflow\.db, which lies on nfs4.*http://"):
        resolve_tracking_uri(None, "/mnt/shared/searches", {}, table)
    assert resolve_tracking_uri(None, "/mnt/shared/local/s", {}, table).endswith("/local/s/mlflow.db")
    assert resolve_tracking_uri(None, "/mnt/sharedness", {}, table).endswith("/mnt/sharedness/mlflow.db")
    assert resolve_tracking_uri("http://tracker", "/mnt/shared/searches", {}, table) == "http://tracker"


def test_the_innermost_and_latest_mount_counts(here: Path) -> None:
    table = mounts(here, "a /mnt/with\\040space nfs rw 0 0", "b /mnt/x nfs rw 0 0", "c /mnt/x xfs rw 0 0")
    assert file_system(Path("/mnt/with space/runs.db"), table) == "nfs"
    assert file_system(Path("/mnt/x/y"), table) == "xfs"
    assert file_system(Path("/elsewhere"), table) == "ext4"
    assert file_system(Path("/elsewhere"), here / "missing") == ""


def test_artifacts_lie_beside_the_database_and_elsewhere_where_the_server_says(here: Path) -> None:
    assert artifact_location(f"sqlite:///{here}/a b/runs.db", "/s") == f"file://{here}/a%20b/mlflow-artifacts"
    assert artifact_location("postgresql://host/runs", "/s") == "file:///s/mlflow-artifacts"
    assert artifact_location("http://host", "/s") is None


def test_only_sqlite_has_a_database_file() -> None:
    assert database_file("sqlite:////a/b.db?timeout=3") == Path("/a/b.db")
    assert database_file("postgresql://host/b.db") is None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://ann:secret@db:5432/runs", "postgresql://ann:***@db:5432/runs"),
        ("postgresql://ann:se/cr@et@db/runs", "postgresql://ann:***@db/runs"),
        ("postgresql://db/runs?sslpassword=secret&a=1", "postgresql://db/runs?sslpassword=***&a=1"),
        (
            "mssql+pyodbc:///?odbc_connect=PWD%3Dsecret%3BA%3D1",
            "mssql+pyodbc:///?odbc_connect=PWD%3D***%3BA%3D1",
        ),
        ("http://ann:secret@host:5000", "http://ann:***@host:5000"),
        ("http://host:5000", "http://host:5000"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ],
)
def test_people_are_not_shown_a_password(uri: str, shown: str) -> None:
    assert without_password(uri) == shown


def test_a_scheme_that_mlflow_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"MLflow knows no foo://"):
        resolve_tracking_uri("foo://bar", tmp_path, {})
