"""Tests what is decided and refused before a search starts: faults of every trial, weights, stored facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from search.commands.guests import ALL, findings
from search.facts.hardware import Hardware, Node
from search.learning.search import Search
from search.record.folder import keep_findings, read_findings
from search.record.home import Home
from search.running.prepare import (
    Prepared,
    check_metrics,
    check_unchanged,
    decide,
    load,
    prepare_again,
    write_facts,
)
from search.study import Study, StudyError
from search.study.space import check_trials, far_rates
from spaces.catalog.catalog import make_space
from spaces.domains import Choice
from spaces.facts import Facts
from spaces.space import Space
from tests.search.small_studies import study_of
from tests.spaces.small_facts import digits_facts
from tests.trainable.small_images import write_classes, write_image, write_noise_jpeg
from tests.trainable.small_runs import data_set
from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.bench import Bench
from trainable.checks.finding import Finding, keep
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import load as load_data
from trainable.data.measure import DIGEST_FORM
from trainable.errors import DataError, ModelError, UserError
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import Recipe
from trainable.recipe.data import Data

MACHINE = Hardware((Node(cpus=2, gpus=0),))
MACHINE8 = Hardware((Node(cpus=8, gpus=0),))


def space_of(study: Study, facts: Facts | None = None) -> Space:
    pinned = frozenset(study.pinned)
    facts = facts if facts is not None else digits_facts(epochs=study.budget.epochs)
    return make_space(
        study.space.name or "document", study.base_recipe(), pinned, facts, study.space.overrides
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"base__optimizer": {"kind": "timm", "name": "nadamv"}},
            r"base\.optimizer\.name: timm has no optimizer 'nadamv'; did you mean",
        ),
        (
            {"base__optimizer": {"kind": "timm", "options": {"betas": [0.9, 1.5]}}},
            r"base\.optimizer\.options: .*refuses betas",
        ),
        (
            {
                "base__optimizer": {"kind": "timm"},
                "space__overrides.optimizer.name": {"choice": ["nadamw", "adahessian"]},
            },
            r"space\.overrides\.optimizer\.name: adahessian needs second derivatives",
        ),
    ],
)
def test_an_optimizer_of_timms_that_cannot_train_is_refused_before_any_trial(
    values: dict[str, Any], said: str
) -> None:
    study = study_of(**values)
    with pytest.raises(StudyError, match=said):
        check_trials(study, space_of(study), digits_facts())


@pytest.mark.parametrize("flips", [(), ("vertical",)])
@pytest.mark.parametrize(
    ("written_at", "values"),
    [
        ("base.evaluation.flip", {"base__evaluation.flip": True}),
        (
            "space.overrides.evaluation.flip",
            {"space__overrides.evaluation.flip": {"choice": [False, True]}},
        ),
    ],
)
def test_mirror_images_are_scored_only_where_labels_survive(
    flips: tuple[str, ...], written_at: str, values: dict[str, Any]
) -> None:
    study = study_of(**values)
    refused = digits_facts(flips=flips)
    with pytest.raises(StudyError) as caught:
        check_trials(study, space_of(study, refused), refused)
    ((path, message),) = caught.value.faults
    assert path == written_at
    assert "data.flips to hold horizontal" in message
    allowed = digits_facts(flips=("horizontal",))
    check_trials(study, space_of(study, allowed), allowed)


def said_before(study: Study, folder: Path) -> list[str]:
    """Prepare a search; return what a person is told before its first trial."""
    said: list[str] = []
    decide(load(study, Home(folder), MACHINE, bench=Bench(say=said.append), guests=ALL))
    return said


def test_without_a_guest_that_reads_earlier_searches_no_study_learns_from_one(tmp_path: Path) -> None:
    study = study_of(**{"space__learn_from": [str(tmp_path / "earlier")]})
    with pytest.raises(StudyError, match=r"space\.learn_from: no guest .* leave the field out"):
        load(study, Home(tmp_path), MACHINE)


def again(study: Study, folder: Path) -> Prepared:
    """Prepare a resumed search in a folder that holds this study."""
    study.write(folder)
    return prepare_again(study, Search(folder), MACHINE)


@pytest.mark.slow("measures networks")
def test_weights_that_are_missing_or_fit_nothing_are_reported_before_any_trial(tmp_path: Path) -> None:
    """They are reported when a search begins, and when it is resumed."""
    fitting, strange = tmp_path / "fitting.safetensors", tmp_path / "strange.safetensors"
    model = make_model(study_of().base_recipe().model, NetworkEnds(classes=10, channels=1, image_size=8))
    save_file(model.state_dict(), fitting)
    save_file({"other.weight": torch.zeros(3)}, strange)
    study = study_of(**{"base__model.weights": str(fitting)})
    prepared = decide(load(study, Home(tmp_path), MACHINE))
    assert prepared.facts.pretrained
    write_facts(prepared)
    for path in (tmp_path / "gone.safetensors", strange):
        other = study_of(**{"base__model.weights": str(path)})
        with pytest.raises((ModelError, StudyError), match=path.name):
            decide(load(other, Home(tmp_path), MACHINE))
        with pytest.raises(ModelError, match=path.name):
            again(other, tmp_path)
    assert again(study, tmp_path).space == prepared.space


@pytest.mark.slow("measures networks")
def test_a_search_begins_with_what_a_person_wrote_over_the_facts(tmp_path: Path) -> None:
    written = {"facts__parameters": 25_000_000, "facts__lr_band": [0.1, 0.4]}
    prepared = decide(load(study_of(**written), Home(tmp_path), MACHINE))
    assert (prepared.facts.parameters, prepared.facts.lr_band) == (25_000_000, (0.1, 0.4))
    write_facts(prepared)
    prepared_again = again(study_of(**written), tmp_path)
    assert prepared_again.facts == prepared.facts


@pytest.mark.slow("measures networks")
def test_probes_measure_once_as_the_search_begins(tmp_path: Path) -> None:
    """A resumed search reads them: here, numbers that no probe would give."""
    base = {"model.width": 8, "precision.kind": "fp32"}
    study = study_of(data__train_limit=200, space__probes=["lr-find", "batch-find"], base=base)
    said: list[str] = []
    prepared = decide(load(study, Home(tmp_path), MACHINE, bench=Bench(say=said.append), guests=ALL))
    band = prepared.facts.lr_band
    assert band is not None
    assert 1e-4 < band[0] < band[1] < 100
    assert prepared.facts.lr_band_kind == prepared.space.base.optimizer.kind
    assert prepared.facts.largest_micro_batch in range(150, 201)
    assert [line.split(":")[0] for line in said] == ["lr-find", "batch-find"]
    other = prepared.facts.model_copy(update={"lr_band": (0.123, 0.456)})
    write_facts(replace(prepared, facts=other))
    assert again(study, tmp_path).facts == other


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"optimizer.lr": {"log": [1.0, 3.0]}}, "optimizer.lr: 1 to 3, log"),
        ({"optimizer.lr": {"choice": [0.01, 0.05]}}, "optimizer.lr: one of 0.01, 0.05"),
        ({"optimizer.lr[sgd]": {"log": [1.0, 3.0]}}, "optimizer.lr[sgd]: 1 to 3, log"),
        ({"optimizer.lr[adamw]": {"log": [0.001, 0.01]}}, None),  # the sweep was made with SGD
        ({"optimizer.lr": {"log": [0.3, 3.0]}}, None),
        ({"optimizer.lr": {"prior": 3.0}}, None),
        ({}, None),
    ],
)
def test_a_written_range_of_rates_that_misses_the_sweep_s_is_reported(
    values: dict[str, Any], wanted: str | None
) -> None:
    free = {"optimizer.kind": {"rule": True}} if any("[" in name for name in values) else {}
    study = study_of(space__overrides={**values, **free})
    facts = digits_facts(epochs=study.budget.epochs, lr_band=(0.2, 0.4))
    warning = far_rates(study, space_of(study, facts), facts)
    assert (warning is None) if wanted is None else (warning is not None and wanted in warning)
    unswept = facts.model_copy(update={"lr_band": None})
    assert far_rates(study, space_of(study, unswept), unswept) is None


def test_a_search_reports_such_a_range_before_it_begins(tmp_path: Path) -> None:
    written = {"facts__lr_band": [0.2, 0.4], "space__overrides": {"optimizer.lr": {"log": [1.0, 3.0]}}}
    (line,) = said_before(study_of(**written), tmp_path)
    assert "optimizer.lr: 1 to 3, log lies outside of the 0.2 to 0.4 that a sweep recommends for sgd" in line


@pytest.mark.parametrize(
    ("normalisation", "lines"), [(None, 1), ("data", 0), ({"mean": [0.5], "std": [0.5]}, 0)]
)
def test_a_search_says_that_nothing_is_known_of_how_its_weights_saw_images(
    tmp_path: Path, normalisation: Any, lines: int
) -> None:
    base = {"model.width": 8, "precision.kind": "fp32"}
    network = make_model(
        study_of(base=base).base_recipe().model, NetworkEnds(classes=10, channels=1, image_size=8)
    )
    save_file(network.state_dict(), tmp_path / "mine.safetensors")
    study = study_of(
        base={**base, "model.weights": str(tmp_path / "mine.safetensors")}, data__normalisation=normalisation
    )
    said = said_before(study, tmp_path)
    assert [line.startswith("data.normalisation: nothing says how") for line in said] == [True] * lines


def test_given_parts_that_share_a_patient_are_refused_as_a_search_begins_and_as_it_is_resumed(
    tmp_path: Path,
) -> None:
    """`data.leaks` is no part of what must stay the same, so a person may take the permission back."""
    for part, patients in (("train", 4), ("val", 2)):
        for number in range(2 * patients):
            name = f"p{number % patients}_{number}.png"
            write_image(tmp_path / "scans" / part / ("ill", "well")[number // patients] / name, value=number)
    leaking = study_of(
        data={"path": str(tmp_path / "scans"), "group": r"(.+)_\d+\.png"},
        base={"model.width": 8, "precision.kind": "fp32"},
    )
    with pytest.raises(DataError, match=r"2 groups are in train and validation .*data\.leaks=allow"):
        decide(load(leaking, Home(tmp_path), MACHINE))
    allowed = leaking.with_values({"data.leaks": "allow"})
    write_facts(decide(load(allowed, Home(tmp_path), MACHINE)))
    assert again(allowed, tmp_path).facts.train_images == 8
    with pytest.raises(DataError, match="2 groups are in train and validation"):
        again(leaking, tmp_path)


def test_a_search_says_before_it_begins_that_images_of_two_parts_are_nearly_the_same(tmp_path: Path) -> None:
    for number in range(24):
        part = "val" if number < 8 else "train"
        write_noise_jpeg(tmp_path / part / ("cat", "dog")[number % 2] / f"{number}.jpg", number)
    with Image.open(tmp_path / "train" / "cat" / "10.jpg") as original:
        original.point(lambda value: 0.9 * value).save(tmp_path / "val" / "cat" / "copy.png")
    study = study_of(data__path=str(tmp_path), base={"precision.kind": "fp32"})
    (line,) = (each for each in said_before(study, tmp_path) if each.startswith("near-duplicates: "))
    assert "the validation score is too good by up to 11.1 points" in line
    assert "data.group" in line


@pytest.fixture
def black(tmp_path: Path) -> DataSet:
    """Return images of which nothing can be seen, in memory."""
    for number in range(24):
        part = "val" if number < 8 else "train"
        write_image(tmp_path / part / ("cat", "dog")[number % 2] / f"{number}.png", value=0)
    return load_data(Data(path=str(tmp_path)))


def test_a_search_says_of_black_images_that_they_are_black_and_nothing_that_follows(black: DataSet) -> None:
    said = [str(each) for each in findings(black, study_of(), Recipe()) or ()]
    assert sum("has one value throughout" in line for line in said) == 1
    assert not any("nearly the same" in line or "also in" in line for line in said)


def test_a_search_records_what_a_check_of_the_same_images_has_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    large = replace(data_set(), info=replace(data_set().info, in_memory=False))  # a search looks at no pixel
    assert findings(large, study_of(), Recipe()) is None
    keep(large.info, [])
    assert findings(large, study_of(), Recipe()) == ()
    keep(large.info, [Finding("parts alike", "warning", "told apart", "another kind", "look")])
    (found,) = findings(large, study_of(), Recipe()) or ()
    assert (found.kind, found.about, found.means) == ("data", "parts alike", "another kind")
    keep_findings(tmp_path, (found,))
    assert read_findings(tmp_path) == (found,)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("check_pixels", "pixel values"),
        ("check_parts_alike", "parts alike"),
        ("check_duplicates", "duplicates"),
    ],
)
def test_a_check_that_crashes_does_not_end_a_search_before_its_first_trial(
    name: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: object, **named: object) -> None:
        raise ValueError("no images of class 7")

    monkeypatch.setattr(f"trainable.check.{name}", crash)
    said = [str(each) for each in findings(data_set(), study_of(), Recipe()) or ()]
    crash_line = f"{check}: the check fails: ValueError: no images of class 7"
    assert sum(line.startswith(crash_line) for line in said) == 1


@pytest.mark.slow("prepares two searches")
def test_a_search_says_before_it_begins_that_its_test_images_are_of_another_kind(tmp_path: Path) -> None:
    digits = load_data(Data())
    arrays: dict[str, Any] = {}
    for part, key in zip(digits.parts.values(), ("train", "val", "test"), strict=True):
        assert isinstance(part, ArrayPart)
        images, labels = part.tensors()
        arrays |= {f"{key}_images": images[:, 0].numpy(), f"{key}_labels": labels.numpy()}
    said: dict[str, list[str]] = {}
    for kind in ("same", "other"):
        if kind == "other":
            arrays["test_images"] = (255 - arrays["test_images"]).astype(np.uint8)
        np.savez(tmp_path / f"{kind}.npz", **arrays)
        study = study_of(data__path=str(tmp_path / f"{kind}.npz"), base={"precision.kind": "fp32"})
        said[kind] = said_before(study, tmp_path)
    (line,) = (each for each in said["other"] if each.startswith("parts alike: "))
    assert "test images are of another kind than those that recipes are chosen by" in line
    assert "take validation images from the test's kind" in line
    assert not [each for each in said["same"] if each.startswith(("parts alike: ", "label shares: "))]


@pytest.mark.slow("measures networks")
@pytest.mark.parametrize("cpus", [1, 2, 6])
def test_a_trials_processors_decode_its_images_unless_the_study_says_how_many_do(
    tmp_path: Path, cpus: int
) -> None:
    write_classes(tmp_path / "pets", {"cat": 12, "dog": 12})
    study = Study.from_tree({"data": {"path": str(tmp_path / "pets"), "in_memory": False}}).with_values(
        {"resources.cpus": cpus, "base.loop.batch_size": 4}
    )
    prepared = decide(load(study, Home(tmp_path), MACHINE8))
    assert (prepared.per_trial.cpus, prepared.space.base.loop.workers) == (cpus, None)
    assert prepared.concurrent == 8 // cpus
    pinned = study.with_values({"base.loop.workers": 3})
    assert decide(load(pinned, Home(tmp_path), MACHINE8)).space.base.loop.workers == 3


@pytest.mark.slow("measures networks")
def test_images_are_decoded_before_the_first_trial_here_and_in_a_cluster_by_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where equal images are decoded already
    write_classes(tmp_path / "pets", {"cat": 12, "dog": 12})
    study = Study.from_tree({"data": {"path": str(tmp_path / "pets"), "in_memory": False}}).with_values(
        {"base.loop.batch_size": 4}
    )
    said: list[str] = []

    elsewhere = decide(
        load(
            study, Home(tmp_path), Hardware((Node(8, 0, 2**30),), cluster=True), bench=Bench(say=said.append)
        )
    )
    assert elsewhere.data.decoded_views() == {}
    remarks = [*elsewhere.data.info.remarks]  # the images of this test have few levels
    assert said == [*remarks, "each machine decodes its images once, before the first trial there trains"]
    said.clear()
    here = decide(load(study, Home(tmp_path), MACHINE8, bench=Bench(say=said.append)))
    assert len(here.data.decoded_views()) == 2
    assert "decoding 20 images once" in said[len(remarks)]


@pytest.mark.slow("measures networks")
@pytest.mark.parametrize(
    ("store_bytes", "held"), [(None, True), (2**20, True), (2 * 24 * 3 * 10 * 10 - 2, False)]
)
def test_what_is_held_in_memory_fits_into_half_of_the_smallest_object_store(
    tmp_path: Path, store_bytes: int | None, held: bool
) -> None:
    write_classes(tmp_path / "pets", {"cat": 12, "dog": 12})
    study = Study.from_tree({"data": {"path": str(tmp_path / "pets"), "channels": 3}}).with_values(
        {"base.loop.batch_size": 4}
    )
    machines = Hardware((Node(8, 0, 2**40), Node(8, 0, store_bytes)))

    assert decide(load(study, Home(tmp_path), machines)).data.info.in_memory is held


def models_of(folder: Path, *names: str) -> Study:
    """Return a study that chooses between timm's models with weights in a folder; `base` names none."""
    model = {"kind": "timm", "weights": str(folder)}
    overrides = {"model.name": {"choice": list(names)}}
    return Study.from_tree(
        {
            "data": {"path": "digits", "image_size": 32},
            "base": {"model": model, "precision.kind": "fp32"},
            "space": {"name": "finetune", "overrides": overrides},
        }
    )


