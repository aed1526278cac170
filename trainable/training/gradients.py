"""Sums gradients over the ranks of a run, and clips them.

They are summed bucket by bucket, while the backward pass still computes: by torch's DistributedDataParallel
(Li et al., arXiv 2006.15704, section 3.2). Around it stands what it lacks: a rank that runs out of memory
does not leave the others waiting (docs/decisions/0016).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_never

import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_

from trainable.models.groups import head_parameters
from trainable.ranks import Ranks
from trainable.recipe.training import AdaptiveClipping, Clipping, NoClipping, NormClipping

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

SHORTEST = 1e-3  # of a unit's weights, in adaptive clipping: the paper's eps


class RankAgreement(Enum):
    """What all ranks agree on after a window's backward passes."""

    SUMMED = "every parameter's gradient is the sum over all ranks"
    OUT_OF_MEMORY = "memory ran out on a rank: the gradients are of no use"
    AGAIN = "a parameter got no gradient, which was not expected: the same window again will do"


class Reduction:
    """The sums of a model's gradients over ranks, one window after the other:

        reduction.begin()
        for each micro-batch: with reduction.part(last=...): loss(reduction.model(images)).backward()
        reduction.agree(out_of_memory)

    Gradients are exchanged in the last part's backward pass alone. In a world of one nothing is exchanged.
    `in_bf16` exchanges them in bf16: half the bytes, and sums with 8 bits of precision.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, *, in_bf16: bool = False) -> None:
        self._module, self._ranks, self._in_bf16 = model, ranks, in_bf16
        self._parameters = list(model.parameters())
        self._wrapper: DistributedDataParallel | None = None
        self._trained: list[nn.Parameter] = []  # what the wrapper knows
        # Whether parameters are looked for that a window does not use, which takes time in every step. It is
        # part of a run's state: to find it out, a window is tried twice, which draws random numbers twice.
        self.finds_unused = False
        # the sums of this window's buckets, in the same order on every rank
        self._answers: list[Future[Tensor]] = []
        self._complete = False  # this window's last bucket has been reached

    @property
    def model(self) -> nn.Module:
        """What a micro-batch goes through, between `begin` and `agree`."""
        return self._module if self._wrapper is None else self._wrapper

    def begin(self) -> None:
        """Prepare for a window. Ranks wait for each other if other parameters are trained than before."""
        self._answers.clear()
        self._complete = False
        if self._ranks.world == 1:
            return
        trained = [each for each in self._parameters if each.requires_grad]
        if self._wrapper is None or list(map(id, trained)) != list(map(id, self._trained)):
            self._wrapper, self._trained = None, trained  # the old one first: its hooks end with it
            self._wrapper = self._wrapped()

    def part(self, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-batch's forward and backward pass."""
        return nullcontext() if last or self._wrapper is None else self._wrapper.no_sync()

    def agree(self, out_of_memory: bool) -> RankAgreement:
        """Return what holds on every rank; `out_of_memory` is what this rank says.

        A rank whose backward pass did not come to its end answers the other ranks' buckets with zeros, so
        that none waits in vain. What ranks agree on is on the host: none waits for its device.
        """
        if self._wrapper is None:
            return RankAgreement.OUT_OF_MEMORY if out_of_memory else RankAgreement.SUMMED
        unused = not self._complete and not out_of_memory
        if not self._complete:
            self._answer_the_rest(self._wrapper)
        lacking, unused = self._ranks.any_of([out_of_memory, unused])
        if lacking or unused:
            self._wrapper = None
            if unused and self.finds_unused:
                raise RuntimeError("the loss depends on none of the model's outputs: there are no gradients")
            self.finds_unused = self.finds_unused or unused
            return RankAgreement.OUT_OF_MEMORY if lacking else RankAgreement.AGAIN
        # All ranks together, now: buckets are arranged anew after the first window, by a collective that
        # forward would call otherwise, where a rank that has run out of memory never comes.
        self._wrapper.reducer._rebuild_buckets()
        return RankAgreement.SUMMED

    def close(self) -> None:
        """Free the buckets."""
        self._wrapper = None
        self._answers.clear()

    def _wrapped(self) -> DistributedDataParallel:
        with warnings.catch_warnings():
            # its new name came after torch 2.11
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            wrapper = DistributedDataParallel(
                self._module,
                broadcast_buffers=False,  # Run averages them before it scores
                init_sync=False,  # Run has copied rank 0's weights
                gradient_as_bucket_view=True,
                find_unused_parameters=self.finds_unused,
            )
        wrapper.register_comm_hook(None, lambda _, bucket: self._sum(bucket))
        return wrapper

    def _sum(self, bucket: GradBucket) -> Future[Tensor]:
        """Start the sum of a bucket. (Torch's default is the mean; here losses are weighted already.)"""
        buffer = bucket.buffer()
        answer = self._in_bf16_of(buffer) if self._in_bf16 else self._ranks.start_reduce(buffer)
        self._answers.append(answer)
        self._complete = bucket.is_last()
        return answer

    def _in_bf16_of(self, buffer: Tensor) -> Future[Tensor]:
        sums = self._ranks.start_reduce(buffer.bfloat16())
        return sums.then(lambda answer: buffer.copy_(answer.value()))

    def _answer_the_rest(self, wrapper: DistributedDataParallel) -> None:
        """Take part in the sums that this rank's backward pass has not reached."""
        for bucket in wrapper.reducer._get_zeros_like_grad_buckets()[len(self._answers) :]:
            self._sum(bucket)
        if wrapper.find_unused_parameters:  # after its last bucket, torch sums which parameters were used
            self._answers.append(self._ranks.start_reduce(wrapper.reducer._get_local_used_map()))
        for answer in self._answers:
            answer.wait()


