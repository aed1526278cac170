"""Measures how often parts of one kind are said to differ, and which other kinds of images are found.

    TUNEBOOK_DATA=FOLDER python benchmarks/parts_alike.py [--splits 200] [--weights LITE0.safetensors]
                                                          [--parts one_kind another_kind wild checked trained]

- `one kind`: random stratified splits, 70 % to train and 15 % each to validate and to test, so that every
  warning is a false one; squares of microscope images are mixed, or those of one image stay in one part.
- `another kind`: the test images of such splits are changed, as by another camera or another program.
- `wild`: a published test part, photographs of hands taken later, and other kinds of animal and vehicle.
- `checked` and `trained`: test parts of the same kind, changed, and taken later: what `check` says of them
  before, and `train --test` after a network is trained.

What is not asked for stays as the earlier run left it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from image_changes import CHANGES, elsewhere
from report import RESULTS, described, environment, write
from trainable.checks.image_statistics import statistics_of
from trainable.checks.label_shares import check_label_shares
from trainable.checks.parts_alike import MEDIUM, check_parts_alike, some_of_each
from trainable.checks.sampling import pixels
from trainable.checks.two_samples import Sample, ToldApart, tell_apart
from trainable.data import ArrayPart, DataSet, FilePart, Split
from trainable.data.assembly import from_arrays, load
from trainable.data.split import stratified_split
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.kits import make_loader
from trainable.train import train
from trainable.training.part_features import part_features
from tuning_sets import make_set, nuclei_squares

Images = NDArray[np.uint8]
Integers = NDArray[np.int64]
NAME = "parts-alike"
PARTS = ("one_kind", "another_kind", "wild", "checked", "trained")
TEST_PARTS = ("the same kind", "elsewhere", "taken later")
SIDE = 64
CLOTHES = 3_000
EPOCHS = 14
SIZES = (60, 300)
"""Changed test parts have so many images."""


@dataclass(frozen=True)
class Labelled:
    """Holds images uint8 [n, C, H, W], labels [n], and perhaps what belongs together, [n]."""

    images: Images
    labels: Integers
    groups: Integers | None = None

    def of(self, chosen: Integers) -> Labelled:
        groups = None if self.groups is None else self.groups[chosen]
        return Labelled(self.images[chosen], self.labels[chosen], groups)

    def sample(self, changed: Callable[[Images], Images] = lambda images: images) -> Sample:
        return Sample(statistics_of(changed(self.images)).values, self.labels, self.groups)


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    where = environment(1)
    sets = {name: make() for name, make in SETS.items()}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "one_kind": lambda: {name: one_kind(each, options.splits) for name, each in sets.items()},
        "another_kind": lambda: {
            name: another_kind(each, options.changed) for name, each in sets.items() if each.groups is None
        },
        "wild": lambda: in_the_wild(sets, options.weights),
        "checked": lambda: in_splits(sets["signs"], options.trained, checked),
        "trained": lambda: in_splits(sets["signs"], options.trained, trained),
    }
    earlier = RESULTS / f"{NAME}.json"
    record = json.loads(earlier.read_text()) if earlier.exists() else {}
    for part in options.parts:
        record[part] = {"environment": where, "found": parts[part]()}
        write(NAME, record, page(record) if len(record) == len(PARTS) else "")


# --- the images ---------------------------------------------------------------------------------------


def _data() -> Path:
    return Path(os.environ["TUNEBOOK_DATA"])


def _whole(data: DataSet) -> Labelled:
    """Return all images of a set that tunebook has split."""
    chosen = [part.tensors() for part in data.parts.values() if isinstance(part, ArrayPart)]
    return Labelled(
        torch.cat([images for images, _ in chosen]).numpy(), torch.cat([each for _, each in chosen]).numpy()
    )


def _signs() -> Labelled:
    """Return the photographs of hands; `groups` are None, and their order is that of their numbers."""
    folder = str(_data() / "sign-language-digits" / "Dataset")
    files = load(Data(path=folder, in_memory=False, image_size=SIDE, cache="off"))
    names = [
        part.selection.source.name(index)
        for part in files.parts.values()
        if isinstance(part, FilePart)
        for index in part.selection.indices.tolist()
    ]
    taken = np.argsort([int("".join(filter(str.isdigit, Path(name).stem))) for name in names], kind="stable")
    return _whole(load(Data(path=folder, in_memory=True, image_size=SIDE))).of(taken)


def _clothes(part: Split = "train") -> Labelled:
    data = load(Data(path=str(_data() / "fashion-mnist"), format="idx", in_memory=True))
    chosen = data.parts[part]
    assert isinstance(chosen, ArrayPart)
    some = np.random.default_rng(0).permutation(len(chosen))[:CLOTHES]
    return Labelled(chosen.images[some], chosen.labels[some])


def _nuclei() -> Labelled:
    images, labels, numbers = nuclei_squares(_data(), np.random.default_rng(0))
    return Labelled(images[:, ::2, ::2].transpose(0, 3, 1, 2), labels, numbers)


def _nuclei_without_groups() -> Labelled:
    whole = _nuclei()
    return Labelled(whole.images, whole.labels)


SETS: Mapping[str, Callable[[], Labelled]] = {
    "digits": lambda: _whole(load(Data())),
    "signs": _signs,
    "clothes": _clothes,
    "nuclei, squares mixed": _nuclei_without_groups,
    "nuclei, images apart": _nuclei,
}


# --- splits of one kind -------------------------------------------------------------------------------


def _split(whole: Labelled, seed: int) -> list[Integers]:
    """Return the positions of a random split: stratified, or by groups."""
    if whole.groups is None:
        classes = tuple(map(str, range(int(whole.labels.max()) + 1)))
        return list(stratified_split(whole.labels, classes, 0.15, 0.15, seed))
    names = np.random.default_rng(seed).permutation(np.unique(whole.groups))
    cuts = np.split(names, [round(0.7 * len(names)), round(0.85 * len(names))])
    return [np.flatnonzero(np.isin(whole.groups, each)) for each in cuts]


def one_kind(whole: Labelled, splits: int) -> dict[str, Any]:
    """Return how often random splits bring a warning, and the interval's lower ends."""
    sample = whole.sample()
    found = list[ToldApart]()
    for seed in range(splits):
        train, validation, test = (_of(sample, each[:1_000]) for each in _shuffled(_split(whole, seed)))
        pairs = ((train, validation), (train.joined(validation), test))
        found += [each for first, second in pairs if (each := tell_apart(first, second)) is not None]
    low = np.array([each.low for each in found])
    return {
        "images": len(whole.labels),
        "compared": len(found),
        "auc": float(np.mean([each.auc for each in found])),
        "deviation": float(np.std([each.auc for each in found])),
        "above_chance": float((low > 0.5).mean()),
        "warned": int((low > MEDIUM).sum()),
        "highest_low": float(low.max()),
    }


