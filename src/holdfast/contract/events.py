"""Events: recorded first, then delivered to those who wait."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.records import Emitted, NewEvent

SLICE = 100  # how many runs or waits one commit of a chore touches at most
SLICES = 100  # how many commits one call of `deliver`, or one part of `tick`, makes at most


class Events(Protocol):
    """Whoever emits may be repeated; what is recorded is delivered, if need be by a keeper."""

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        """Record an event (durable from then on), then deliver it to its end, in commits as of `deliver`; a
        topic that somebody keeps locked for ten seconds is left to a keeper.
        `connection`: as in `start`. The event is part of the caller's transaction and is delivered by
        a keeper after it commits; `woken` is None.

        Same tenant and id while the first is kept: nothing is recorded, delivery is helped to its
        end, and the first number comes back with duplicate=True; this is looked at first. `run`
        unknown or another tenant's: UnknownRun; ended: IllegalMove with its status. Of a chain any run that
        is stored means the chain: the event is for whatever run it comes to, as long as the chain is open.
        """

    async def deliver(self, limit: int = SLICE) -> int:
        """Hand recorded events that are not delivered yet to those who wait, oldest event first,
        in commits of at most `limit` waits and BATCH_BYTES of copied values, but always one wait; may be
        repeated. Answers the number of runs woken. Events that take several commits go by turns; after
        SLICES commits, or 30 s, the next call, of any process, goes on where each event has come to.
        An event is available to a wait of a run: same tenant and topic; addressed to that run's chain,
        or to none and recorded after the chain was started; no receipt of that chain for it; if the
        wait is since_now, recorded after the wait was opened. A wait takes the oldest available
        one. Stored after the wait's due_at: the wait lapses instead. What a wait or an event costs does not
        grow with the runs of a chain, nor with the events that it has taken.
        Also carried out here, and first, is what runs owe since their own commit: the end of a child settles
        its parent's step, if that waits for this very run: succeeded, or failed with error kind child_failed,
        either way with output {"run", "status", "result" or "error" (the child's own)}; the cancels of
        children (`cancel`, `rewind`), theirs included; the rest of a look that `commit` has cut short; and
        the deletes of the other runs of a chain.
        What a settled wait comes to is written in `machine.settling.look`, and what it means for its run in
        `machine.waking.go_on`. Trail: woken or timed_out.
        """
