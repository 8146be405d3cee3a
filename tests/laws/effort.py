"""The number of examples of a law: short and derandomized, or for hours with HOLDFAST_LAWS=long."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

LONG = os.environ.get("HOLDFAST_LAWS") == "long"


def often(examples: int, steps: int) -> settings:
    return settings(
        max_examples=20 * examples if LONG else examples,
        stateful_step_count=steps,
        derandomize=not LONG,
        # A failing history is long, and to shrink it takes minutes.
        phases=[Phase.generate, *([Phase.shrink] if LONG else [])],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
