"""Imports MLflow so that it prints nothing, reports nothing home, and waits for no dead server for long."""

from __future__ import annotations

import logging
import os

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # If the client repeats a request, it may create a run twice; we look for the run before we repeat one.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
# A request to a server that hangs is abandoned after so long; MLflow's own default is 120 s. A person's
# MLFLOW_HTTP_REQUEST_TIMEOUT overrides it.
REQUEST_SECONDS = "20"


def quiet_mlflow() -> None:
    """Import MLflow with the variables that it reads then, and have it log nothing."""
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", REQUEST_SECONDS)
    import mlflow  # noqa: F401  # it sets its loggers' levels

    for name in ("mlflow", "alembic"):
        # they log every table that they create, and errors that they raise as well
        logging.getLogger(name).setLevel(logging.CRITICAL)
