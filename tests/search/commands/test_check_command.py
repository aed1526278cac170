"""Tests `tunebook check`: what it prints, which exit code it returns, and that it writes nothing."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from search.commands.check import _asks_to_compile, closing, findings_table, record
from search.commands.inputs import Target
from search.learning.search import Search
from search.study import Study
from spaces.domains import Value
from tests.search.command_line import Refusal, Tunebook
from tests.search.reporting.test_terminal import search_folder, values
from tests.trainable.small_runs import data_set, small_recipe
from tests.trainable.small_segmentations import mask_recipe, write_masks
from trainable.bench import ON_CPU
from trainable.checks.finding import Finding, passed
from trainable.recipe.yamlfile import write_recipe
from trainable.terminal import document

# They allow so much time that the steps' limit ends a check, on a busy machine too
SEEN = ["--set", "base.model.width=8", "--set", "base.precision.kind=fp32", "--seconds", "3600"]


def arrays(path: Path, shuffled: bool = False) -> Path:
    """Write bright columns whose position shows the class or, shuffled, belongs to another image's label."""
    random = np.random.default_rng(0)
    labels = np.arange(1200) % 3
    images = random.integers(0, 100, (1200, 8, 8), dtype=np.uint8)
    images[np.arange(1200), :, 2 * labels] += 120
    np.savez(path, train_images=images, train_labels=random.permutation(labels) if shuffled else labels)
    return path


@pytest.mark.slow("runs all checks")
def test_sound_data_leave_with_0_and_a_line_that_counts(tunebook: Tunebook, tmp_path: Path) -> None:
    data = arrays(tmp_path / "data.npz")
    code, out, err = tunebook("check", data, *SEEN)
    assert code == 0, out + err
    assert "0 errors, 0 warnings, in " in out
    assert "one batch" in out
    assert [each.name for each in tmp_path.iterdir()] == ["data.npz"]


@pytest.mark.slow("runs all checks")
def test_copies_between_parts_are_listed_in_a_new_file_that_leaves_them_out(
    tunebook: Tunebook, refusal: Refusal, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 255, (24, 8, 8), dtype=np.uint8), np.arange(24) % 2
    parts = {"train_images": images, "train_labels": labels}
    parts |= {"test_images": images[:4], "test_labels": labels[:4]}
    np.savez(tmp_path / "data.npz", **parts)  # type: ignore[arg-type]
    listed = tmp_path / "copies.csv"
    command = ("check", tmp_path / "data.npz", "--set", "data.validation_fraction=0.2")
    code, out, err = tunebook(*command, "--write-exclusions", listed)
    assert code == 0, out + err
    assert "4 of train; 4 equal and 0 nearly the same" in out.replace("\n", " ")
    assert listed.read_text().splitlines()[1] == "train,0,equal,test,0"
    code, _, err = tunebook(*command, "--write-exclusions", listed)
    assert code != 0
    assert "copies.csv exists already; give another name, or remove it" in err.replace("\n", " ")
    code, out, err = tunebook(*command, "--write-exclusions", tmp_path / "as.csv", "--json")
    assert code == 0, out + err
    every = "all 28 compared"
    assert json.loads(out)["exclusions"] == {
        "file": str(tmp_path / "as.csv"),
        "equal": 4,
        "nearly_the_same": 0,
        "parts": {"train": 4},
        "compared": {"equal": every, "nearly the same": every},
    }
    assert "expected a name that ends in .csv" in refusal(*command, "--write-exclusions", "copies.parquet")
    again = ("--set", f"data.exclude={listed}", "--write-exclusions", tmp_path / "more.csv")
    code, _, err = tunebook(*command, *again)
    assert "set data.exclude=null to list all" in err.replace("\n", " ")


@pytest.mark.parametrize(
    "options", [("--full",), ("--debug", "gradcheck"), ("--seconds", "30"), ("--minutes", "1")]
)
def test_what_a_check_of_machines_would_ignore_is_refused(refusal: Refusal, options: tuple[str, ...]) -> None:
    said = refusal("check", "digits", "--address", "auto", *options)
    assert f"{options[0]}: not with --address, which checks machines alone" in said


