"""Tests steps and epochs on a GPU that exists on paper: nothing is on the wrong device, and nothing waits.

All cases run in one process (`tests.gpu.on_paper.cases`), as importing torch takes longer than most of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu.on_paper.cases import PLANTED, cases
from tests.gpu.on_paper.device import stubs
from tests.missing import stop_without
from trainable.training.devices import CONTEXT_BYTES

pytestmark = pytest.mark.integration

# Kernels and copies that a step launches, measured with torch 2.15. On a GPU they bound small nets.
#
# Those of a portion's augmentation are shared by the steps that are taken of it: two in most cases.
LAUNCHES = {
    "plain": 89,
    "crop and erasing": 92,
    "resized crop and cutout": 106,
    "gridmask": 90,
    "hide and seek": 92,
    "gridmask, turned": 103,
    "randaugment": 179,
    "trivialaugment": 136,
    "autoaugment": 161,
    "mixup, smoothing": 104,
    "cutmix": 102,
    "clipping, EMA": 98,
    "adaptive clipping": 178,
    "micro-batches": 426,
    "multi-scale": 89,
    "bf16": 114,
    "adamw": 91,
    "adam": 91,
    "adam, then sgd": 91,
    "rmsprop": 102,
    "adadelta": 109,
    "lars": 110,
    "lamb": 122,
    "fp16, sgd": 125,
    "fp16, adamw": 129,
    "fp16, rmsprop": 176,
    "fp16, adadelta": 183,
    "fp16, lars": 184,
    "frozen": 90,
    "checkpointed": 146,
    "erasing in large batches": 114,
    "gridmask in large batches": 114,
    "hide and seek in large batches": 116,
    "a small network": 107,
    "a small network, every technique": 137,
    "fp16, lamb": 157,
    "an epoch of bf16": 114,
    "an epoch of fp16": 125,
    "EMA, clipping, views": 123,
    "extra metrics": 114,
    "sync_norm in two ranks": 224,
    "two ranks": 143,
    "frozen, then thawed": 66,
    "micro-batches, checkpointed": 397,
    "compiled": 114,
    "compiled by blocks": 176,
    "images in the host's memory": 113,
    "ResNet-18": 229,
    "ViT": 676,
    "masks": 151,
    "masks, scaled windows, classmix": 271,
    "masks, cutmix": 157,
    "masks, trivialaugment": 204,
    "masks, every loss": 271,
    "masks, fp16, micro-batches": 380,
    "masks, loss at the size of the outputs": 151,
    "a teacher's logits": 145,
    "a teacher's logits, mixed images": 159,
    "a teacher's decoupled logits": 235,
    "a teacher's features": 145,
    "a teacher's logits of masks": 219,
    "a teacher's features of masks": 290,
}

# With crop, flip, RandAugment, CutMix, erasing, clipping and averaged weights, a step of a small network
# launches at most so many times what it launches without them
MOST_FOR_TECHNIQUES = 1.3

BAND = 0.15  # another version of torch may launch more or less by such a part

PREFETCHED = {"an event in data/loading.py fill": "another thread waits until its buffer has been copied"}

# What may wait in a step of a case, and why
IN_A_STEP = {
    "images in the host's memory": PREFETCHED,
    "fp16, lamb": {"a number read in amp/grad_scaler.py <genexpr>": "LAMB counts its steps on the host"},
}

# What may wait in an epoch, but for its steps, and why
IN_AN_EPOCH = {
    **PREFETCHED,
    "a number read in training/trainer.py _trained": "the epoch's sums, at its end",
    "a number read in classification/task.py scores": "the part's sums, at its end",
    "a tensor read in classification/task.py scores": "or these sums and all answers together, at its end",
    "a tensor read in segmentation/scores.py scores": "the counts of a part's pixels, at its end",
    "a tensor read in distilled/teacher_answers.py _computed": "the answers that are remembered, once",
    "an event in distilled/task.py seconds": "what the teacher's steps took, when an epoch is reported",
    "a number read in amp/grad_scaler.py get_scale": "the state that a checkpoint holds",
    "a number read in amp/grad_scaler.py _get_growth_tracker": "the state that a checkpoint holds",
}

Record = dict[str, Any]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Record]]:
    """Return what each case and each planted fault recorded."""
    for program in ("gcc", "g++"):
        if shutil.which(program) is None:
            stop_without(f"{program}, which compiles stubs", "g++")
    environment = {**os.environ, **stubs(tmp_path_factory.mktemp("stubs"))}
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.on_paper.cases"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Record]] = json.loads(done.stdout)
    return found


def faults(record: Record, launches: int, allowed: set[str]) -> list[str]:
    """Return what is wrong with the steps of a record."""
    found = [record["fault"]] if record["fault"] else []
    found += [f"waits: {each}" for each in record["step_waits"] if each not in allowed]
    low, high = launches * (1 - BAND), launches * (1 + BAND)
    if not record["fault"] and not low <= record["launches"] <= high:
        found.append(f"launches: {record['launches']:.0f} a step, expected {low:.0f} to {high:.0f}")
    return found


def test_every_case_has_its_number_of_launches() -> None:
    assert LAUNCHES.keys() == cases().keys()


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_step_on_paper_mixes_no_devices_waits_for_nothing_and_launches_no_more_than_before(
    name: str, records: dict[str, dict[str, Record]]
) -> None:
    assert faults(records["cases"][name], LAUNCHES[name], set(IN_A_STEP.get(name, ()))) == []


@pytest.mark.parametrize("name", LAUNCHES)
def test_an_epoch_on_paper_waits_where_it_may(name: str, records: dict[str, dict[str, Record]]) -> None:
    assert records["cases"][name]["epoch_waits"].keys() <= IN_AN_EPOCH.keys()


def test_techniques_launch_little_beside_a_small_network(records: dict[str, dict[str, Record]]) -> None:
    cases = records["cases"]
    assert not cases["a small network, every technique"]["step_waits"]
    launched = cases["a small network, every technique"]["launches"]
    assert launched <= MOST_FOR_TECHNIQUES * cases["a small network"]["launches"]


def test_nothing_may_wait_that_does_not(records: dict[str, dict[str, Record]]) -> None:
    cases = records["cases"]
    assert {name: case["step_waits"].keys() for name, case in cases.items() if case["step_waits"]} == {
        name: waits.keys() for name, waits in IN_A_STEP.items()
    }
    assert {wait for case in cases.values() for wait in case["epoch_waits"]} == IN_AN_EPOCH.keys()


def test_a_worker_with_a_share_of_a_gpu_leaves_room_for_its_context(records: dict[str, Any]) -> None:
    whole = 80 * 2**30
    for share, fraction in records["shares"].items():
        assert fraction * whole + CONTEXT_BYTES == pytest.approx(float(share) * whole)


def test_few_batches_are_shown_to_a_network_while_its_steps_are_timed(records: dict[str, Any]) -> None:
    assert records["shown"]["timed"] == [
        "(128, 3, 16, 16) channels_last torch.bfloat16",
        "(128, 3, 16, 16) contiguous torch.bfloat16",
    ]


def test_scoring_and_measuring_norms_show_a_network_no_other_batches(
    records: dict[str, Any],
) -> None:
    assert records["shown"]["trained"] == ["(16, 3, 16, 16) channels_last torch.bfloat16"]


SEEN = {
    "a tensor left on the CPU": "found at least two devices",
    "a state left on the CPU": "given tensors of 1 on the CPU",
    "a number read": "waits: a number read",
    "a tensor read": "waits: a tensor read",
    "a copy that blocks": "waits: a copy to the device that blocks",
    "a large pageable copy": "waits: a large copy from pageable memory",
    "a stream waited for": "waits: a stream",
    "an index by a mask": "aten.nonzero",
    "an index on the host": "by an index on the host",
    "a kernel for each image": "launches: ",
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_seen(name: str, records: dict[str, dict[str, Record]]) -> None:
    sound = round(records["planted"]["nothing"]["launches"])
    found = faults(records["planted"][name], sound, set())
    if name == "nothing":
        assert found == []
    else:
        assert any(SEEN[name] in each for each in found), found
