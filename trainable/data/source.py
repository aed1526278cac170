"""Defines sources of images: a set of labelled images, each opened when it is needed."""

from __future__ import annotations

import abc
import hashlib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.files.paths import text_of
from trainable.files.regular import check_regular, read_regular
from trainable.recipe.data import Split as Split

if TYPE_CHECKING:  # who only reads what is known of images needs no Pillow
    from PIL import Image

Pixels = NDArray[np.uint8]
Channels = Literal[1, 3]
Flip = Literal["horizontal", "vertical"]

LEFT_OUT = -1  # the label of an image that is in no part

ASKING_THREADS = 16
ASKED_AT_ONCE = 256  # a thread asks for the sizes of so many files at a time


# Pillow may read these formats, whatever a file's ending says. Of its others some start a program, as EPS
# starts Ghostscript. TGA, which has no mark at its beginning, is tried last.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA")
TILEWIDTH, TILELENGTH = 322, 323  # tags of TIFF 6.0, section 15
# A blank page of paper, scanned with 600 dots an inch, has fewer, and perhaps a few hundred bytes
MANY_PIXELS = 50_000_000
# An image of more pixels is refused if its file has fewer bytes than this says: decoding it would take half a
# gigabyte and seconds, to find that it shows nothing or ends early
PIXELS_OF_A_BYTE = 10_000


TURNED = (5, 6, 7, 8)  # an image of these EXIF orientations is stored on its side


def open_image(file: str | io.BytesIO) -> Image.Image:
    """Open an image, which is not decoded yet.

    Raises ValueError where it declares far more pixels than its bytes can describe, OSError where the path is
    no regular file, and whatever Pillow raises.
    """
    from PIL import ExifTags, Image
    from PIL.TiffImagePlugin import TiffImageFile

    size = check_regular(file).st_size if isinstance(file, str) else file.getbuffer().nbytes
    image = Image.open(file, formats=FORMATS)
    if image.width * image.height > max(MANY_PIXELS, PIXELS_OF_A_BYTE * size):
        image.close()
        raise ValueError(f"it declares {image.width:,} x {image.height:,} pixels in {size:,} bytes")
    if (tile := _tile(image)) is not None and tile[0] * tile[1] > max(
        MANY_PIXELS, image.width * image.height
    ):
        image.close()
        raise ValueError(
            f"it declares tiles of {tile[0]:,} x {tile[1]:,} pixels for {image.width:,} x {image.height:,}"
        )
    if isinstance(image, TiffImageFile) and image.tag_v2.get(ExifTags.Base.Orientation) in TURNED:
        image.filename = ""  # of a file with a name, Pillow 13 maps pixels as if they were turned already
    return image


def _tile(image: Image.Image) -> tuple[int, int] | None:
    """Return the width and height of an image's tiles, each unpacked whole; None without tiles."""
    from PIL.TiffImagePlugin import TiffImageFile

    if not isinstance(image, TiffImageFile):
        return None
    match image.tag_v2.get(TILEWIDTH), image.tag_v2.get(TILELENGTH):
        case int(width), int(height):
            return width, height
    return None  # libtiff refuses others


def changed_ns(found: os.stat_result) -> int:
    """Return a number that is another one once a file has been written: of its time of modification, which
    may be set back (archives that are reproducible do), and that of its inode's change, which may not."""
    return (found.st_mtime_ns + found.st_ctime_ns) % 2**62


def file_content(file: str) -> bytes:
    """Return the bytes of a regular file. Raises OSError."""
    return read_regular(Path(file), check_regular(file).st_size)