def test_a_list_of_copies_that_is_missing_or_stale_can_be_written_anew(
    tunebook: Tunebook, refusal: Refusal, tmp_path: Path
) -> None:
    images = np.random.default_rng(0).integers(0, 255, (24, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", train_images=images, train_labels=np.arange(24) % 2)
    stale = tmp_path / "copies.csv"
    study = tmp_path / "study.yaml"
    study.write_text(f"data: {{path: data.npz, exclude: {stale}}}\n")
    for content in (None, "image\nno such image\n"):
        if content is not None:
            stale.write_text(content)
        err = refusal("check", study)
        assert "--set data.exclude=null --write-exclusions NEW.csv" in err.replace("\n", " ")
        err = refusal("check", study, "--write-exclusions", tmp_path / "new.csv")
        assert "set data.exclude=null to list all" in err.replace("\n", " ")
    anew = ("--set", "data.exclude=null", "--write-exclusions", tmp_path / "new.csv")
    code, out, err = tunebook("check", study, *anew)
    assert code == 0, out + err
    assert "no image is in two parts" in out.replace("\n", " ")


@pytest.mark.slow("runs all checks")
@pytest.mark.parametrize("option", [("--seconds", "5"), ("--debug", "gradcheck")])
def test_an_option_of_the_checks_has_them_made_beside_the_list_of_copies(
    tunebook: Tunebook, tmp_path: Path, option: tuple[str, str]
) -> None:
    data = arrays(tmp_path / "data.npz")
    code, out, err = tunebook("check", data, *SEEN, *option, "--json", "--write-exclusions", "copies.csv")
    tree = json.loads(out)
    assert code == bool(tree["errors"]), err
    assert tree["exclusions"]["file"] is None
    assert ("gradients" in {each["check"] for each in tree["findings"]}) == (option[0] == "--debug")


@pytest.mark.slow("runs all checks")
def test_an_error_leaves_with_1_and_json_has_every_finding(tunebook: Tunebook, tmp_path: Path) -> None:
    data = arrays(tmp_path / "data.npz", shuffled=True)
    code, out, _ = tunebook("check", data, *SEEN, "--json")
    tree = json.loads(out)
    assert code == 1
    assert tree["errors"] == 1
    assert tree["schema"] == 1
    (found,) = [each for each in tree["findings"] if each["level"] == "error"]
    fields = {"check", "level", "what", "means", "do", "of_accuracy", "copies_in", "failed"}
    assert set(found) == fields
    assert found["check"] == "learning"


@pytest.mark.slow("runs all checks")
def test_a_warning_alone_leaves_with_0(tunebook: Tunebook, tmp_path: Path) -> None:
    arrays(tmp_path / "data.npz")
    (tmp_path / "recipe.yaml").write_text(
        "data: {path: data.npz}\noptimizer: {lr: 500.0}\nmodel: {width: 8}\nloop: {batch_size: 64}\n"
        "precision: {kind: fp32}\n"
    )
    code, out, err = tunebook("check", "recipe.yaml", "--seconds", "3600")
    assert code == 0, out + err
    assert "lr-find" in out
    assert "0 errors, 0 warnings" not in out


def test_the_table_has_what_it_means_and_what_to_do_where_something_is_wrong() -> None:
    findings = [
        Finding("outputs", "passed", "finite"),
        Finding("one batch", "error", "not learnt", "it cannot learn", "look at forward"),
    ]
    out = Console(file=io.StringIO(), width=100)
    out.print(findings_table(findings))
    assert isinstance(out.file, io.StringIO)
    lines = [line.rstrip() for line in out.file.getvalue().splitlines()]
    assert lines[2].startswith("error    one batch")
    out.print(findings_table(findings[1:], heading=False))
    alone = out.file.getvalue().splitlines()[5].rstrip()
    assert alone == lines[2], "as wide alone"
    assert lines[3].strip() == "means: it cannot learn"
    assert lines[4].strip() == "do: look at forward"
    where = document("docs/checks.md#one-batch")
    assert closing(findings, 12.3) == f"1 error, 0 warnings, in 12 s; more: {where}"


@pytest.mark.slow("runs all checks")
def test_gradients_are_checked_when_asked_for(tunebook: Tunebook, tmp_path: Path) -> None:
    data = arrays(tmp_path / "data.npz")
    code, out, err = tunebook("check", data, *SEEN, "--debug", "gradcheck", "--json")
    assert code == 0, out + err
    assert "gradients" in {each["check"] for each in json.loads(out)["findings"]}


@pytest.mark.slow("runs all checks")
def test_a_study_s_trials_and_its_own_first_ones_are_counted_below_the_title(
    tunebook: Tunebook, tmp_path: Path
) -> None:
    arrays(tmp_path / "data.npz")
    budget, first = "budget: {trials: 8, epochs: 3}", "first: [{optimizer.lr: 0.5}, {optimizer.lr: 0.6}]"
    Path("study.yaml").write_text(f"data: {{path: data.npz}}\n{budget}\n{first}\n")
    code, out, err = tunebook("check", "study.yaml", *SEEN)
    assert code == 0, out + err
    assert out.splitlines()[1] == "8 trials x 3 epochs at most, with 2 first trials of the study"


@pytest.mark.slow("runs all checks")
def test_a_recipe_that_learns_masks_is_checked(tunebook: Tunebook, tmp_path: Path) -> None:
    write_recipe(tmp_path / "masks.yaml", mask_recipe(write_masks(tmp_path / "data")))
    _, out, _ = tunebook("check", tmp_path / "masks.yaml", "--seconds", "5", "--full", "--json")
    found = {each["check"] for each in json.loads(out)["findings"]}
    assert {"mask values", "mask position", "window", "decoding", "learning", "one batch"} <= found
    assert not {"shuffled labels", "label"} & found


@pytest.mark.parametrize(
    ("base", "override", "compiles"),
    [
        ({}, None, False),
        ({"loop.compile": True}, None, True),
        ({"loop.compile": "blocks"}, None, True),
        ({}, {"choice": [False, "blocks"]}, True),
        ({}, {"choice": [False]}, False),
        ({}, {"fixed": True}, True),
    ],
)
def test_a_study_that_may_compile_asks_machines_for_a_compiler(
    base: dict[str, Value], override: dict[str, Any] | None, *, compiles: bool
) -> None:
    overrides = {} if override is None else {"loop.compile": override}
    study = Study.model_validate(
        {"data": {"path": "digits"}, "base": base, "space": {"overrides": overrides}}
    )
    assert _asks_to_compile(study) is compiles


def test_what_a_check_finds_about_the_images_of_a_search_is_added_to_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    search = Search(search_folder(tmp_path, {0: (0.8, values())}))
    target = Target(small_recipe(), data_set(), "study", ON_CPU, search.study, search=search)
    found = Finding("duplicates", "error", "9 copies", "memory is rewarded", "leave them out")
    of_recipe = Finding("one batch", "error", "not learnt", "the step is wrong", "mend it")
    record(target, [found, of_recipe, passed("groups", "none")])
    assert [(each.about, each.means) for each in Search(tmp_path).cautions] == [("duplicates", found.means)]
    record(replace(target, search=Search(tmp_path)), [passed("duplicates", "none in a sample")])
    assert len(Search(tmp_path).cautions) == 1
