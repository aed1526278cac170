"""Tests that a run learns, tells divergence from a crash, and leaves the caller's process as it was."""

from __future__ import annotations

import math
import os
import shutil
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.missing import stop_without
from tests.trainable.small_runs import CLASSES, SIZE, data_set, finished, numbers, plain_net, small_recipe
from trainable.errors import DataError, ModelError, RecipeError, RunError
from trainable.ranks import Ranks
from trainable.recipe.training import Compiling
from trainable.run import make_run
from trainable.training import seeds, trainer
from trainable.training.metrics import worst
from trainable.training.run import Run


def test_a_run_learns_what_can_be_learnt() -> None:
    run = finished(make_run(small_recipe({"loop.epochs": 6, "model.width": 8}), data=data_set()))
    first, last = run.history[0], run.history[-1]
    assert [result.epoch for result in run.history] == [1, 2, 3, 4, 5, 6]
    assert last.train_loss < first.train_loss
    assert last.train_accuracy > 0.8
    assert not run.diverged
    assert last.grad_norm > 0.0
    assert last.skipped_steps == 0
    assert last.val_top5_accuracy is None
    assert last.images_per_second > 0.0
    assert last.epoch_seconds > last.evaluation_seconds > 0.0
    assert last.peak_memory_bytes > 2**20


def test_what_a_caller_does_in_a_pause_is_no_part_of_the_epochs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 1)
    run = make_run(small_recipe(), data=data_set(), on_pause=lambda: time.sleep(0.05))
    began = time.perf_counter()
    result = run.step()
    assert result.epoch_seconds + 0.05 * (run._trainer.steps - 1) <= time.perf_counter() - began
    assert result.data_seconds + result.evaluation_seconds <= result.epoch_seconds


def test_an_epoch_that_another_run_began_took_the_time_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 1)
    states: list[dict[str, Any]] = []
    first = make_run(small_recipe(), data=data_set(), on_pause=lambda: states.append(first.state_dict()))
    first.step()
    states[-1]["running"]["seconds"] = 1000.0
    second = make_run(small_recipe(), data=data_set())
    second.load_state_dict(states[-1])
    assert 1000.0 < second.step().epoch_seconds < 1100.0


def test_the_first_epoch_of_a_run_says_how_much_longer_its_first_step_took() -> None:
    """A first step may compile code, or try kernels."""

    net, called = plain_net(), list[bool]()

    def wait(net: nn.Module, inputs: Any) -> None:
        if net.training and not called:
            called.append(True)
            time.sleep(0.5)

    net.register_forward_pre_hook(wait)
    run = make_run(small_recipe(), data=data_set(), model=net)
    first, second = run.step(), run.step()
    assert first.first_step_extra_seconds is not None
    assert 0.3 < first.first_step_extra_seconds < first.epoch_seconds
    assert second.first_step_extra_seconds is None


def test_a_finished_run_does_not_step() -> None:
    run = finished(make_run(small_recipe({"loop.epochs": 1}), data=data_set()))
    with pytest.raises(ValueError, match="finished after 1 epoch"):
        run.step()


def test_the_recipe_of_a_run_has_its_data_filled_in() -> None:
    run = make_run(small_recipe(), data=data_set())
    assert run.recipe.data.channels == 1
    assert run.recipe.data.image_size == 8
    assert run.recipe.data.flips == ()
    assert run.compute.number_format == "fp32"


def test_the_recorded_rate_is_that_of_the_last_step() -> None:
    recipe = small_recipe({"optimizer.lr": 0.2, "optimizer.scaling": "linear", "loop.epochs": 2})
    result = make_run(recipe, data=data_set()).step()
    position = 2 / 6  # the third of six steps
    assert result.applied_lr == pytest.approx(0.2 * 16 / 256 * (1 + math.cos(math.pi * position)) / 2)


