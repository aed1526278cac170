"""Checks a network before any step: how it is built, and whether its outputs are logits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trainable.checks.finding import CheckName, Finding, Level, passed
from trainable.checks.subject import Subject
from trainable.errors import listed
from trainable.models.lint import Lint, lints

IMAGES = 128  # the first loss is measured on so many images: its standard error is about 0.05

# Bounds of the first loss over ln K. Below the first, the network knows something already; beyond the second,
# the head's first answers are sure and wrong, and the first steps only unlearn them.
LOW, FAR_TOO_HIGH = 0.8, 10.0

# Logits may move by this share of their size when an image is shown alone: rounding moves them by 1e-5
DEPENDENT = 0.01


def check_construction(subject: Subject, images: Tensor) -> Iterator[Finding]:
    """Yield what `trainable.models.lint` finds, with a finding for each kind."""
    found = lints(subject.network().to(images.device), images[:2])
    yield _frozen(subject, [lint.layer for lint in found if lint.kind == "frozen_parameter"])
    yield _unused(subject, [lint.layer for lint in found if lint.kind == "unused_parameter"])
    yield _biases(subject, [lint.layer for lint in found if lint.kind == "bias_before_norm"])
    if subject.is_own:
        yield from _memory_access([lint for lint in found if lint.kind == "memory_access"])


def misshapen(got: object, expected: object) -> Finding:
    """Return the finding about outputs that have not the shape of logits."""
    return _outputs("error", f"outputs are {got}, expected {expected}", "no loss can be computed", "the head")


def about_outputs(together: Tensor, alone: Tensor) -> Finding:
    """Return the finding about the logits of a batch, [B, classes, ...], and about those of its first image
    when it is shown alone."""
    if not together.isfinite().all():
        means = "training would begin with a loss that is not a number"
        return _outputs("error", "the untrained network outputs nan or inf", means, "its initialisation")
    if float((together[:1] - alone).abs().max()) > DEPENDENT * max(float(together.abs().max()), 1e-6):
        found = "in evaluation mode an image's answer depends on the other images of its batch"
        means = "scores depend on evaluation.batch_size and on the order of images; labels may leak"
        return _outputs(
            "warning", found, means, "softmax or mean over the batch, or BatchNorm without statistics"
        )
    if _are_probabilities(together):
        found = "outputs are probabilities: the network ends in a softmax"
        means = "cross-entropy takes logits and would apply softmax again: training is slow and stops early"
        return _outputs("warning", found, means, "leave the softmax out of forward")
    return passed("outputs", f"finite logits, from {together.min():.2g} to {together.max():.2g}")


def _outputs(level: Level, what: str, means: str, where: str) -> Finding:
    return Finding("outputs", level, what, means, f"look in the model: {where}")


def _are_probabilities(outputs: Tensor) -> bool:
    sums = outputs.sum(1)
    return bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def _frozen(subject: Subject, names: list[str]) -> Finding:
    total = sum(1 for _ in subject.untrained.parameters())
    if not names:
        return _frozen_by_recipe(subject) or passed(
            "frozen parameters", f"all {total:,} parameters are trained"
        )
    return Finding(
        "frozen parameters",
        "error" if len(names) == total else "warning",
        f"{len(names):,} of {total:,} parameters have requires_grad=False: {listed(names)}",
        "they stay as they are for the whole run",
        "to freeze them for some epochs only, use model.freeze_epochs; else set requires_grad",
    )


def _frozen_by_recipe(subject: Subject) -> Finding | None:
    spec, epochs = subject.recipe.model, subject.recipe.loop.epochs
    frozen = min(spec.freeze_epochs, epochs)
    if frozen and spec.weights is None and not subject.is_own:
        return Finding(
            "frozen parameters",
            "warning",
            f"in {frozen} of {epochs} epochs the head alone is trained, and its body has no weights to keep",
            "the head learns from features that were drawn at random",
            "name weights (model.weights), or set model.freeze_epochs to 0",
        )
    if frozen == epochs:
        return Finding(
            "frozen parameters",
            "note",
            f"the head alone is trained, in all {epochs} epochs",
            "the body stays as its weights are",
            "to train it, too, set model.freeze_epochs below loop.epochs",
        )
    return None


def _unused(subject: Subject, names: list[str]) -> Finding:
    return _built(
        subject,
        "unused parameters",
        names,
        "the output does not depend on {}",
        "they are never trained and take memory",
        "leave them out of the model, or use them in forward",
    )


def _biases(subject: Subject, names: list[str]) -> Finding:
    return _built(
        subject,
        "bias before norm",
        names,
        "a BatchNorm subtracts the bias of {}",
        "parameters, memory and time are wasted",
        "build these layers with bias=False",
    )


def _built(subject: Subject, check: CheckName, names: list[str], what: str, means: str, do: str) -> Finding:
    """Return a warning, or a note for a library's network: a person who chose it by name cannot change it."""
    if not names:
        return passed(check, "none")
    level: Level = "warning" if subject.is_own else "note"
    return Finding(check, level, what.format(f"{len(names):,}: {listed(names)}"), means, do)


def _memory_access(found: list[Lint]) -> Iterator[Finding]:
    if found:
        yield Finding(
            "memory access",
            "note",
            f"{len(found)} convolutions read and write more than they need: "
            f"{listed([lint.layer for lint in found])}",
            found[0].reason,
            "nothing is wrong; see arXiv 1807.11164, section 2, if speed matters",
        )
