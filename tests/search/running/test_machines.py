"""Machines of a cluster are looked at before they train; what each says is told apart from what a person must
do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from search.facts.hardware import PerTrial
from search.record.lock import locked
from search.running.look import TOKEN, Look, Question, digest_of_ours, look
from search.running.machines import (
    LEAST_BYTES,
    REMEDIES,
    CheckedMachine,
    _compared,
    _faults,
    _remarks,
    _shared,
    refuse_unfit,
)
from trainable.errors import UserError
from trainable.tune.carried import Carried, PickledCode

GIB = 2**30


@pytest.fixture
def question(tmp_path: Path) -> Iterator[Question]:
    """A question of a head that holds the folder's lock, in a storage that this machine shares."""
    with locked(tmp_path / "mine" / "shared") as _:
        (tmp_path / "mine" / "shared" / TOKEN).write_text("secret")
        yield Question(str(tmp_path), str(tmp_path / "mine" / "shared"), "secret", "cpu")


def faults(found: Look, question: Question, here: Look | None = None, *, compiles: bool = False) -> list[str]:
    return list(_faults(found, here or found, question, compiles=compiles))


def test_a_machine_like_the_head_can_train(question: Question) -> None:
    assert faults(look(question, "node-1"), question, look(question, "head")) == []


def test_a_folder_of_its_own_in_place_of_the_storage_is_named(question: Question, tmp_path: Path) -> None:
    own = replace(question, shared=str(tmp_path / "not-there"))
    (said,) = faults(look(own, "node-1"), own)
    assert said.startswith(
        f"it does not share the storage {tmp_path} with the head: another folder lies there"
    )
    assert "mount one folder with locks there on all machines" in said
    none = replace(question, storage="/nowhere", shared="/nowhere/shared")
    assert "/nowhere with the head: it is not there;" in faults(look(none, "node-1"), none)[0]


def test_another_token_is_another_folder(question: Question) -> None:
    other = replace(question, token="another")
    assert "it has another token there" in faults(look(other, "node-1"), other)[0]


def test_what_a_machine_writes_must_arrive(question: Question) -> None:
    found = look(question, "node-1")
    (Path(question.shared) / "node-1").unlink()
    assert "the head does not see what it writes" in faults(found, question)[0]


def test_locks_must_be_shared(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / TOKEN).write_text("secret")
    unlocked = Question(str(tmp_path), str(tmp_path / "shared"), "secret", "cpu")
    assert "locks of the head are not seen there" in faults(look(unlocked, "node-1"), unlocked)[0]


def test_a_store_is_shared_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / TOKEN).write_text("secret")
    there = Question(f"file://{tmp_path}", f"file://{tmp_path}/shared", "secret", "cpu")
    assert faults(look(there, "node-1"), there) == []
    assert (tmp_path / "shared" / "node-1").read_text() == "secret"
    empty = replace(there, shared=f"file://{tmp_path}/other")
    assert "give it the head's keys and network" in faults(look(empty, "node-1"), empty)[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch", "its torch is 1.0 and the head's"),
        ("timm", "its timm is 1.0 and the head's"),
    ],
)
def test_packages_must_be_the_head_s(question: Question, name: str, words: str) -> None:
    here = look(question, "node-1")
    other = replace(here, packages={**here.packages, name: "1.0"})
    (said,) = faults(other, question, here)
    assert said.startswith(words)
    assert said.endswith("install the same on all machines")


def test_builds_for_other_devices_are_one_version_and_what_counts_of_tunebook_are_its_files(
    question: Question,
) -> None:
    here = look(question, "node-1")
    built = {name: f"{here.packages[name].partition('+')[0]}+cpu" for name in ("torch", "torchvision")}
    assert faults(replace(here, packages={**here.packages, **built}), question, here) == []
    older = replace(here, packages={**here.packages, "tunebook": "0.1.0"})
    assert faults(older, question, here) == [], "a job brings the modules of the laptop"
    assert "0.1.0 is not the head's" in faults(replace(older, files="0f"), question, here)[0]


def test_other_modules_of_the_same_version_are_another_tunebook(question: Question, tmp_path: Path) -> None:
    here = look(question, "node-1")
    assert "has other files than the head's" in faults(replace(here, files="0f"), question, here)[0]
    (tmp_path / "search").mkdir()
    before = digest_of_ours(tmp_path)
    (tmp_path / "search" / "new.py").write_text("")
    assert digest_of_ours(tmp_path) != before


