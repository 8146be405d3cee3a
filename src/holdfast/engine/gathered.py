"""Log rows, events, messages and progress of one leased run that wait for their commit.

Plain steps add log rows and progress from their threads; everything else happens on the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.bounds import sent_bytes
from holdfast.records import Item, Json, NewEvent, Outbound, StepWrite, TrailWrite
from holdfast.records.sizes import payload_bytes
from holdfast.threads import Tally

from .messages import check_logged

if TYPE_CHECKING:
    from holdfast.world import World

T = TypeVar("T")
Says = NewEvent | Outbound

PROGRESS_SECONDS = 1.0

_NOTHING: tuple[tuple[Says, ...], int] = ((), 0)


class Gathered:
    """Log rows, events, messages and progress that no item has taken yet."""

    __slots__ = ("_events", "_logged", "_progress", "_progress_at", "_rows", "_run", "_said", "_world")

    def __init__(self, run: UUID, world: World) -> None:
        self._run, self._world = run, world
        # Threads add to this one: emptied row by row, never replaced.
        self._rows: deque[TrailWrite] = deque()
        self._logged = Tally()  # bytes of those rows
        self._events: deque[Says] = deque()  # for the next step that is written
        # By id() of the step in the buffer: what it sends, and how many bytes that is.
        self._said: dict[int, tuple[tuple[Says, ...], int]] = {}
        self._progress: Json | None = None
        self._progress_at = -PROGRESS_SECONDS

    def __bool__(self) -> bool:
        return bool(self._rows or self._events or self._said) or self._progress is not None

    def note(self, row: TrailWrite) -> None:
        """A trail row for the next commit; TooLarge when too much of this waits."""
        size = sent_bytes(row.data)
        try:
            check_logged(self._logged.add(size), f"run {self._run}")
        except BaseException:
            self._logged.add(-size)
            raise
        self._rows.append(row)

    def emit(self, event: Says) -> None:
        """An event, or a message for the outbox, for the commit of the next step that is written."""
        self._events.append(event)

    def progress(self, progress: Json) -> None:
        """The newest progress, for the next commit or renewal; what it replaces was never written."""
        self._progress = progress

    def hand_over(self, step: StepWrite) -> int:
        """Commit the events and messages sent so far with this step, or not at all; answer their size."""
        if not self._events:
            return 0
        said = _taken(self._events)
        size = sum(map(payload_bytes, said))
        self._said[id(step)] = said, size
        return size

    def bytes_of(self, step: StepWrite) -> int:
        """The size of the events and messages that go with this step."""
        return self._said.get(id(step), _NOTHING)[1]

    def take(self, steps: Sequence[StepWrite], *, last: bool) -> dict[str, Any]:
        """All that goes with an item that records these steps, as its fields."""
        said = [one for step in steps for one in self._said.pop(id(step), _NOTHING)[0]]
        extras: dict[str, Any] = {"trail": self._take_rows(), **sent([*said, *_taken(self._events)])}
        progress = self.take_progress(last=last)
        return extras if progress is None else {**extras, "progress": progress}

    def _take_rows(self) -> tuple[TrailWrite, ...]:
        rows = _taken(self._rows)
        self._logged.add(-sum(sent_bytes(row.data) for row in rows))
        return rows

    def put_back(self, item: Item, steps: Sequence[StepWrite]) -> int:
        """Keep what an item brought, since nothing of it was recorded; answer the size of its messages."""
        self._rows.extendleft(reversed(item.trail))
        self._logged.add(sum(sent_bytes(row.data) for row in item.trail))
        self._events.extendleft(reversed((*item.events, *item.outbox)))
        if self._progress is None:
            self._progress = item.progress
        return self.hand_over(steps[0]) if steps else 0

    def clear(self) -> None:
        """Forget all of it: what it belongs to was not recorded."""
        self._take_rows()
        self._events.clear()
        self._said.clear()
        self._progress = None

    def take_progress(self, *, last: bool = False) -> Json | None:
        """The progress to be written now, at most once a second; the last one of an execution always."""
        now = self._world.monotonic()
        if self._progress is None or (now - self._progress_at < PROGRESS_SECONDS and not last):
            return None
        progress, self._progress, self._progress_at = self._progress, None, now
        return progress


def _taken(rows: deque[T]) -> tuple[T, ...]:
    return tuple([rows.popleft() for _ in range(len(rows))])


def sent(outgoing: Sequence[Says]) -> dict[str, Any]:
    """What goes to runs, and what to the world outside."""
    events = tuple([one for one in outgoing if type(one) is NewEvent])
    outbox = tuple([one for one in outgoing if type(one) is Outbound])
    return {"events": events, "outbox": outbox}
