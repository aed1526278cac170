"""Tests class weights, sampling and logit adjustment against torch's own pieces and the papers' formulae."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import WeightedRandomSampler

from tests.trainable.small_images import write_image
from tests.trainable.small_runs import HELD, LABELS, SIZE, curve, plain_net, small_recipe, unequal_set
from trainable.bench import ON_CPU
from trainable.data import ArrayPart
from trainable.data.assembly import load
from trainable.data.loading import ArrayLoader, FileLoader
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.tasks import CLASSIFICATION
from trainable.recipe.training import EffectiveNumberWeights, InverseWeights, Loop, Sampling
from trainable.run import make_run
from trainable.tasks.kits import kit_of, make_loader
from trainable.training import trainer
from trainable.training.batches import Order
from trainable.training.imbalance import class_weights
from trainable.training.run import Run

CPU = torch.device("cpu")
WEIGHTS = "regularisation.class_weights"
INVERSE: dict[str, Any] = {f"{WEIGHTS}.kind": "inverse"}
EFFECTIVE: dict[str, Any] = {f"{WEIGHTS}.kind": "effective_number", f"{WEIGHTS}.beta": 0.9}
ADJUSTED: dict[str, Any] = {"regularisation.logit_adjustment": 1.0}
BALANCED: dict[str, Any] = {"loop.sampling": "balanced"}
SQRT: dict[str, Any] = {"loop.sampling": "sqrt"}


def run_of(values: dict[str, Any], ranks: Ranks | None = None) -> Run:
    recipe = small_recipe({"optimizer.lr": 0.01, **values})
    return make_run(recipe, data=unequal_set(), model=plain_net(), ranks=ranks or Ranks())


def loss_of(values: dict[str, Any], logits: Tensor, labels: Tensor) -> Tensor:
    return kit_of(CLASSIFICATION).task(small_recipe(values), unequal_set().info, CPU).loss(logits, labels)


def some_logits() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 3, generator=generator).double(), torch.tensor([0, 0, 1, 2, 0, 1, 0])


# --- the loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("values", "weights"),
    [(INVERSE, [1 / held for held in HELD]), (EFFECTIVE, [0.1 / (1 - 0.9**held) for held in HELD])],
    ids=["inverse", "effective number"],
)
def test_the_weighted_loss_is_torchs_with_the_papers_weights(
    values: dict[str, Any], weights: list[float], smoothing: float
) -> None:
    logits, labels = some_logits()
    expected = functional.cross_entropy(
        logits, labels, torch.tensor(weights).double(), label_smoothing=smoothing
    )
    values = {**values, "regularisation.label_smoothing": smoothing}
    torch.testing.assert_close(loss_of(values, logits, labels), expected)
    whole = functional.one_hot(labels, 3).double()
    torch.testing.assert_close(loss_of(values, logits, whole), expected)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_the_adjusted_loss_is_the_papers_formula(tau: float) -> None:
    """log(1 + sum over others of (prior_other / prior_true)^tau e^(f_other - f_true)), equation 10."""
    logits, labels = some_logits()
    prior = torch.tensor(HELD).double() / sum(HELD)
    losses = []
    for row, true in zip(logits, labels.tolist(), strict=True):
        others = [each for each in range(3) if each != true]
        terms = [(prior[each] / prior[true]) ** tau * (row[each] - row[true]).exp() for each in others]
        losses.append(torch.log1p(sum(terms, torch.tensor(0.0))))
    found = loss_of({"regularisation.logit_adjustment": tau}, logits, labels)
    torch.testing.assert_close(found, torch.stack(losses).mean())


@pytest.mark.parametrize("first", [INVERSE, BALANCED, {**SQRT, **INVERSE}], ids=str)
def test_a_correction_that_finds_all_classes_alike_changes_nothing(first: dict[str, Any]) -> None:
    logits, labels = some_logits()
    before, after = loss_of(first, logits, labels), loss_of({**first, **ADJUSTED}, logits, labels)
    torch.testing.assert_close(after, before)
    weights = class_weights(InverseWeights(), np.array(HELD), "balanced")
    assert weights == pytest.approx(np.ones(3))


@pytest.mark.parametrize("beta", [0.0, 1 - 1e-9])
def test_effective_numbers_reach_from_no_weights_to_inverse_ones(beta: float) -> None:
    found = class_weights(EffectiveNumberWeights(beta=beta), np.array(HELD), "natural")
    end = np.ones(3) if beta == 0.0 else class_weights(InverseWeights(), np.array(HELD), "natural")
    assert found == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [INVERSE, EFFECTIVE, ADJUSTED, {**SQRT, **INVERSE}, {**INVERSE, "regularisation.label_smoothing": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("micro_batch", [1, 5, 8])
def test_the_loss_is_that_of_the_whole_batch_however_it_is_cut(
    values: dict[str, Any], micro_batch: int
) -> None:
    whole, parts = run_of(values), run_of({**values, "loop.micro_batch": micro_batch})
    for run in (whole, parts):
        while not run.finished:
            run.step()
    for ours, theirs in zip(curve(parts.history), curve(whole.history), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_a_step_is_torchs_on_the_whole_window() -> None:
    run = run_of({**INVERSE, "loop.micro_batch": 3, "loop.batch_size": 48, "loop.epochs": 1})
    part, info = run.parts["train"], run.info
    assert isinstance(part, ArrayPart)
    images = part.tensors()[0].double().sub(255 * info.mean[0]).div(255 * info.std[0])
    weight = torch.tensor([1 / held for held in HELD]).double()
    expected = functional.cross_entropy(plain_net()(images), torch.from_numpy(LABELS), weight)
    assert run.step().train_loss == pytest.approx(expected.item(), rel=1e-6)


def test_mixing_does_not_change_how_much_a_batch_counts() -> None:
    run = run_of({**INVERSE, "augmentation.mixing.kind": "mixup", "loop.batch_size": 48})
    task, labels = run.task, torch.from_numpy(LABELS)
    weights = torch.tensor(class_weights(InverseWeights(), np.array(HELD), "natural"))
    whole = functional.one_hot(labels, 3).double()
    mixed = 0.3 * whole + 0.7 * whole.roll(1, 0)
    logits = torch.randn(48, 3, generator=torch.Generator().manual_seed(1)).double()
    summed = -(mixed * weights * logits.log_softmax(1)).sum()
    assert (mixed @ weights).sum() == pytest.approx(float(task.weight(labels)))
    torch.testing.assert_close(task.loss(logits, mixed), summed / task.weight(labels))


def test_scores_and_trained_answers_are_of_logits_as_they_are() -> None:
    plain, adjusted = run_of({}), run_of({"regularisation.logit_adjustment": 5.0})
    assert plain.score("validation") == adjusted.score("validation")
    logits, labels = some_logits()
    assert (adjusted.task.right(logits, labels) == plain.task.right(logits, labels)).all()


# --- the order ----------------------------------------------------------------------------------------


def order(sampling: Sampling, batch: int = 16, seed: int = 0) -> Order:
    return Order(torch.from_numpy(LABELS), Loop(batch_size=batch, seed=seed, sampling=sampling))


def counts(order: Order, epoch: int) -> list[int]:
    """Return how often an epoch shows each class."""
    shown = np.bincount(LABELS[order.windows(epoch).flatten() % 48], minlength=3)
    return [int(each) for each in shown]


@pytest.mark.parametrize(
    ("sampling", "roots"), [("balanced", [1.0, 1.0, 1.0]), ("sqrt", [held**0.5 for held in HELD])]
)
@pytest.mark.parametrize("batch", [16, 7])
def test_every_epoch_shows_each_class_its_share_up_to_rounding(
    sampling: Sampling, roots: list[float], batch: int
) -> None:
    ours = order(sampling, batch)
    shown = np.array([counts(ours, epoch) for epoch in range(200)])
    images = 48 // batch * batch
    quotas = images * np.array(roots) / sum(roots)
    assert (shown.sum(1) == images).all()
    assert (np.abs(shown - quotas) < 1.0).all()
    assert shown.mean(0) == pytest.approx(quotas, abs=0.15)


def test_the_shares_are_those_of_torchs_weighted_sampler_and_vary_less() -> None:
    weights = (1.0 / np.array(HELD))[LABELS].tolist()
    generator = torch.Generator().manual_seed(0)
    theirs = np.array(
        [
            np.bincount(LABELS[list(WeightedRandomSampler(weights, 48, generator=generator))], minlength=3)
            for _ in range(200)
        ]
    )
    ours = np.array([counts(order("balanced"), epoch) for epoch in range(200)])
    error = theirs.std(0) / 200**0.5
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all()
    assert (ours.std(0) < 0.5 * theirs.std(0)).all()


@pytest.mark.parametrize("sampling", ["balanced", "sqrt"])
def test_no_image_is_shown_twice_more_than_another_of_its_class(sampling: Sampling) -> None:
    positions = order(sampling).windows(3).flatten().numpy()
    assert len(set(positions.tolist())) == 48  # no showing is there twice
    times = np.bincount(positions % 48, minlength=48)
    for label in range(3):
        of_class = times[label == LABELS]
        assert of_class.max() - of_class.min() <= 1


def test_an_order_follows_from_seed_and_epoch() -> None:
    same, again = order("balanced"), order("balanced")
    assert all(torch.equal(same.windows(epoch), again.windows(epoch)) for epoch in (2, 0, 1))
    assert all(not torch.equal(a, b) for a, b in pairwise(same.windows(epoch) for epoch in range(4)))
    assert not torch.equal(same.windows(0), order("balanced", seed=1).windows(0))


@pytest.mark.parametrize("values", [SQRT, {**BALANCED, **INVERSE}, {**BALANCED, **ADJUSTED}], ids=str)
def test_ranks_share_each_window_and_have_its_weight(values: dict[str, Any]) -> None:
    whole, *ranks = (run_of(values, ranks)._trainer for ranks in (Ranks(), Ranks(0, 2), Ranks(1, 2)))
    for step, window in enumerate(whole.order(1)):
        shares = torch.cat([rank.order(1)[step] for rank in ranks])
        assert torch.equal(shares, window)


@pytest.mark.parametrize("values", [INVERSE, {**SQRT, **EFFECTIVE, **ADJUSTED}], ids=str)
def test_a_run_resumed_within_an_epoch_is_the_run_that_never_stopped(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 2)
    values = {**values, "loop.batch_size": 8, "augmentation.mixing.kind": "mixup"}
    recipe = small_recipe(values)
    whole = make_run(recipe, data=unequal_set(), model=plain_net())
    whole.step()
    state = _state_at_the_first_pause(recipe)
    assert state["running"]["step"] == 2
    resumed = make_run(recipe, data=unequal_set(), model=plain_net(seed=1))
    resumed.load_state_dict(state)
    resumed.step()
    assert curve(resumed.history) == curve(whole.history)
    assert all(torch.equal(resumed.weights()[name], each) for name, each in whole.weights().items())


class _Paused(Exception):
    """The end of a run at its first pause."""


def _state_at_the_first_pause(recipe: Recipe) -> dict[str, Any]:
    def stop() -> None:
        raise _Paused

    run = make_run(recipe, data=unequal_set(), model=plain_net(), on_pause=stop)
    with pytest.raises(Exception, match="epoch 1"):
        run.step()
    return run.state_dict()


# --- images shown more than once ----------------------------------------------------------------------


def test_further_showings_of_an_image_are_augmented_anew() -> None:
    recipe = small_recipe({"augmentation.crop.kind": "pad", "augmentation.crop.fraction": 0.5})
    loader = make_loader(unequal_set(), recipe, ON_CPU)
    ((images, labels),) = loader.train([torch.tensor([40, 40 + 48, 40 + 96, 40])], epoch=0)
    assert labels.tolist() == [LABELS[40]] * 4
    assert torch.equal(images[0], images[3])
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[1], images[2])


def test_files_and_memory_give_the_same_showings(tmp_path: Path) -> None:
    for number in range(12):
        write_image(tmp_path / "ab"[number % 2] / f"{number}.png", 20 * number, size=(SIZE, SIZE))
    values = {"data.path": str(tmp_path), "augmentation.policy.kind": "trivialaugment", "loop.workers": 0}
    recipe = small_recipe(values).with_values({"data.image_size": SIZE, "augmentation.crop.kind": "pad"})
    found = []
    for in_memory, kind in ((True, ArrayLoader), (False, FileLoader)):
        data = load(Data(path=str(tmp_path), image_size=SIZE, in_memory=in_memory, cache="off"))
        loader = make_loader(data, recipe, ON_CPU)
        assert isinstance(loader, kind)
        count = data.info.train_images
        ((images, _),) = loader.train([torch.tensor([0, 1, count, 3 * count + 1])], epoch=1)
        found.append(images)
        loader.close()
    torch.testing.assert_close(*found)
