"""Differences between stores."""

from __future__ import annotations

import msgspec

# The longest sleep of an idle worker while hints reach it. It is a little longer than the time between two
# writes of its presence: where that write is a hint itself, one look serves both.
HINTED_POLL_SECONDS = 33.0
# A lease that is shorter ends before a keeper that sleeps so long looks for it: its claim is a hint.
SHORT_LEASE_SECONDS = HINTED_POLL_SECONDS / 2


class Traits(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Facts about a store that the engine adapts to. The defaults are those of an embedded store."""

    writers: int = 1  # the most commits of one worker under way at once
    poll_seconds: float = 1.0  # the longest sleep of an idle worker while hints reach it
    awaits_work: bool = (
        False  # functions of its transactions may be awaited, and do not keep others from writing
    )
    # A server stands in front of the store. It does the chores, sends the messages, and executes the bulk
    # operations: a worker only executes runs.
    served: bool = False
    names_children: bool = False  # it makes the ids of children itself, with the commit that starts them
