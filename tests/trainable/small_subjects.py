"""Makes what the checks look at, of the data, nets and recipes in `small_runs`."""

from __future__ import annotations

from torch import nn

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.check import make_subject
from trainable.checks.subject import Subject
from trainable.recipe import Recipe


def small_subject(recipe: Recipe | None = None, model: nn.Module | None = None) -> Subject:
    return make_subject(recipe or small_recipe(), data_set(), model, ON_CPU)
