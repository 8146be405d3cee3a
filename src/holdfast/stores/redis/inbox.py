"""The inbox: events by topic, and the receipts that say which chain has taken which event.

A wait that finds no event depends on the newest event of its topic: an event that comes at the same moment is
newer, and the verb looks again. So no event is missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.machine.durations import micros
from holdfast.machine.rows import StepRow
from holdfast.records import Instant, NewEvent

from .names import Names
from .rows import EventRow, RunRow, event_row
from .snapshot import Command, Snapshot

PAGE = 50  # events of a topic that are read at once


def topic_of(names: Names, tenant: str, topic: str, run: UUID | None) -> str:
    """Return the set of events of a topic: those for all runs, or those for one chain."""
    if run is None:
        return names.of("topic", tenant, topic)
    return names.of(f"inbox:{run}", topic)


def read_event(snapshot: Snapshot, key: str) -> EventRow | None:
    return event_row(snapshot.read("HGETALL", key))


class Inbox:
    """The events of one verb: those that are stored, and those that it records."""

    def __init__(self, snapshot: Snapshot, now: Instant) -> None:
        self._snapshot, self._names, self._now = snapshot, snapshot.names, now
        self.recorded: dict[str, EventRow] = {}  # by key
        self._taken: dict[tuple[UUID, int], bool] = {}  # by chain and event; False: it is free again
        self._took: dict[tuple[UUID, str], list[str]] = {}  # by run and step: the events

    def newest(self) -> int:
        """Return the highest number of an event so far."""
        newest = self._snapshot.counter("event")
        if self.recorded:
            self._depend_on_numbers()
        return newest + len(self.recorded)

    def _depend_on_numbers(self) -> None:
        """The numbers of events that this verb records must be those that it has reckoned with."""
        self._snapshot.guarded("HGET", self._names.numbers, "event")

    def record(self, new: NewEvent, chain: UUID | None) -> EventRow:
        """Record an event. A known id changes nothing."""
        snapshot, names = self._snapshot, self._names
        key = names.event(new.tenant, new.id)
        if key in self.recorded:
            return self.recorded[key]
        known = read_event(snapshot, key)
        snapshot.guard(("HGET", key, "seq"), None if known is None else known.seq)
        if known is not None:
            return known
        keep = EVENT_KEEP_SECONDS if new.keep_seconds is None else new.keep_seconds
        seq = snapshot.counter("event") + len(self.recorded) + 1
        row = EventRow(
            seq=seq, id=new.id, tenant=new.tenant, topic=new.topic, payload=new.payload, at=self._now,
            run=chain, keep=keep,
        )  # fmt: skip
        self.recorded[key] = row
        fields = ["id", row.id, "tenant", row.tenant, "topic", row.topic, "payload", row.payload,
                  "at", str(row.at), "keep", repr(keep)]  # fmt: skip
        snapshot.do("HSET", key, *fields, *(() if chain is None else ("run", str(chain))))
        topic = topic_of(names, row.tenant, row.topic, chain)
        snapshot.number("event", key, "seq", key, topic, names("undelivered"), names("events:numbers"))
        if chain is None:
            snapshot.do("ZADD", names("events"), row.at + micros(max(keep, EVENT_KEEP_SECONDS)), key)
        else:
            snapshot.do("ZADD", names("events:addressed"), row.at + micros(EVENT_KEEP_SECONDS), key)
            snapshot.do("ZADD", names("events:of", str(chain)), 0, key)
        snapshot.do("PUBLISH", names.of("emitted", row.tenant, row.topic), row.id)
        return row

    def prefetch(self, run: RunRow, waits: Sequence[StepRow]) -> None:
        """Read together what `available` needs for several waits of a run."""
        places = [place for wait in waits if wait.topic is not None for place in self._places(run, wait)]
        newest = self._snapshot.all(map(_newest, places))
        pages = self._snapshot.all([_page(place) for place, one in zip(places, newest, strict=True) if one])
        numbers = [_numbers(page) for page in pages if page]
        taken = self._snapshot.all([self._receipts(run.chain_id, page) for page in numbers])
        names = [
            next((name for (name, _), receipt in zip(page, receipts, strict=True) if receipt is None), None)
            for page, receipts in zip(numbers, taken, strict=True)
        ]
        self._snapshot.all([("HGETALL", name) for name in names if name is not None])

    def prefetch_events(self, waits: Sequence[tuple[RunRow, StepRow]]) -> None:
        """Read together what `available` and `take` need for waits whose event has probably come."""
        placed = [(run, place) for run, wait in waits for place in self._places(run, wait)]
        newest, pages = ([make(place) for _, place in placed] for make in (_newest, _page))
        took = [("HGET", self._names("took", str(run.id)), wait.key) for run, wait in waits]
        found = self._snapshot.all([*newest, *pages, *took])[len(newest) :]
        self._snapshot.prefetch(
            self._receipts(run.chain_id, _numbers(page))
            for (run, _), page in zip(placed, found, strict=False)
            if page
        )

    def _places(self, run: RunRow, wait: StepRow) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return the sets with events for a wait, and the number that they begin after."""
        topic = wait.topic or ""
        return (
            (topic_of(self._names, run.tenant, topic, None), max(run.watermark, wait.watermark)),
            (topic_of(self._names, run.tenant, topic, run.chain_id), wait.watermark),
        )

    def available(self, run: RunRow, wait: StepRow) -> EventRow | None:
        """Return the oldest event that the wait may take."""
        shared, mine = self._places(run, wait)
        first = (self._first(run, wait, None, *shared), self._first(run, wait, run.chain_id, *mine))
        found = [event for event in first if event is not None]
        return min(found, key=lambda event: event.seq, default=None)

    def _first(self, run: RunRow, wait: StepRow, chain: UUID | None, key: str, after: int) -> EventRow | None:
        for event in self._later(run, wait.topic or "", chain, key, after):
            if wait.due_at is None or event.at <= wait.due_at:
                return event
        return None

    def _later(self, run: RunRow, topic: str, chain: UUID | None, key: str, after: int) -> Iterator[EventRow]:
        """Yield the events of a topic after a number that the chain has not taken."""
        snapshot, low = self._snapshot, after
        is_last = not snapshot.guarded(*_newest((key, after)))
        while not is_last:
            page = _numbers(snapshot.read(*_page((key, low))))
            free = [one for one in page if not self._is_taken(run.chain_id, one[1], page)]
            for name, _ in free:
                if (event := read_event(snapshot, name)) is not None:
                    yield event
            is_last = len(page) < PAGE
            low = page[-1][1] if page else low
        for event in self.recorded.values():
            is_here = (event.tenant, event.topic, event.run) == (run.tenant, topic, chain)
            if is_here and event.seq > after and not self._taken.get((run.chain_id, event.seq)):
                self._depend_on_numbers()
                yield event

    def _receipts(self, chain: UUID, page: Sequence[tuple[str, int]]) -> Command:
        return ("HMGET", self._names("receipts", str(chain)), *(number for _, number in page))

    def _is_taken(self, chain: UUID, seq: int, page: list[tuple[str, int]]) -> bool:
        if (chain, seq) in self._taken:
            return self._taken[chain, seq]
        found = self._snapshot.read(*self._receipts(chain, page))
        return dict(zip((number for _, number in page), found, strict=True))[seq] is not None

    def take(self, run: RunRow, event: EventRow, key: str, *, counts: bool) -> None:
        """Write a receipt."""
        snapshot, names = self._snapshot, self._names
        took = self._events_of(run, key)
        took.append(str(event.seq))
        self._taken[run.chain_id, event.seq] = True
        name = names.event(event.tenant, event.id)
        if name not in self.recorded:
            snapshot.guard(("HGET", name, "seq"), event.seq)
        snapshot.do("HSET", names("receipts", str(run.chain_id)), event.seq, str(run.id))
        snapshot.do("HSET", names("took", str(run.id)), key, " ".join(took))
        if run.chain is not None and event.run is None:
            snapshot.do("ZADD", names("taken"), event.seq, f"{run.chain}:{event.seq}")
        if counts:
            snapshot.add("HINCRBY", name, "woken", 1)

    def _events_of(self, run: RunRow, key: str) -> list[str]:
        if (run.id, key) not in self._took:
            known = self._snapshot.read("HGET", self._names("took", str(run.id)), key)
            self._took[run.id, key] = known.split() if known else []
        return self._took[run.id, key]

    def forget_receipts(self, run: RunRow, key: str) -> None:
        """Make the events available again that this step has taken."""
        took = self._events_of(run, key)
        if took:
            self._snapshot.do("HDEL", self._names("receipts", str(run.chain_id)), *took)
            self._snapshot.do("HDEL", self._names("took", str(run.id)), key)
            if run.chain is not None:
                self._snapshot.do("ZREM", self._names("taken"), *(f"{run.chain}:{seq}" for seq in took))
            self._taken.update({(run.chain_id, int(seq)): False for seq in took})
            took.clear()


def _newest(place: tuple[str, int]) -> Command:
    """Return the command that reads the newest event of a set after a number. It is the guard of a page of
    the set, and goes first."""
    key, after = place
    return ("ZREVRANGEBYSCORE", key, "+inf", f"({after}", "LIMIT", 0, 1)


def _page(place: tuple[str, int]) -> Command:
    key, after = place
    return ("ZRANGEBYSCORE", key, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)


def _numbers(page: Sequence[tuple[str, float]]) -> list[tuple[str, int]]:
    """Return the events of a page with their numbers."""
    return [(name, int(float(score))) for name, score in page]
