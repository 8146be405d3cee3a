"""Ids that are derived, so that a request that is sent again names the same things.

Nobody can choose one: each is made from the token of a lease, or from the run that it belongs to.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

from holdfast.engine.outbox.messages import event_id, message_id
from holdfast.records import Instant
from holdfast.world import uuid7

_LABEL = b"holdfast child v1\0"
NEXT = "\0next"  # stands for the key of a step: no step has a NUL in its key
_CHANCE_BYTES = 8  # uuid7 takes 62 of these bits

__all__ = ["child_id", "event_id", "message_id", "next_id"]


def child_id(token: str, claimed_at: Instant, key: str) -> UUID:
    """Return the id of the run that the step `key` starts under this lease.

    Its time is that of the claim, the rest a digest of the token and the key. A step starts one run under one
    lease. After a rewind the lease is another, and so is the id.
    """
    digest = hashlib.sha256(_LABEL + token.encode() + b"\0" + key.encode()).digest()
    return uuid7(claimed_at * 1000, int.from_bytes(digest[:_CHANCE_BYTES]))


def next_id(token: str, claimed_at: Instant) -> UUID:
    """Return the id of the run that continues the run of this lease."""
    return child_id(token, claimed_at, NEXT)
