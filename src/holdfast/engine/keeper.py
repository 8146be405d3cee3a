"""The chores: expire, time out, lapse, deliver, fire schedules; and now and then a purge.

Any number of keepers at once, in workers or alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.contract import TTL_SECONDS, Store
from holdfast.escaping import safe_logger
from holdfast.records import RUNTIME, SECOND, Chore, Due, Instant, Ticked

from .timetable import Timetable
from .turns import TROUBLE_SECONDS, Spawn, Turns, unforeseen

log = safe_logger("holdfast.keeper")

POLL_MIN_SECONDS = 0.02
POLL_MAX_SECONDS = 1.0
PURGE_FIRST_SECONDS = 60.0  # a worker that has just begun has better things to do
PURGE_SECONDS = 600.0
PURGE_PAUSE_SECONDS = 0.02
TICK_ROUNDS = 10  # of schedules, where one call is to do what is due
IDLE_ROUNDS = 10  # of a chore that says there is more and moves nothing: the rest is left to the next call
NAMES = {
    Chore.EXPIRE: "expire leases",
    Chore.TIME_OUT: "time out runs",
    Chore.LAPSE: "wake what is due",
    Chore.DELIVER: "deliver events",
}
FIRE = "fire schedules"
LOOK_SECONDS = 0.01  # between two looks of a keeper, however many hints come;
LOOK_SHARE = 0.1  # and no more of its time than this goes into looks


def between_looks(cost_seconds: float) -> float:
    """How far apart looks are that hints lead to, by what one costs: on a store that is slow, fewer."""
    return min(max(LOOK_SECONDS, cost_seconds / LOOK_SHARE), POLL_MAX_SECONDS)


class Bell:
    """Wakes a loop that sleeps: by a hint, at a known instant, or after a poll that backs off."""

    def __init__(self, poll_seconds: float = POLL_MAX_SECONDS) -> None:
        self._event = asyncio.Event()
        self._poll = self._overdue = POLL_MIN_SECONDS
        self._poll_max = poll_seconds

    def ring(self) -> None:
        """There may be news."""
        self._event.set()

    def found(self) -> None:
        """Work was found: look again soon."""
        self._poll = POLL_MIN_SECONDS

    async def wait(self, due_seconds: float | None) -> None:
        """Sleep until rung, until `due_seconds` have passed, or for the present poll.

        What was due already and yet not found is no reason to hurry for long: it is someone else's, or held
        back. But nobody rings when he lets go of it, so the longest poll is not waited for.
        """
        if due_seconds == 0:
            delay = self._overdue
            self._overdue = min(self._overdue * 2, self._poll_max, POLL_MAX_SECONDS)
        else:
            delay = min(self._poll, due_seconds) if due_seconds else self._poll
            self._poll, self._overdue = min(self._poll * 2, self._poll_max), POLL_MIN_SECONDS
        try:
            async with asyncio.timeout(delay):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


class Keeper:
    """One loop that does what no worker has to be asked for. Chores go by turns: none holds up the others."""

    def __init__(
        self,
        store: Store,
        news: Callable[[], None] | None = None,
        failed: Callable[[Sequence[UUID]], None] | None = None,
        ttl_seconds: float = TTL_SECONDS,
        *,
        wait_timeouts: bool = True,
    ) -> None:
        self._store, self._news, self._failed = store, news, failed
        self._ttl_seconds, self._wait_timeouts = ttl_seconds, wait_timeouts
        self._timetable = Timetable(store)
        self.bell = Bell(store.traits.poll_seconds)

    async def tick(self) -> Ticked:
        """All that is due, once. What one chore raises is raised when all have had their turn."""
        done, errors = Ticked(), list[Exception]()
        for chore in Chore:
            try:
                done = _sum(done, await self._all(chore))
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)
        fired = await self._timetable.round()
        for _ in range(TICK_ROUNDS - 1):
            if self._timetable.unfinished:
                fired += await self._timetable.round()
        if errors:
            raise errors[0]
        return msgspec.structs.replace(done, fired=fired)

    async def _all(self, chore: Chore) -> Ticked:
        done, idle = await self._chore(chore), 0
        while done.more and idle < IDLE_ROUNDS:
            last = await self._chore(chore)
            idle = 0 if last.total else idle + 1
            done = _sum(msgspec.structs.replace(done, more=False), last)
        return done

    async def _some(self, chore: Chore) -> int:
        return (await self._chore(chore)).total

    async def _chore(self, chore: Chore) -> Ticked:
        ticked = await self._store.tick(wait_timeouts=self._wait_timeouts, only=chore)
        if ticked.total:
            log.info(
                "chores: %d expired, %d lapsed, %d delivered, %d timed out",
                ticked.expired,
                ticked.lapsed,
                ticked.delivered,
                ticked.timed_out,
            )
        if ticked.failed and self._failed is not None:
            self._failed(ticked.failed)
        return ticked

    async def run(self, spawn: Spawn | None = None) -> None:
        """Round after round, until cancelled. `spawn`: how each chore gets a task of its own."""
        chores = {NAMES[chore]: partial(self._some, chore) for chore in Chore}
        turns = Turns({**chores, FIRE: self._timetable.round}, spawn or _spawn, self.bell.ring)
        try:
            while True:
                await self._round(turns)
        finally:
            await turns.stop()

    async def _round(self, turns: Turns) -> None:
        """A look; a turn of each chore that is due; if there was none, or they found nothing, a rest."""
        clock = asyncio.get_running_loop().time
        looked_at, apart, done = clock(), LOOK_SECONDS, 0
        try:
            look = await self._look()
            cost, due = clock() - looked_at, _seconds(look.chore_at, look.now)
            if due == 0:
                done = await turns.round(self._due_names(look))
            if done or self._timetable.unfinished:
                self.bell.found()
                if self._news is not None:
                    self._news()  # a store need not give hints
            else:
                apart = between_looks(cost)
        except Exception as error:
            log.warning("cannot do chores now, will try again: %s", error, exc_info=unforeseen(error))
            due = TROUBLE_SECONDS
        if not done:
            await self.bell.wait(due)
        # A hint comes with every commit: to look at each would cost as much as the commits do.
        early = looked_at + min(apart, due or apart) - clock()
        if early > 0:
            await asyncio.sleep(early)

    async def _look(self) -> Due:
        aside = self._timetable.aside()
        return await self._store.due((), wait_timeouts=self._wait_timeouts, besides=aside)

    def _due_names(self, look: Due) -> set[str]:
        names = {NAMES[chore] for chore in Chore if look.is_due(chore)}
        fires = self._timetable.unfinished or (look.fire_at is not None and look.fire_at <= look.now)
        return names | {FIRE} if fires else names

    async def purge(self) -> int:
        """Remove what has expired, slice by slice, with pauses in which others write; how many runs went."""
        clock, runs = asyncio.get_running_loop().time, 0
        while True:
            begun = clock()
            purged = await self._store.purge(ttl_seconds=self._ttl_seconds)
            if not purged.total:
                break
            runs += purged.runs
            # Where commits are slow, or many, a slice takes longer: then the next one comes later.
            await asyncio.sleep(max(PURGE_PAUSE_SECONDS, 2 * (clock() - begun)))
        if runs:
            log.info("purged %d runs that had expired", runs)
        return runs

    async def purges(self, chance: float) -> None:
        """A purge now and then, until cancelled: not at once, and not when all other keepers do it."""
        await asyncio.sleep(PURGE_FIRST_SECONDS + chance * PURGE_SECONDS)
        while True:
            try:
                await self.purge()
            except Exception as error:
                log.warning("cannot purge now, will try again: %s", error, exc_info=unforeseen(error))
            await asyncio.sleep(PURGE_SECONDS)


def _spawn(work: Coroutine[Any, Any, int], name: str) -> asyncio.Task[int]:
    return asyncio.get_running_loop().create_task(work, name=name)


def _sum(one: Ticked, other: Ticked) -> Ticked:
    return Ticked(
        expired=one.expired + other.expired,
        lapsed=one.lapsed + other.lapsed,
        delivered=one.delivered + other.delivered,
        timed_out=one.timed_out + other.timed_out,
        failed=tuple(sorted({*one.failed, *other.failed})),
        more=one.more or other.more,
    )


async def seconds_until(
    store: Store,
    types: Sequence[str],
    tenants: Sequence[str] | None = None,
    *,
    runtime: str = RUNTIME,
) -> float | None:
    """Seconds until there may be something to claim; None when nothing is in sight."""
    due = await store.due(types, tenants, runtime=runtime)
    return _seconds(due.claim_at, due.now)


def _seconds(at: Instant | None, now: Instant) -> float | None:
    return None if at is None else max(0.0, (at - now) / SECOND)
