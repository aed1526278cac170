"""How a run is regularised, computed and scored, and where its recipe comes from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainable.recipe.base import OpenFraction, Spec


class NoClipping(Spec):
    """Gradients are used as they are."""

    kind: Literal["none"] = "none"


class NormClipping(Spec):
    """The gradient of all weights together is shortened to an L2 norm (arXiv 1211.5063, section 3.2)."""

    kind: Literal["norm"] = "norm"
    max_norm: Annotated[float, Field(gt=0.0)] = Field(1.0, description="1 in arXiv 2010.11929, table 3")


class AdaptiveClipping(Spec):
    """Each unit's gradient is bounded by the norm of its weights (arXiv 2102.06171, section 4.1)."""

    kind: Literal["adaptive"] = "adaptive"
    factor: Annotated[float, Field(gt=0.0)] = Field(0.01, description="gradient's norm over the weights'")


Clipping = Annotated[NoClipping | NormClipping | AdaptiveClipping, Field(discriminator="kind")]


class NoAveraging(Spec):
    """The weights of the last step are scored and exported."""

    kind: Literal["none"] = "none"


class ExponentialAveraging(Spec):
    """An exponential moving average of the weights is scored and exported in their stead."""

    kind: Literal["ema"] = "ema"
    decay: OpenFraction = Field(0.99, description="per step: half is forgotten in 69 steps; ours")


Averaging = Annotated[NoAveraging | ExponentialAveraging, Field(discriminator="kind")]


class Regularisation(Spec):
    label_smoothing: OpenFraction = Field(0.0, description="arXiv 1512.00567, section 7")
    clipping: Clipping = NoClipping()
    averaging: Averaging = NoAveraging()


class Precision(Spec):
    """Number formats and memory layout.

    `auto` is bf16 where the device computes in it, else fp16 on CUDA and fp32 on a CPU.
    """

    kind: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    channels_last: bool = True


class Loop(Spec):
    epochs: Annotated[int, Field(ge=1)] = 20
    batch_size: Annotated[int, Field(ge=1)] = Field(128, description="effective batch, over all ranks")
    micro_batch: Annotated[int, Field(ge=1)] | None = Field(None, description="images at once, at most")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="weights, order and augmentation")
    workers: Annotated[int, Field(ge=0)] = Field(0, description="loader processes, for data not in memory")
    prefetch: Annotated[int, Field(ge=1)] = Field(2, description="batches that each loader process is ahead")
    sync_norm: bool = Field(False, description="BatchNorm over all ranks: for small micro-batches")
    checkpoint_activations: bool = Field(
        False, description="compute blocks twice instead of keeping them: less memory (arXiv 1604.06174)"
    )
    compile: bool = Field(False, description="torch.compile: a minute first, faster steps after")


class Stretch(Spec):
    """Resize to the square, whatever the aspect ratio."""

    kind: Literal["stretch"] = "stretch"


class CenterCrop(Spec):
    """Resize the short side to image_size / ratio, then take the middle (0.875: 1409.4842's 224 of 256)."""

    kind: Literal["center_crop"] = "center_crop"
    ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.875


class Evaluation(Spec):
    batch_size: Annotated[int, Field(ge=1)] = 512
    resize: Annotated[Stretch | CenterCrop, Field(discriminator="kind")] = Stretch()
    flip: bool = Field(False, description="average over the image and its mirror, where data.flips allows")
    scales: Annotated[tuple[Annotated[float, Field(ge=0.25, le=4.0)], ...], Field(min_length=1)] = Field(
        (1.0,), description="of data.image_size; probabilities are averaged"
    )
    norm_batches: Annotated[int, Field(ge=0)] = Field(
        4, description="training batches on which BatchNorm's statistics are measured before scoring"
    )


class Provenance(Spec):
    """Where a recipe comes from and what it scored. Outside the digest: it never changes a run."""

    search: str | None = None
    trial: int | None = None
    mlflow_run_id: str | None = None
    created: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    data_digest: str | None = None
    weights_digest: str | None = Field(None, description="of the file that the run began from")
    class_names: tuple[str, ...] = ()
    threads: int | None = None
    device: str | None = None
    micro_batch: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
