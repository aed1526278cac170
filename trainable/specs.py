"""The sections of a Recipe: typed, frozen data with its ranges, defaults and sources."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
OpenFraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Spec(BaseModel):
    """A frozen section: unknown keys and non-finite numbers are refused, nothing is coerced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Classification(Spec):
    """One label an image, scored by cross-entropy."""

    kind: Literal["classification"] = "classification"


# --- data ---------------------------------------------------------------------------------------------


class Data(Spec):
    """Which images, how they are split, and what they are turned into before the model sees them.

    `None` means "as the data say": `Run` measures it, and `resolved` recipes carry the number.
    """

    path: Annotated[str, Field(min_length=1, description="`digits`, a folder or a file")] = "digits"
    format: Literal["auto", "digits", "folder", "npz", "idx", "torchvision"] = "auto"
    name: str | None = Field(None, description="torchvision's class name, when format is torchvision")
    train: str | None = Field(None, description="name of the training folder, when it is not the usual one")
    validation: str | None = Field(None, description="name of the validation folder")
    test: str | None = Field(None, description="name of the test folder; never looked at during a search")
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    test_fraction: OpenFraction = Field(0.15, description="only where the data bring no test part")
    split_seed: Annotated[int, Field(ge=0)] = Field(0, description="who is in which part")
    train_limit: Annotated[int, Field(ge=2)] | None = Field(None, description="at most so many of them")
    channels: Literal[1, 3] | None = None
    image_size: Annotated[int, Field(ge=4, le=4096)] | None = Field(None, description="side in pixels")
    flips: tuple[Literal["horizontal", "vertical"], ...] | None = Field(
        None, description="flips under which a label survives; none for folders unless said so"
    )
    in_memory: bool | None = Field(None, description="hold the decoded images in memory")


# --- model --------------------------------------------------------------------------------------------


class ResNetSmall(Spec):
    """A residual net for images up to 64 px: three stages of (depth - 2) / 6 blocks (1512.03385, 4.2)."""

    kind: Literal["resnet_small"] = "resnet_small"
    depth: Literal[8, 14, 20, 32, 44, 56] = 8
    width: Annotated[int, Field(ge=4, le=512)] = Field(16, description="channels of the first stage")
    stem_stride: Literal[1, 2] = 1


class TorchvisionModel(Spec):
    """A classification model of torchvision, by its name, from scratch."""

    kind: Literal["torchvision"] = "torchvision"
    name: Annotated[str, Field(min_length=1)]


class TimmModel(Spec):
    """A model of timm, by its name, from scratch."""

    kind: Literal["timm"] = "timm"
    name: Annotated[str, Field(min_length=1)]


Model = Annotated[ResNetSmall | TorchvisionModel | TimmModel, Field(discriminator="kind")]

# --- optimizer ----------------------------------------------------------------------------------------


class SGD(Spec):
    """Stochastic gradient descent with momentum; the decay is L2, as in torch.optim.SGD."""

    kind: Literal["sgd"] = "sgd"
    lr: Annotated[float, Field(gt=0.0)] = Field(0.1, description="at batch 256 (1706.02677, section 2.1)")
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    momentum: OpenFraction = 0.9
    nesterov: bool = True
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    decay_norm_and_bias: bool = Field(False, description="off: Bag of Tricks (1812.01187), section 3.1")

    @model_validator(mode="after")
    def nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs momentum above 0")
        return self


