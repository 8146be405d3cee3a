"""The effort of tests: the usual one, or with HOLDFAST_LAWS=long for hours.

The long form has more random histories, and repeats on more stores what does not depend on the store.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

LONG = os.environ.get("HOLDFAST_LAWS") == "long"


only_long = pytest.mark.skipif(not LONG, reason="it takes long: HOLDFAST_LAWS=long")


def longer(*values: Any) -> list[Any]:
    """Return these parameters of a test in the long form, and none otherwise."""
    return list(values) if LONG else []


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
