"""A folder in an object store, or in any other file system that pyarrow knows, by its URI: s3://bucket/searches.

    s3://bucket/searches?region=eu-central-1&endpoint_override=http://127.0.0.1:9000

Credentials come from where the store's own tools look for them: environment, profile, the machine's role. A
URI holds none: it is written into studies and recipes, and printed.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from trainable.errors import UserError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

URI = re.compile(r"^(?P<place>[a-z][a-z0-9+]*://[^?]+?)/*(?P<query>\?.*)?$")
CREDENTIALS = re.compile(
    r"^s3://[^/?]*@|^[a-z0-9+]+://[^/?@]*:[^/?@]*@|[?&]([^=&]*(key|secret|token|password)[^=&]*|sig)=",
    re.IGNORECASE,
)
ATTEMPTS = 3
"""Of a request that fails: a store that does not answer is given up after 10 s, and not after 99 as with the
SDK's own 10 attempts."""
S3_OPTIONS = ("scheme", "endpoint_override", "region", "tls_ca_file_path")
"""What an s3:// URI may say behind its question mark."""
WHOLE_FILES = ("s3", "gcs")
"""Kinds of stores in which a file appears when its last byte is there; in others it is moved to its place."""


def is_uri(text: str) -> bool:
    """Whether a path names a store, and not a folder of this machine."""
    return URI.match(text) is not None


def without_credentials(text: str) -> str:
    """The path or URI itself. Raises ValueError, which does not repeat it, for a URI with credentials."""
    if is_uri(text) and CREDENTIALS.search(text):
        raise ValueError(
            "a URI must hold no credentials, since it is written into files and printed; give them in the "
            "environment (AWS_ACCESS_KEY_ID, ...), in the store's profile, or by the machine's role"
        )
    return text


def name_in(place: str) -> str:
    """The last part of a path or a URI."""
    return Store(place).name if is_uri(place) else Path(place).name


class StoreError(UserError):
    """A store that cannot be reached, or that refuses."""


