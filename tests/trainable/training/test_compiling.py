"""Tests that every trial of a process trains with compiled code, and compiles for training alone."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch.fx import GraphModule

from tests.trainable.small_runs import ONE_THREAD, data_set, small_recipe
from tests.trainable.tune.in_process import InProcess
from trainable.bench import Bench
from trainable.models.small_networks import SmallResNet
from trainable.run import make_run
from trainable.training import compiling
from trainable.training.compiling import (
    CACHE_VARIABLE,
    compile_in_place,
    compiled_parts,
    forget_compiled,
    keep_code,
    while_training,
)
from trainable.training.run import Run
from trainable.tune.worker import TrialAssignment, Worker
from trainable.tune.worker_setup import WorkerSetup

# torch compiles a function 8 times in a process: each of these once for training, once for scoring was too
# often
TRIALS = 6

# A graph is compiled again when other weights learn
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({}, 1),
    "frozen, then thawed": ({"model.freeze_epochs": 1}, 2),
}


@pytest.mark.slow("compiles networks")
@pytest.mark.parametrize(("variant", "expected"), VARIANTS.values(), ids=VARIANTS)
def test_every_trial_of_a_worker_is_compiled_and_compiles_what_it_trains(
    variant: dict[str, Any], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    worker = Worker(
        WorkerSetup(
            InProcess(data_set(train=64, validation=23)),
            ONE_THREAD,
            step_seconds=60.0,
        )
    )
    compiled = []
    for trial in range(TRIALS):
        values = {**variant, "loop.compile": True, "model.width": 4 + 4 * (trial % 3)}
        assignment = TrialAssignment(
            small_recipe({**values, "evaluation.batch_size": 10}), tmp_path / str(trial)
        )
        for _ in range(3):
            worker.step(assignment)
        assert worker.free() == ""
        compiled.append(len(graphs))
        graphs.clear()
    assert compiled == [expected] * TRIALS


def test_compiling_takes_the_processors_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config as inductor

    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    threads, compiling = torch.get_num_threads(), inductor.compile_threads
    other = len(os.sched_getaffinity(0)) + 1
    try:
        Worker(WorkerSetup(InProcess(data_set()), Bench(device_name="cpu", threads=other), step_seconds=60.0))
        assert inductor.compile_threads == other
    finally:
        torch.set_num_threads(threads)
        inductor.compile_threads = compiling


# --- by blocks ------------------------------------------------------------------------------------------


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[GraphModule]:
    """What torch traces, and runs as it is."""
    traced: list[GraphModule] = []

    def backend(graph: GraphModule, _: list[Tensor]) -> Any:
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    monkeypatch.setattr(compiling, "keep_code", lambda: None)  # this backend leaves nothing to keep
    return traced


class Block(nn.Module):
    """A residual block that drops its branch with a probability of its own."""

    def __init__(self, width: int, drops: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm, self.drops = nn.Linear(width, width), nn.LayerNorm(width), drops

    def forward(self, inputs: Tensor) -> Tensor:
        branch: Tensor = self.drops(self.layer(self.norm(inputs)))
        return inputs + branch


def of_torchvision(probability: float) -> nn.Module:
    from torchvision.ops import StochasticDepth

    drops: nn.Module = StochasticDepth(probability, "row")
    return drops


def of_timm(probability: float) -> nn.Module:
    from timm.layers.drop import DropPath

    return DropPath(probability)


@pytest.mark.parametrize("drops", [of_torchvision, of_timm])
def test_blocks_that_differ_in_how_often_they_are_dropped_share_their_code(
    drops: Callable[[float], nn.Module], graphs: list[GraphModule]
) -> None:
    stage = [Block(4, drops(0.1 * index)) for index in range(3)]
    model = nn.Sequential(*stage, nn.Linear(4, 2))
    names = list(model.state_dict())
    assert compile_in_place(model, "blocks", one_size=True) == "3 blocks, of one kind"
    try:
        with while_training("blocks"):
            model(torch.ones(5, 4, requires_grad=True)).sum().backward()
    finally:
        forget_compiled()
    assert len(graphs) == 1
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("drops", [of_torchvision, of_timm])
def test_a_branch_is_dropped_for_as_many_images_as_before(drops: Callable[[float], nn.Module]) -> None:
    blocks = nn.Sequential(Block(4, drops(0.25)), Block(4, drops(0.25)))
    plain = blocks[0].drops
    compile_in_place(blocks, "blocks", one_size=True)
    ours, images = blocks[0].drops, torch.ones(4000, 3)
    assert ours is not plain
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in (plain, ours):
            dropped = layer(images)
            assert torch.isin(dropped, torch.tensor([0.0, 1.0 / 0.75])).all()
            assert bool((dropped[:, 0] == dropped[:, 1]).all())
            assert (dropped[:, 0] == 0.0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(ours.eval()(images), images)


@pytest.mark.parametrize("drops", [of_torchvision, of_timm])
def test_a_branch_that_is_always_dropped_is_nothing(drops: Callable[[float], nn.Module]) -> None:
    blocks = nn.Sequential(Block(4, drops(1.0)), Block(4, drops(1.0)))
    compile_in_place(blocks, "blocks", one_size=True)
    images = torch.ones(5, 3, requires_grad=True)
    dropped = blocks[0].drops(images)
    dropped.sum().backward()
    assert dropped.count_nonzero() == 0
    assert images.grad is not None
    assert images.grad.count_nonzero() == 0


@pytest.mark.parametrize("drops", [of_torchvision, of_timm])
def test_blocks_of_which_no_two_are_alike_drop_their_branches_as_before(
    drops: Callable[[float], nn.Module],
) -> None:
    model = nn.Sequential(Block(4, drops(0.1)), nn.Linear(4, 6), Block(6, drops(0.2)))
    before = repr(model)
    assert compile_in_place(model, "blocks", one_size=True) == "the whole network, as it repeats no block"
    assert repr(model) == before


@pytest.mark.parametrize("drops", [of_torchvision, of_timm])
def test_what_would_be_compiled_is_said_without_a_change(drops: Callable[[float], nn.Module]) -> None:
    model = nn.Sequential(Block(4, drops(0.1)), Block(4, drops(0.2)), nn.Linear(4, 2))
    before = repr(model)
    said = compiled_parts(model, "blocks")
    assert repr(model) == before
    assert compile_in_place(model, "blocks", one_size=True) == said == "2 blocks, of one kind"


def test_a_network_that_repeats_no_block_is_compiled_as_a_whole(graphs: list[GraphModule]) -> None:
    model = nn.Sequential(Block(4, nn.Identity()), nn.Linear(4, 6), Block(6, nn.Identity()))
    assert compile_in_place(model, "blocks", one_size=True) == "the whole network, as it repeats no block"
    try:
        model(torch.ones(5, 4))
    finally:
        forget_compiled()
    assert len(graphs) == 1


def test_what_is_not_asked_for_is_not_compiled() -> None:
    model = SmallResNet(depth=8, width=4, stem_stride=1, classes=3, channels=1)
    for never in (False, "auto"):
        assert compile_in_place(model, never, one_size=True) == ""
    assert all(each._compiled_call_impl is None for each in model.modules())


@pytest.mark.slow("compiles networks")
def test_more_kinds_of_blocks_are_compiled_than_torch_allows_of_one_model(graphs: list[GraphModule]) -> None:
    pairs = [
        nn.Sequential(Block(width, nn.Identity()), Block(width, nn.Identity())) for width in range(2, 12)
    ]
    assert compile_in_place(nn.ModuleList(pairs), "blocks", one_size=True) == "20 blocks, of 10 kinds"
    with torch._dynamo.config.patch(recompile_limit=8):  # timm.optim.kron sets a million
        try:
            with while_training("blocks"):
                for width, pair in enumerate(pairs, start=2):
                    pair(torch.ones(5, width, requires_grad=True))
        finally:
            forget_compiled()
        assert torch._dynamo.config.recompile_limit == 8
    assert len(graphs) == 10


def finished(run: Run) -> Run:
    while not run.finished:
        run.step()
    run.close()
    return run


VALUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "frozen, then thawed": {"model.freeze_epochs": 1},
    "computed twice": {"loop.checkpoint_activations": True},
    "of several sizes": {
        "augmentation.size.kind": "multi_scale",
        "augmentation.size.smallest": 0.5,
        "augmentation.size.largest": 1.5,
    },
    "averaged": {"regularisation.averaging.kind": "ema", "regularisation.averaging.decay": 0.9},
}


@pytest.mark.slow("compiles networks")
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_a_run_compiled_by_blocks_is_the_same_run(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    values = {**values, "loop.epochs": 2, "model.depth": 14}
    plain = finished(make_run(small_recipe(values), data=data_set()))
    compiled = finished(make_run(small_recipe({**values, "loop.compile": "blocks"}), data=data_set()))
    assert compiled.compiled == "6 blocks, of 5 kinds"
    assert compiled.weights().keys() == plain.weights().keys()
    assert compiled.history[-1].train_loss == pytest.approx(plain.history[-1].train_loss, rel=1e-4)
    assert compiled.history[-1].val_loss == pytest.approx(plain.history[-1].val_loss, rel=1e-3)


# --- where compiled code is kept ------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a person's caches, where no folder for compiled code is named but by torch itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())
    return tmp_path / "tunebook"


def test_compiled_code_is_kept_in_the_persons_cache_for_this_processor_and_this_torch(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_code()
    folder = Path(os.environ[CACHE_VARIABLE])
    assert folder.parent == cache / "compiled"
    assert folder.stat().st_mode & 0o777 == 0o700
    keep_code()
    assert os.environ[CACHE_VARIABLE] == str(folder)
    monkeypatch.delenv(CACHE_VARIABLE)  # as before torch is imported
    monkeypatch.setattr(torch, "__version__", "0.0")
    keep_code()
    assert Path(os.environ[CACHE_VARIABLE]).name != folder.name


def test_a_folder_that_a_person_names_for_compiled_code_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "theirs"))
    keep_code()
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "theirs")
    assert not cache.exists()


def test_compiled_code_is_not_run_from_a_folder_that_others_may_write(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "compiled").mkdir(parents=True)
    (cache / "compiled").chmod(0o777)
    with caplog.at_level(logging.WARNING):
        keep_code()
    assert cache not in Path(os.environ[CACHE_VARIABLE]).parents
    assert Path(os.environ[CACHE_VARIABLE]).stat().st_mode & 0o777 == 0o700
    assert f"others may write to {cache / 'compiled'} (chmod go-w {cache / 'compiled'})" in caplog.text
