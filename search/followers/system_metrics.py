"""Measures the driver's machine for the search's run: MLflow's own monitor, and only on demand.

Its samples are not in the journal, so they are sent once or never: those of a time without a server are lost.
"""

from __future__ import annotations

from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

# the time between two samples, MLflow's own default; MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL changes it
SECONDS = 10.0


class SystemMetrics:
    """Samples of processors, memory, disk, network and GPUs while the run is marked as running."""

    def __init__(self, uri: str, run_id: str) -> None:
        self._uri, self._run_id = uri, run_id
        self._monitor: SystemMetricsMonitor | None = None

    def ensure(self) -> None:
        """Start the monitor, or again where it ended since the server did not answer."""
        thread = self._monitor._process if self._monitor is not None else None
        if thread is None or not thread.is_alive():
            self._monitor = SystemMetricsMonitor(
                self._run_id, SECONDS, resume_logging=True, tracking_uri=self._uri
            )
            self._monitor.start()

    def close(self) -> None:
        """Stop the monitor, and send what it has measured."""
        if self._monitor is not None:
            self._monitor.finish()
