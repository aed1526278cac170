"""The batches that loaders make and runs train on. It imports torch alone."""

from torch import Tensor

# A batch is images float32 [B, C, H, W], normalised, and labels int64 [B]; both are on the loader's device
Batch = tuple[Tensor, Tensor]

PORTION_BATCHES = 32  # decoded images are augmented in portions of at most so many batches
