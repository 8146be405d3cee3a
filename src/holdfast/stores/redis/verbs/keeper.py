"""emit, deliver and tick: events and chores, in slices of several short scripts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar
from uuid import UUID

from holdfast.contract import LIVE_SECONDS, SLICE, SLICES
from holdfast.errors import IllegalMove, UnknownRun, UsageError
from holdfast.lifecycle import FINAL, OPEN, Status, StepStatus
from holdfast.machine import children, chores
from holdfast.machine.durations import micros
from holdfast.machine.relocating import send_there
from holdfast.machine.rows import StepRow
from holdfast.machine.waking import settle
from holdfast.records import Chore, Emitted, Instant, NewEvent
from holdfast.stores.claiming.served import can_run
from holdfast.stores.pacing import Pace
from holdfast.stores.redis.batches import IN_SCRIPT
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.held import ids
from holdfast.stores.redis.inbox import read_event
from holdfast.stores.redis.indexes import of_step
from holdfast.stores.redis.rows import EventRow, RunRow
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.redis.view import RedisView
from holdfast.stores.rounds import ChoreRounds

from . import limiting
from .presence import present_workers
from .queue import NO_TRANSACTIONS

COPIED = 8 * 1024 * 1024  # bytes of values that one slice copies

T = TypeVar("T")
Sliced = tuple[list[UUID], bool]  # the runs that were woken, and True when the event is delivered


class Chores(Protocol[T]):
    """A part of a chore that one script carries out: see `_in_scripts`."""

    def __call__(self, snapshot: Snapshot, *, limit: int) -> tuple[list[T], bool]: ...


class KeeperVerbs(ChoreRounds, Core):
    """The verbs emit, deliver and tick, as a mixin of the store."""

    _events_seen: int = 0  # the last event that a call served before it was cut short

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            raise UsageError(NO_TRANSACTIONS)
        known = await self._change(lambda snapshot: take_in(snapshot, event))
        key, pace = self._names.event(event.tenant, event.id), self._pace()
        woken, is_delivered = await self._slice(key, SLICE)
        while not is_delivered:
            await pace.after(woken)
            woken, is_delivered = await self._slice(key, pace.size(SLICE))
        (count,) = await self._connections.ask([("HGET", key, "woken")])
        return Emitted(int(count or 0), known)

    async def _slice(self, event: str, limit: int) -> Sliced:
        return await self._in_scripts(limit, partial(hand_over, key=event))

    async def _in_scripts(self, limit: int, work: Chores[T]) -> tuple[list[T], bool]:
        """Carry out a slice of a chore, in several short scripts. Return what they have found, and True when
        there is no more."""
        found, is_last = list[T](), False
        while limit > 0 and not is_last:
            some, is_last = await self._change(partial(work, limit=min(limit, IN_SCRIPT)))
            found += some
            limit -= IN_SCRIPT
        return found, is_last

    async def _events(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Deliver one slice of each event, from where the last call ended; then those that need more, in
        turns."""
        total, cut = 0, deque[tuple[str, int]]()
        key = self._names("undelivered")
        later, earlier = await self._connections.ask([
            ("ZRANGEBYSCORE", key, f"({self._events_seen}", "+inf", "WITHSCORES", "LIMIT", 0, SLICES),
            ("ZRANGEBYSCORE", key, "-inf", self._events_seen, "WITHSCORES", "LIMIT", 0, SLICES),
        ])  # fmt: skip
        fresh = deque((name, int(score)) for name, score in [*later, *earlier][:SLICES])
        for _ in range(SLICES):
            if not fresh and not cut:
                break
            event, seq = (fresh or cut).popleft()
            woken, is_delivered = await self._slice(event, pace.size(limit))
            total += len(woken)
            if not is_delivered:
                cut.append((event, seq))
            self._events_seen = seq if fresh else 0
            if pace.is_over:
                break
            if fresh or cut:
                await pace.after(woken)
        (left,) = await self._connections.ask([("ZCARD", key)])
        return total, bool(left)

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        woken = 0
        for _ in range(SLICES):
            some, is_done = await self._change(lambda snapshot: carry_out(snapshot, limit))
            woken += some
            if is_done:
                return woken, False
            if pace.is_over:
                break
            await pace.after(())
        return woken, True

    async def _carry_out_of(self, runs: Sequence[UUID]) -> None:
        """Carry out everything that these runs owe, also what that adds: a cancelled child has children, too.
        Of the others there may be very many: a keeper goes on behind the first slice."""
        left = dict.fromkeys(runs)
        while left:
            some = [*islice(left, IN_SCRIPT)]
            more = await self._change(partial(carry_out_of, runs=some))
            left = dict.fromkeys([*[run for run in left if run not in some], *more])
        await self._change(partial(carry_out, limit=IN_SCRIPT))

    async def _end_some(self, chore: Chore, limit: int) -> tuple[Sequence[RunRow], bool]:
        return await self._in_scripts(limit, expire if chore is Chore.EXPIRE else time_out)

    async def _lapse_some(self, limit: int, *, wait_timeouts: bool) -> tuple[Sequence[UUID], bool]:
        return await self._in_scripts(limit, partial(lapse, wait_timeouts=wait_timeouts))

    async def _pending(self, runs: Sequence[UUID]) -> int:
        found = await self._connections.ask([("HGET", self._names.run(run), "status") for run in runs])
        return sum(status == Status.PENDING for status in found)

    async def _served(self, runs: Sequence[UUID]) -> bool:
        return await self._read(lambda snapshot: is_served(snapshot, runs))


