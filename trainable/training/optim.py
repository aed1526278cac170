"""Makes the optimizers of a spec: their parameter groups, the rate for the batch, and steps that overflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

import torch
from torch import Tensor, nn, optim

from trainable.models.layers import NORMALISATIONS, parameters_in
from trainable.recipe import REFERENCE_BATCH, optimizers
from trainable.training.timm_optimizers import make_timm_optimizer

# Parameters with one weight decay and one factor of the rate, as torch takes them
ParameterGroup = dict[str, Any]

SinglePhase = (
    optimizers.SGD
    | optimizers.RMSProp
    | optimizers.Adam
    | optimizers.AdamW
    | optimizers.Adadelta
    | optimizers.LARS
    | optimizers.LAMB
    | optimizers.Timm
)


OptimizerClass = TypeVar("OptimizerClass", bound=optim.Optimizer)


# No optimizer is compiled here, and these methods of torch's first import torch._dynamo for one that is: four
# seconds of a processor in every process that trains.
for _method in (
    optim.Optimizer.add_param_group,
    optim.Optimizer.zero_grad,
    optim.Optimizer.state_dict,
    optim.Optimizer.load_state_dict,
):
    if (_plain := getattr(_method, "__wrapped__", None)) is not None:
        _plain.__dynamo_disable = _plain  # what torch._compile._disable_dynamo would put there


def _eager(kind: type[OptimizerClass]) -> type[OptimizerClass]:
    """Return one of torch's optimizers whose step imports no torch._dynamo either."""
    step = getattr(kind.step, "__wrapped__", None)
    return kind if step is None else type(kind.__name__, (kind,), {"step": torch.no_grad()(step)})


Adadelta, Adam, AdamW = _eager(optim.Adadelta), _eager(optim.Adam), _eager(optim.AdamW)
RMSprop, SGD = _eager(optim.RMSprop), _eager(optim.SGD)


