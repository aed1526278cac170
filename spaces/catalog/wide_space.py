"""The space `wide`: the fields of `document`, with the ranges of a person who knows no rule.

The documents' priors are measured against it. Its ranges span the orders of magnitude of published recipes,
whatever the data and the model; every option is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from spaces.domains import Choice, Domain, Float, Integer, Values
from spaces.facts import Facts
from spaces.priors import Uniform
from spaces.rules.optimizers import TIMM_NAMES
from spaces.rules.rates import KINDS
from spaces.rules.rules import HINTED, OF_LABELS, OF_MASKS, SOFTENED, Rule
from spaces.rules.rulings import Distribution, heuristic
from spaces.rules.schedules import WARMED, longest_warmup
from spaces.space import When
from trainable.recipe.tasks import TASK_KINDS, TaskKind

STATED = "none: what somebody writes who knows no rule"
# Optimizers whose decay is apart from the gradient; that of the others is L2, a part of the gradient
DECOUPLED = ("adamw", "lamb", "adam_then_sgd", "timm")
RATES, ADAPTIVE_RATES = Float(1e-4, 10.0, log=True), Float(1e-5, 1.0, log=True)
DECAYS, DECOUPLED_DECAYS = Float(1e-6, 1e-2, log=True), Float(1e-5, 1.0, log=True)
ALPHAS = Float(0.01, 10.0, log=True)
MASKS = ("erasing", "cutout", "gridmask", "hide_and_seek")


def _uniform(
    path: str,
    domain: Domain,
    when: When | None = None,
    variant: str = "",
    tasks: tuple[TaskKind, ...] = TASK_KINDS,
) -> Rule:
    found = Distribution(domain, Uniform(), "a wide range, drawn from uniformly: nothing is believed", STATED)

    @heuristic("Values are drawn uniformly from a wide range, whatever the facts.")
    def of(facts: Facts, values: Values) -> Distribution:
        return found

    return Rule(path, of, when, variant, tasks=tasks)


def _by_task(path: str, of_images: Domain, of_masks: Domain) -> Iterator[Rule]:
    """Yield rules with uniform draws for a field whose range depends on the task."""
    yield _uniform(path, of_images, tasks=OF_LABELS)
    yield _uniform(path, of_masks, tasks=OF_MASKS)


def _of_kind(path: str, kinds: tuple[str, ...], *domains: tuple[str, Domain]) -> Iterator[Rule]:
    """Yield rules with uniform draws for a field whose range depends on its section's kind."""
    section = path.rpartition(".")[0]
    by_kind = dict(domains)
    for kind in kinds:
        yield _uniform(path, by_kind.get(kind, by_kind[""]), When(f"{section}.kind", (kind,)), kind)


@heuristic("The warm-up takes up to a tenth of the run, which is the most that it should take.")
def warmups(facts: Facts, values: Values) -> Distribution:
    most = longest_warmup(facts)
    return Distribution(Float(0.0, most), Uniform(), "none to a tenth of the run, drawn uniformly", STATED)


