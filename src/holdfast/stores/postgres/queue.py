"""start, claim, commit, renew, transact: the queue and its holders."""

from __future__ import annotations

from .calls import Calls


class QueueRoom(Calls):
    """A part of the store."""