def take_in(snapshot: Snapshot, event: NewEvent) -> bool:
    """Record an event unless it is known. Return True when it was known."""
    view, key = RedisView(snapshot), snapshot.names.event(event.tenant, event.id)
    snapshot.prefetch([("HGETALL", key), ("HGET", snapshot.names.numbers, "event")])
    if read_event(snapshot, key) is not None:
        return True
    if event.run is not None:
        row = view.run(event.run)
        first = None if row is None else view.run(row.chain_id)
        if row is None or first is None or first.deleted_at is not None or row.tenant != event.tenant:
            raise UnknownRun(event.run)
        present = first if first.present is None else view.run(first.present)
        if present is not None and present.status in FINAL:
            raise IllegalMove(present.id, "emit", present.status, send_there(present.last_error))
    view.record(event)
    view.save()
    return False


def hand_over(snapshot: Snapshot, key: str, limit: int) -> Sliced:
    """Hand an event to its next waits. Return the runs that were woken, and True when all have looked.

    The waits are in the order of their runs, and those of one run in the order in which they were opened: all
    of them, or as many as one slice has. The row of the event holds the last one that has looked, so that a
    later call, of any process, goes on behind it.
    """
    names = snapshot.names
    snapshot.prefetch([("HGETALL", key), ("ZSCORE", names("undelivered"), key)])
    event = read_event(snapshot, key)
    if event is None or snapshot.read("ZSCORE", names("undelivered"), key) is None:
        return [], True
    snapshot.guard(("HGET", key, "seq"), event.seq)
    snapshot.guard(("HGET", key, "cursor"), event.cursor)
    view = RedisView(snapshot)
    page, is_last = _next_waits(view, event, limit)
    woken: list[UUID] = []
    looked = 0
    waits = [(UUID(member[:36]), member[37:]) for member in page]
    snapshot.prefetch([*view.commands(run for run, _ in waits), *view.step_commands(waits)])

    def open_wait(wait: tuple[UUID, str]) -> tuple[RunRow, StepRow] | None:
        return _open_wait(view, event, *wait)

    view.prefetch_events([found for wait in waits if (found := open_wait(wait)) is not None])

    def place(wait: tuple[UUID, str]) -> tuple[UUID, int]:
        found = open_wait(wait)
        return wait[0], 0 if found is None else found[1].seq

    waits.sort(key=place)

    def look(wait: tuple[UUID, str]) -> None:
        nonlocal looked
        if looked and view.copied >= COPIED:
            return
        looked += 1
        found = open_wait(wait)
        if found is None:
            return
        row, step = found
        # The wait takes its oldest event, which may be another undelivered event.
        if settle(view, row, step):
            woken.append(row.id)

    snapshot.each(waits, look)
    view.save()
    is_done = is_last and looked == len(waits)
    if is_done:
        snapshot.do("ZREM", names("undelivered"), key)
        snapshot.do("HDEL", key, "cursor")
    elif whole := _whole(waits, looked):
        snapshot.do("HSET", key, "cursor", page[whole - 1])
    return woken, is_done