class Source(abc.ABC):
    """Labelled images as they are stored; cheap to make, picklable, and safe to read from several threads."""

    # The labels are [N], each an index into what the collection is split by: its classes, or strata. An image
    # with the label LEFT_OUT is left out.
    labels: Integers
    by_class = False  # images are used in the order of their classes, as those of a folder lie
    encoded = True  # images are stored as files are, and decoded each time they are opened
    # Where the source is sent, all its images are: they are no files that a machine reads for itself
    travels = False

    @abc.abstractmethod
    def open(self, index: int) -> Image.Image:
        """Open the image as it is stored, perhaps not decoded yet. Raises whatever its decoder raises."""

    @abc.abstractmethod
    def content(self, index: int) -> bytes:
        """Return the bytes that are stored of the image: of its file, or of its pixels. Raises OSError."""

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Return a name of the image for people: a path relative to the data set, or its number."""

    def digest(self, index: int) -> bytes:
        """Return a digest of all that is stored of the image. Raises what reading it raises."""
        return hashlib.blake2b(self.content(index), digest_size=16).digest()

    @property
    def image_files(self) -> FileSource | None:
        """The files that the images are read from; None where they are no files."""
        return None

    @abc.abstractmethod
    def sizes_and_times(self, indices: Integers) -> Integers:
        """Return each image's stored size in bytes and time of change in nanoseconds, [n, 2]; 0 for what is
        not known."""

    def __len__(self) -> int:
        return len(self.labels)


@final
class ArraySource(Source):
    """Images of one size in an array, uint8 [N, H, W] or [N, H, W, C] with 1 or 3 channels."""

    encoded, travels = False, True

    def __init__(self, images: Pixels, labels: Integers, *, by_class: bool = False) -> None:
        self.by_class = by_class
        self.images = images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images
        self.labels = labels

    def open(self, index: int) -> Image.Image:
        from PIL import Image

        return Image.fromarray(self.images[index])

    def content(self, index: int) -> bytes:
        found: bytes = self.images[index].tobytes()
        return found

    def name(self, index: int) -> str:
        return str(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return np.array([(self.images[:1].nbytes, 0)] * len(indices), np.int64).reshape(-1, 2)


@final
class FileSource(Source):
    """Image files under one folder."""

    def __init__(self, root: str, paths: Sequence[str], labels: Integers) -> None:
        self.root = root
        self.paths = tuple(paths)  # the paths are relative to the root, with forward slashes
        self.labels = labels

    @property
    def image_files(self) -> FileSource:
        return self

    def open(self, index: int) -> Image.Image:
        return open_image(os.path.join(self.root, self.paths[index]))

    def content(self, index: int) -> bytes:
        return file_content(os.path.join(self.root, self.paths[index]))

    def name(self, index: int) -> str:
        """Return the path; bytes that are not UTF-8 are written as `\\xff`."""
        return text_of(self.paths[index])

    def sizes_and_times(self, indices: Integers) -> Integers:
        """Return each file's size in bytes and its time of change in nanoseconds, [n, 2].

        Threads ask for them: over a network each answer takes a while.
        """

        def ask(some: Integers) -> list[tuple[int, int]]:
            found = (os.stat(os.path.join(self.root, self.paths[index])) for index in some)
            return [(each.st_size, changed_ns(each)) for each in found]

        with ThreadPoolExecutor(ASKING_THREADS) as pool:
            answers = pool.map(ask, np.array_split(indices, max(1, len(indices) // ASKED_AT_ONCE)))
            return np.array([each for some in answers for each in some], np.int64).reshape(-1, 2)


class Survey(NamedTuple):
    """What the masks of a part's images show."""

    sizes: Integers  # height and width in pixels, int64 [N, 2]: those of the mask, and of its upright image
    pixels: Integers  # how many pixels each class has, int64 [N, K]
    ignored: Integers  # how many pixels count nowhere, int64 [N]
    digests: Pixels  # a digest of the values of all pixels in their places, uint8 [N, 16]


@dataclass(frozen=True)
class Collection:
    """A data set as its format has it, before anything is split off, limited or decoded."""

    path: str  # the path in a resolved recipe: absolute, or the name of a bundled set
    format: str
    classes: tuple[str, ...]
    parts: Mapping[Split, Source]  # there is a training part at least
    flips: tuple[Flip, ...] = ()  # labels are known to survive these flips
    # For each part's images, what stays in one part: a patient, a series; None if that is not known
    groups: Mapping[Split, Sequence[str]] | None = None
    objects: tuple[str, ...] = ()  # for a manifest with images behind URIs, these are their URIs
    copy: Path | None = None  # in this folder are copies of them on this machine
    # For images with masks, these are the names of the strata that their labels number
    strata: tuple[str, ...] | None = None
    # For images with masks, these say what the masks of each part show; the sources are MaskedSources
    surveys: Mapping[Split, Survey] | None = None
    # The classes that `data.min_images` leaves out, with their numbers of training images
    classes_left_out: Mapping[str, int] = field(default_factory=dict)
    found: str = ""  # in words, the folders of images and masks, where the recipe does not name them
    inner_folders: tuple[str, ...] = ()  # below class folders, those with most of the training images

    @property
    def split_by(self) -> tuple[str, ...]:
        """The names that labels are indices into: a split and a limit keep these in proportion."""
        return self.classes if self.strata is None else self.strata

    @property
    def whole(self) -> bool:
        """Whether the data are one tree without parts:
        then a test part is split off too, not just a validation part."""
        return len(self.parts) == 1


class Selection(NamedTuple):
    """Some images of a source, in order."""

    source: Source
    indices: Integers

    @property
    def labels(self) -> Integers:
        return self.source.labels[self.indices]

    def name(self, position: int) -> str:
        """Return the name of one of the images, as its source does."""
        return self.source.name(int(self.indices[position]))


NO_LABEL = ""  # of an image that `data.exclude` must leave out

# A name of this form is a whole number. No label of a file of arrays has more digits.
WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return the different names in their order as classes: by value if all are whole numbers, as an array
    of labels has them, else as text."""
    different = set(names) - {NO_LABEL}
    if all(WHOLE.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))
    return tuple(sorted(different))


def numbered(labels: Sequence[str], classes: Sequence[str]) -> Integers:
    """Return each label's position among the classes, [N]; LEFT_OUT for none."""
    position = {NO_LABEL: LEFT_OUT} | {name: number for number, name in enumerate(classes)}
    return np.array([position[name] for name in labels], np.int64)