# --- clipping -----------------------------------------------------------------------------------------


def clip(
    spec: Clipping,
    parameters: Sequence[nn.Parameter],
    below_head: Sequence[nn.Parameter],
    norm: Tensor | None,
) -> None:
    """Clip the gradients of `parameters` by their norm, if it was measured, or those below the head."""
    match spec:
        case NoClipping():
            pass
        case NormClipping(max_norm=longest):
            if norm is not None:
                clip_grads_with_norm_(parameters, longest, norm)
        case AdaptiveClipping(factor=factor):
            clip_adaptively(below_head, factor)
        case _:
            assert_never(spec)


@torch.no_grad()
def clip_adaptively(parameters: Sequence[nn.Parameter], factor: float) -> None:
    """Shrink the gradients in place so that no unit's is longer than `factor` times its weights.

    A unit is a row of a parameter with rows (an output channel, an output of a linear layer), and otherwise
    the whole parameter. Weights shorter than SHORTEST count as that long, or zeros could never move. The
    caller leaves the final linear layer out. Brock et al., arXiv 2102.06171, section 4.1; `factor` is their
    lambda.

    It waits for no device: the few numbers that decide stay where the gradients are.
    """
    moving = [each for each in parameters if each.grad is not None]
    gradients = [each.grad for each in moving if each.grad is not None]
    if not gradients:
        return
    lengths = [_unit_norms(each) for each in gradients]
    found = torch.cat(lengths)
    allowed = torch.cat([_unit_norms(each) for each in moving]).clamp_(min=SHORTEST).mul_(factor)
    scales = torch.where(found > allowed, allowed / found, 1.0)
    for gradient, scale in zip(gradients, scales.split([len(each) for each in lengths]), strict=True):
        shape = [len(scale), *[1] * gradient.ndim][: gradient.ndim]  # as many dimensions as the gradient
        gradient.mul_(scale.view(shape))


def _unit_norms(values: Tensor) -> Tensor:
    """Return the Euclidean length of each unit, [units]."""
    dimensions = tuple(range(1, values.ndim)) or None
    norms: Tensor = torch.linalg.vector_norm(values, dim=dimensions)
    return norms.view(-1)


def below_head(model: nn.Module) -> list[nn.Parameter]:
    """Return what adaptive clipping bounds: all but the last layer (arXiv 2102.06171, section 4.1)."""
    head = head_parameters(model)
    return [each for name, each in model.named_parameters() if each.requires_grad and name not in head]
