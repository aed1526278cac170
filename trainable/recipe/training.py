"""How a run is regularised, computed and scored, and where its recipe comes from.

Sources such as `003:43` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainable.recipe.base import YOURS, OpenFraction, Purpose, Spec, check_distinct
from trainable.recipe.metrics import AnyMetric

LONGEST_RUN = 100_000  # epochs, at most
LARGEST_BATCH = 2**20  # images, at most; the largest published batch has 2**16 (arXiv 1904.00962)


class NoClipping(Spec):
    """Gradients as they are."""

    kind: Literal["none"] = "none"


class NormClipping(Spec):
    """A bound of the L2 norm of the gradient of all weights together (arXiv 1211.5063, section 3.2).

    1 is the norm of arXiv 2010.11929, table 3.
    """

    kind: Literal["norm"] = "norm"
    max_norm: Annotated[float, Field(gt=0.0), Purpose("the longest gradient", "000:7-20, 004:155")] = 1.0


class AdaptiveClipping(Spec):
    """A bound of each unit's gradient by the norm of its weights (arXiv 2102.06171, section 4.1)."""

    kind: Literal["adaptive"] = "adaptive"
    factor: Annotated[
        float,
        Field(gt=0.0),
        Purpose(
            "each unit's longest gradient, over the norm of its weights",
            "000:7-20; arXiv 2102.06171, section 4.1",
        ),
    ] = 0.01


Clipping = Annotated[
    NoClipping | NormClipping | AdaptiveClipping,
    Field(discriminator="kind"),
    Purpose("bounds the gradient", "000:7-20, 004:155"),
]


class NoAveraging(Spec):
    """The weights of the last step, scored and exported."""

    kind: Literal["none"] = "none"


class ExponentialAveraging(Spec):
    """An exponential moving average of the weights, scored and exported instead.

    A decay of 0.99 forgets half in 69 steps.
    """

    kind: Literal["ema"] = "ema"
    decay: Annotated[OpenFraction, Purpose("share of the average that each step keeps", "ours")] = 0.99


Averaging = Annotated[
    NoAveraging | ExponentialAveraging,
    Field(discriminator="kind"),
    Purpose("averages the weights, and scores the average", "ours"),
]


class NoClassWeights(Spec):
    """Every training image counts alike in the loss."""

    kind: Literal["none"] = "none"


class InverseWeights(Spec):
    """Every class counts alike in the loss: an image counts as one over the times its class is shown."""

    kind: Literal["inverse"] = "inverse"


class EffectiveNumberWeights(Spec):
    """A class of n images counts as its n / E times, with E = (1 - beta^n) / (1 - beta) images that differ
    (arXiv 1901.05555, section 3).

    A beta of 0 changes nothing, and near 1 every class counts alike.
    """

    kind: Literal["effective_number"] = "effective_number"
    beta: Annotated[
        OpenFraction,
        Purpose(
            "how much images of a class overlap: N images add 1 / (1 - beta) at most",
            "arXiv 1901.05555, section 3.2",
        ),
    ] = 0.999


ClassWeights = Annotated[
    NoClassWeights | InverseWeights | EffectiveNumberWeights,
    Field(discriminator="kind"),
    Purpose("lets images of small classes count more in the training loss", "arXiv 1901.05555, section 3"),
]


AVERAGING = "regularisation.averaging.kind"  # the path of the field


class Regularisation(Spec):
    """What keeps a network from learning its images by heart."""

    label_smoothing: Annotated[
        OpenFraction,
        Purpose("softens the labels of large models", "003:43-59, 000:36; arXiv 1512.00567, section 7"),
    ] = 0.0
    class_weights: ClassWeights = NoClassWeights()
    logit_adjustment: Annotated[
        float,
        Field(ge=0.0, le=10.0),
        Purpose(
            "adds so many times the log of each class's share in the training loss to its logit, in training "
            "alone: 1 suits scores that count every class alike, 0 is off",
            "arXiv 2007.07314, section 5.2",
        ),
    ] = 0.0
    clipping: Clipping = NoClipping()
    averaging: Averaging = NoAveraging()


class Precision(Spec):
    """The number formats and the memory layout.

    A search and `tunebook train` replace `auto` by the fastest, in timed steps of the model. Elsewhere it is
    bf16 or else fp16 on CUDA, and fp32 on a CPU.
    """

    kind: Annotated[
        Literal["auto", "fp32", "tf32", "bf16", "fp16"],
        Purpose("half precision where the device is faster with it", "000:5, 001:212, 004:51"),
    ] = "auto"
    channels_last: Annotated[
        bool, Purpose("the layout that convolutions are fastest in", "torch's documentation")
    ] = True


