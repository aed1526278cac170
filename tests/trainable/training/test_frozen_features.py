"""Tests that a frozen body computes the features of an image once, and that nothing else changes by it."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, SIZE, curve, data_set, finished, small_recipe, unequal_set
from trainable.data import DataSet
from trainable.files import host_memory
from trainable.run import make_run
from trainable.training.frozen_features import steady_cut
from trainable.training.run import Run

FROZEN: dict[str, Any] = {
    "model.freeze_epochs": 3,
    "loop.epochs": 4,
    "loop.batch_size": 8,
    "evaluation.norm_batches": 0,
}
AUGMENTED = {
    "augmentation.crop.kind": "pad",
    "augmentation.masking.kind": "erasing",
    "augmentation.masking.probability": 0.5,
}
IMAGES, VALIDATION = 48, 20
TRIED = 11  # so many images go through a network to find out whether their features may take their place


class Seen:
    """How many images a net's body sees, and whether a gradient is asked for behind it."""

    def __init__(self, net: nn.Sequential) -> None:
        self.images = 0
        self.gradients: list[bool] = []
        net[0].register_forward_pre_hook(self._count)
        net[-1].register_forward_pre_hook(self._look)

    def _count(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        self.images += len(inputs[0])

    def _look(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        if torch.is_grad_enabled():
            self.gradients.append(inputs[0].requires_grad)


def net() -> nn.Sequential:
    """Return a net in fp64 with BatchNorm in its body and dropout before its head."""
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Dropout(0.5), nn.Linear(16, CLASSES)).double()


def run_of(values: dict[str, Any], model: nn.Module, data: DataSet | None = None) -> Run:
    return make_run(small_recipe({**FROZEN, **values}), data=data or data_set(), model=model)


def assert_alike(ours: Run, theirs: Run, tolerance: float = 1e-9) -> None:
    """A body may compute features of 8 images and of 48 with other kernels, which round in other ways."""
    for mine, other in zip(curve(ours.history), curve(theirs.history), strict=True):
        assert mine == pytest.approx(other, rel=tolerance, abs=tolerance)


BOTH = IMAGES + VALIDATION
ANEW = [BOTH + TRIED, IMAGES, IMAGES]


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ({}, [BOTH + TRIED, 0, 0]),
        ({**AUGMENTED, "model.frozen_views": 1}, [BOTH + TRIED, 0, 0]),
        ({**AUGMENTED, "model.frozen_views": 2}, [BOTH + TRIED, IMAGES, 0]),
        ({**AUGMENTED, "model.frozen_views": 3}, ANEW),
        (AUGMENTED, ANEW),
        ({"augmentation.mixing.kind": "mixup"}, ANEW),
        ({"augmentation.size.kind": "progressive"}, ANEW),
        ({"model.freeze_epochs": 1}, [BOTH, BOTH, BOTH]),
    ],
    ids=["nothing random", "one view", "two", "no view twice", "random", "mixed", "sizes", "one epoch"],
)
def test_the_body_sees_an_image_again_only_if_it_looks_different(
    values: dict[str, Any], seen: list[int]
) -> None:
    model, totals = net(), []
    found = Seen(model)
    run = run_of(values, model)
    for _ in range(3):
        before = found.images
        run.step()
        totals.append(found.images - before)
    assert totals == seen
    before = found.images
    run.step()
    assert found.images - before == BOTH + IMAGES, "all layers are trained, and a sample is scored at the end"


CASES: dict[str, dict[str, Any]] = {
    "dropout, micro-batches": {"loop.micro_batch": 4},
    "two views, average, metrics": {
        **AUGMENTED,
        "model.frozen_views": 2,
        "regularisation.averaging.kind": "ema",
        "regularisation.averaging.decay": 0.5,
        "evaluation.metrics": ["macro_f1"],
        "evaluation.batch_size": 7,
    },
    "images drawn more than once": {**AUGMENTED, "model.frozen_views": 1, "loop.sampling": "balanced"},
    "batches mixed, features scored": {"augmentation.mixing.kind": "cutmix"},
}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_a_run_without_memory_for_features_is_the_same_and_says_so(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = unequal_set() if "loop.sampling" in values else data_set()
    ours = finished(run_of(values, net(), data))
    assert not caplog.records
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 100)
    with caplog.at_level(logging.WARNING):
        theirs = finished(run_of(values, net(), data))
    assert_alike(ours, theirs)
    (said,) = caplog.messages
    assert "features of the frozen body are not remembered" in said
    assert "100 that are free" in said


