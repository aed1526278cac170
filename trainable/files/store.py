"""Reads and writes a folder in an object store, or in another file system that pyarrow knows, by its URI.

    s3://bucket/searches?region=eu-central-1&endpoint_override=http://127.0.0.1:9000

A URI may be written with or without escapes: `s3://bucket/a%20b` and `s3://bucket/a b` are one; only a
question mark in a name must be `%3F`, and a `%` before two hexadecimal digits `%25`.

Credentials come from where the store's own tools look for them: environment, profile, the machine's role. A
URI has none: it is written into studies and recipes, and printed.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote

from trainable.errors import UserError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

URI = re.compile(r"^(?P<path>[a-z][a-z0-9+]*://[^?]+?)/*(?P<query>\?.*)?$")
CREDENTIALS = re.compile(
    r"^s3://[^/?]*@|^[a-z0-9+]+://[^/?@]*:[^/?@]*@|[?&]([^=&]*(key|secret|token|password)[^=&]*|sig)=",
    re.IGNORECASE,
)
# A failing request is tried so often: a store that does not answer is given up after 10 s, and not after 99
# as with the SDK's own 10 attempts
ATTEMPTS = 3
# These characters stand for themselves in the path of a URI (RFC 3986, section 3.3), beside letters, digits
# and `-._~`
UNESCAPED = "/:@!$&'()*+,;="
# An s3:// URI may have these options after its question mark
S3_OPTIONS = ("scheme", "endpoint_override", "region", "tls_ca_file_path")
# In these kinds of stores a file appears when its last byte is there; in others it is renamed when it is
# whole
WHOLE_FILES = ("s3", "gcs")


def is_uri(text: str) -> bool:
    """Return whether a path names a store, and not a folder of this machine."""
    return URI.match(text) is not None


def escaped(uri: str) -> str:
    """Return the URI with escapes for all characters that need them, whichever were escaped before."""
    path, mark, query = uri.partition("?")
    start, slashes, rest = path.partition("://")
    host, slash, below = rest.partition("/")
    return start + slashes + host + slash + _quoted(_unquoted(below)) + mark + query


def unescaped(uri: str) -> str:
    """Return the URI with its characters themselves in place of escapes, for people and to order by."""
    path, mark, query = uri.partition("?")
    return _unquoted(path) + mark + query


def _quoted(name: str) -> str:
    return quote(name, safe=UNESCAPED, errors="surrogateescape")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def without_credentials(text: str) -> str:
    """Return the path or URI unchanged.
    Raises ValueError, which does not repeat it, for a URI with credentials."""
    if is_uri(text) and CREDENTIALS.search(text):
        raise ValueError(
            "a URI must hold no credentials, since it is written into files and printed; give them in the "
            "environment (AWS_ACCESS_KEY_ID, ...), in the store's profile, or by the machine's role"
        )
    return text


def name_in(path: str) -> str:
    """Return the last part of a path or a URI."""
    return Store(path).name if is_uri(path) else Path(path).name


class StoreError(UserError):
    """A store cannot be reached, or that it refuses."""

    section = "an-object-store"


@dataclass(frozen=True)
class Store:
    """Files below a URI, read and written. It is cheap to pickle and to make: it sends no request until it
    must.

    A file appears under its name whole or not at all. Every method raises StoreError if the store cannot be
    reached or refuses, for S3 after so many `attempts`.
    """

    uri: str
    attempts: int = field(default=ATTEMPTS, compare=False)

    def __post_init__(self) -> None:
        try:
            without_credentials(self.uri)
        except ValueError as error:
            raise StoreError(str(error)) from None

    def at(self, *names: str) -> Store:
        """Return a folder or file below this one, by its names, which are not escaped."""
        path, query = self._parts()
        return replace(self, uri="/".join([path, *map(_quoted, names)]) + query)

    @property
    def parent(self) -> Store:
        """The folder above this one."""
        path, query = self._parts()
        above = path.rpartition("/")[0]
        if not is_uri(above):
            raise StoreError(f"{self}: expected a folder in it, such as {path}/folder")
        return replace(self, uri=above + query)

    @property
    def name(self) -> str:
        """The last part of the URI's path, without escapes."""
        return _unquoted(str(self.at()).rpartition("/")[2])

    def __str__(self) -> str:
        return self.uri.partition("?")[0]

    def names(self) -> list[str]:
        """Return the names directly below, in order; none if the folder does not exist."""
        return sorted(each.base_name for each in self._below(recursive=False))

    def files(self) -> Mapping[str, tuple[int, float]]:
        """Return the size in bytes and the time of last change of every file below, by its relative path.

        If the URI is that of a file, the path is `.`.
        """
        with self._errors_named(""):
            here = self._files.get_file_info(self._path)
        if here.is_file:
            return {".": (here.size, here.mtime_ns / 1e9)}
        return {
            os.path.relpath(each.path, self._path): (each.size, each.mtime_ns / 1e9)
            for each in self._below(recursive=True)
            if each.is_file
        }

    def sizes_and_times(self, names: Sequence[str]) -> Mapping[str, tuple[int, float]]:
        """Return the size in bytes and the time of last change of those named files that exist."""
        with self._errors_named(""):
            found = self._files.get_file_info([f"{self._path}/{name}" for name in names])
        return {
            name: (each.size, each.mtime_ns / 1e9)
            for name, each in zip(names, found, strict=True)
            if each.is_file
        }

    def get_all(self, copy: Path) -> None:
        """Copy everything below to a folder of this machine,
        or copies the file if the URI is that of a file."""
        import pyarrow.fs as fs

        copy.parent.mkdir(parents=True, exist_ok=True)
        with self._errors_named(""):
            fs.copy_files(self._path, str(copy), self._files, fs.LocalFileSystem())

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is no such file."""
        with self._errors_named(name):
            try:
                with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    def age(self, name: str) -> float | None:
        """Return seconds since a file was written, by the store's clock and this machine's;
        None if there is no file."""
        with self._errors_named(name):
            found = self._files.get_file_info(f"{self._path}/{name}")
        return time.time() - found.mtime_ns / 1e9 if found.is_file else None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file to the store."""
        with (
            self._errors_named(name),
            self._whole_file(name) as path,
            self._files.open_output_stream(path) as stream,
        ):
            stream.write(content)

    def put(self, file: Path, name: str) -> None:
        """Copy a file of this machine to the store."""
        import pyarrow.fs as fs

        with self._errors_named(name), self._whole_file(name) as path:
            fs.copy_files(str(file), path, fs.LocalFileSystem(), self._files)

    def get(self, name: str, file: Path) -> None:
        """Copy a file from the store, under another name until it is whole."""
        import pyarrow.fs as fs

        file.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(dir=file.parent, prefix=".getting-")
        with self._errors_named(name), beside as folder:
            coming = Path(folder) / "file"
            fs.copy_files(f"{self._path}/{name}", str(coming), self._files, fs.LocalFileSystem())
            coming.replace(file)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; does nothing if it does not exist."""
        import pyarrow.fs as fs

        path = f"{self._path}/{name}"
        with self._errors_named(name):
            match self._files.get_file_info(path).type:
                case fs.FileType.Directory:
                    self._files.delete_dir(path)
                case fs.FileType.File:
                    self._files.delete_file(path)

    def _below(self, *, recursive: bool) -> list[FileInfo]:
        import pyarrow.fs as fs

        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=recursive)
        with self._errors_named(""):
            found: list[FileInfo] = self._files.get_file_info(selector)
            return found

    @contextmanager
    def _whole_file(self, name: str) -> Iterator[str]:
        """Yield the path to write a file's content to, and afterwards gives the file its name."""
        path = f"{self._path}/{name}"
        if self._files.type_name in WHOLE_FILES:
            yield path  # folders are parts of names there; markers for them would cost requests
            return
        folder, _, last = path.rpartition("/")
        self._files.create_dir(folder, recursive=True)
        coming = f"{folder}/.{last}-{secrets.token_hex(4)}"
        yield coming
        self._files.move(coming, path)

    @contextmanager
    def _errors_named(self, name: str) -> Iterator[None]:
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
            files, path = fs.FileSystem.from_uri(escaped(self.at().uri))
            if files.type_name == "s3":
                files = self._s3(files.region)
        except (arrow.ArrowException, OSError) as error:
            raise StoreError(f"{self}: {_one_line(error)}") from None
        return files, path

    def _s3(self, region: str) -> FileSystem:
        """Make S3's file system as `from_uri` does, which cannot say how often to try."""
        import pyarrow.fs as fs

        options = {name: values[0] for name, values in parse_qs(self.uri.partition("?")[2]).items()}
        if unknown := sorted(options.keys() - set(S3_OPTIONS)):
            raise StoreError(f"{self}: unknown {', '.join(unknown)}; known are {', '.join(S3_OPTIONS)}")
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=self.attempts)
        # a small file that is opened late is written in one request, and not in three
        return fs.S3FileSystem(
            **{**options, "region": region}, retry_strategy=retries, allow_delayed_open=True
        )

    def _parts(self) -> tuple[str, str]:
        """Return the URI before its question mark, without a slash at its end,
        and the rest from there on."""
        match = URI.match(self.uri)
        if match is None:
            raise StoreError(f"{self.uri}: expected a URI, such as s3://bucket/folder")
        return match["path"], match["query"] or ""

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "attempts": self.attempts}  # the file system is opened again


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