@heuristic("The head alone is trained for up to 10 epochs, and at most half of the run.")
def frozen_epochs(facts: Facts, values: Values) -> Distribution:
    most = max(1, min(10, facts.epochs // 2))
    return Distribution(Integer(0, most), Uniform(), "none to 10, at most half of the run", STATED)


_LAYERS = "model.layer_rates"
_AVERAGING, _CLIPPING = "regularisation.averaging", "regularisation.clipping"
_CROP, _POLICY, _MASKING, _MIXING = (
    f"augmentation.{section}" for section in ("crop", "policy", "masking", "mixing")
)
_WEIGHTS = "regularisation.class_weights"
_BOTH = When("optimizer.kind", ("adam_then_sgd",))

# One rule for every field that `document` may vary, in drawing order
WIDE: tuple[Rule, ...] = (
    _uniform("optimizer.kind", Choice(("sgd", "adamw"))),
    _uniform("optimizer.name", Choice(TIMM_NAMES), When("optimizer.kind", ("timm",))),
    _uniform("schedule.kind", Choice(("cosine", "onecycle", "step", "poly", "exp"))),
    *_by_task(f"{_CROP}.kind", Choice(("none", "pad", "resized")), Choice(("none", "pad", "scaled"))),
    _uniform(f"{_POLICY}.kind", Choice(("none", "randaugment", "trivialaugment", "autoaugment"))),
    _uniform(f"{_MASKING}.kind", Choice(("none", *MASKS))),
    *_by_task(f"{_MIXING}.kind", Choice(("none", "mixup", "cutmix")), Choice(("none", "cutmix", "classmix"))),
    *_by_task(
        f"{_LAYERS}.kind",
        Choice(("uniform", "geometric", "decayed")),
        Choice(("uniform", "geometric", "backbone")),
    ),
    _uniform("loop.sampling", Choice(("natural", "sqrt", "balanced"))),
    *_by_task(
        f"{_WEIGHTS}.kind", Choice(("none", "effective_number", "inverse")), Choice(("none", "inverse"))
    ),
    _uniform(f"{_AVERAGING}.kind", Choice(("none", "ema"))),
    _uniform(f"{_AVERAGING}.decay", Choice((0.9, 0.99, 0.999, 0.9999)), When(f"{_AVERAGING}.kind", ("ema",))),
    _uniform("loop.batch_size", Choice((16, 32, 64, 128, 256, 512, 1024))),
    *_of_kind("optimizer.lr", KINDS, ("", ADAPTIVE_RATES), ("sgd", RATES)),
    *_of_kind(
        "optimizer.weight_decay", KINDS, ("", DECAYS), *((kind, DECOUPLED_DECAYS) for kind in DECOUPLED)
    ),
    _uniform("optimizer.momentum", Float(0.5, 0.99), When("optimizer.kind", ("sgd",))),
    _uniform("optimizer.sgd_lr", RATES, _BOTH),
    _uniform("optimizer.sgd_weight_decay", DECAYS, _BOTH),
    Rule("schedule.warmup_epochs", warmups, When("schedule.kind", WARMED)),
    _uniform("schedule.gamma", Float(0.5, 0.999), When("schedule.kind", ("exp",))),
    _uniform("regularisation.label_smoothing", Float(0.0, 0.3)),
    _uniform(
        f"{_WEIGHTS}.beta",
        Choice((0.9, 0.99, 0.999, 0.9999)),
        When(f"{_WEIGHTS}.kind", ("effective_number",)),
    ),
    _uniform("regularisation.logit_adjustment", Float(0.0, 3.0)),
    _uniform(f"{_CLIPPING}.kind", Choice(("none", "norm"))),
    _uniform("model.dropout", Choice((None, 0.1, 0.3, 0.5, 0.7))),
    Rule("model.freeze_epochs", frozen_epochs),
    _uniform("model.freeze_norm", Choice((False, True))),
    _uniform(f"{_LAYERS}.lowest", Float(1e-4, 1.0, log=True), When(f"{_LAYERS}.kind", ("geometric",))),
    _uniform(f"{_LAYERS}.factor", Float(0.3, 1.0), When(f"{_LAYERS}.kind", ("decayed",)), tasks=OF_LABELS),
    _uniform(
        f"{_LAYERS}.factor",
        Float(0.01, 1.0, log=True),
        When(f"{_LAYERS}.kind", ("backbone",)),
        tasks=OF_MASKS,
    ),
    _uniform("model.output_stride", Choice((8, 16)), tasks=OF_MASKS),
    _uniform("task.loss.dice", Float(0.0, 2.0), tasks=OF_MASKS),
    _uniform("task.loss.lovasz", Float(0.0, 2.0), tasks=OF_MASKS),
    _uniform(f"{_CROP}.fraction", Float(0.02, 0.5), When(f"{_CROP}.kind", ("pad",))),
    _uniform(f"{_CROP}.scale_min", Float(0.05, 1.0), When(f"{_CROP}.kind", ("resized",)), tasks=OF_LABELS),
    _uniform(f"{_CROP}.scale_min", Float(0.2, 1.0), When(f"{_CROP}.kind", ("scaled",)), tasks=OF_MASKS),
    _uniform(f"{_CROP}.scale_max", Float(1.0, 5.0), When(f"{_CROP}.kind", ("scaled",)), tasks=OF_MASKS),
    _uniform(f"{_POLICY}.magnitude", Integer(0, 30), When(f"{_POLICY}.kind", ("randaugment",))),
    _uniform(f"{_MASKING}.probability", Float(0.0, 1.0), When(f"{_MASKING}.kind", MASKS)),
    *_of_kind(f"{_MIXING}.alpha", ("mixup", "cutmix"), ("", ALPHAS)),
    _uniform(f"{_CLIPPING}.max_norm", Choice((0.1, 1.0, 10.0, 100.0)), When(f"{_CLIPPING}.kind", ("norm",))),
    _uniform("distillation.temperature", Float(0.5, 50.0, log=True), SOFTENED),
    _uniform("distillation.weight", Float(0.0, 1.0), SOFTENED, "probabilities"),
    _uniform("distillation.weight", Float(0.0, 0.95), HINTED, "features"),
)
