"""purge: remove expired runs for good, with all that belongs to them; and old events, workers, keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from holdfast.contract import DELETED_SECONDS, GONE_SECONDS, PURGE_SLICE, TTL_SECONDS
from holdfast.lifecycle import FINAL
from holdfast.machine.children import tell_parent
from holdfast.machine.durations import micros
from holdfast.machine.rows import Owes, StepRow
from holdfast.records import Instant, Purged
from holdfast.stores.redis import counting, indexes
from holdfast.stores.redis.batches import IN_SCRIPT
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.inbox import read_event, topic_of
from holdfast.stores.redis.messages import message_key, message_row
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.rows import HALF_GONE, EventRow, RunRow, stored_word, trail_row
from holdfast.stores.redis.snapshot import Command, Snapshot
from holdfast.stores.redis.view import RedisView

from . import keyring, leftovers, limiting, page_sessions, presence
from .leftovers import Leftovers

# Most rows that one script removes:
ROWS = 500  # rows of the audit log, and keys
TRAIL_ROWS = 1000  # rows of the trail
PARTS = 200  # messages, and events, of one run
EVENTS = 100  # other events
LOOKED = 100  # members of an index that are read at once
WORDS = 500  # words of one command
SETS = ("deleted", "expiring", "ended")  # that lead to runs whose time may be over


class Terms(NamedTuple):
    """How long runs are kept, in microseconds: ended ones without a time of their own, and deleted ones."""

    ended: int
    deleted: int

    def until(self, name: str, now: Instant) -> Instant:
        """Return the highest score of a run in one of the SETS whose time is over."""
        if name == "expiring":
            return now
        return now - self.ended if name == "ended" else max(HALF_GONE, now - self.deleted)


class Place(NamedTuple):
    """A part of a set for one slice: so many members from a rank on, of which at most `limit` are removed."""

    set: str
    at: int
    size: int
    limit: int


class PurgeVerb(Core):
    """The verb `purge`, as a mixin of the store."""

    _events_looked: int = 0  # place among the addressed events where the next look begins
    _passed: dict[str, int]  # by set: so many of its first runs must be kept for now

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        removed = await self._purge_runs(Terms(micros(ttl_seconds), micros(deleted_seconds)), limit)
        if removed.runs:
            await self._change(lambda snapshot: leftovers.forget_names(snapshot, removed))
        events = 0
        while some := await self._change(_purge_events):
            events += some
            if some < EVENTS:
                break
        some = 1
        while some:
            some, self._events_looked = await self._change(
                partial(_purge_addressed, begin=self._events_looked)
            )
            events += some
        while await self._change(leftovers.purge_receipts):
            pass
        workers = await self._change(_purge_workers)
        claims = await self._change(_purge_claims)
        audit, api_keys = await self._change(lambda snapshot: keyring.purge(snapshot, ROWS, snapshot.now))
        sessions = await self._change(lambda snapshot: page_sessions.purge(snapshot, ROWS, snapshot.now))
        return Purged(
            runs=removed.runs,
            events=events,
            workers=workers,
            claims=claims,
            audit=audit,
            api_keys=api_keys,
            sessions=sessions,
        )

    async def _purge_runs(self, terms: Terms, limit: int) -> Leftovers:
        """Remove runs whose time is over, in slices of one script each.

        Runs that must be kept for now stay at the head of the sets. A slice begins behind those that earlier
        slices have passed, also in earlier calls: there may be very many. At the end of a set the walk begins
        anew, until it has found nothing in the whole set: a run may have become free meanwhile.
        """
        removed = Leftovers()
        for name in SETS:
            at, size, before = self._passed.get(name, 0), IN_SCRIPT, removed.runs
            is_whole = at == 0
            while removed.runs < limit:
                place = Place(name, at, size, min(limit - removed.runs, IN_SCRIPT))
                part, passed, is_end = await self._change(partial(_purge_some, terms=terms, place=place))
                removed = removed.joined(part)
                at, size = at + passed, LOOKED if passed else IN_SCRIPT
                if is_end:
                    is_done = is_whole and (at == 0 or removed.runs == before)
                    at, is_whole, before = 0, True, removed.runs
                    if is_done:
                        break
            self._passed[name] = at
        return removed


def _purge_some(snapshot: Snapshot, terms: Terms, place: Place) -> tuple[Leftovers, int, bool]:
    """Remove some runs of a set, or a part of one run that is too large for one script. Return what was
    removed, how many runs were passed because they must be kept, and True at the end of the set."""
    view, now, names = RedisView(snapshot, sees_half_gone=True), snapshot.now, snapshot.names
    key, until = names(place.set), terms.until(place.set, now)
    page = snapshot.read("ZRANGE", key, place.at, place.at + place.size - 1, "WITHSCORES")
    ids = [id for id, score in page if score <= until]
    owed = [("ZCARD", names("outbox:owed", id)) for id in ids]
    sizes = [command for id in ids for command in _sizes(names, id)]
    snapshot.prefetch([*view.commands(map(UUID, ids)), *owed, *sizes])
    stored = [view.peek(UUID(id)) for id in ids]
    view.prefetch(row.parent for row in stored if row is not None and row.parent is not None)
    runs: list[RunRow] = []
    rows, passed, is_end = 0, 0, len(ids) < place.size
    for row in stored:
        expired = row is not None and _has_expired(row, now, terms)
        if row is None or not expired or not view.checked(partial(_is_removable, view, row.id)):
            passed += 1
            continue
        size, *others = snapshot.all(_sizes(names, str(row.id)))
        is_large = size > TRAIL_ROWS or max(others) > PARTS
        if len(runs) == place.limit or (runs and (is_large or rows + size > TRAIL_ROWS)):
            is_end = False
            break
        found = view.run(row.id)
        assert found is not None
        if is_large:
            _remove_part(view, found)
            view.save()
            return Leftovers(), passed, False
        rows += size
        runs.append(found)
    firsts = [(row, view.run(row.chain)) for row in runs if row.chain is not None]
    runs += [first for row, first in firsts if first is not None and first.present == row.id]
    snapshot.prefetch([command for row in runs for command in _belongings(names, str(row.id))])
    sinks = snapshot.each(runs, lambda row: _remove(view, row))
    for row in runs:
        view.forget(row)
    snapshot.each(runs, lambda row: tell_parent(view, row.parent, row.parent_step, row.id))
    view.save()
    left = Leftovers(len(runs), {(row.tenant, row.type) for row in runs}, set().union(*sinks))
    return left, passed, is_end


def _sizes(names: Names, id: str) -> list[Command]:
    """Return the commands that count what belongs to a run: rows of its trail, messages, events."""
    return [("ZCARD", key) for key in (names.trail_of(id), names("outbox:run", id), names("events:of", id))]


def _belongings(names: Names, id: str) -> list[Command]:
    """Return the commands that read what belongs to a run, and its labels."""
    sets = (names.trail_of(id), names("outbox:run", id), names("events:of", id))
    return [("HGET", names.run(id), "labels"), *(("ZRANGE", key, 0, -1) for key in sets)]


def _has_expired(row: RunRow, now: Instant, terms: Terms) -> bool:
    if row.deleted_at is not None and (row.deleted_at == HALF_GONE or row.deleted_at + terms.deleted <= now):
        return True
    if row.finished_at is None:
        return False
    return (row.finished_at + terms.ended if row.expires_at is None else row.expires_at) <= now


def _is_removable(view: RedisView, id: UUID) -> bool:
    row = view.run(id)
    return row is not None and _is_free(view, row)


def _is_free(view: RedisView, row: RunRow) -> bool:
    """Return True when the run may be removed. The first run of a chain is removed with the last one, at
    the end."""
    if row.present is not None:
        return False
    if row.chain is not None and (first := view.run(row.chain)) is not None and first.present == row.id:
        links = view.snapshot.guarded("ZCARD", view.names("chain", str(first.id)))
        if links > 1 or first.owes or _holds_messages(view, first.id):
            return False
    return not row.owes & ~Owes.END and not _is_awaited(view, row) and not _holds_messages(view, row.id)


def _holds_messages(view: RedisView, run: UUID) -> bool:
    """Return True when a message of this run is pending. Then the run is not removed."""
    return bool(view.snapshot.guarded("ZCARD", view.names("outbox:owed", str(run))))


def _is_awaited(view: RedisView, row: RunRow) -> bool:
    """Return True when a parent waits for the end of the run, which keeps the run.

    A run that is deleted and open will never end. It is removed, and its parent is told, unless the parent is
    deleted too.
    """
    parent = None if row.parent is None else view.run(row.parent)
    waits: list[StepRow] = []
    if parent is not None and parent.status not in FINAL:
        waits = [wait for wait in view.open_waits(parent) if wait.child == row.id]
    return any(row.status in FINAL or (parent and parent.deleted_at is not None) for _ in waits)


def _remove(view: RedisView, row: RunRow) -> set[str]:
    """Remove everything that belongs to a run. Return the sinks of its messages."""
    snapshot, names, id = view.snapshot, view.names, str(row.id)
    labels = snapshot.read("HGET", names.run(id), "labels")
    for key in indexes.fixed(names, row, labels):
        snapshot.do("ZREM", key, id)
    indexes.move(snapshot, indexes.of_run(names, row), {})
    indexes.count_lanes(snapshot, row, None)
    counting.move(snapshot, row, None)
    for step in view.open_steps(row):
        indexes.move(snapshot, indexes.of_step(names, row, step), {})
    _remove_from_trail(snapshot, id, snapshot.read("ZRANGE", names.trail_of(id), 0, -1))
    if row.key is not None:
        snapshot.do("DEL", names.of("key", row.tenant, row.key))
    sinks = _remove_messages(snapshot, snapshot.read("ZRANGE", names("outbox:run", id), 0, -1))
    _remove_addressed(snapshot, snapshot.read("ZRANGE", names("events:of", id), 0, -1))
    for key in (
        names.run(id), names.steps(id), names.trail_of(id), names("took", id), names("account", id),
        names("receipts", id), names("outbox:run", id), names("chain", id), names("events:of", id),
    ):  # fmt: skip
        snapshot.do("UNLINK", key)
    return sinks


def _remove_part(view: RedisView, row: RunRow) -> None:
    """Remove a part of what belongs to a run, which is hidden from now on."""
    snapshot, names, id = view.snapshot, view.names, str(row.id)
    row.deleted_at = HALF_GONE
    rows = snapshot.read("ZRANGE", names.trail_of(id), 0, TRAIL_ROWS - 1)
    if len(rows) == TRAIL_ROWS:
        _remove_from_trail(snapshot, id, rows)
        snapshot.do("ZREMRANGEBYSCORE", names.trail_of(id), "-inf", trail_row(rows[-1])[0])
        return
    messages = snapshot.read("ZRANGE", names("outbox:run", id), 0, PARTS - 1)
    _remove_messages(snapshot, messages)
    for message in messages:
        snapshot.do("ZREM", names("outbox:run", id), message)
    _remove_addressed(snapshot, snapshot.read("ZRANGE", names("events:of", id), 0, PARTS - 1))


def _remove_from_trail(snapshot: Snapshot, id: str, rows: Sequence[str]) -> None:
    """Remove rows of a run from the trail of all runs."""
    trail = list(map(trail_row, rows))
    for at in range(0, len(trail), WORDS):
        numbers = [f"{seq} {id} {stored_word(what)}" for seq, what, *_ in trail[at : at + WORDS]]
        snapshot.do("ZREM", snapshot.names.trail, *numbers)


def _remove_messages(snapshot: Snapshot, messages: Sequence[str]) -> set[str]:
    """Remove messages. Return their sinks."""
    names, sinks = snapshot.names, set[str]()
    texts = snapshot.all([("HGET", message_key(names, message), "row") for message in messages])
    for message, text in zip(messages, texts, strict=True):
        snapshot.do("ZREM", names("outbox"), message)
        if text is not None:
            sinks.add(sink := message_row(text).sink)
            snapshot.do("ZREM", names.of("outbox:dead", sink), message)
        snapshot.do("UNLINK", message_key(names, message))
    return sinks


def _remove_addressed(snapshot: Snapshot, addressed: Sequence[str]) -> None:
    """Remove events for one chain."""
    snapshot.prefetch([("HGETALL", name) for name in addressed])
    _remove_events(
        snapshot, [event for name in addressed if (event := read_event(snapshot, name)) is not None]
    )


def _purge_events(snapshot: Snapshot) -> int:
    names = snapshot.names
    found = snapshot.read("ZRANGEBYSCORE", names("events"), "-inf", snapshot.now, "LIMIT", 0, EVENTS)
    left = snapshot.all([("ZSCORE", names("undelivered"), name) for name in found])
    delivered = [name for name, score in zip(found, left, strict=True) if score is None]
    snapshot.all([("HGETALL", name) for name in delivered])
    events = [event for name in delivered if (event := read_event(snapshot, name)) is not None]
    _remove_events(snapshot, events)
    return len(events)


def _purge_addressed(snapshot: Snapshot, begin: int) -> tuple[int, int]:
    """Remove events for one chain that an earlier run of it has used up, because a chain may have no end.
    Look from this place on. Return how many were removed, and the place of the next look."""
    names, now = snapshot.names, snapshot.now
    key = names("events:addressed")
    found = snapshot.read("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", begin, LOOKED)
    left = [("ZSCORE", names("undelivered"), name) for name in found]
    answers = snapshot.all([*left, *(("HGETALL", name) for name in found)])
    delivered = [name for name, score in zip(found, answers, strict=False) if score is None]
    gone, view = list[EventRow](), RedisView(snapshot)
    events = [(event, event.run) for name in delivered if (event := read_event(snapshot, name))]
    addressed = [(event, run) for event, run in events if run is not None]
    view.prefetch(run for _, run in addressed)
    receipts = [("HGET", names("receipts", str(run)), event.seq) for event, run in addressed]
    for (event, run), taken_by in zip(addressed, snapshot.all(receipts), strict=True):
        chain = view.run(run)
        if chain is None:
            is_over = event.at + micros(max(event.keep, 0.0)) <= now
        else:
            is_over = UUID(taken_by or str(run)) not in {run, chain.present}
        if is_over:
            gone.append(event)
    _remove_events(snapshot, gone)
    kept = len(found) - len(gone)
    return len(gone), 0 if len(found) < LOOKED else begin + kept


def _remove_events(snapshot: Snapshot, events: list[EventRow]) -> None:
    names = snapshot.names
    leftovers.void_receipts(snapshot, events)
    for event in events:
        name = names.event(event.tenant, event.id)
        # Another purge may have removed it meanwhile, and a sender may have used its id again.
        snapshot.guard(("HGET", name, "seq"), event.seq)
        snapshot.do("UNLINK", name)
        snapshot.do("ZREM", topic_of(names, event.tenant, event.topic, event.run), name)
        snapshot.do("ZREM", names("undelivered"), name)
        snapshot.do("ZREM", names("events:numbers"), name)
        snapshot.do("ZREM", names("events") if event.run is None else names("events:addressed"), name)
        if event.run is not None:
            snapshot.do("HDEL", names("receipts", str(event.run)), event.seq)
            snapshot.do("ZREM", names("events:of", str(event.run)), name)


def _purge_workers(snapshot: Snapshot) -> int:
    return presence.forget_workers(snapshot, snapshot.now - micros(GONE_SECONDS))


def _purge_claims(snapshot: Snapshot) -> int:
    book = limiting.Limiting(snapshot)
    gone = book.forget_claims(snapshot.now)
    if gone:
        book.depend()
    return gone