def test_a_compiler_counts_where_trials_are_compiled(question: Question) -> None:
    without = replace(look(question, "node-1"), compiler="no compiler")
    assert faults(without, question, compiles=False) == []
    assert faults(without, question, compiles=True) == ["no compiler"]


def test_a_function_that_cannot_be_used_there_is_named(question: Question) -> None:
    carried = PickledCode(Carried("my_network", b"no pickle", {}))
    (said,) = faults(look(replace(question, code=carried), "node-1"), question)
    assert said.startswith("my_network: cannot be used on ")


@pytest.mark.parametrize("what", ["memory", "temporary files"])
def test_too_little_room_is_a_fault(question: Question, what: str) -> None:
    full = replace(look(question, "node-1"), free={what: LEAST_BYTES - 1})
    (said,) = faults(full, question)
    assert said == f"1.0 GiB are free for {what}, and a process that trains takes more: {REMEDIES[what]}"


def test_a_clock_that_is_minutes_off_and_little_shared_memory_are_said(question: Question) -> None:
    found = replace(look(question, "node-1"), free={"/dev/shm": 2**26})
    said = list(_remarks(found, -180.0))
    assert said[0].startswith("its clock is 180 s behind the head's")
    assert said[1].startswith("64 MiB of shared memory are free")
    assert "give its container more" in said[1]
    assert list(_remarks(replace(found, free={"/dev/shm": GIB}), 59.0)) == []


def test_a_machine_that_reads_far_slower_than_the_others_says_so() -> None:
    rates = {"a": 4000.0, "b": 3000.0, "c": 100.0, "d": None}
    seen = {
        each.name: each
        for each in _compared(CheckedMachine(name, name, None, rate) for name, rate in rates.items())
    }
    assert [name for name, each in seen.items() if each.remarks] == ["c"]
    assert seen["c"].remarks[0].startswith("it reads 100 images a second and the others 3,500")


def test_machines_that_cannot_train_are_refused_by_name() -> None:
    fit, unfit = (
        CheckedMachine("1", "host-a (10.0.0.1)"),
        CheckedMachine("2", "host-b (10.0.0.2)", faults=("no driver", "no disk")),
    )
    refuse_unfit([fit])
    with pytest.raises(
        UserError, match=re.escape("machine host-b (10.0.0.2): no driver; no disk\n")
    ) as refused:
        refuse_unfit([fit, unfit])
    assert "--set machines.unfit=leave_out" in str(refused.value)
    with pytest.raises(UserError) as all_refused:
        refuse_unfit([unfit], others_can=False)
    assert "leave_out" not in str(all_refused.value), "nobody would be left"


@pytest.mark.parametrize("workers", [1, 2])
def test_ray_takes_the_places_of_trials_that_leave_machines_out(workers: int) -> None:
    from ray.util.placement_group import validate_placement_group

    from search.running.raytune import placement

    wanted = placement(PerTrial(cpus=1, gpus=0.0, workers=workers), without=["0f", "1e"])
    bound = wanted._bound.arguments
    validate_placement_group(bundles=bound["bundles"], bundle_label_selector=bound["bundle_label_selector"])
    assert bound["bundle_label_selector"][0] == {"ray.io/node-id": "!in(0f,1e)"}
    assert len(bound["bundles"]) == workers


def test_nothing_is_left_in_the_storage_and_what_a_killed_driver_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "searches" / ".machines-killed").mkdir(parents=True)
    (tmp_path / "searches" / ".machines-killed" / TOKEN).write_text("old")
    with _shared(str(tmp_path / "searches"), ".machines-mine", "secret") as first:
        with _shared(str(tmp_path / "searches"), ".machines-other", "secret") as second:
            assert Path(first).is_dir(), "another driver is at work there"
            assert Path(second).is_dir()
        assert [each.name for each in (tmp_path / "searches").iterdir()] == [".machines-mine"]
    assert not list((tmp_path / "searches").iterdir())
    with _shared(str(tmp_path / "new" / "searches"), ".machines-mine", "secret"):
        pass
    assert not (tmp_path / "new").exists()


def test_a_storage_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written to"), _shared(str(tmp_path / "file"), ".m", "t"):
        pass