def test_validation_scores_are_those_of_the_model_as_it_is() -> None:
    run = make_run(small_recipe(), data=data_set())
    result = run.step()
    scores = run.evaluate("validation")
    assert scores["val_loss"] == result.val_loss
    assert scores["val_accuracy"] == result.val_accuracy
    assert set(run.evaluate("test")) == {"test_loss", "test_accuracy", "test_balanced_accuracy"}


def test_scoring_changes_nothing_about_the_training_that_follows() -> None:
    scored, plain = (make_run(small_recipe(), data=data_set()) for _ in range(2))
    scored.evaluate("train")
    assert numbers(finished(scored).history) == numbers(finished(plain).history)


def test_averaged_weights_are_scored_when_the_recipe_names_them() -> None:
    values = {"regularisation.averaging.kind": "ema", "regularisation.averaging.decay": 0.9}
    raw = make_run(small_recipe(), data=data_set())
    averaged = make_run(small_recipe(values), data=data_set())
    ours, theirs = finished(raw).history[-1], finished(averaged).history[-1]
    assert ours.train_loss == theirs.train_loss
    assert ours.val_loss != theirs.val_loss
    assert not torch.equal(raw.weights()["head.weight"], averaged.weights()["head.weight"])
    assert torch.equal(raw.model.state_dict()["head.weight"], averaged.model.state_dict()["head.weight"])


def test_the_test_part_is_scored_with_its_confusion_matrix() -> None:
    run = make_run(small_recipe(), data=data_set(test=20))
    run.step()
    scores = run.score("test", confusion=True)
    assert scores.confusion is not None
    assert sum(map(sum, scores.confusion)) == scores.images == 20
    diagonal = sum(row[label] for label, row in enumerate(scores.confusion))
    assert scores.accuracy == diagonal / 20


OPTIMIZERS = [
    {"optimizer.kind": "sgd", "optimizer.lr": 1e6},
    {"optimizer.kind": "adamw", "optimizer.lr": 1e6},
    {"optimizer.kind": "adamw", "optimizer.lr": 1e6, "optimizer.weight_decay": 0.0},
]


@pytest.mark.parametrize("values", OPTIMIZERS, ids=["sgd", "adamw", "adamw without decay"])
def test_an_absurd_rate_ends_the_run_as_diverged_in_its_first_epoch(values: dict[str, object]) -> None:
    run = make_run(small_recipe(values), data=data_set())
    result = run.step()
    assert result.diverged
    assert run.diverged
    assert run.finished
    assert run.epoch == 1
    assert result.val_loss == result.train_loss == worst("val_loss", CLASSES)
    assert result.val_accuracy == result.val_balanced_accuracy == 0.0
    assert all(math.isfinite(value) for value in result.metrics().values())
    assert all(math.isfinite(value) for value in run.evaluate("test").values())


class Poisoned(nn.Module):
    """A network that turns to NaN in one mode: 'training' from a given step on, or 'evaluation'."""

    def __init__(self, when: str, after: int = 0) -> None:
        super().__init__()
        self.net = plain_net()
        self.when, self.after, self.steps = when, after, 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        lost = self.training and self.steps > self.after if self.when == "training" else not self.training
        logits: Tensor = self.net(images)
        return logits * torch.nan if lost else logits


def test_a_loss_that_is_lost_early_in_a_long_epoch_ends_it_early() -> None:
    model = Poisoned("training", after=3)
    run = make_run(small_recipe({"loop.batch_size": 1}), data=data_set(train=300), model=model)
    assert run.step().diverged
    assert model.steps <= 64


def test_a_validation_loss_that_is_not_finite_is_divergence_too() -> None:
    run = make_run(small_recipe(), data=data_set(), model=Poisoned("evaluation"))
    result = run.step()
    assert result.diverged
    assert result.val_loss == worst("val_loss", CLASSES)
    assert run.evaluate("test")["test_loss"] == worst("val_loss", CLASSES)


