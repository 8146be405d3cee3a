"""Messages for the world outside."""

from __future__ import annotations

from .calls import Calls


class OutboxRoom(Calls):
    """A part of the store."""
