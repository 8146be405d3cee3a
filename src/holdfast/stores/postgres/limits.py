"""Registry and limits, and when something may next be claimed."""

from __future__ import annotations

from .calls import Calls


class LimitsRoom(Calls):
    """A part of the store."""
