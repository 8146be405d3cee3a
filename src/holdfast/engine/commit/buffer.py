"""The effects of one leased run that wait for their commit: log rows, events, messages, progress.

Sync steps add log rows and progress from their threads; everything else happens on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.engine.outbox.messages import check_logged, check_sent
from holdfast.lifecycle import StepKind
from holdfast.records import Item, Json, NewEvent, Outbound, StepWrite, TrailWrite
from holdfast.records.sizes import payload_bytes, row_bytes
from holdfast.threads import SharedCounter

if TYPE_CHECKING:
    from holdfast.world import World

T = TypeVar("T")
Says = NewEvent | Outbound

PROGRESS_SECONDS = 1.0

Sent = tuple[tuple[Says, ...], int]  # the events and messages of a step, and their bytes

_NOTHING: Sent = ((), 0)


class EffectBuffer:
    """Log rows, events, messages and progress that no item has taken yet."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_events",
        "_logged",
        "_loose",
        "_progress",
        "_progress_at",
        "_progress_taken",
        "_rows",
        "_run",
        "_said",
        "_taken",
        "_world",
    )

    def __init__(self, run: UUID, world: World) -> None:
        self._run, self._world = run, world
        # Threads add to this one: emptied row by row, never replaced.
        self._rows: deque[TrailWrite] = deque()
        self._logged = SharedCounter()  # bytes of those rows
        self._events: deque[Says] = deque()  # for the next step that is written
        self._said: dict[int, Sent] = {}  # by id() of the step in the buffer
        self._body = self._body_bytes = 0  # of these, the effects of the body between steps
        self._taken: dict[int, Sent] = {}  # effects that an item has taken and that may come back
        self._loose: tuple[Says, ...] = ()  # those of them that belong to no step
        self._progress: Json | None = None
        self._progress_taken: Json | None = None
        self._progress_at = -PROGRESS_SECONDS

    def __bool__(self) -> bool:
        return bool(self._rows or self._events or self._said) or self._progress is not None

    def note(self, row: TrailWrite) -> None:
        """Add a trail row for the next commit; TooLarge when too many rows wait."""
        size = row_bytes(row)
        try:
            check_logged(len(self._rows) + 1, self._logged.add(size), f"run {self._run}")
        except BaseException:
            self._logged.add(-size)
            raise
        self._rows.append(row)

    def emit(self, event: Says) -> None:
        """Add an event or an outbox message to the commit of the next step that is written."""
        self._events.append(event)

    def say(self, event: Says) -> None:
        """Add an effect of the body, for a step of its own that follows; TooLarge when too much waits."""
        size = payload_bytes(event)
        check_sent(self._body + 1, self._body_bytes + size, f"run {self._run} in its body")
        self._body += 1
        self._body_bytes += size
        self._events.append(event)

    @property
    def rows(self) -> int:
        """The number of log rows, events and messages that wait."""
        return len(self._rows) + sum(len(said) for said, _ in self._said.values())

    def progress(self, progress: Json) -> None:
        """Set the newest progress, for the next commit or renewal; it replaces one that was not written."""
        self._progress = progress

    def hand_over(self, step: StepWrite) -> int:
        """Bind the events and messages so far to this step's commit; return their size."""
        if not self._events:
            return 0
        said = _taken(self._events)
        size = sum(map(payload_bytes, said))
        self._said[id(step)] = said, size
        return size

    def size(self, step: StepWrite) -> tuple[int, int]:
        """Return the number of events and messages of this step, and their bytes."""
        said, size = self._said.get(id(step), _NOTHING)
        return len(said), size

    def take(self, steps: Sequence[StepWrite], *, last: bool, again: bool = False) -> dict[str, Any]:
        """Take the effects for an item that records these steps, as its fields. again: they may be put
        back.
        """
        found = {id(step): self._said.pop(id(step)) for step in steps if id(step) in self._said}
        self._count_body(steps, found, -1)
        loose = _taken(self._events)
        said = [one for part, _ in found.values() for one in part]
        extras: dict[str, Any] = {"trail": self._take_rows(), **sent([*said, *loose])}
        self._taken, self._loose = (found, loose) if again else ({}, ())
        progress = self.take_progress(last=last)
        return extras if progress is None else {**extras, "progress": progress}

    def _count_body(self, steps: Sequence[StepWrite], found: dict[int, Sent], times: int) -> None:
        for step in steps:
            if step.kind is StepKind.EMIT:
                said, size = found.get(id(step), _NOTHING)
                self._body += times * len(said)
                self._body_bytes += times * size

    def _take_rows(self) -> tuple[TrailWrite, ...]:
        rows = _taken(self._rows)
        self._logged.add(-sum(map(row_bytes, rows)))
        return rows

    def put_back(self, item: Item, steps: Sequence[StepWrite]) -> None:
        """Keep the effects of an item that was not recorded."""
        self._rows.extendleft(reversed(item.trail))
        self._logged.add(sum(map(row_bytes, item.trail)))
        self._events.extendleft(reversed(self._loose))
        self._said.update(self._taken)
        self._count_body(steps, self._taken, 1)
        self.settle()
        if self._progress is None:
            self._progress = item.progress

    def settle(self) -> None:
        """Drop the effects of an item that was recorded."""
        self._taken, self._loose = {}, ()

    def clear(self) -> None:
        """Forget all effects: the steps that they belong to were not recorded."""
        self._take_rows()
        self._events.clear()
        self._said.clear()
        self._body = self._body_bytes = 0
        self._progress = None

    def take_progress(self, *, last: bool = False) -> Json | None:
        """Take the progress to write now: at most once a second; the last one of an execution always."""
        now = self._world.monotonic()
        if self._progress is None or (now - self._progress_at < PROGRESS_SECONDS and not last):
            return None
        progress, self._progress, self._progress_at = self._progress, None, now
        self._progress_taken = progress
        return progress

    def keep_progress(self, progress: Json | None) -> None:
        """Keep a progress that was taken and not written, unless there is a newer one."""
        if progress is not None and self._progress is None and self._progress_taken is progress:
            self._progress = progress


def _taken(rows: deque[T]) -> tuple[T, ...]:
    return tuple([rows.popleft() for _ in range(len(rows))])


def sent(outgoing: Sequence[Says]) -> dict[str, Any]:
    """Split effects into events for runs and messages for the outside."""
    events = tuple([one for one in outgoing if type(one) is NewEvent])
    outbox = tuple([one for one in outgoing if type(one) is Outbound])
    return {"events": events, "outbox": outbox}