def write_small(folder: Path, name: str) -> None:
    torch.manual_seed(0)
    save_file(timm.create_model(name, num_classes=7).state_dict(), folder / f"{name}.safetensors")


@pytest.mark.slow("measures networks")
def test_models_with_weights_can_be_searched(tmp_path: Path) -> None:
    names = ("test_resnet", "test_vit")
    for name in names:
        write_small(tmp_path, name)
    study = models_of(tmp_path, *names)
    prepared = decide(load(study, Home(tmp_path / "search"), MACHINE))
    assert prepared.space.recipe(prepared.space.own).get("model.name") == "test_resnet"
    (drawn,) = (each for each in prepared.space.dimensions if each.path == "model.name")
    assert drawn.domain == Choice(names)
    assert prepared.facts.pretrained
    assert [(each.name, each.attention, each.batch_norm) for each in prepared.facts.networks] == [
        ("test_resnet", False, True),
        ("test_vit", True, False),
    ]
    assert prepared.facts.networks[0].parameters == prepared.facts.parameters


@pytest.mark.slow("measures networks")
def test_weights_of_each_model_are_looked_at_before_any_trial(tmp_path: Path) -> None:
    write_small(tmp_path, "test_resnet")
    study = models_of(tmp_path, "test_resnet", "test_efficientnet")
    with pytest.raises(ModelError, match=r"expected a file of weights in .*, called test_efficientnet with"):
        decide(load(study, Home(tmp_path / "search"), MACHINE))


