"""The keeper: it does the chores of a store: expire, time out, lapse, deliver, fold counts, fire schedules.

In a worker it also purges. Any number of keepers may run at once, inside workers or alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.contract import TTL_SECONDS, Store
from holdfast.engine.measured import measures_of
from holdfast.engine.schedules.firing import ScheduleFirer
from holdfast.engine.wake_up import LOOK_SECONDS, Look, Looks, WakeUp, between_looks, poll_of
from holdfast.escaping import safe_logger
from holdfast.records import Chore, Due, Instant, Ticked

from .chores import TROUBLE_SECONDS, Chores, Spawn, will_retry
from .presence import how_many

log = safe_logger("holdfast.keeper")

PURGE_FIRST_SECONDS = 60.0  # no purge in the first seconds of a worker
PURGE_SECONDS = 600.0
PURGE_PAUSE_SECONDS = 0.02
TICK_ROUNDS = 10  # rounds of schedules in one call of `tick`
# rounds of a chore that says there is more and does nothing: the rest is left to the next call
IDLE_ROUNDS = 10
LEASE_SHARE = 1.1  # of the lease time: the longest sleep of a keeper
NAMES = {
    Chore.EXPIRE: "expire leases",
    Chore.TIME_OUT: "time out runs",
    Chore.LAPSE: "wake what is due",
    Chore.DELIVER: "deliver events",
    Chore.COUNT: "fold counts",
}
FIRE = "fire schedules"


class Keeper:
    """One loop that does the chores. They take turns: no chore delays the others."""

    def __init__(
        self,
        store: Store,
        news: Callable[[], None] | None = None,
        failed: Callable[[Sequence[UUID]], None] | None = None,
        ttl_seconds: float = TTL_SECONDS,
        *,
        lease_seconds: float = math.inf,
        wait_timeouts: bool = True,
        looks: Looks | None = None,
        poll: Callable[[], float] | None = None,
    ) -> None:
        self._store, self._news, self._failed = store, news, failed
        self._measures = measures_of(store)
        self._looks = looks
        self._since: float | None = None  # None: the next look is its own
        self._ttl_seconds, self._wait_timeouts = ttl_seconds, wait_timeouts
        self._firer = ScheduleFirer(store)
        # No hint comes with a claim. One look in each lease time finds the lease before it expires, or soon
        # afterwards.
        seconds = poll or poll_of(store)
        self.wake_up = WakeUp(lambda: min(seconds(), LEASE_SHARE * lease_seconds))

    async def tick(self) -> Ticked:
        """Do everything that is due, once. An error of one chore is raised after all have had their turn."""
        done, errors = Ticked(), list[Exception]()
        for chore in Chore:
            try:
                done = _sum(done, await self._all(chore))
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)
        fired = await self._firer.round()
        for _ in range(TICK_ROUNDS - 1):
            if self._firer.unfinished:
                fired += await self._firer.round()
        if errors:
            raise errors[0]
        return msgspec.structs.replace(done, fired=fired)

    async def _all(self, chore: Chore) -> Ticked:
        done, idle = await self._chore(chore), 0
        while done.more and idle < IDLE_ROUNDS:
            last = await self._chore(chore)
            idle = 0 if last.total or last.folded else idle + 1
            done = _sum(msgspec.structs.replace(done, more=False), last)
        return done

    async def _some(self, chore: Chore) -> int:
        return (await self._chore(chore)).total

    async def _chore(self, chore: Chore) -> Ticked:
        ticked = await self._store.tick(wait_timeouts=self._wait_timeouts, only=chore)
        if ticked.total:
            log.info("chores: %s", _done(ticked))
        if ticked.failed and self._failed is not None:
            self._failed(ticked.failed)
        return ticked

    async def run(self, spawn: Spawn | None = None) -> None:
        """Run rounds until cancelled. `spawn` gives each chore a task of its own."""
        chores = {NAMES[chore]: partial(self._some, chore) for chore in Chore}
        turns = Chores(
            {**chores, FIRE: self._firer.round}, spawn or _spawn, self.wake_up.ring, self._measures
        )
        try:
            while True:
                await self._round(turns)
        finally:
            await turns.stop()

    async def _round(self, turns: Chores) -> None:
        """Look what is due, give each due chore a turn, and rest when nothing was found."""
        clock = asyncio.get_running_loop().time
        looked_at = asked_at = clock()
        apart, done, names = LOOK_SECONDS, 0, set[str]()
        try:
            look = await self._look()
            first_at = _first(look.due.chore_at, look.due.count_at)
            cost, due, asked_at = clock() - looked_at, look.seconds_until(first_at), look.asked_at
            if due == 0:
                names = self._due_names(look.due)
                done = await turns.round(names)
            if names == {NAMES[Chore.COUNT]}:
                apart = 0.0  # no hint has caused this look: a wait that comes due now is looked for at once
            elif done or self._firer.unfinished:
                self.wake_up.found()
                if self._news is not None:
                    self._news()  # a store need not give hints
            else:
                apart = between_looks(cost)
        except Exception as error:  # noqa: BLE001 - it is logged
            will_retry(log, "do chores", error, self._measures)
            due = TROUBLE_SECONDS
        self._since = None if done else await self.wake_up.wait(due, asked_at)
        # A hint comes with every commit: a look for each would cost as much as the commits.
        early = looked_at + min(apart, due or apart) - clock()
        if early > 0:
            await asyncio.sleep(early)

    async def _look(self) -> Look:
        if self._looks is not None and self._since is not None:
            return await self._looks.since(self._since)
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        due = await self._store.due((), wait_timeouts=self._wait_timeouts, besides=self.unfirable())
        return Look(due, asked_at, clock())

    def unfirable(self) -> Sequence[tuple[UUID, int]]:
        """Return id and rev of schedules that it cannot fire, and does not look for."""
        return self._firer.unfirable()

    def _due_names(self, look: Due) -> set[str]:
        names = {NAMES[chore] for chore in Chore if look.is_due(chore)}
        fires = self._firer.unfinished or (look.fire_at is not None and look.fire_at <= look.now)
        return names | {FIRE} if fires else names

    async def purge(self) -> int:
        """Remove what has expired, slice by slice, with pauses for other writers; return how many runs
        went.
        """
        clock, runs = asyncio.get_running_loop().time, 0
        while True:
            begun = clock()
            purged = await self._store.purge(ttl_seconds=self._ttl_seconds)
            if not purged.total:
                break
            runs += purged.runs
            # When commits are slow, a slice takes longer: then the next one comes later.
            await asyncio.sleep(max(PURGE_PAUSE_SECONDS, 2 * (clock() - begun)))
        if runs:
            log.info("purged %d expired runs", runs)
        return runs

    async def purges(self, chance: float) -> None:
        """Purge now and then, until cancelled; at random times, so that keepers do not purge together."""
        await asyncio.sleep(PURGE_FIRST_SECONDS + chance * PURGE_SECONDS)
        while True:
            try:
                await self.purge()
            except Exception as error:  # noqa: BLE001 - it is logged
                will_retry(log, "purge", error, self._measures)
            await asyncio.sleep(PURGE_SECONDS)


def _spawn(work: Coroutine[Any, Any, int], name: str) -> asyncio.Task[int]:
    return asyncio.get_running_loop().create_task(work, name=name)


def _sum(one: Ticked, other: Ticked) -> Ticked:
    return Ticked(
        expired=one.expired + other.expired,
        lapsed=one.lapsed + other.lapsed,
        delivered=one.delivered + other.delivered,
        timed_out=one.timed_out + other.timed_out,
        folded=one.folded + other.folded,
        failed=tuple(sorted({*one.failed, *other.failed})),
        more=one.more or other.more,
    )


def _first(*times: Instant | None) -> Instant | None:
    return min((at for at in times if at is not None), default=None)


def _done(ticked: Ticked) -> str:
    """`1 wait came due, 2 runs woken by events`: only what has happened."""
    counts = (
        (ticked.expired, "lease", "expired"),
        (ticked.lapsed, "wait", "came due"),
        (ticked.delivered, "run", "woken by events"),
        (ticked.timed_out, "run", "timed out"),
        (ticked.fired, "run", "started by schedules"),
    )
    return ", ".join(f"{how_many(number, noun)} {what}" for number, noun, what in counts if number)
