"""Events: recorded first, then delivered to the waits."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.records import Emitted, NewEvent

SLICE = 100  # the most runs or waits that one commit of a chore touches
SLICES = 100  # the most commits of one call of `deliver`, or of one part of `tick`


class Events(Protocol):
    """Events. An emit may be repeated; a recorded event is delivered, if need be by a keeper."""

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        """Record an event (durable from then on), then deliver it completely, in commits like those of
        `deliver`. A topic that another session keeps locked for ten seconds is left to a keeper.
        `connection`: as in `start`. The event is part of the caller's transaction, and a keeper delivers it
        after the commit; `woken` is None.

        Same tenant and id while the first event is kept: nothing is recorded, its delivery is completed, and
        the first count is returned with duplicate=True; this is checked first. `run` unknown or another
        tenant's: UnknownRun; ended: IllegalMove with its status; moving to another store: also with the
        target. In a chain the id of any stored run means
        the chain: the event is for the present run, as long as the chain is open.
        """

    async def deliver(self, limit: int = SLICE) -> int:
        """Hand recorded events that are not delivered yet to the waits, oldest event first, in commits of at
        most `limit` waits and BATCH_BYTES of copied values, but at least one wait. It may be repeated.
        Returns the number of runs woken. Events that need several commits take turns; after SLICES commits,
        or 30 s, the next call, of any process, continues at the place of each event.
        An event is available to a wait of a run when: same tenant and topic; addressed to that run's chain,
        or to no run and recorded after the chain was started; no receipt of that chain for it; for a
        since_now wait, recorded after the wait was opened. A wait takes the oldest available event. Stored
        after the wait's due_at: the wait lapses instead. The cost of a wait or an event does not grow with
        the runs of a chain, nor with the events that the chain has taken.
        First of all, debts of runs are carried out. The end of a child settles its parent's step, if that
        step waits for this very run: succeeded, or failed with error kind child_failed, in both cases with
        output {"run", "status", "result" or "error" (the child's own)}. Also: the cancels of children
        (`cancel`, `rewind`) and of their children; the rest of a look that `commit` has cut short; the
        deletes of the other runs of a chain.
        `machine.settling.look` says what a settled wait comes to, and `machine.waking.go_on` what it means
        for its run. Trail: woken or timed_out.
        """