def _shuffled(parts: list[Integers]) -> list[Integers]:
    return [np.random.default_rng(0).permutation(each) for each in parts]


def _of(sample: Sample, chosen: Integers) -> Sample:
    groups = None if sample.groups is None else sample.groups[chosen]
    return Sample(sample.features[chosen], sample.labels[chosen], groups)


# --- images of another kind ---------------------------------------------------------------------------


def another_kind(whole: Labelled, splits: int) -> dict[str, dict[str, Any]]:
    """Return how often each change of a test part of each size is found, and the median AUC."""
    sample, rows = whole.sample(), {}
    for name, change in CHANGES.items():
        changed = whole.sample(change)
        for size in SIZES:
            found = []
            for seed in range(splits):
                train, validation, test = _shuffled(_split(whole, seed))
                seen = _of(sample, np.concatenate([train[:1_000], validation[:1_000]]))
                found.append(tell_apart(seen, _of(changed, test[:size])))
            there = [each for each in found if each is not None]
            rows[f"{name}, {size} images"] = {
                "warned": sum(each.low > MEDIUM for each in there),
                "of": splits,
                "auc": float(np.median([each.auc for each in there])),
            }
    return rows


# --- parts as they are found --------------------------------------------------------------------------


def in_the_wild(sets: Mapping[str, Labelled], weights: str | None) -> dict[str, str]:
    """Return the AUC of pairs of parts that nobody made for this."""
    signs, clothes = sets["signs"], sets["clothes"]
    earlier, later = np.split(np.arange(len(signs.labels)), [len(signs.labels) * 3 // 4])
    found = {
        "Fashion-MNIST, training and test part": tell_apart(clothes.sample(), _clothes("test").sample()),
        "hands, the first three quarters by number and the last": tell_apart(
            signs.of(earlier).sample(), signs.of(later).sample()
        ),
    }
    for name, pair in varieties(weights).items():
        found[f"CIFAR-10, five kinds of animal and vehicle and the other five, {name}"] = tell_apart(*pair)
    return {name: str(each) for name, each in found.items()}


def varieties(weights: str | None) -> dict[str, tuple[Sample, Sample]]:
    """Return animals and vehicles of five of CIFAR-10's classes, and those of the other five: by simple
    statistics, and by features of a network besides."""
    made = make_set("photographs", _data())
    kinds, images = made.train_labels[:1_500], made.train[:1_500]
    is_animal = np.isin(kinds, (2, 3, 4, 5, 6, 7)).astype(np.int64)
    known = np.isin(kinds, (0, 1, 3, 4, 6))
    data = from_arrays((images[known], is_animal[known]), (images[~known], is_animal[~known]))
    chosen = some_of_each(data)
    simple = {name: statistics_of(pixels(data, data.parts[name], at)).values for name, at in chosen.items()}
    labels = {name: data.parts[name].labels[at] for name, at in chosen.items()}
    pairs = {"simple statistics": simple}
    if weights is not None:
        import timm

        network = timm.create_model("tf_efficientnet_lite0")
        network.load_state_dict(load_file(weights))
        recipe = Recipe().with_values({"precision.kind": "fp32"})
        features = part_features(
            network, make_loader(data, recipe, torch.device("cpu")), recipe, data.info, chosen
        )
        assert features is not None
        pairs["with features of EfficientNet-Lite0"] = {
            name: np.concatenate([each, features[name][0]], axis=1) for name, each in simple.items()
        }
    return {
        name: (Sample(of["train"], labels["train"]), Sample(of["validation"], labels["validation"]))
        for name, of in pairs.items()
    }


# --- what is said before and after a training ---------------------------------------------------------


def in_splits(
    signs: Labelled, splits: int, measure: Callable[[DataSet, int], dict[str, Any]]
) -> dict[str, dict[str, list[Any]]]:
    """Return what is measured of data sets whose test parts are of three kinds, in each split."""
    small = Labelled(np.ascontiguousarray(signs.images[:, :, ::2, ::2]), signs.labels)
    count = len(small.labels)
    rows: dict[str, dict[str, list[Any]]] = {}
    for kind in TEST_PARTS:
        found = []
        for seed in range(splits):
            train_at, validation_at, test_at = _split(small, seed)
            if kind == "taken later":
                seen = np.random.default_rng(seed).permutation(count * 3 // 4)
                train_at, validation_at, test_at = seen[300:], seen[:300], np.arange(count * 3 // 4, count)
            test = small.of(test_at)
            if kind == "elsewhere":
                test = Labelled(elsewhere(test.images), test.labels)
            parts = (small.of(train_at), small.of(validation_at), test)
            data = from_arrays(*((each.images.transpose(0, 2, 3, 1), each.labels) for each in parts))
            found.append(measure(data, seed))
            print(kind, seed, found[-1], flush=True)
        rows[kind] = {name: [each[name] for each in found] for name in found[0]}
    return rows


def checked(data: DataSet, seed: int) -> dict[str, Any]:
    """Return whether `check` warns of images and of shares of classes."""
    found = (*check_label_shares(data), *check_parts_alike(data, some_of_each(data)))
    warned = {each.check for each in found if each.level == "warning"}
    return {"images_differ": "parts alike" in warned, "shares_differ": "label shares" in warned}


def trained(data: DataSet, seed: int) -> dict[str, Any]:
    """Return what a network scores, and whether `train --test` says that scores differ."""
    recipe = Recipe().with_values(
        {
            "data.path": "hands",
            "model.width": 8,
            "loop.epochs": EPOCHS,
            "loop.batch_size": 32,
            "loop.seed": seed,
            "precision.kind": "fp32",
            "optimizer.kind": "adamw",
            "optimizer.lr": 0.02,
        }
    )
    gaps = train(recipe, data=data, test=True).gaps
    assert gaps is not None
    gap = next(each for each in gaps.gaps if each.metric == "accuracy")
    return {"validation": gap.validation, "test": gap.test, "scores_differ": gap.differ}


# --- the page -----------------------------------------------------------------------------------------


def page(record: Mapping[str, Any]) -> str:
    found = {part: record[part]["found"] for part in PARTS}
    kind = "\n".join(
        f"| {name} | {each['compared']} | {each['auc']:.3f} ± {each['deviation']:.3f} | "
        f"{each['above_chance']:.1%} | {each['highest_low']:.2f} | {each['warned']} |"
        for name, each in found["one_kind"].items()
    )
    changed = found["another_kind"]
    names, rows = list(changed), list(next(iter(changed.values())))
    cells = "\n".join(
        f"| {row} | "
        + " | ".join("{warned} ({auc:.2f})".format(**changed[name][row]) for name in names)
        + " |"
        for row in rows
    )
    wild = "\n".join(f"| {name} | {each} |" for name, each in found["wild"].items())
    said = "\n".join(
        f"| {name} | {np.mean(each['validation']):.3f} | {np.mean(each['test']):.3f} | "
        f"{sum(each['scores_differ'])} | {sum(found['checked'][name]['images_differ'])} | "
        f"{sum(found['checked'][name]['shares_differ'])} |"
        for name, each in found["trained"].items()
    )
    splits = len(found["trained"]["elsewhere"]["test"])
    text = (
        "# Parts that differ\n\n"
        f"A warning is given where the lower end of the AUC's 95 % interval is above {MEDIUM}.\n\n"
        "One kind: random splits of each set, with two comparisons each (validation against training, test "
        "against both). AUC: mean ± standard deviation.\n\n"
        "| set | comparisons | AUC | lower end above 0.5 | highest lower end | warnings |\n|-|-|-|-|-|-|\n"
        f"{kind}\n\n"
        f"Another kind: the test part is changed. Warnings in {changed[names[0]][rows[0]]['of']} splits "
        "(median AUC), by simple statistics alone.\n\n"
        f"| test part | {' | '.join(names)} |\n|-|{'-|' * len(names)}\n{cells}\n\n"
        f"Parts as they are found:\n\n| parts | |\n|-|-|\n{wild}\n\n"
        f"Photographs of hands, 32 px: the small ResNet of width 8 trains for {EPOCHS} epochs, n={splits} "
        "splits and seeds. Mean accuracies; in how many splits `train --test` says that scores differ, and "
        "`check` warns of images and of shares of classes.\n\n"
        "| test part | validation | test | scores differ | images differ | shares differ |\n|-|-|-|-|-|-|\n"
        f"{said}\n"
    )
    runs = {each["environment"]["commit"]: each["environment"] for each in record.values()}
    return "\n\n".join([text.rstrip(), *map(described, runs.values())])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How often parts are said to differ.")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--changed", type=int, default=20, help="splits for each change")
    parser.add_argument("--trained", type=int, default=20, help="splits for each kind of test part")
    parser.add_argument("--weights", help="EfficientNet-Lite0's, as timm names them")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