class AdamW(Spec):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0.0)] = Field(1e-3, description="at batch 256")
    scaling: Literal["linear", "sqrt", "none"] = Field("sqrt", description="arXiv 2205.10287")
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Annotated[float, Field(gt=0.0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.02
    decay_norm_and_bias: bool = False


Optimizer = Annotated[SGD | AdamW, Field(discriminator="kind")]

# --- schedule -----------------------------------------------------------------------------------------


class ScheduleSpec(Spec):
    """Every schedule is a factor on the rate: linear warm-up, then the shape over what is left of the run."""

    warmup_epochs: Annotated[float, Field(ge=0.0)] = 0.0


class Constant(ScheduleSpec):
    kind: Literal["constant"] = "constant"


class Cosine(ScheduleSpec):
    """Half a cosine from 1 to `final_factor` (arXiv 1608.03983, without restarts)."""

    kind: Literal["cosine"] = "cosine"
    final_factor: Fraction = 0.0


class Step(ScheduleSpec):
    """Times `gamma` after every `every` of the run; x0.1 at 30, 60, 90 of 120 epochs by default."""

    kind: Literal["step"] = "step"
    every: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.25, description="fraction of the run")
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1


class Poly(ScheduleSpec):
    """(1 - progress) to the `power`."""

    kind: Literal["poly"] = "poly"
    power: Annotated[float, Field(gt=0.0)] = 1.0


class Exponential(ScheduleSpec):
    """Times `gamma` an epoch, continuously."""

    kind: Literal["exp"] = "exp"
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95


Schedule = Annotated[Constant | Cosine | Step | Poly | Exponential, Field(discriminator="kind")]

# --- regularisation and augmentation ------------------------------------------------------------------


class Regularisation(Spec):
    label_smoothing: OpenFraction = Field(0.0, description="arXiv 1512.00567, section 7")
    clip_norm: Annotated[float, Field(gt=0.0)] | None = Field(None, description="L2 (arXiv 1211.5063, 3.2)")
    ema_decay: OpenFraction | None = Field(None, description="decay a step of the averaged weights")


class NoCrop(Spec):
    kind: Literal["none"] = "none"


class PadCrop(Spec):
    """Zero-pad by `fraction` of the side, crop back at a random place (4 of 32 px: 1512.03385, 4.2)."""

    kind: Literal["pad"] = "pad"
    fraction: Annotated[float, Field(gt=0.0, le=0.5)] = 0.125


class ResizedCrop(Spec):
    """A random area and aspect ratio, resized back (Inception's crop: arXiv 1409.4842, section 6)."""

    kind: Literal["resized"] = "resized"
    scale_min: Annotated[float, Field(gt=0.0, le=1.0)] = 0.08
    scale_max: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    ratio_min: Annotated[float, Field(gt=0.0)] = 0.75
    ratio_max: Annotated[float, Field(gt=0.0)] = 4 / 3

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> Self:
        if self.scale_min > self.scale_max:
            raise ValueError(f"scale_min {self.scale_min} is above scale_max {self.scale_max}")
        if self.ratio_min > self.ratio_max:
            raise ValueError(f"ratio_min {self.ratio_min} is above ratio_max {self.ratio_max}")
        return self


class NoPolicy(Spec):
    kind: Literal["none"] = "none"


class RandAugment(Spec):
    """`num_ops` random operations an image (arXiv 1909.13719); magnitude in torchvision's 31 bins."""

    kind: Literal["randaugment"] = "randaugment"
    num_ops: Annotated[int, Field(ge=1, le=8)] = 2
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9


class NoMixing(Spec):
    kind: Literal["none"] = "none"


class Mixup(Spec):
    """Convex pairs of images and labels, lambda ~ Beta(alpha, alpha) (arXiv 1710.09412)."""

    kind: Literal["mixup"] = "mixup"
    alpha: Annotated[float, Field(gt=0.0)] = 0.2
    probability: Fraction = 1.0


class CutMix(Spec):
    """A rectangle of another image, labels mixed by area (arXiv 1905.04899)."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: Annotated[float, Field(gt=0.0)] = 1.0
    probability: Fraction = 1.0


class Augmentation(Spec):
    crop: Annotated[NoCrop | PadCrop | ResizedCrop, Field(discriminator="kind")] = PadCrop()
    flip_probability: Fraction = Field(0.5, description="for each flip that data.flips allows")
    policy: Annotated[NoPolicy | RandAugment, Field(discriminator="kind")] = NoPolicy()
    erasing_probability: Fraction = Field(0.0, description="RandomErasing (arXiv 1708.04896)")
    mixing: Annotated[NoMixing | Mixup | CutMix, Field(discriminator="kind")] = NoMixing()


# --- how it is run ------------------------------------------------------------------------------------


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


class Stretch(Spec):
    """Resize to the square, whatever the aspect ratio."""

    kind: Literal["stretch"] = "stretch"


class CenterCrop(Spec):
    """Resize the short side to image_size / ratio, then take the middle (0.875: 1409.4842's 224 of 256)."""

    kind: Literal["center_crop"] = "center_crop"
    ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.875


class Evaluation(Spec):
    weights: Literal["raw", "ema"] = "raw"
    batch_size: Annotated[int, Field(ge=1)] = 512
    resize: Annotated[Stretch | CenterCrop, Field(discriminator="kind")] = Stretch()


class Provenance(Spec):
    """Where a recipe comes from and what it scored. Outside the digest: it never changes a run."""

    search: str | None = None
    trial: int | None = None
    mlflow_run_id: str | None = None
    created: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    data_digest: str | None = None
    class_names: tuple[str, ...] = ()
    threads: int | None = None
    device: str | None = None
    micro_batch: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
