"""Where MLflow stores the runs: a URI, made absolute once, or refused with advice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from search.study import Study
from trainable.errors import UserError
from trainable.files.paths import without_tilde
from trainable.files.regular import NotRegular, check_no_link
from trainable.files.store import Store, is_uri

URI_VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE_FILE = "mlflow.db"
ARTIFACT_FOLDER = "mlflow-artifacts"
MOUNTS = Path("/proc/mounts")

# prefixes of types whose locks SQLite cannot rely on (sqlite.org/howtocorrupt.html, section 2.1)
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb3", "fuse.sshfs")
# schemes of stores for files: MLflow can store artifacts there, but no runs
OBJECT_STORES = ("s3", "gs", "abfss", "wasbs", "hdfs", "dbfs", "r2", "b2", "ftp", "sftp")

# schemes, without a driver's name, of the stores that MLflow can use for runs beside SQLite
STORES = ("http", "https", "postgresql", "mysql", "mssql", "databricks")

_SQLITE = re.compile(r"^(?P<head>sqlite(\+\w+)?:///)(?P<path>[^?]*)(?P<query>(\?.*)?)$")
_SCHEME = re.compile(r"^(?P<scheme>[a-z][a-z0-9+.-]*):")
_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):\S*@")
# parameters of a database's URI; those of ODBC are written with percent signs
_SECRET = re.compile(r"(?i)((?:password|pwd)(?:=|%3d))(?:(?!%3b)[^&;\s])*")


def resolve_tracking_uri(
    uri: str | None, storage: str | Path, env: Mapping[str, str], mounts: Path = MOUNTS
) -> str:
    """Return a tracking URI that means the same from any folder: `uri`, $MLFLOW_TRACKING_URI, or SQLite.

    The default is `mlflow.db` in `storage`, the folder that holds the searches. Servers' addresses stay as
    they are. Raises UserError for plain folders and object stores, where MLflow stores no runs, and for
    SQLite where its locks do not work.
    """
    if uri:
        return _absolute(uri, "tracking.uri", mounts)
    if env.get(URI_VARIABLE):
        return _absolute(env[URI_VARIABLE], URI_VARIABLE, mounts)
    return _absolute(f"sqlite:///{storage}/{DATABASE_FILE}", "tracking.uri", mounts)


def database_file(uri: str) -> Path | None:
    """Return the file behind a SQLite URI; None for any other."""
    match = _SQLITE.match(uri)
    return Path(match["path"]) if match else None


def without_password(uri: str) -> str:
    """Return a URI, or a text with URIs, with the passwords left out, for people to read.

    A database's password may hold a slash, so a path with an @ in it, after a port, is left out as well.
    """
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", uri))


def readable(study: Study) -> Study:
    """Return the study as others may see it: without the password of its tracking URI."""
    uri = without_password(str(study.tracking.uri))
    return study.model_copy(update={"tracking": study.tracking.model_copy(update={"uri": uri})})


def artifact_location(uri: str, storage: str | Path) -> str | None:
    """Return where a new experiment stores its files; None where the server decides.

    Without this, MLflow would put them into a folder of whatever directory the command was called from.
    """
    if (file := database_file(uri)) is not None:
        return (file.parent / ARTIFACT_FOLDER).as_uri()
    if re.match(r"^(postgresql|mysql|mssql)(\+\w+)?:", uri):
        if is_uri(str(storage)):
            return str(Store(str(storage)).at(ARTIFACT_FOLDER))
        return (Path(storage).absolute() / ARTIFACT_FOLDER).as_uri()
    return None


def check_locks_work(path: Path, where: str, mounts: Path = MOUNTS) -> None:
    """Raise UserError where SQLite at `path` would be corrupted or is a link; `where` names what a person
    wrote."""
    refuse_link(path)
    kind = "an object store" if re.match(r"^/?[a-z0-9]+:/", str(path)) else file_system(path, mounts)
    if kind == "an object store" or kind.startswith(NETWORK_FILE_SYSTEMS):
        raise UserError(
            f"{where}: SQLite cannot be used at {path}, which lies on {kind}: its locks do not work there. "
            "Give a database file on a local disk (--tracking-uri sqlite:////local/mlflow.db of `tunebook "
            "search`), a server (`mlflow server`, then --tracking-uri http://HOST:5000), or postgresql://"
        )


def refuse_link(path: Path) -> None:
    """Raise UserError for a database's file that is a link, or no file: SQLite would write through it."""
    try:
        check_no_link(path)
    except NotRegular as error:
        raise UserError(
            f"{path}: {error}; remove it, or name the file that it leads to (--tracking-uri sqlite:////PATH "
            "of `tunebook search`)"
        ) from None


def file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that a path lies on, such as `ext4`; empty where it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    path_on_disk = path.resolve()
    best, kind = Path(), ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        # the kernel writes a space in a path as \040; of equal mount points the later one hides the earlier
        mount = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        if path_on_disk.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, found
    return kind


def _absolute(uri: str, where: str, mounts: Path) -> str:
    shown = repr(without_password(uri))
    if match := _SQLITE.match(uri):
        return _absolute_sqlite(match, where, mounts)
    scheme = _SCHEME.match(uri)
    kind = scheme["scheme"] if scheme else "databricks" if uri == "databricks" else "file"
    if kind.startswith("sqlite"):
        raise UserError(f"{where}: expected sqlite:///FILE, got {shown}; SQLite in memory would be lost")
    if kind in OBJECT_STORES:
        raise UserError(f"{where}: {shown} stores files, but no runs; {_INSTEAD}")
    if kind == "file":
        raise UserError(
            f"{where}: {shown} is a folder, and MLflow 3 stores no runs in plain folders; {_INSTEAD}"
        )
    if kind.partition("+")[0] not in STORES:
        raise UserError(f"{where}: MLflow knows no {kind}://; {_INSTEAD}")
    return uri


def _absolute_sqlite(match: re.Match[str], where: str, mounts: Path) -> str:
    text, shown = match["path"], repr(without_password(match[0]))
    if text in ("", ":memory:"):
        raise UserError(f"{where}: expected sqlite:///FILE, got {shown}; SQLite in memory would be lost")
    if re.match(r"^/?[a-z0-9]+:/", text):
        check_locks_work(Path(text), where, mounts)
    path = without_tilde(text).absolute()
    check_locks_work(path, where, mounts)
    return f"{match['head']}{path}{match['query']}"


_INSTEAD = "use a database file (sqlite:///PATH/mlflow.db), a server (http://HOST:5000) or postgresql://USER@HOST/NAME"