@dataclass(frozen=True)
class Store:
    """Files below a URI. Cheap to pickle and to make: nothing is asked for until something is.

    A file appears under its name whole or not at all. Every method raises StoreError where the store cannot
    be reached or refuses, after so many `attempts` where it is S3.
    """

    uri: str
    attempts: int = field(default=ATTEMPTS, compare=False)

    def __post_init__(self) -> None:
        try:
            without_credentials(self.uri)
        except ValueError as error:
            raise StoreError(str(error)) from None

    def at(self, *names: str) -> Store:
        """A folder below this one."""
        place, query = self._parts()
        return replace(self, uri="/".join([place, *names]) + query)

    @property
    def parent(self) -> Store:
        """The folder above this one."""
        place, query = self._parts()
        above = place.rpartition("/")[0]
        if not is_uri(above):
            raise StoreError(f"{self}: expected a folder in it, as {place}/folder")
        return replace(self, uri=above + query)

    @property
    def name(self) -> str:
        """The last part of the URI's path."""
        return str(self.at()).rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri.partition("?")[0]

    def names(self) -> list[str]:
        """What stands directly below, in order; nothing where the folder is not there."""
        return sorted(each.base_name for each in self._below(recursive=False))

    def files(self) -> Mapping[str, tuple[int, float]]:
        """The size in bytes and the time of last change of every file below, by its relative path.

        Where a file stands here itself, its path is `.`.
        """
        import pyarrow.fs as fs

        with self._told(""):
            here = self._files.get_file_info(self._path)
        if here.type == fs.FileType.File:
            return {".": (here.size, here.mtime_ns / 1e9)}
        return {
            os.path.relpath(each.path, self._path): (each.size, each.mtime_ns / 1e9)
            for each in self._below(recursive=True)
            if each.is_file
        }

    def get_all(self, copy: Path) -> None:
        """Copy everything below to a folder of this machine, or the file that stands here itself."""
        import pyarrow.fs as fs

        copy.parent.mkdir(parents=True, exist_ok=True)
        with self._told(""):
            fs.copy_files(self._path, str(copy), self._files, fs.LocalFileSystem())

    def read(self, name: str) -> bytes | None:
        """A file's content; None where there is none."""
        with self._told(name):
            try:
                with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    def age(self, name: str) -> float | None:
        """Seconds since a file was written, by the store's clock and this machine's; None where it is not."""
        import pyarrow.fs as fs

        with self._told(name):
            found = self._files.get_file_info(f"{self._path}/{name}")
        return time.time() - found.mtime_ns / 1e9 if found.type == fs.FileType.File else None

    def write(self, name: str, content: bytes) -> None:
        """Put a small file there."""
        with (
            self._told(name),
            self._placed(name) as path,
            self._files.open_output_stream(path) as stream,
        ):
            stream.write(content)

    def put(self, file: Path, name: str) -> None:
        """Copy a file of this machine there."""
        import pyarrow.fs as fs

        with self._told(name), self._placed(name) as path:
            fs.copy_files(str(file), path, fs.LocalFileSystem(), self._files)

    def get(self, name: str, file: Path) -> None:
        """Copy a file from there, under a name of its own until it is whole."""
        import pyarrow.fs as fs

        file.parent.mkdir(parents=True, exist_ok=True)
        with self._told(name), tempfile.TemporaryDirectory(dir=file.parent, prefix=".getting-") as place:
            coming = Path(place) / "file"
            fs.copy_files(f"{self._path}/{name}", str(coming), self._files, fs.LocalFileSystem())
            coming.replace(file)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where it is not there."""
        import pyarrow.fs as fs

        path = f"{self._path}/{name}"
        with self._told(name):
            match self._files.get_file_info(path).type:
                case fs.FileType.Directory:
                    self._files.delete_dir(path)
                case fs.FileType.File:
                    self._files.delete_file(path)

    def _below(self, *, recursive: bool) -> list[FileInfo]:
        import pyarrow.fs as fs

        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=recursive)
        with self._told(""):
            found: list[FileInfo] = self._files.get_file_info(selector)
            return found

    @contextmanager
    def _placed(self, name: str) -> Iterator[str]:
        """The path to write a file's content to, for the block; afterwards it stands under its name."""
        path = f"{self._path}/{name}"
        if self._files.type_name in WHOLE_FILES:
            yield path  # folders are parts of names there; marks of them would cost requests
            return
        folder, _, last = path.rpartition("/")
        self._files.create_dir(folder, recursive=True)
        coming = f"{folder}/.{last}-{secrets.token_hex(4)}"
        yield coming
        self._files.move(coming, path)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (OSError, ArrowException) as error:
            raise StoreError(f"{self.at(name) if name else self}: {_one_line(error)}") from None

    @property
    def _files(self) -> FileSystem:
        return self._opened[0]

    @property
    def _path(self) -> str:
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        """The file system behind the URI, and the path in it."""
        import pyarrow as arrow
        import pyarrow.fs as fs

        try:
            files, path = fs.FileSystem.from_uri(self.at().uri)
            if files.type_name == "s3":
                files = self._s3(files.region)
        except (arrow.ArrowException, OSError) as error:
            raise StoreError(f"{self}: {_one_line(error)}") from None
        return files, path

    def _s3(self, region: str) -> FileSystem:
        """As `from_uri` makes it, which knows no way to say how often to try."""
        import pyarrow.fs as fs

        options = {name: values[0] for name, values in parse_qs(self.uri.partition("?")[2]).items()}
        if unknown := sorted(options.keys() - set(S3_OPTIONS)):
            raise StoreError(f"{self}: unknown {', '.join(unknown)}; known are {', '.join(S3_OPTIONS)}")
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=self.attempts)
        # what is opened late is written in one request where it is small, and not in three
        return fs.S3FileSystem(
            **{**options, "region": region}, retry_strategy=retries, allow_delayed_open=True
        )

    def _parts(self) -> tuple[str, str]:
        """The URI before its question mark, without a slash at its end, and from there on."""
        match = URI.match(self.uri)
        if match is None:
            raise StoreError(f"{self.uri}: expected a URI, as s3://bucket/folder")
        return match["place"], match["query"] or ""

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "attempts": self.attempts}  # what was opened is opened again


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
