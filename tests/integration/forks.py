"""One process has imported most of what a driver computes; what tests run apart is forked from it."""

from __future__ import annotations

from multiprocessing import get_context

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("search.commands.guests", "search.deciding.prior_tpe", "search.deciding.surrogate"),
        *("search.followers.mlflow_runs", "search.followers.logged_model", "search.reporting.page"),
        *("search.learning.refine", "trainable.checks.parts_alike", "trainable.train"),
        *("matplotlib.figure", "networkx", "ray.dashboard.optional_deps", "sklearn.linear_model"),
        *("mlflow.store.tracking.sqlalchemy_store", "sqlalchemy", "timm", "torch.export"),
    ]
)
