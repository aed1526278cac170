"""Trains a search's trials in processes of Ray's, each of which first imports torch."""

from trainable.tune import collector

with collector.paused():
    import torch  # noqa: F401