@dataclass(frozen=True)
class Phase:
    """The optimizer of a part of the run, up to the next phase."""

    optimizer: optim.Optimizer
    lr: float  # for the effective batch, before the schedule and the groups' own factors
    start: float  # a fraction of the run

    def set(self, factor: float, momentum: float | None = None) -> None:
        """Set every group's rate from the schedule's factor and, unless None, its momentum.

        Adam and its variants take the momentum as beta1, as in torch's OneCycleLR; Adadelta has neither.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * factor * group["rate_factor"]
            if momentum is None:
                continue
            if "momentum" in group:
                group["momentum"] = momentum
            elif "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])


def applied_lr(spec: optimizers.Optimizer, batch_size: int) -> float:
    """Return the learning rate for an effective batch, from the recipe's at 256 images; with two, Adam's.

    Linear: Goyal et al., arXiv 1706.02677, section 2.1. Square root: Malladi et al., arXiv 2205.10287.
    """
    return spec.lr * optimizers.batch_factor(spec.scaling, batch_size / REFERENCE_BATCH)


def make_phases(
    spec: optimizers.Optimizer,
    model: nn.Module,
    *,
    batch_size: int,
    rate_factors: Mapping[str, float] | None = None,
) -> tuple[Phase, ...]:
    """Return the optimizers of a run over the model's parameters, in the order of their turns; mostly one.

    Args:
        batch_size: the effective batch, over ranks and accumulated micro-batches.
        rate_factors: of the learning rate, by a parameter's name; 1 for a name that is not in it.

    A parameter without a gradient does not change, not even by decay, and joins at the first step at which it
    has one. The model must be on its device already.
    """
    phases = []
    for each, start in _turns(spec):
        groups = parameter_groups(model, each.weight_decay, each.decay_norm_and_bias, rate_factors)
        lr = applied_lr(each, batch_size)
        optimizer = _make_optimizer(each, groups, lr)
        if isinstance(each, optimizers.RMSProp | optimizers.Adadelta | optimizers.LARS):
            skip_on_device(optimizer)  # the others are fused, or timm's, which count steps on the host
        phases.append(Phase(optimizer, lr, start))
        phases[-1].set(1.0)
    return tuple(phases)


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    decay_norm_and_bias: bool,
    rate_factors: Mapping[str, float] | None = None,
) -> list[ParameterGroup]:
    """Return all parameters, also frozen ones, in groups with one weight decay and one factor of the rate.

    Groups that decay come first, and among them those whose parameters the model names first. Unless
    `decay_norm_and_bias`, the parameters of normalisations and every vector (biases, layer scales) do not
    decay (He et al., Bag of Tricks, arXiv 1812.01187, section 3.1). Raises ValueError for a factor of no
    parameter.
    """
    factors = rate_factors or {}
    named = dict(model.named_parameters())
    if strangers := sorted(factors.keys() - named.keys()):
        raise ValueError(f"rate_factors: the model has no parameter {', '.join(strangers)}")
    spared = set() if decay_norm_and_bias else _norm_and_bias(model)
    groups: dict[tuple[bool, float], ParameterGroup] = {}
    for name, each in sorted(named.items(), key=lambda item: item[0] in spared):  # keeps the model's order
        factor = factors.get(name, 1.0)
        decay = 0.0 if name in spared else weight_decay
        new = {"params": [], "weight_decay": decay, "rate_factor": factor}
        groups.setdefault((name in spared, factor), new)["params"].append(each)
    return list(groups.values())


def _norm_and_bias(model: nn.Module) -> set[str]:
    vectors = {name for name, each in model.named_parameters() if each.ndim <= 1}
    return vectors | parameters_in(model, NORMALISATIONS)


def _turns(spec: optimizers.Optimizer) -> tuple[tuple[SinglePhase, float], ...]:
    """Return the optimizers that have a turn, each with the fraction of the run at which it begins."""
    if not isinstance(spec, optimizers.AdamThenSGD):
        return ((spec, 0.0),)
    adam = optimizers.AdamW(**spec.model_dump(include=optimizers.AdamW.model_fields.keys() - {"kind"}))
    sgd = optimizers.SGD(
        lr=spec.sgd_lr,
        scaling="none" if spec.scaling == "none" else "linear",
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        weight_decay=spec.sgd_weight_decay,
        decay_norm_and_bias=spec.decay_norm_and_bias,
    )
    return ((adam, 0.0), (sgd, spec.switch_at))


def _make_optimizer(spec: SinglePhase, groups: list[ParameterGroup], lr: float) -> optim.Optimizer:
    """Make an optimizer, with torch's fused kernels where they exist: they take a third of the time or less,
    on CPUs too."""
    match spec:
        case optimizers.SGD():
            return _fused_sgd(spec, groups, lr)
        case optimizers.RMSProp():
            return RMSprop(groups, lr=lr, alpha=spec.alpha, eps=spec.eps, momentum=spec.momentum)
        case optimizers.Adam():
            return Adam(groups, lr=lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)
        case optimizers.AdamW():
            return AdamW(groups, lr=lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)
        case optimizers.Adadelta():
            return Adadelta(groups, lr=lr, rho=spec.rho, eps=spec.eps)
        case optimizers.LARS():
            return _lars(spec, groups, lr)
        case optimizers.LAMB():
            return _lamb(spec, groups, lr)
        case optimizers.Timm():
            return make_timm_optimizer(spec, groups, lr)
        case _:
            assert_never(spec)


def _fused_sgd(spec: optimizers.SGD, groups: list[ParameterGroup], lr: float) -> optim.Optimizer:
    """Make SGD whose momentum begins at zeros, which is equal to what torch's own does.

    Without that, torch's fused SGD makes its momentum at the first step. The momentum is garbage if that step
    overflows, as steps with a loss scaler may, and a TypeError is raised if a layer gets its first gradient
    later than others.
    """
    optimizer = SGD(groups, lr=lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=True)
    for group in groups:
        for each in group["params"]:
            optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each)
    return optimizer


def _lars(spec: optimizers.LARS, groups: list[ParameterGroup], lr: float) -> optim.Optimizer:
    """Make LARS: You et al., arXiv 1708.03888, algorithm 1; without weight decay a step is SGD's."""
    from timm.optim.lars import Lars

    return Lars(
        groups, lr=lr, momentum=spec.momentum, nesterov=spec.nesterov, trust_coeff=spec.trust, eps=1e-8
    )


