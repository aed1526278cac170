"""The rules of the space `document`, in drawing order: the field of each, and the condition of its draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spaces.conditions import holds, scalars_of
from spaces.domains import Choice, Value, Values
from spaces.facts import Facts
from spaces.rules import (
    augmentations,
    batches,
    distillation,
    finetuning,
    imbalance,
    masks,
    optimizers,
    regularisation,
    schedules,
)
from spaces.rules.rates import KINDS, OptimizerKind
from spaces.rules.rulings import Distribution, Heuristic, RuleWords, Threshold
from spaces.space import When
from trainable.recipe import Recipe
from trainable.recipe.tasks import TASK_KINDS, TaskKind


@dataclass(frozen=True)
class Rule:
    """What one heuristic says of one field, in the tasks that it speaks for.

    An `optional` rule applies only if a person asks for it.
    """

    path: str
    heuristic: Heuristic[[Facts, Values], Distribution | Threshold | None]
    when: When | None = None
    variant: str = ""
    optional: bool = False
    tasks: tuple[TaskKind, ...] = TASK_KINDS

    def of(self, facts: Facts, values: Values) -> Distribution | None:
        """Return the distribution for the facts and for the values settled or drawn before, by dotted path;
        None if the field has the documents' own value, as in a task that the rule does not speak for."""
        found = self._answer(facts, values)
        return found if isinstance(found, Distribution) else None

    def missed(self, facts: Facts, values: Values) -> Threshold | None:
        """Return the threshold that keeps the field as it is, with the fact that does not reach it; None
        where the field varies, or where it is no threshold that keeps it."""
        found = self._answer(facts, values)
        return found if isinstance(found, Threshold) else None

    def _answer(self, facts: Facts, values: Values) -> Distribution | Threshold | None:
        return self.heuristic(facts, values) if facts.task in self.tasks else None

    @property
    def words(self) -> RuleWords:
        """The words in which the rule describes itself."""
        return self.heuristic.words

    @property
    def name(self) -> str:
        """The name of its dimension: the path, or `optimizer.lr[sgd]` if a path has several."""
        return f"{self.path}[{self.variant}]" if self.variant else self.path


def _of_kind(
    heuristic: Heuristic[[Facts, Values, OptimizerKind], Distribution], kind: OptimizerKind
) -> Heuristic[[Facts, Values], Distribution]:
    """Return the heuristic for one kind of optimizer, with the same words."""

    def of(facts: Facts, values: Values) -> Distribution:
        return heuristic(facts, values, kind)

    return Heuristic(of, heuristic.words)


OF_LABELS: tuple[TaskKind, ...] = ("classification",)
OF_MASKS: tuple[TaskKind, ...] = ("segmentation",)
_OPTIMIZER, _SCHEDULE = "optimizer.kind", "schedule.kind"
_CROP, _POLICY, _MASKING, _MIXING = (
    f"augmentation.{section}.kind" for section in ("crop", "policy", "masking", "mixing")
)
_LAYERS = "model.layer_rates.kind"
_TIMM = When(_OPTIMIZER, ("timm",))
_SGD, _BOTH = When(_OPTIMIZER, ("sgd",)), When(_OPTIMIZER, ("adam_then_sgd",))
_SCALED = When(_CROP, ("scaled",))
_AVERAGING, _CLIPPING = "regularisation.averaging", "regularisation.clipping"
_WEIGHTS = "regularisation.class_weights"
_SMOOTHING, _ALPHA = "regularisation.label_smoothing", "augmentation.mixing.alpha"

_TAUGHT = "distillation.kind"  # a recipe has this section only with a teacher
SOFTENED = When(_TAUGHT, ("logits", "dkd"))  # they learn probabilities, and have a temperature
HINTED = When(_TAUGHT, ("features",))

# Other rules depend on these; the batch comes last, since rules before it use the batch that is settled
_KINDS: tuple[Rule, ...] = (
    Rule(_OPTIMIZER, optimizers.kinds),
    Rule(optimizers.TIMM_NAME, optimizers.timm_names, _TIMM),
    Rule(_SCHEDULE, schedules.kinds, optional=True, tasks=OF_LABELS),
    Rule(_SCHEDULE, masks.schedules, optional=True, tasks=OF_MASKS),
    Rule(_CROP, augmentations.crop_kinds, tasks=OF_LABELS),
    Rule(_CROP, masks.crop_kinds, tasks=OF_MASKS),
    Rule(_POLICY, augmentations.policies, tasks=OF_LABELS),
    Rule(_POLICY, masks.policies, tasks=OF_MASKS),
    Rule(_MASKING, augmentations.maskings, tasks=OF_LABELS),
    Rule(_MASKING, masks.maskings, tasks=OF_MASKS),
    Rule(_MIXING, augmentations.mixings, tasks=OF_LABELS),
    Rule(_MIXING, masks.mixings, tasks=OF_MASKS),
    Rule(_LAYERS, finetuning.layer_rates, tasks=OF_LABELS),
    Rule(_LAYERS, masks.layer_rates, tasks=OF_MASKS),
    Rule("loop.sampling", imbalance.samplings, tasks=OF_LABELS),
    Rule(f"{_WEIGHTS}.kind", imbalance.class_weights, tasks=OF_LABELS),
    Rule(f"{_WEIGHTS}.kind", masks.class_weights, tasks=OF_MASKS),
    Rule(f"{_AVERAGING}.kind", regularisation.averagings),
    Rule(f"{_AVERAGING}.decay", regularisation.ema_decays, When(f"{_AVERAGING}.kind", ("ema",))),
    Rule("loop.batch_size", batches.batch_sizes, optional=True),
)