def _open_wait(view: RedisView, event: EventRow, run: UUID, key: str) -> tuple[RunRow, StepRow] | None:
    """Return a run and its wait for the topic of the event; None when it was settled meanwhile."""
    row = view.run(run)
    step = None if row is None else view.step(row, key)
    if row is None or step is None or step.status is not StepStatus.WAITING or step.topic != event.topic:
        return None
    return row, step


def _whole(waits: Sequence[tuple[UUID, str]], looked: int) -> int:
    """Return how many of the waits that have looked are of runs that have looked as a whole. The next slice
    begins a run anew that has not: it lacks the waits that were settled."""
    while 0 < looked < len(waits) and waits[looked - 1][0] == waits[looked][0]:
        looked -= 1
    return looked


def _next_waits(view: RedisView, event: EventRow, limit: int) -> tuple[list[str], bool]:
    """Return the next waits for an event, and True when there are no more. A run is looked at as a whole: the
    last one, which may have more waits, is left to the next slice, unless it is alone."""
    names = view.names
    low, high = f"({event.cursor}" if event.cursor else "-", "+"
    if event.run is not None:  # only waits of the present run of the chain
        first = view.run(event.run)
        present = event.run if first is None or first.present is None else first.present
        low, high = low if event.cursor else f"({present}:", f"({present};"
    topic = names.waits(event.tenant, event.topic)
    page: list[str] = view.snapshot.read("ZRANGEBYLEX", topic, low, high, "LIMIT", 0, limit)
    if len(page) < limit:
        return page, True
    whole = [member for member in page if member[:36] != page[-1][:36]]
    return whole or page, False


def carry_out(snapshot: Snapshot, limit: int) -> tuple[int, bool]:
    """Carry out what some runs owe, by id. Return how many parents were woken, and True if nothing is
    left."""
    size = min(limit, IN_SCRIPT)
    key = snapshot.names("owing")
    page = snapshot.read("ZRANGEBYLEX", key, "-", "+", "LIMIT", 0, size)
    if not page:
        return 0, True
    _, owing, woken = _carry_out(snapshot, page, size)
    _sweep(snapshot, key, page, owing)
    return woken, False


def carry_out_of(snapshot: Snapshot, runs: Sequence[UUID]) -> list[UUID]:
    """Carry out a part of what these runs owe. Return those that still owe something, and the runs that owe
    more than before because of it."""
    view, _, _ = _carry_out(snapshot, [*map(str, runs)], IN_SCRIPT)
    return [row.id for row in view.owing(runs)]


def _carry_out(snapshot: Snapshot, page: Sequence[str], size: int) -> tuple[RedisView, list[RunRow], int]:
    """Carry out what these runs owe. Return the view, the runs that owed something, and how many parents were
    woken."""
    owing = [row for row in _read(RedisView(snapshot), page) if row.owes]
    # Each alone first, to learn what all of them need.
    snapshot.each(owing, lambda row: _carry_out_alone(snapshot, row.id, size))
    snapshot.begin()
    view = RedisView(snapshot)
    owing = [row for row in _read(view, page) if row.owes]
    woken = children.carry_out(view, owing, size)
    view.save()
    return view, owing, woken


def _sweep(snapshot: Snapshot, key: str, page: Sequence[str], wanted: Sequence[RunRow]) -> None:
    """Remove members of an index that do not belong there. Only lost data or another program leaves some, but
    they would be looked at again and again, in place of others."""
    there = {str(row.id) for row in wanted}
    for member in page:
        if member not in there:
            snapshot.do("ZREM", key, member)


def _carry_out_alone(snapshot: Snapshot, id: UUID, size: int) -> None:
    view = RedisView(snapshot)
    row = view.run(id)
    if row is not None:
        children.carry_out(view, [row], size)