def test_views_of_a_body_with_chance_in_it_are_not_remembered_which_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = net()
    network.insert(0, nn.Dropout(0.1))
    finished(run_of({**AUGMENTED, "model.frozen_views": 1}, network))
    (said,) = caplog.messages
    assert said.startswith("model.frozen_views: features are not remembered")


@pytest.mark.parametrize("room", [8, 0], ids=["for some images", "for none"])
def test_where_memory_runs_out_over_features_fewer_are_computed_at_once_or_none(
    room: int, caplog: pytest.LogCaptureFixture
) -> None:
    model, refused = net(), list[int]()

    def refuse(_: nn.Module, inputs: tuple[Tensor]) -> None:
        count = len(inputs[0])
        allowed = room if refused else 3  # these are tried before
        if not torch.is_grad_enabled() and count > allowed and 1 not in refused:
            refused.append(count)
            raise torch.OutOfMemoryError("planted: out of memory")

    model[0].register_forward_pre_hook(refuse)
    ours = run_of({}, model)
    ours.step()
    assert refused == ([48, 24, 12] if room else [48, 24, 12, 6, 3, 2, 1])
    assert bool(caplog.records) == (room == 0)
    assert_alike(finished(ours), finished(run_of({}, net())))


@pytest.mark.parametrize("views", [None, 1], ids=["images", "features"])
def test_no_gradient_goes_through_a_frozen_body(views: int | None) -> None:
    model = net()
    found = Seen(model)
    run = run_of({**AUGMENTED, "model.frozen_views": views}, model)
    for epoch in range(4):
        found.gradients.clear()
        run.step()
        assert found.gradients == [epoch == 3] * (IMAGES // 8)


def test_steps_of_a_probe_train_on_images_and_leave_the_features_right() -> None:
    probed, plain = run_of({}, net()), run_of({}, net())
    probed.step()
    with probed.probing(3):
        window = next(probed.windows(3))
        assert window[0][0].shape == (8, 1, SIZE, SIZE)
        probed.train_on(window)
    assert_alike(finished(probed), finished(plain))


def test_a_state_of_other_weights_brings_features_of_its_own() -> None:
    first = run_of({}, net())
    state = first.state_dict()
    other = run_of({}, net())
    with torch.no_grad():
        other.model.get_submodule("0").weight.mul_(2.0)
    other.step()
    other.load_state_dict(state)
    assert_alike(finished(other), finished(first))


def test_a_run_with_features_is_freed_with_its_last_name() -> None:
    run = run_of({}, net())
    run.step()
    gone = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert gone() is None
    finally:
        gc.enable()


# --- which networks can be cut ------------------------------------------------------------------------


class Counting(nn.Identity):
    """A layer that counts its calls in training, in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return images


class Noisy(nn.Identity):
    """A layer that computes in training what it does not in evaluation."""

    def forward(self, images: Tensor) -> Tensor:
        return images + 1 if self.training else images


BODIES: dict[str, tuple[nn.Module, bool]] = {
    "frozen BatchNorm": (nn.BatchNorm2d(4), True),
    "GroupNorm": (nn.GroupNorm(2, 4), True),
    "dropout in the body": (nn.Dropout(0.1), False),
    "dropout that hardly drops": (nn.Dropout(1e-12), False),
    "statistics of each batch": (nn.BatchNorm2d(4, track_running_stats=False), False),
    "a buffer that changes": (Counting(), False),
    "other features in training": (Noisy(), False),
}


@pytest.mark.parametrize(("layer", "steady"), BODIES.values(), ids=BODIES)
def test_a_body_is_steady_if_nothing_but_the_image_decides_its_features(
    layer: nn.Module, steady: bool
) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.Flatten(), nn.Linear(144, CLASSES))
    before = [each.clone() for each in network.buffers()]
    generators = torch.default_generator.get_state()
    cut = steady_cut(network, torch.randn(3, 1, SIZE, SIZE), freeze_norm=False)
    assert (cut is not None) == steady
    assert all(map(torch.equal, before, network.buffers()))
    assert torch.equal(torch.randn(1), _next_of(generators)), "but for the three images, nothing was drawn"


def test_features_that_are_maps_are_not_kept() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, CLASSES, 6), nn.Flatten())
    assert steady_cut(network, torch.randn(3, 1, SIZE, SIZE), freeze_norm=False) is None


def _next_of(generators: Tensor) -> Tensor:
    generator = torch.Generator()
    generator.set_state(generators)
    torch.randn(3, 1, SIZE, SIZE, generator=generator)
    return torch.randn(1, generator=generator)