_NUMBERS: tuple[Rule, ...] = (
    Rule("model.freeze_norm", finetuning.frozen_norms, tasks=OF_LABELS),
    Rule("model.freeze_norm", masks.frozen_norms, tasks=OF_MASKS),
    *(
        Rule("optimizer.lr", _of_kind(optimizers.learning_rates, kind), When(_OPTIMIZER, (kind,)), kind)
        for kind in KINDS
        if kind != "timm"
    ),
    Rule("optimizer.lr", optimizers.timm_rates, _TIMM, "timm"),
    *(
        Rule(
            "optimizer.weight_decay",
            _of_kind(optimizers.weight_decays, kind),
            When(_OPTIMIZER, (kind,)),
            kind,
        )
        for kind in KINDS
        if kind != "timm"
    ),
    Rule("optimizer.weight_decay", optimizers.timm_decays, _TIMM, "timm"),
    Rule("optimizer.momentum", optimizers.momenta, _SGD),
    Rule("optimizer.sgd_lr", _of_kind(optimizers.learning_rates, "sgd"), _BOTH),
    Rule("optimizer.sgd_weight_decay", _of_kind(optimizers.weight_decays, "sgd"), _BOTH),
    Rule("schedule.warmup_epochs", schedules.warmups, When(_SCHEDULE, schedules.WARMED)),
    Rule("schedule.gamma", schedules.falls, When(_SCHEDULE, ("exp",))),
    Rule(_SMOOTHING, regularisation.label_smoothings, tasks=OF_LABELS),
    Rule(_SMOOTHING, regularisation.label_smoothings_of_small_nets, optional=True, tasks=OF_LABELS),
    Rule(
        f"{_WEIGHTS}.beta", imbalance.betas, When(f"{_WEIGHTS}.kind", ("effective_number",)), tasks=OF_LABELS
    ),
    Rule("regularisation.logit_adjustment", imbalance.logit_adjustments, tasks=OF_LABELS),
    Rule(f"{_CLIPPING}.kind", regularisation.clippings),
    Rule("model.dropout", regularisation.dropouts, tasks=OF_LABELS),
    Rule("model.freeze_epochs", finetuning.frozen_epochs),
    Rule("model.layer_rates.lowest", finetuning.lowest_rates, When(_LAYERS, ("geometric",))),
    Rule("model.layer_rates.factor", finetuning.layer_factors, When(_LAYERS, ("decayed",)), tasks=OF_LABELS),
    Rule("model.layer_rates.factor", masks.backbone_factors, When(_LAYERS, ("backbone",)), tasks=OF_MASKS),
    Rule("model.output_stride", masks.output_strides, optional=True),
    Rule("task.loss.dice", masks.dices, tasks=OF_MASKS),
    Rule("task.loss.lovasz", masks.lovaszes, tasks=OF_MASKS),
    Rule("augmentation.crop.fraction", augmentations.crop_fractions, When(_CROP, ("pad",))),
    Rule(
        "augmentation.crop.scale_min", augmentations.crop_scales, When(_CROP, ("resized",)), tasks=OF_LABELS
    ),
    Rule("augmentation.crop.scale_min", masks.scale_mins, _SCALED, tasks=OF_MASKS),
    Rule("augmentation.crop.scale_max", masks.scale_maxima, _SCALED, tasks=OF_MASKS),
    Rule("augmentation.policy.magnitude", augmentations.magnitudes, When(_POLICY, ("randaugment",))),
    Rule(
        "augmentation.masking.probability",
        augmentations.erasing_probabilities,
        When(_MASKING, ("erasing",)),
    ),
    Rule(_ALPHA, augmentations.mixup_alphas, When(_MIXING, ("mixup",)), "mixup", tasks=OF_LABELS),
    Rule(_ALPHA, augmentations.cutmix_alphas, When(_MIXING, ("cutmix",)), "cutmix"),
    Rule(f"{_CLIPPING}.max_norm", regularisation.clip_norms, When(f"{_CLIPPING}.kind", ("norm",))),
    Rule("distillation.temperature", distillation.temperatures, SOFTENED),
    Rule("distillation.weight", distillation.weights, SOFTENED, "probabilities"),
    Rule("distillation.weight", distillation.hint_weights, HINTED, "features"),
)

# In drawing order: each reads only values that are settled or come before it
RULES: tuple[Rule, ...] = _KINDS + _NUMBERS


class Ruled(NamedTuple):
    """A rule, and what it gives for some facts; None where it leaves its field alone."""

    rule: Rule
    gives: Distribution | None


def rule_against(path: str, value: Value, facts: Facts, recipe: Recipe) -> Ruled | None:
    """Return the rule that leaves a value of a field out for these facts, with what it gives instead; None
    where none does, since one rule offers the value, or none applies.

    A rule that applies only where a person asks counts as one that offers: nothing in it forbids the value.
    """
    values = scalars_of(recipe)
    answers = [
        Ruled(rule, rule.of(facts, values))
        for rule in RULES
        if rule.path == path and holds(rule.when, recipe)
    ]
    for each in answers:
        # a range of numbers may grow; options are a complete list
        if each.gives is not None and (
            not isinstance(each.gives.domain, Choice) or value in each.gives.domain
        ):
            return None
    return next((each for each in answers if each.gives is not None), next(iter(answers), None))