Sampling = Literal["natural", "sqrt", "balanced"]

# Nothing; the network as a whole; each of the blocks that it repeats, of which those of one kind share their
# code, so that minutes become seconds; or what pays: a search and `tunebook train` replace `auto` by what
# timed steps say, and elsewhere it compiles nothing
Compiling = Literal[False, True, "blocks", "auto"]

COMPILED: tuple[Compiling, ...] = (True, "blocks")  # the network trains compiled


class Loop(Spec):
    """How long a run trains, in which batches, and with which processes."""

    epochs: Annotated[
        int, Field(ge=1, le=LONGEST_RUN), Purpose("length of the run; cosine wants long ones", "003:17")
    ] = 20
    batch_size: Annotated[
        int, Field(ge=1, le=LARGEST_BATCH), Purpose("effective batch, over all ranks", "003:23, 004:43-49")
    ] = 128
    micro_batch: Annotated[
        int | None,
        Field(ge=1),
        Purpose("the most images computed at once; gradients are accumulated", "002:24, 004:113"),
    ] = None
    sampling: Annotated[
        Sampling,
        Purpose(
            "how often an epoch shows each class: as often as its images, their square root, or all alike",
            "arXiv 1910.09217, section 4.1",
        ),
    ] = "natural"
    seed: Annotated[
        int, Field(ge=0, lt=2**32), Purpose("decides weights, order and augmentation", "ours")
    ] = 0
    workers: Annotated[
        int | None,
        Field(ge=0, le=1024),
        Purpose(
            "processes that decode image files; by default the run's threads but one, and at least one",
            "000:56, 002:8, 004:37",
        ),
    ] = None
    prefetch: Annotated[
        int,
        Field(ge=1, le=1024),
        Purpose("batches that each decoding process is ahead", "000:56, 002:8, 004:37"),
    ] = 2
    sync_norm: Annotated[
        bool,
        Purpose("BatchNorm over all ranks, for small micro-batches", "004:135"),
    ] = False
    bf16_gradients: Annotated[
        bool,
        Purpose(
            "ranks exchange gradients in bf16: half the bytes, with 8 bits of precision",
            "torch's documentation",
        ),
    ] = False
    checkpoint_activations: Annotated[
        bool, Purpose("saves memory by computing blocks twice", "004:101; arXiv 1604.06174")
    ] = False
    compile: Annotated[
        Compiling,
        Purpose(
            "faster steps after a minute of compiling, or after seconds by blocks", "torch's documentation"
        ),
    ] = False

    @property
    def compiles(self) -> bool:
        """Whether the network trains compiled, as a whole or by blocks."""
        return self.compile in COMPILED


def each_kind_once(metrics: tuple[AnyMetric, ...]) -> tuple[AnyMetric, ...]:
    """Return the metrics unchanged. Raises ValueError where two would have the same name."""
    check_distinct("kind", [each.kind for each in metrics])
    return metrics


class Stretch(Spec):
    """The whole image as a square, whatever its aspect ratio."""

    kind: Literal["stretch"] = "stretch"


class CenterCrop(Spec):
    """The middle of an image whose short side is image_size / ratio."""

    kind: Literal["center_crop"] = "center_crop"
    ratio: Annotated[
        float, Field(gt=0.0, le=1.0), Purpose("the middle of a larger image: 224 of 256", "arXiv 1409.4842")
    ] = 0.875


class Evaluation(Spec):
    """How a part of the images is scored."""

    batch_size: Annotated[int, Field(ge=1, le=LARGEST_BATCH), Purpose("changes speed alone", "ours")] = 512
    resize: Annotated[
        Stretch | CenterCrop, Field(discriminator="kind"), Purpose("how an image becomes a square", "ours")
    ] = Stretch()
    flip: Annotated[
        bool, Purpose("averages over the image and its mirror, where data.flips allows", "000:47")
    ] = False
    scales: Annotated[
        tuple[Annotated[float, Field(ge=0.25, le=4.0)], ...],
        Field(min_length=1, max_length=100),
        Purpose("averages the probabilities over these sizes, of data.image_size", "000:46"),
    ] = (1.0,)
    norm_batches: Annotated[
        int,
        Field(ge=0, le=1_000_000),
        Purpose(
            "training batches that measure BatchNorm's statistics again before scoring: they lag behind "
            "the weights at high rates; 0 leaves them",
            "ours",
        ),
    ] = 4
    metrics: Annotated[
        tuple[AnyMetric, ...],
        Field(max_length=100),
        AfterValidator(each_kind_once),
        Purpose("what is measured beside loss and accuracies", YOURS),
    ] = ()
