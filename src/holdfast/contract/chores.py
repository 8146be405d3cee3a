"""Chores of keepers: times that have come, leases that have ended, rows that have expired."""

from __future__ import annotations

from typing import Protocol

from holdfast.records import Chore, Purged, Ticked

from .events import SLICE

TTL_SECONDS = 30 * 86400.0  # how long a finished run without a ttl of its own is kept
DELETED_SECONDS = 7 * 86400.0  # how long a deleted run can be restored
EVENT_KEEP_SECONDS = 7 * 86400.0
GONE_SECONDS = 7 * 86400.0  # how long a worker that is not seen any more is remembered
PURGE_SLICE = 100  # how many runs one slice of a purge removes at most


class Chores(Protocol):
    """Any number of keepers may call these at once. Finding nothing writes nothing."""

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        """A keeper's round; any number of keepers at once; finding nothing writes nothing.
        All parts, or `only` one; each in commits like those of `deliver`, until nothing is due, or SLICES of
        them: then `more` is set. While workers claim, runs are woken no faster than they are claimed.
        expire    leased, lease_until < now: crashes + 1, fence + 1, lease cleared, error of kind
                  lease_expired. At max_crashes failed (trail lease_expired, failed); a pause
                  asked: paused (lease_expired, paused); else pending at now + crash_delay(crashes).
        time_out  open runs with timeout_at <= now: failed, kind timeout, fence + 1 (trail
                  timed_out, failed [kind message]).
        lapse     open waits with due_at <= now of open runs: a sleep succeeds (woken). An event
                  wait takes the oldest available event stored at or before due_at (woken), else
                  fails with error kind timeout (timed_out). A gate is decided as its on_timeout says, with
                  timed_out in its output (trail timed_out). A plan's task that waits: as an event wait, but
                  it is pending again, wake {"reason": "timeout"}; an awaited event of a plan that fails
                  fails its run, kind timeout. wait_timeouts=False: plans' tasks and awaited events are left.
        deliver   as `deliver`.
        count     folds changes of the counts that are FOLD_SECONDS old: see `Counting`.
        """

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        """Remove for good one slice of what has expired, in one short commit (several, for a run with very
        many rows: hidden first, its own row last); call again until the answer is empty. Finding nothing
        writes nothing.

        A finished run expires at its expires_at, else ttl_seconds after its end; a deleted one, open or not,
        deleted_seconds after it was deleted; an open one that is not deleted never. With it its steps, trail,
        receipts, the events addressed to it and its outbox rows are removed; its key is free.
        A run is kept while a message of it is pending, and while its children are still to be cancelled. An
        ended run is kept while an open parent waits for it. A run that was deleted while open never ends: it
        is removed, and in the same commit the parent's wait fails with status "gone"; but if the parent is
        deleted too, the run is kept. At most `limit` runs a slice, fewer when they have many rows or large
        values.
        In a chain the runs in the middle expire like any other. The last one is removed when they are gone,
        and with it the first, in the same commit: its key, the chain's receipts and the events addressed to
        the chain stay until then.
        Also removed: delivered events without a run whose retention is over (never before EVENT_KEEP_SECONDS:
        the same id again must be recognised), likewise those addressed to a chain which a run in its middle
        has taken, and workers not seen for GONE_SECONDS; rows of the audit log that are AUDIT_SECONDS old,
        API keys that were revoked or have expired KEY_KEEP_SECONDS ago, and page sessions that have ended. Of
        all keys the one with the greatest id always stays: a store that had keys never looks like one
        without, which serves everyone.
        """