def test_a_crash_is_raised_with_the_digest_of_the_recipe_and_its_cause() -> None:
    def crash(net: nn.Module, inputs: Any) -> None:
        raise KeyError("no such layer")

    net = plain_net()
    net.register_forward_pre_hook(crash)
    run = make_run(small_recipe(), data=data_set(), model=net)
    with pytest.raises(RunError, match=f"recipe {run.recipe.digest()}, epoch 1: KeyError") as caught:
        run.step()
    assert isinstance(caught.value.__cause__, KeyError)
    assert run.epoch == 0


def test_a_batch_above_the_training_part_names_both() -> None:
    with pytest.raises(DataError, match=r"loop\.batch_size 49\b.*\b48\b"):
        make_run(small_recipe({"loop.batch_size": 49}), data=data_set(train=48))


def test_the_last_short_batch_of_training_is_dropped() -> None:
    seen: list[int] = []
    net = plain_net()
    net.register_forward_pre_hook(lambda net, inputs: seen.append(len(inputs[0])) if net.training else None)
    make_run(small_recipe({"loop.batch_size": 20}), data=data_set(train=48), model=net).step()
    assert seen == [20, 20]


def test_a_run_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run = make_run(small_recipe({"augmentation.mixing.kind": "mixup"}), data=data_set())
    run.step()
    run.evaluate("test")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_alone_whatever_happened_before() -> None:
    torch.manual_seed(1)
    first = finished(make_run(small_recipe({"loop.seed": 3}), data=data_set()))
    torch.manual_seed(2)
    second = finished(make_run(small_recipe({"loop.seed": 3}), data=data_set()))
    other = finished(make_run(small_recipe({"loop.seed": 4}), data=data_set()))
    assert numbers(first.history) == numbers(second.history)
    assert numbers(first.history) != numbers(other.history)


def test_two_runs_that_take_turns_do_not_disturb_one_another() -> None:
    recipe = small_recipe()

    def make() -> Run:
        return make_run(recipe, data=data_set(), model=plain_net(dropout=0.5))

    alone = finished(make())
    first, second = make(), make()
    while not first.finished:
        first.step()
        second.step()
    assert numbers(first.history) == numbers(second.history) == numbers(alone.history)


def test_dropout_differs_between_epochs() -> None:
    masks = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, CLASSES)

        def forward(self, images: Tensor) -> Tensor:
            mask = nn.functional.dropout(torch.ones(64), 0.5, self.training)
            if self.training:
                masks.append(mask)
            logits: Tensor = self.head(images.flatten(1) * mask)
            return logits

    run = finished(make_run(small_recipe({"loop.batch_size": 48}), data=data_set(), model=Watched()))
    assert run.epoch == len(masks) == 3
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])


# --- what a run says of itself at the end -------------------------------------------------------------


def test_the_last_epoch_tells_the_accuracy_on_clean_training_images() -> None:
    values = {"augmentation.mixing.kind": "mixup", "augmentation.masking.kind": "cutout", "loop.epochs": 3}
    run = finished(make_run(small_recipe(values), data=data_set()))
    assert [result.clean_train_accuracy is None for result in run.history] == [True, True, False]
    assert run.history[-1].clean_train_accuracy == run.score("train").accuracy


def test_a_large_training_part_is_sampled_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.training.scoring.TRAIN_IMAGES", 21)
    run = finished(make_run(small_recipe({"loop.epochs": 1}), data=data_set(train=48, validation=12)))
    chosen = seeds.sample(run.recipe.loop.seed, 48, 21)
    assert len(set(chosen.tolist())) == 21
    answered: dict[int, int] = {}
    run.score("train", take=lambda rows, logits: answered.update(zip(rows, logits.argmax(1), strict=True)))
    right = [answered[index] == run.parts["train"].labels[index] for index in chosen.tolist()]
    assert run.history[-1].clean_train_accuracy == pytest.approx(sum(right) / 21)


