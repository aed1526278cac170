"""Makes a small conditional space that the tests of the search's pure parts share."""

from spaces.domains import Choice, Float, Integer
from spaces.space import Dimension, Space, When
from trainable.recipe import Recipe


def _dimension(path: str, domain: Float | Integer | Choice, optimizer: str = "") -> Dimension:
    when = When("optimizer.kind", (optimizer,)) if optimizer else None
    return Dimension(path, domain, "for the test", "none", when, optimizer)


def conditional_space() -> Space:
    """Return a space of an optimizer, a rate for each kind, momentum for SGD only, smoothing and a batch."""
    return Space(
        base=Recipe().with_values({"loop.epochs": 4}),
        dimensions=(
            _dimension("optimizer.kind", Choice(("sgd", "adamw"))),
            _dimension("optimizer.lr", Float(1e-3, 10.0, log=True), "sgd"),
            _dimension("optimizer.lr", Float(1e-5, 1e-1, log=True), "adamw"),
            _dimension("optimizer.momentum", Float(0.5, 0.99), "sgd"),
            _dimension("regularisation.label_smoothing", Float(0.0, 0.2)),
            _dimension("loop.batch_size", Integer(16, 512, log=True)),
        ),
        own={
            "optimizer.kind": "sgd",
            "optimizer.lr": 0.1,
            "optimizer.momentum": 0.9,
            "regularisation.label_smoothing": 0.1,
            "loop.batch_size": 128,
        },
    )
