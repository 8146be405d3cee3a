"""Metrics: of this process, counted by its workers, and of the whole store, read when they are asked for.

`catalog.py` is the list of all metrics. `measure(app)` makes the workers of an app count. `prometheus.py`
shows the metrics as text, `serving.py` serves them beside a worker, `otel.py` passes them to OpenTelemetry.
"""

from __future__ import annotations

from .recorder import PROCESS, measure

__all__ = ["PROCESS", "measure"]
