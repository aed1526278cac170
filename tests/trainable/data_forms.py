"""Writes the same images in each form that a person may have them in: a folder, manifests, and others."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as arrow
import pyarrow.parquet
from PIL import Image

from trainable.data.saved_dataset import INFO_FILE, STATE_FILE

FORMS = ("folder", "csv", "parquet", "datasets", "npz")
SIZE = 12
# The type of a column of images that Hugging Face `datasets` has saved
IMAGES = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])


class Labelled(NamedTuple):
    """One image with what is said of it."""

    path: str
    pixels: np.ndarray[Any, Any]
    label: str
    part: str


def labelled(counts: Mapping[str, Sequence[int]], seed: int = 0) -> list[Labelled]:
    """Return noise in a class's own shade: for each part, so many images of the classes `0`, `1`, ..."""
    luck = np.random.default_rng(seed)
    return [
        Labelled(
            f"{part}/{label}/{number:03}.png" if len(counts) > 1 else f"{label}/{number:03}.png",
            (luck.integers(0, 60, (SIZE, SIZE, 3)) + 30 * (label % 7)).astype(np.uint8),
            str(label),
            part,
        )
        for part, of_class in counts.items()
        for label, count in enumerate(of_class)
        for number in range(count)
    ]


def write_forms(images: list[Labelled], root: Path) -> dict[str, Path]:
    """Write the images in every form; rows that have names are in another order than the folder."""
    for each in images:
        (root / "folder" / each.path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each.pixels).save(root / "folder" / each.path)
    turned = [images[row] for row in np.random.default_rng(1).permutation(len(images))]
    rows = [
        {
            "path": f"folder/{each.path}",
            "label": each.label,
            **({"split": each.part} if _parts(images) else {}),
        }
        for each in turned
    ]
    write_csv(root / "images.csv", rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["label"] = [int(label) for label in columns["label"]]
    arrow.parquet.write_table(arrow.table(columns), root / "images.parquet")
    write_datasets(turned, root / "saved")
    write_npz(list(_interleaved(images)), root / "images.npz")
    names = {"csv": "images.csv", "parquet": "images.parquet", "datasets": "saved", "npz": "images.npz"}
    return {"folder": root / "folder", **{form: root / name for form, name in names.items()}}


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_datasets(images: list[Labelled], folder: Path, groups: Sequence[str] | None = None) -> Path:
    """Save the images by Hugging Face's own package, from their files beside the folder."""
    import datasets

    datasets.disable_progress_bars()
    names = sorted({each.label for each in images}, key=int)
    features: dict[str, Any] = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    parts = {}
    for part in dict.fromkeys(each.part for each in images):
        chosen = [row for row, each in enumerate(images) if each.part == part]
        content = {
            "image": [str(folder.parent / "folder" / images[row].path) for row in chosen],
            "label": [images[row].label for row in chosen],
        }
        if groups is not None:
            content["patient"] = [groups[row] for row in chosen]
            features["patient"] = datasets.Value("string")
        parts[part] = datasets.Dataset.from_dict(content, features=datasets.Features(features))
    whole = datasets.DatasetDict(parts) if len(parts) > 1 else next(iter(parts.values()))
    whole.save_to_disk(str(folder))
    return folder


def saved_by_path(folder: Path, paths: list[str]) -> Path:
    """Save what names images by their paths alone, as somebody else's program may; return the folder."""
    images = arrow.array([{"bytes": None, "path": each} for each in paths], IMAGES)
    table = arrow.table({"image": images, "label": arrow.array([at % 2 for at in range(len(paths))])})
    return saved_table(folder, table)


def saved_table(folder: Path, table: arrow.Table, compression: str | None = None) -> Path:
    """Save rows as `save_to_disk` of Hugging Face `datasets` does; return the folder."""
    folder.mkdir()
    options = arrow.ipc.IpcWriteOptions(compression=compression)
    with (
        arrow.OSFile(str(folder / "data.arrow"), "wb") as file,
        arrow.ipc.new_stream(file, table.schema, options=options) as out,
    ):
        out.write_table(table, max_chunksize=7)
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    (folder / INFO_FILE).write_text(json.dumps({"features": features}))
    (folder / STATE_FILE).write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return folder


def write_npz(images: list[Labelled], path: Path) -> Path:
    names = {"train": "train", "validation": "val", "test": "test"}
    arrays: dict[str, Any] = {}
    for part in dict.fromkeys(each.part for each in images):
        chosen = [each for each in images if each.part == part]
        name = names.get(part, part)
        arrays[f"{name}_images"] = np.stack([each.pixels for each in chosen])
        arrays[f"{name}_labels"] = np.array([int(each.label) for each in chosen])
    np.savez(path, **arrays)
    return path


def _parts(images: list[Labelled]) -> bool:
    return len({each.part for each in images}) > 1


def _interleaved(images: list[Labelled]) -> Iterator[Labelled]:
    """Yield one image of each class after the other; an array has no names, so those of a class keep their
    order."""
    seen: dict[tuple[str, str], int] = {}
    turn = []
    for each in images:
        seen[each.part, each.label] = seen.get((each.part, each.label), 0) + 1
        turn.append(seen[each.part, each.label])
    yield from (images[row] for row in np.argsort(turn, kind="stable"))
