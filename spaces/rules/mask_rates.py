"""Holds what a segmentation has of the rules for rates and decays: other batches are usual, and other decays.

Rates are at batch 256, and published ones at batch 16: SGD's is linear in the batch, that of Adam and its
variants grows with its root.
"""

from __future__ import annotations

from spaces.facts import Facts
from spaces.rules.rulings import MILLION, SHORT_RUN, Ruling, images_seen, log_log_interpolated

USUAL_BATCH = 16
PUBLISHED_SGD_RATE = 0.11
"""This is 0.007 at batch 16 (arXiv 1706.05587, section 4.1)."""
ADAM_RATE = 0.004
"""This is Adam's default, 0.001, at batch 16."""
TUNED_ADAPTIVE_RATE = 0.0024
"""This is 0.0006 at batch 16, ten times that of the encoder (arXiv 2105.15203, section 4.1, and its code)."""
PUBLISHED_RUN = 480_000
"""DeepLabv3 saw so many windows: 30,000 steps of 16 (arXiv 1706.05587, section 4.1)."""
SHORT_RUN_FACTOR, ADAPTIVE_SHORT_RUN_FACTOR = 50.0, 10.0
LARGE_NET_SHORT_RUN_FACTOR = 2.0
TUNED_SHORT_RUN_FACTOR = 6.0
"""From pretrained weights: measured with AdamW, and ours for the others."""
SMALL_NET, LARGE_NET = 100_000, 10 * MILLION
"""Rates were measured with a net of about the first size; the second, and SGD's factor there, are those of a
classification."""


def mask_rate(facts: Facts, kind: str, from_scratch: Ruling[float]) -> Ruling[float]:
    """Return the rate at batch 256 of the layers above the backbone, for an optimizer whose rate in a
    classification from scratch is known.

    It is not lower with frozen BatchNorm: those of the decoder are not frozen.
    """
    match kind:
        case "adadelta":
            return from_scratch
        case "sgd" | "lars" if facts.attention:
            reason = "transformers are tuned at lower rates"
            return Ruling(0.01, reason, "arXiv 2106.10270; the number is ours")
        case "sgd" | "lars":
            reason = f"0.007 at batch {USUAL_BATCH} is {PUBLISHED_SGD_RATE:g} at 256"
            return Ruling(PUBLISHED_SGD_RATE, reason, "arXiv 1706.05587, section 4.1")
        case _ if facts.pretrained:
            reason = (
                f"0.00006 at batch {USUAL_BATCH} for the encoder, ten times that above it, is "
                f"{TUNED_ADAPTIVE_RATE:g} at 256"
            )
            return Ruling(TUNED_ADAPTIVE_RATE, reason, "arXiv 2105.15203, section 4.1")
        case _ if facts.attention:
            return from_scratch
        case _:
            reason = f"Adam's own default at batch {USUAL_BATCH}, {ADAM_RATE:g} at 256"
            return Ruling(ADAM_RATE, reason, "arXiv 1412.6980, section 2; the batch is ours")


def mask_short_run_factor(facts: Facts, kind: str) -> float:
    """Return how much larger steps may be if a run sees fewer windows than DeepLabv3's.

    From scratch, with a U-Net of 0.12 million parameters in runs that see 500 to 1,000 windows, batch 8, the
    best rates at 256 were 3 to 10 for SGD and 0.01 to 0.1 for AdamW; from pretrained weights, with
    EfficientNet-Lite0 below smp's U-Net, 0.007 to 0.024 for AdamW (n=1 to 2,
    benchmarks/results/mask-rules.md), and below its FPN 0.017, of 0.006, 0.017 and 0.057 (n=1 on each of two
    sets, benchmarks/results/segmentation-tricks.md).
    Attention has no factor, as in a classification.
    """
    match kind:
        case _ if facts.attention:
            return 1.0
        case "adadelta":
            return 1.0
        case _ if facts.pretrained:
            most = TUNED_SHORT_RUN_FACTOR
        case "sgd" | "lars":
            small, large = (SMALL_NET, SHORT_RUN_FACTOR), (LARGE_NET, LARGE_NET_SHORT_RUN_FACTOR)
            most = log_log_interpolated(facts.parameters, small, large)
        case _:
            most = ADAPTIVE_SHORT_RUN_FACTOR
    return log_log_interpolated(images_seen(facts), (SHORT_RUN, most), (PUBLISHED_RUN, 1.0))


def mask_decay(kind: str) -> Ruling[float]:
    """Return the weight decay of a segmentation, whose pixels are many labels: it does not follow the number
    of images."""
    match kind:
        case "sgd" | "lars":
            return Ruling(1e-4, "as DeepLabv3's", "arXiv 1706.05587, section 4.1 and its code")
        case "adamw" | "adam_then_sgd" | "timm" | "lamb":
            return Ruling(
                0.01, "decoupled decay, as SegFormer's", "arXiv 2105.15203, section 4.1 and its code"
            )
        case _:
            reason = "L2 decay, which division by the gradient's size distorts: small"
            return Ruling(1e-5, reason, "arXiv 1905.02244, section 6.1; 1711.05101, section 2")