def test_a_mirror_that_the_data_forbid_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"evaluation\.flip: .*data\.flips is \[\]"):
        make_run(small_recipe({"evaluation.flip": True}), data=data_set())


def test_a_size_that_the_model_does_not_take_is_refused_before_training() -> None:
    values = {"augmentation.size.kind": "multi_scale", "augmentation.size.largest": 2.0}
    with pytest.raises(ModelError, match=r"augmentation\.size: .*\d+ px"):
        make_run(small_recipe(values), data=data_set(), model=plain_net())
    with pytest.raises(ModelError, match=r"evaluation\.scales: .*\b16 px"):
        make_run(small_recipe({"evaluation.scales": [1.0, 2.0]}), data=data_set(), model=plain_net())


def test_several_sizes_of_which_there_is_one_are_refused() -> None:
    values = {
        "augmentation.size.kind": "multi_scale",
        "data.image_size": 8,
        "augmentation.size.smallest": 0.9,
    }
    with pytest.raises(RecipeError, match=r"augmentation\.size: .*\b0\.9\b.*\b1\.25\b.*\b8 px"):
        make_run(small_recipe(values), data=data_set())


def test_views_are_averaged_in_a_runs_scores() -> None:
    values = {"evaluation.scales": [1.0, 1.5], "loop.epochs": 1}
    run = finished(make_run(small_recipe(values), data=data_set()))
    plain = finished(make_run(small_recipe({"loop.epochs": 1}), data=data_set()))
    assert torch.equal(run.weights()["stem.weight"], plain.weights()["stem.weight"])
    assert run.history[0].val_loss != plain.history[0].val_loss


def test_memory_that_runs_out_in_scoring_is_remembered_from_epoch_to_epoch() -> None:
    refused: list[int] = []

    def refuse(net: nn.Module, inputs: tuple[Tensor]) -> None:
        """Have no memory for more than 10 images without gradients."""
        if not torch.is_grad_enabled() and len(inputs[0]) > 10:
            refused.append(len(inputs[0]))
            raise torch.OutOfMemoryError("planted")

    net = plain_net().float()
    net.register_forward_pre_hook(refuse)
    run = finished(make_run(small_recipe(), data=data_set(validation=20), model=net))
    assert len(run.history) == 3
    assert refused == [20]


# --- trying steps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sgd", "adamw", "adam_then_sgd"])
@pytest.mark.parametrize("epochs", [0, 1])
def test_a_run_goes_on_after_a_probe_as_if_there_had_been_none(kind: str, epochs: int) -> None:
    values = {
        "optimizer.kind": kind,
        "regularisation.averaging.kind": "ema",
        "regularisation.averaging.decay": 0.9,
        "loop.micro_batch": 8,
    }
    with_probe, other = (make_run(small_recipe(values), data=data_set()) for _ in range(2))
    for run in (with_probe, other):
        for _ in range(epochs):
            run.step()
    before = {name: each.clone() for name, each in with_probe.model.state_dict().items()}
    generator = torch.get_rng_state()
    with with_probe.probing():
        losses = [with_probe.train_on(window, lr=0.3).item() for window in with_probe.windows(5)]
        assert len(losses) == 3
        assert not torch.equal(with_probe.model.state_dict()["stem.weight"], before["stem.weight"])
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(each, before[name]) for name, each in with_probe.model.state_dict().items())
    assert numbers(finished(with_probe).history) == numbers(finished(other).history)


def test_probing_ends_well_when_a_step_fails() -> None:
    run = make_run(small_recipe(), data=data_set())
    before = run.model.state_dict()["stem.weight"].clone()

    def fail() -> None:
        with run.probing():
            run.train_on(next(run.windows()))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(run.model.state_dict()["stem.weight"], before)


