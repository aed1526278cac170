"""From which images a run learns.

Sources such as `003:43` are lines of the guides in docs/sources.md: 000 is the training tricks notes and
003 the PaddleClas guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from trainable.errors import UNION, DataError
from trainable.files.paths import usable_path, without_tilde
from trainable.files.store import is_uri, without_credentials
from trainable.recipe.base import YOURS, Fraction, OpenFraction, Purpose, Spec


def a_local_folder(text: str) -> str:
    """Return the path unchanged. Raises ValueError for a URI: arrays are mapped
    from a machine's own disk."""
    if is_uri(text):
        raise ValueError(f"expected auto, off, or a folder on each machine's own disk, got the URI {text}")
    return text


def without_credentials_or_none(text: str | None) -> str | None:
    """Return the path or URI unchanged. Raises ValueError for a URI with credentials."""
    return text if text is None else usable_path(without_credentials(text))


def path_or_none(text: str | None) -> str | None:
    """Return the path unchanged. Raises ValueError for a URI, and for what no file can be called."""
    if text is not None and is_uri(text):
        raise ValueError(f"expected a file on this machine, got the URI {text}; copy it here first")
    return text if text is None else usable_path(text)


Split = Literal["train", "validation", "test"]
Unscored = Literal["refuse", "allow"]
NONE = "none"  # in the place of a part's name: the part is left out


class Columns(Spec):
    """The columns of a manifest, or of a set that Hugging Face `datasets` has saved.

    `None` means the column of that name if there is one: `split`, `group`. In a `datasets` folder, `path` and
    `label` that are not there stand for its one column of images, and its one column of class labels.
    """

    path: Annotated[str, Field(min_length=1), Purpose("the column with each image's path or URI", YOURS)] = (
        "path"
    )
    label: Annotated[str, Field(min_length=1), Purpose("the column with each image's label", YOURS)] = "label"
    split: Annotated[
        str | None, Purpose("the column that says train, validation or test; by default split", YOURS)
    ] = None
    group: Annotated[
        str | None, Purpose("the column whose equal values stay in one part; by default group", YOURS)
    ] = None


Interpolation = Literal["bilinear", "bicubic"]


class ChannelStatistics(Spec):
    """Mean and standard deviation of each channel, on [0, 1]: pixels become (x - mean) / std."""

    mean: Annotated[
        tuple[Fraction, ...], Purpose("subtracted from each channel of the pixels", "004:169; the weights")
    ]
    std: Annotated[
        tuple[Annotated[float, Field(gt=0.0, le=10.0)], ...],
        Purpose("the standard deviation that each channel is divided by", "004:169; the weights"),
    ]

    @model_validator(mode="after")
    def one_of_each(self) -> Self:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise ValueError(
                f"expected a mean and a std for one channel or for three, got {len(self.mean)} and "
                f"{len(self.std)} numbers"
            )
        return self


def _form_of(normalisation: object) -> str:
    return NUMBERS if isinstance(normalisation, dict | ChannelStatistics) else WORD


WORD, NUMBERS = f"{UNION}word", f"{UNION}numbers"
Normalisation = Annotated[
    Annotated[Literal["data", "pretrained"], Tag(WORD)] | Annotated[ChannelStatistics, Tag(NUMBERS)],
    Discriminator(_form_of),
]


def a_part_to_train_on(name: str | None) -> str | None:
    """Refuse `none`, which is for validation and test."""
    if name == NONE:
        raise ValueError("none would leave nothing to train on; none is for validation and test")
    return name


SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
MANIFEST_ENDINGS = (*SEPARATORS, *PARQUET)
DATA_IN_WORDS = (  # of what a path may name
    "`digits`, a folder of class folders, a folder of IDX files, an .npz file, a manifest "
    f"({', '.join(MANIFEST_ENDINGS)}), a folder saved by Hugging Face `datasets`, or data.name for one of "
    "torchvision's"
)


