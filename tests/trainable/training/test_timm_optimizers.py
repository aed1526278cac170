"""Tests that timm's optimizers step as in timm, resume bit for bit, and are refused for stated reasons."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from timm.optim import create_optimizer_v2, get_optimizer_class
from torch import nn

from tests.trainable.small_runs import curve, data_set, finished, small_recipe
from tests.trainable.training.test_optim import STEPS, assert_equal, net, walk
from trainable.checkpoints import checkpoint
from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.optimizers import Timm
from trainable.run import make_run
from trainable.training.optim import Phase, applied_lr, make_phases, parameter_groups
from trainable.training.timm_optimizers import check_timm_optimizer, make_timm_optimizer, names

LATE = 7  # at this step the frozen layer thaws
NAMES = names()
# Each class of timm's by its shortest name; its other names bind other defaults, such as caution
CLASSES = {
    get_optimizer_class(name, bind_defaults=False): name for name in sorted(NAMES, key=len, reverse=True)
}
ONE_OF_EACH = sorted(CLASSES.values())


def spec(name: str, **options: Any) -> Timm:
    return Timm(name=name, lr=0.01, weight_decay=0.1, options=options)


def test_every_name_makes_the_librarys_optimizer_with_its_defaults_and_takes_a_step() -> None:
    ours, theirs = {}, {}
    for name in NAMES:
        check_timm_optimizer(spec(name))
        groups = parameter_groups(net(), 0.1, decay_norm_and_bias=False)
        made = make_timm_optimizer(spec(name), groups, lr=0.01)
        again = create_optimizer_v2(groups, name, lr=0.01)
        ours[name], theirs[name] = (type(made), made.defaults), (type(again), again.defaults)
    assert ours == theirs


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_twenty_steps_are_those_of_the_library(name: str) -> None:
    ours, theirs = net(), net()
    (phase,) = make_phases(spec(name), ours, batch_size=128)
    rate = applied_lr(spec(name), 128)
    groups = parameter_groups(theirs, 0.1, decay_norm_and_bias=False)
    reference = Phase(create_optimizer_v2(groups, name, lr=rate), rate, 0.0)
    walk(ours, phase, range(STEPS), thaws_at=LATE)
    walk(theirs, reference, range(STEPS), thaws_at=LATE)
    assert_equal(ours, theirs)
    assert not torch.equal(ours.head.weight, net().head.weight)
    assert all(each.isfinite().all() for each in ours.parameters())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_state_from_a_checkpoint_goes_on_bit_for_bit(name: str) -> None:
    """In torch's own number format: torch's NAdam has a product in it whatever the weights' format is."""
    through, stopped, resumed = net().float(), net().float(), net(1).float()
    (phase,) = make_phases(spec(name), through, batch_size=256)
    _walk(through, phase, 0, STEPS)
    (first,) = make_phases(spec(name), stopped, batch_size=256)
    _walk(stopped, first, 0, 10)
    content = checkpoint.to_bytes({"model": stopped.state_dict(), "optimizer": first.optimizer.state_dict()})
    state = checkpoint.from_bytes(content)
    resumed.load_state_dict(state["model"])
    (second,) = make_phases(spec(name), resumed, batch_size=256)
    second.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    _walk(resumed, second, 10, STEPS)
    assert_equal(resumed, through)


def _walk(model: nn.Module, phase: Phase, first: int, last: int) -> None:
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        for name, each in model.named_parameters():
            noise = torch.randn(each.shape, generator=generator)
            each.grad = noise if step >= LATE or not name.startswith("frozen") else None
        phase.set(1.0 / (1 + step))
        phase.optimizer.step()


@pytest.mark.slow("trains networks")
@pytest.mark.parametrize(
    "values",
    [
        {"optimizer.name": "nadamw", "optimizer.options": {"betas": [0.8, 0.95], "caution": True}},
        {"optimizer.name": "muon", "model.freeze_epochs": 1, "model.layer_rates.kind": "decayed"},
        {"optimizer.name": "muon", "precision.kind": "fp16", "schedule.kind": "onecycle"},
        {
            "optimizer.name": "adan",
            "regularisation.clipping.kind": "norm",
            "regularisation.averaging.kind": "ema",
        },
    ],
    ids=str,
)
def test_a_run_stopped_after_each_epoch_is_the_run_that_never_stopped(values: dict[str, Any]) -> None:
    recipe = small_recipe({"optimizer.kind": "timm", "optimizer.lr": 0.01, **values})
    whole = make_run(recipe, data=data_set())
    finished(whole)
    state: dict[str, Any] | None = None
    for _ in range(recipe.loop.epochs):
        part = make_run(recipe, data=data_set())
        if state is not None:
            part.load_state_dict(state)
        part.step()
        state = checkpoint.from_bytes(checkpoint.to_bytes(part.state_dict()))
    assert curve(part.history) == curve(whole.history)
    assert not whole.diverged


def test_muon_takes_convolutions_and_adamw_the_rest() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 4))
    (phase,) = make_phases(spec("muon"), model, batch_size=256)
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    phase.optimizer.step()
    by_muon = {name for name, each in model.named_parameters() if phase.optimizer.state[each]["use_muon"]}
    assert by_muon == {"0.weight", "3.weight"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nadamv", r"no optimizer 'nadamv'; did you mean nadam or nadamw.*known: .*muon"),
        ("adahessian", "second derivatives"),
        ("bnbadamw8bit", "bitsandbytes, which is not installed"),
        ("fusedadam", "apex, which is not installed"),
        ("kron", "differs from rank to rank"),
        ("lookahead_adamw", r"regularisation\.averaging"),
    ],
)
def test_what_cannot_train_here_is_refused_with_the_reason(name: str, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"optimizer\.name.*{said}"):
        make_run(small_recipe({"optimizer.kind": "timm", "optimizer.name": name}), data=data_set())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beta1": 0.9}, r"optimizer\.options\.beta1.*takes none such; known: betas, eps"),
        ({"lr": 0.1}, r"optimizer\.options\.lr.*write optimizer\.lr"),
        ({"betas": (0.9, 1.5)}, r"optimizer\.options.*refuses betas"),
        ({"betas": "high"}, r"optimizer\.options"),
    ],
)
def test_options_that_the_class_does_not_take_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        check_timm_optimizer(spec("nadamw", **options))


def test_options_are_plain_data_in_yaml() -> None:
    section = {"kind": "timm", "name": "muon", "options": {"ns_steps": 3, "nesterov": True}}
    recipe = Recipe.from_tree({"optimizer": section})
    assert recipe.with_values({"optimizer.options.ns_steps": 4}).get("optimizer.options.ns_steps") == 4
    assert Recipe.from_tree(recipe.tree()) == recipe
    with pytest.raises(RecipeError, match=r"optimizer\.options\.betas"):
        Recipe.from_tree({"optimizer": {**section, "options": {"betas": {"first": 0.9}}}})