def test_an_epoch_in_portions_comes_to_what_it_comes_to_by_batches() -> None:
    values = {
        "loop.micro_batch": 6,
        "augmentation.crop.kind": "pad",
        "augmentation.policy.kind": "trivialaugment",
        "augmentation.mixing.kind": "cutmix",
        "augmentation.masking.kind": "erasing",
    }
    in_portions, by_batches = (make_run(small_recipe(values), data=data_set()) for _ in range(2))
    assert in_portions.images.loader.portion_images > 48
    by_batches.images.loader.portion_images = 0
    losses = [run.step().train_loss for run in (in_portions, by_batches)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("images", "micro_batch", "steps"), [(0, None, 1), (100, None, 6), (100, 8, 6), (10**6, None, 32)]
)
def test_a_portion_lasts_for_whole_steps(images: int, micro_batch: int | None, steps: int) -> None:
    run = make_run(small_recipe({"loop.micro_batch": micro_batch}), data=data_set())
    run.images.loader.portion_images = images
    assert run.steps_of_a_portion == steps


def test_a_window_is_the_effective_batch_in_its_micro_batches() -> None:
    run = make_run(small_recipe({"loop.micro_batch": 6}), data=data_set())
    with run.probing():
        windows = list(run.windows(0))
    assert [[len(labels) for _, labels in window] for window in windows] == [[6, 5, 5]] * 3


def test_images_a_second_are_counted_until_the_device_has_been_read() -> None:
    """A GPU computes long after its last step was launched; here it takes as long to read it."""
    late = 0.1

    def reduce(tensor: Tensor) -> Tensor:
        until = time.perf_counter() + late
        while time.perf_counter() < until:
            pass
        return tensor

    run = make_run(small_recipe(), data=data_set(train=48), ranks=Ranks(0, 1, reduce))
    assert finished(run).history[-1].images_per_second < 48 / late


# --- compilation --------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(("compiling", "depth"), [(True, 8), ("blocks", 14)])
def test_a_compiled_run_is_the_same_run(compiling: Compiling, depth: int) -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        stop_without("a C++ compiler", "g++")
    averaged = {"regularisation.averaging.kind": "ema", "regularisation.averaging.decay": 0.9}
    values = {**averaged, "loop.epochs": 2, "model.depth": depth}
    compiled = finished(make_run(small_recipe({**values, "loop.compile": compiling}), data=data_set()))
    plain = finished(make_run(small_recipe(values), data=data_set()))
    assert compiled.weights().keys() == plain.weights().keys()
    assert compiled.history[-1].train_loss == pytest.approx(plain.history[-1].train_loss, rel=1e-4)
    assert compiled.history[-1].val_loss == pytest.approx(plain.history[-1].val_loss, rel=1e-3)


MANY_SIZES = {"augmentation.size.kind": "multi_scale", "augmentation.size.largest": 1.5}


class Noting(nn.Module):
    """A linear network that notes whether it trains, and whether cuDNN would search for kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(SIZE), nn.Flatten(), nn.Linear(SIZE * SIZE, CLASSES))
        self.seen = set[tuple[bool, bool]]()

    def forward(self, images: Tensor) -> Tensor:
        self.seen.add((self.training, torch.backends.cudnn.benchmark))
        logits: Tensor = self.head(images)
        return logits


@pytest.mark.parametrize(
    ("values", "searches"), [({}, True), ({"loop.epochs": 1}, False), (MANY_SIZES, False)]
)
def test_only_the_steps_of_a_long_run_of_one_size_search_for_kernels(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], searches: bool
) -> None:
    monkeypatch.setattr("trainable.training.run.KERNEL_SEARCH_STEPS", 6)
    network = Noting()
    run = make_run(small_recipe({"loop.epochs": 2, **values}), data=data_set(), model=network)
    run.step()
    with run.probing():
        run.train_on(next(run.windows()))
    assert network.seen == {(True, searches), (True, False), (False, False)}
    assert not torch.backends.cudnn.benchmark