def expire(snapshot: Snapshot, limit: int) -> tuple[list[RunRow], bool]:
    """End leases that are over. Return their runs, and True when there are no more."""
    now, key = snapshot.now, snapshot.names("leases")
    page = snapshot.read("ZRANGEBYSCORE", key, "-inf", f"({now}", "LIMIT", 0, limit)
    view = RedisView(snapshot)
    leased = [row for row in _read(view, page) if row.lease_until is not None]
    past = [row for row in leased if row.lease_until is not None and row.lease_until < now]
    snapshot.each(past, lambda row: chores.expire(view, row))
    view.save()
    _sweep(snapshot, key, page, leased)
    return past, len(page) < limit


def time_out(snapshot: Snapshot, limit: int) -> tuple[list[RunRow], bool]:
    """Fail runs whose timeout has passed. Return them, and True when there are no more."""
    now, key = snapshot.now, snapshot.names("timeouts")
    page = snapshot.read("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit)
    view = RedisView(snapshot)
    late = [
        row for row in _read(view, page)
        if row.status in OPEN and row.timeout_at is not None and row.timeout_at <= now
    ]  # fmt: skip
    open_runs = [row for row in _read(view, page) if row.status in OPEN]
    snapshot.each(late, lambda row: chores.time_out(view, row))
    view.save()
    _sweep(snapshot, key, page, open_runs)
    return late, len(page) < limit


def _read(view: RedisView, page: Sequence[str]) -> list[RunRow]:
    """Return the runs of an index. They are read after it: each must be looked at again."""
    view.prefetch(ids(page))
    return [row for id in ids(page) if (row := view.run(id)) is not None]


def lapse(snapshot: Snapshot, limit: int, *, wait_timeouts: bool) -> tuple[list[UUID], bool]:
    """Settle due waits. Return their runs, first due first, and True when there are no more."""
    names, now = snapshot.names, snapshot.now
    keys = [names("timers")] + ([names("timers:plans")] if wait_timeouts else [])
    found = snapshot.all(
        [("ZRANGEBYSCORE", key, "-inf", now, "WITHSCORES", "LIMIT", 0, limit) for key in keys]
    )
    page = sorted(
        (score, member, key) for key, one in zip(keys, found, strict=True) for member, score in one
    )[:limit]
    view = RedisView(snapshot)
    waits = [(UUID(member[:36]), member[37:]) for _, member, _ in page]
    view.prefetch(run for run, _ in waits)
    snapshot.all(view.step_commands(waits))
    due: list[tuple[Instant, UUID, int, RunRow, StepRow]] = []
    strays: list[tuple[str, str, Instant | None]] = []
    for (run, key), (_, member, timers) in zip(waits, page, strict=True):
        row = view.run(run)
        wait = None if row is None else view.step(row, key)
        at = None if row is None else of_step(names, row, wait).get((timers, member))
        if row is None or wait is None or at is None or at > now:
            strays.append((timers, member, at))  # it was settled meanwhile, or data were lost
        else:
            due.append((at, run, wait.seq, row, wait))
    runs: list[UUID] = []

    def settled(one: tuple[Instant, UUID, int, RunRow, StepRow]) -> None:
        if not runs or view.copied < COPIED:
            runs.append(one[1])
            settle(view, one[3], one[4])

    snapshot.each(sorted(due, key=lambda one: one[:3]), settled)
    view.save()
    for timers, member, at in strays:  # otherwise they would be looked at again and again, in place of others
        snapshot.do(*(("ZREM", timers, member) if at is None else ("ZADD", timers, at, member)))
    return runs, len(page) < limit and len(runs) == len(due)


def is_served(snapshot: Snapshot, runs: Sequence[UUID]) -> bool:
    """Return True when a live worker can claim any of these runs."""
    live = present_workers(snapshot, snapshot.now - micros(LIVE_SECONDS))
    rules = limiting.Limiting(snapshot).rules()
    view = RedisView(snapshot)
    view.prefetch(runs)
    found = [row for run in runs if (row := view.run(run)) is not None]
    return any(can_run(worker, row.type, row.tenant, rules) for worker in live for row in found)
