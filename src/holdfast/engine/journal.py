"""What a held run writes: one item on its way at a time, numbered, everything else gathers.

All its moves take this one way, or a run could be completed before its last checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.lifecycle import Move, StepStatus
from holdfast.records import Claim, Instant, Item, Json, NewEvent, StepWrite, TrailWrite, Verdict
from holdfast.world import World

from .committer import Committer
from .record import Record

PROGRESS_SECONDS = 1.0

Written = tuple[StepWrite, asyncio.Future[Any] | None, Any]


class Journal:
    """The pen of one held run."""

    __slots__ = (
        "_buffer",
        "_committer",
        "_due",
        "_events",
        "_fence",
        "_idle",
        "_lease_seconds",
        "_number",
        "_on_verdict",
        "_progress",
        "_progress_at",
        "_record",
        "_run",
        "_sent",
        "_trail",
        "_world",
        "started_at",
    )

    def __init__(
        self,
        claim: Claim,
        record: Record,
        committer: Committer,
        world: World,
        lease_seconds: float,
        on_verdict: Callable[[Verdict, list[Written]], None],
    ) -> None:
        self._run, self._fence, self._record = claim.id, claim.fence, record
        self._committer, self._world, self._lease_seconds = committer, world, lease_seconds
        self._on_verdict = on_verdict
        self._number = 0
        self._buffer: list[Written] = []
        self._due = False  # something in the buffer does not wait for another reason to commit
        self._sent: list[Written] | None = None
        self._trail: list[TrailWrite] = []
        self._events: list[NewEvent] = []
        self._progress: Json | None = None
        self._progress_at = -PROGRESS_SECONDS
        self._idle: asyncio.Future[Verdict] | None = None
        self.started_at: Instant | None = None  # until it is known to be in the trail

    @property
    def busy(self) -> bool:
        """An item is on its way."""
        return self._sent is not None

    def note(self, row: TrailWrite) -> None:
        """A trail row for the next commit."""
        self._trail.append(row)

    def emit(self, event: NewEvent) -> None:
        """An event for the next commit."""
        self._events.append(event)

    def progress(self, progress: Json) -> None:
        """The newest progress, for the next commit or renewal; what it replaces was never written."""
        self._progress = progress

    def write(self, step: StepWrite, future: asyncio.Future[Any] | None = None, value: Any = None) -> None:
        """Record a step now; `future` is for whoever awaits it, `value` what it will be given.

        Of a try that failed, `value` is the delay before the next and the error in one line.
        """
        self._buffer.append((step, future, value))
        if self._sent is None:
            self._send()
        else:
            self._due = True

    def keep(self, step: StepWrite) -> None:
        """Record a step with the next commit."""
        self._buffer.append((step, None, None))

    async def outcome(self, move: Move, **fields: Any) -> Verdict:
        """Send the move that ends this execution, with all that has gathered, after what is on its way."""
        while self._sent is not None:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        done: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._send(move, done, fields)
        # Shielded: a worker that is told to stop first learns what became of this commit.
        return await asyncio.shield(done)

    def _send(
        self, move: Move = Move.CHECKPOINT, done: asyncio.Future[Verdict] | None = None, fields: Any = None
    ) -> None:
        sent, self._buffer, self._due = self._buffer, [], False
        self._sent = sent
        self._number += 1
        if fields is None:
            fields = _in_place(sent) if len(sent) > 1 or sent[0][0].status is StepStatus.READY else _NONE
            if fields:
                move = Move.RETRY
        if self._trail or self._events or self._progress is not None:
            fields = {**fields, **self._extras()}
        record = self._record
        opens = record.open_waits or any(step.status is StepStatus.WAITING for step, _, _ in sent)
        item = Item(
            run=self._run,
            fence=self._fence,
            number=self._number,
            move=move,
            steps=tuple([step for step, _, _ in sent]),
            started_at=self.started_at,
            known=record.known if opens or move is Move.PARK else None,
            lease_seconds=self._lease_seconds,
            **fields,
        )

        def answered(verdict: Verdict) -> None:
            self._sent = None
            if verdict.answer in {"applied", "paused"}:
                self.started_at = None
            self._on_verdict(verdict, sent)
            if done is not None:
                done.set_result(verdict)
            elif self._idle is not None:
                idle, self._idle = self._idle, None
                idle.set_result(verdict)
            elif self._due and verdict.answer == "applied":
                self._send()

        self._committer.put(item, answered)

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {"trail": tuple(self._trail), "events": tuple(self._events)}
        self._trail, self._events = [], []
        progress = self.take_progress()
        return extras if progress is None else {**extras, "progress": progress}

    def take_progress(self) -> Json | None:
        """The progress to be written now, at most once a second."""
        now = self._world.monotonic()
        if self._progress is None or now - self._progress_at < PROGRESS_SECONDS:
            return None
        progress, self._progress, self._progress_at = self._progress, None, now
        return progress


_NONE: dict[str, Any] = {}


def _in_place(sent: list[Written]) -> dict[str, Any]:
    """A try that failed and is repeated at once: a retry that keeps the lease and uses up no attempt."""
    for step, _, value in sent:
        if step.status is StepStatus.READY:
            delay, said = value
            return {
                "in_place": True,
                "refund": True,
                "error": step.error,
                "last_error": said,
                "delay_seconds": delay,
            }
    return _NONE