def test_a_search_goes_on_with_its_own_images_alone() -> None:
    now = load_data(Data()).info
    check_unchanged("digits", now, now)
    with pytest.raises(UserError, match="the images or their labels have changed since the search began"):
        check_unchanged("digits", replace(now, digest=f"{DIGEST_FORM}0"), now)
    named = ("zero", *"abcdefg", "bee", "i")
    before, after = (replace(now, classes=each) for each in (named, (*named[:8], "eight", "i")))
    with pytest.raises(UserError, match=r"\(class 8 was 'bee', and is 'eight' now\); give them the former"):
        check_unchanged("digits", before, after)
    for earlier in (replace(now, digest="697267636c22f6a4"), replace(now, digest="0", stored="")):
        with pytest.raises(UserError, match="was begun by an earlier version, whose digest of the images"):
            check_unchanged("digits", earlier, now)


def test_fresh_splits_of_finalists_are_drawn_before_the_search_and_keep_the_test_part(
    tmp_path: Path,
) -> None:
    study = study_of(base__precision__kind="fp32", finalists={"top": 1, "seeds": 2, "splits": "fresh"})
    prepared = decide(load(study, Home(tmp_path / "search"), MACHINE))
    assert set(prepared.splits) == {1, 2}
    assert len({each.info.digest for each in (prepared.data, *prepared.splits.values())}) == 3
    for each in prepared.splits.values():
        assert each.test is not None
        assert prepared.data.test is not None
        assert each.test.labels.tolist() == prepared.data.test.labels.tolist()
        assert len(each.validation) == len(prepared.data.validation)


def test_fresh_splits_are_refused_where_the_data_have_a_validation_part(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_classes(tmp_path / "parts" / part, {"a": 4, "b": 4})
    fresh = {"top": 1, "seeds": 2, "splits": "fresh"}
    study = study_of(data__path=str(tmp_path / "parts"), base__precision__kind="fp32", finalists=fresh)
    with pytest.raises(UserError, match=r"finalists\.splits: fresh .* has a validation part of its own"):
        decide(load(study, Home(tmp_path / "search"), MACHINE))


def test_metrics_of_masks_are_checked_where_the_network_is_normalised_as_its_weights_were(
    tmp_path: Path,
) -> None:
    recipe = mask_recipe(write_masks(tmp_path), {"evaluation.metrics": ["boundary_f1"]})
    data = mask_data(recipe)
    check_metrics(recipe.with_values({"data.normalisation": "pretrained"}), {}, data)
