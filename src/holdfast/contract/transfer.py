"""Runs that move: whole runs and events, read from one store and written into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.bounds import BATCH_BYTES
from holdfast.records.transfer import (
    IMPORT,
    MOVE,
    NO_COPIES,
    CarriedEvent,
    CarriedRun,
    Copies,
    Departure,
    Exported,
    Imported,
    Place,
    Relocated,
)

EXPORT_MAX = 1000  # runs in one call of `export_runs`
IMPORT_MAX = 1000  # runs in one call of `import_runs`, and events in one of `import_events`


class Transfer(Protocol):
    """Reads and writes of whole runs, with every field that moves need. They are for operators: they know no
    tenants. Nothing here opens or seals a value.
    """

    async def run_ids(self, limit: int = 1000, after: UUID | None = None) -> Sequence[UUID]:
        """The ids of all runs, deleted ones too, in ascending order, after the cursor `after`. Only an empty
        page is the end.
        """

    async def export_runs(
        self, runs: Sequence[UUID], place: Place | None = None, bytes: int = BATCH_BYTES
    ) -> Sequence[Exported]:
        """Runs with their rows, in the order of `runs`, at most EXPORT_MAX. A run that is unknown is left
        out. The answer ends when it has about `bytes` bytes, but has at least one run: ask for the others
        again. A run that alone has more comes in parts: then only its first part is returned, and says where
        the next one begins. `place`: go on there, with the first run of `runs`, and return only parts of it.

        The rows of a run are read in this order: settled steps by seq; the trail; then in one part its row,
        the steps that are not settled, and its messages of the outbox, sent ones too. All of one part is of
        one instant. Parts with another `revision` than the first: the run has changed meanwhile; begin again.

        The row is as it is stored, with these differences. Leased: pending, attempt - 1; with a pause that
        is asked for: paused. Without what only a holder needs: its lease, and the answer to its last item.
        `is_present` of the present run of a chain counts when it is imported, not `goes_on_as` of the first.
        """

    async def export_events(
        self, limit: int = 1000, after: int = 0, *, chain: UUID | None = None, addressed: bool = True
    ) -> Sequence[CarriedEvent]:
        """The events that the store keeps, delivered or not, by number, with a number above `after`; fewer
        than `limit` when they are large. Only an empty page is the end. chain: only those that are addressed
        to this chain. addressed=False: only those that are addressed to no run.
        """

    async def import_events(self, events: Sequence[CarriedEvent]) -> Sequence[int]:
        """Record events as they are, at most IMPORT_MAX, in one commit. Return the number of each. They get
        the next numbers, in their order. One of the same tenant and id that is there stays as it is, and its
        number is returned. The run that an event is addressed to may come later.
        """

    async def import_runs(
        self, parts: Sequence[CarriedRun], by: str = IMPORT, *, hold: bool = True
    ) -> Sequence[Imported]:
        """Write runs, at most IMPORT_MAX, in one commit; one answer for each part, in order. Numbers of
        events in them are those of this store.

        A run whose id is there is not changed: `there`, if it was imported with the same digest, else
        `refused`. Refused too: its key is another run's; it belongs to a chain whose first run is not there,
        or has not ended; its chain, its parent, its account or a child that it waits for is another tenant's.
        Parts of a large run come in order. They are kept, and nobody sees them until the last one is written;
        a first part removes what is left of an import that was not finished.

        Id, key, times and counts stay. Its fence is higher than it was, and as high as any that this store
        has given so far. Its trail comes with it, and gets the next numbers; then trail: imported [by digest,
        status when it is open]. No happening is counted.

        hold: an open run is paused by IMPORT, unless it is paused: `resume` lets it go on as it would have
        gone on. Its messages that are not sent are dead: `resend` sends them. Without hold an open run has
        the status that it had, and its messages are pending.

        What came meanwhile is looked for after this commit, by `deliver`: events for its open waits, and the
        ends of its children that are there. An ended child tells its parent again.
        """

    async def leave(self, runs: Sequence[UUID], to: str, by: str = MOVE) -> Sequence[Relocated]:
        """Stop runs that move to another store, at most EXPORT_MAX, in one commit (on Redis 100 in each):
        `relocating.leave`. Nobody holds them then, nothing changes them, and no purge removes them. `to`
        names the target, for people; a run that is leaving for another target is refused. The answer has the
        number of the departure, which the other verbs ask for. Leave parents before their children, or a
        parent learns that its child was cancelled. `busy`: ask again, also for all runs after it in `runs`:
        they are `busy` too, and not changed. Again: `left` and `went_on` say how far an earlier move is.

        The runs are exported and imported in this form; `hold` makes no difference to them. Whatever came
        before is in it: the events that the store has are carried after this call.
        """

    async def left(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> Sequence[Relocated]:
        """Record at the source that runs which are leaving are at the target, in one commit. From here on
        `come_back` refuses them; only then may `arrive` be called at the target. Each run once; a run that
        came back since, and has left again, is refused. No purge removes them before `went_on`.

        `copies`: the fences of the copies that wait at the target. The first call for a departure decides
        which copy goes on, and every answer says it, as `left` or `went_on`: a run that another mover has
        moved, and that has ended and was purged at the target, is not executed again when a slow mover has
        brought a second copy of it.
        """

    async def went_on(self, departures: Sequence[Departure], by: str = MOVE) -> Sequence[Relocated]:
        """Record at the source that runs which have left go on at the target, in one commit: from here on a
        purge treats them like any ended run. Trail: went_on [by]. Again: unchanged. Refused: a run that has
        not left, and another departure than the last.
        """

    async def come_back(self, departures: Sequence[Departure], by: str = MOVE) -> Sequence[Relocated]:
        """Let runs that are leaving go on at the source, as they were, in one commit; children before their
        parents. Departure 0: whichever it is. Waits then look for what came meanwhile.
        """

    async def arrive(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> Sequence[Relocated]:
        """Let runs that were imported while they were leaving go on here, as they were, in one commit;
        children before their parents. A copy of another departure, and another one than `copies` names, are
        refused. Waits then look for what came meanwhile.
        """

    async def drop_arrived(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> Sequence[Relocated]:
        """Hide runs that were imported while they were leaving, and that do not go on here: copies of these
        departures, and of earlier ones; with `copies` only these copies. The next purge removes them.
        """