class Data(Spec):
    """Which images there are, how they are split, and what the model sees of them.

    `path` is `digits`, a folder or a file, or the URI of one (s3://bucket/flowers); with `format: own` it is
    only a name of what Python gives. `None` means "as the data
    say": `Run` measures it, and `resolved` recipes carry the number.
    """

    path: Annotated[
        str,
        Field(min_length=1),
        AfterValidator(without_credentials),
        AfterValidator(usable_path),
        Purpose("the images to learn from", YOURS),
    ] = "digits"
    format: Annotated[
        Literal["auto", "digits", "folder", "manifest", "datasets", "npz", "idx", "torchvision", "own"],
        Purpose("how the images are stored; auto detects it, own are given from Python", YOURS),
    ] = "auto"
    name: Annotated[
        str | None,
        Purpose("torchvision's name of the set, for format torchvision", YOURS),
    ] = None
    columns: Annotated[Columns, Purpose("the columns of a manifest", YOURS)] = Columns()
    root: Annotated[
        str | None,
        AfterValidator(without_credentials_or_none),
        Purpose(
            "where the images lie that a manifest or a saved data set names: a folder, of a manifest also a "
            "URI; by default beside it",
            YOURS,
        ),
    ] = None
    group: Annotated[
        str | None,
        Field(min_length=1),
        Purpose(
            "what stays in one part, such as a patient: a manifest's column, or a regular expression whose "
            "one capture in an image's path names it",
            YOURS,
        ),
    ] = None
    leaks: Annotated[
        Literal["refuse", "allow"],
        Purpose("whether to train although parts that the data define share a group", YOURS),
    ] = "refuse"
    train: Annotated[
        str | None,
        AfterValidator(a_part_to_train_on),
        Purpose("the training folder, if it has another name", YOURS),
    ] = None
    validation: Annotated[
        str | None,
        Purpose("the validation folder, if it has another name; none leaves the data's own out", YOURS),
    ] = None
    test: Annotated[
        str | None,
        Purpose(
            "the test folder, if it has another name; none leaves the data's own out, such as one without "
            "labels; a search never uses it",
            YOURS,
        ),
    ] = None
    exclude_parts: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Purpose(
            "leaves out parts of other names, such as unlabeled: folders beside those of train and test, a "
            "manifest's splits, or those of a saved data set",
            YOURS,
        ),
    ] = ()
    exclude: Annotated[
        str | None,
        Field(min_length=1),
        AfterValidator(path_or_none),
        Purpose(
            "a CSV file that lists images to leave out, such as check --write-exclusions writes",
            YOURS,
        ),
    ] = None
    min_images: Annotated[
        int | None,
        Field(ge=1),
        Purpose("leaves out the classes with fewer training images, before a part is split off", YOURS),
    ] = None
    unscored: Annotated[
        Unscored,
        Purpose(
            "whether to train on classes that the data's validation or test part lacks; scores are means "
            "over the classes that a part has",
            YOURS,
        ),
    ] = "refuse"
    validation_fraction: Annotated[
        float, Field(gt=0.0, lt=1.0), Purpose("part of the images to compare recipes on", "ours")
    ] = 0.15
    test_fraction: Annotated[
        OpenFraction,
        Purpose(
            "part of the images that scores the exported recipe alone, where the data have no test part",
            "ours",
        ),
    ] = 0.15
    split_seed: Annotated[int, Field(ge=0), Purpose("which image is in which part", "ours")] = 0
    validation_seed: Annotated[
        int | None,
        Field(ge=0),
        Purpose(
            "draws training and validation anew, and leaves the test part: another luck of the split", "ours"
        ),
    ] = None
    train_limit: Annotated[int | None, Field(ge=2), Purpose("the most training images to use", YOURS)] = None
    channels: Annotated[
        Literal[1, 3] | None, Purpose("grey or colour; by default as most of the images are", "the data")
    ] = None
    image_size: Annotated[
        int | None,
        Field(ge=4, le=4096),
        Purpose(
            "side in pixels; by default the weights', at most 96 on a CPU, or else the short side, at most "
            "64 on a CPU. With masks it is that of windows: the longer side, at most 128 on a CPU and 512 on "
            "a GPU",
            "the data",
        ),
    ] = None
    normalisation: Annotated[
        Normalisation | None,
        Purpose(
            "what pixels are normalised by: data, pretrained, or a mean and std; by default as the weights "
            "know them, else by the data's own",
            "004:169; the weights",
        ),
    ] = None
    interpolation: Annotated[
        Interpolation | None,
        Purpose(
            "the filter that resizes images, except those with masks; by default the weights', or else "
            "bilinear",
            "the weights",
        ),
    ] = None
    flips: Annotated[
        tuple[Literal["horizontal", "vertical"], ...] | None,
        Purpose("flips under which a label survives; none for folders by default", "000:22"),
    ] = None
    in_memory: Annotated[
        bool | None, Purpose("holds decoded images in memory, at the size they are trained at", "ours")
    ] = None
    cache: Annotated[
        str,
        Field(min_length=1),
        AfterValidator(a_local_folder),
        Purpose(
            "where each machine keeps image files that it has decoded, except those with masks: auto, off, "
            "or a folder; it changes speed alone and is not in the digest",
            "ours",
        ),
    ] = "auto"

    @property
    def named_parts(self) -> dict[Split, str | None]:
        """The parts' names that a person gives; None for the usual ones."""
        named: dict[Split, str | None] = {
            "train": self.train,
            "validation": self.validation,
            "test": self.test,
        }
        return {part: None if name == NONE else name for part, name in named.items()}

    @property
    def parts_left_out(self) -> tuple[Split, ...]:
        """The parts of the data that are not to be used."""
        left_out: list[Split] = ["validation"] if self.validation == NONE else []
        return (*left_out, "test") if self.test == NONE else tuple(left_out)

    @property
    def own(self) -> bool:
        """Whether Python gives these images, and the path is only their name."""
        return self.format == "own"

    @property
    def bundled(self) -> bool:
        """Whether these are scikit-learn's digits, which are in no folder."""
        return self.path == "digits" and self.format in ("auto", "digits")


def refuse_missing(data: Data) -> None:
    """Raise DataError where nothing is at a path of this machine that data name."""
    if data.bundled or data.own or data.name is not None or is_uri(data.path):
        return
    path = without_tilde(data.path).absolute()
    if data.format == "auto" and not path.exists():
        raise DataError(f"data.path: {path} does not exist; expected {DATA_IN_WORDS}")


def decisive(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a section, as plain data, says of the results: all but where images are kept decoded, and
    whether leaks and classes without a score are allowed."""
    return {
        name: value
        for name, value in data.items()
        if name not in ("cache", "leaks", "unscored") and not (name in ADDED and not value)
    }


# Recipes of earlier versions have not these fields, and keep their digest
ADDED = ("exclude", "exclude_parts", "min_images")
