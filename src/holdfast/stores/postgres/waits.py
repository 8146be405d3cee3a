"""emit, deliver, tick: what comes from outside and what comes due."""

from __future__ import annotations

from .calls import Calls


class WaitsRoom(Calls):
    """A part of the store."""