def _lamb(spec: optimizers.LAMB, groups: list[ParameterGroup], lr: float) -> optim.Optimizer:
    """Make LAMB: You et al., arXiv 1904.00962, algorithm 2; without weight decay a step is Adam's.

    As in the authors' runs, the gradient of all groups together is first clipped to a norm of 1. Bias
    correction counts the steps of the run, so a layer unfrozen late has none of it.
    """
    from timm.optim.lamb import Lamb

    return Lamb(groups, lr=lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, max_grad_norm=1.0)


# --- steps that overflowed ----------------------------------------------------------------------------


def skip_on_device(optimizer: optim.Optimizer) -> None:
    """Make an optimizer do itself what a GradScaler asks: nothing, if the gradients are not finite.

    Otherwise the scaler reads one number from the device before every step. The optimizer must begin its
    state at zeros, and use no count of steps: it takes the step with gradients of zero, and what it has
    changed is then chosen on the device from before and after. That costs a copy of weights and state, for
    the time of a step, and only if a scaler is enabled.
    """
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # read by torch.amp.GradScaler
    kept: dict[Tensor, Tensor] = {}

    def keep(stepping: optim.Optimizer, *_: Any) -> None:
        overflowed = _overflowed(stepping)
        if overflowed is not None:
            changing = _changing(stepping)
            kept.update(zip(changing, _copies(changing), strict=True))
            for each in _weights(stepping):
                if each.grad is not None:
                    each.grad.masked_fill_(overflowed, 0.0)  # not times zero: that leaves nan

    def choose(stepping: optim.Optimizer, *_: Any) -> None:
        overflowed = _overflowed(stepping)
        if overflowed is not None:
            _restore(_changing(stepping), kept, overflowed)
            kept.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(choose)


def _overflowed(optimizer: optim.Optimizer) -> Tensor | None:
    """Return whether the gradients overflowed, on their device, or None if no scaler takes the step."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    return None if found is None else found.reshape(()).bool()


@torch.no_grad()
def _restore(after: list[Tensor], before: Mapping[Tensor, Tensor], overflowed: Tensor) -> None:
    """Set tensors to what they were if the step overflowed; those that the step has made become zeros.

    All numbers are finite, so one factor is 1, the other 0, and what is kept does not change by a bit.
    """
    torch._foreach_mul_(after, (~overflowed).to(torch.float32))
    known = [each for each in after if each in before]
    old = [before[each] for each in known]
    torch._foreach_mul_(old, overflowed.to(torch.float32))
    torch._foreach_add_(known, old)


@torch.no_grad()
def _copies(tensors: list[Tensor]) -> list[Tensor]:
    copies = [torch.empty_like(each) for each in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def _weights(optimizer: optim.Optimizer) -> list[nn.Parameter]:
    """Return the weights that have gradients."""
    return [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]


def _changing(optimizer: optim.Optimizer) -> list[Tensor]:
    """Return the weights that have gradients, and their state on the same device."""
    return [tensor for each in _weights(optimizer) for tensor in (each, *_state(optimizer, each))]


def _state(optimizer: optim.Optimizer, weight: nn.Parameter) -> list[Tensor]:
    values = optimizer.state.get(weight, {}).values()
    return [each for each in values if isinstance(each, Tensor) and each.shape == weight.shape]
