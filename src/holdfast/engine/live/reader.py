"""The shared reader: one task that looks for the news of all subscribers, in as few reads as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import BIG_MAX
from holdfast.bounds import BATCH_BYTES
from holdfast.contract import FOLLOWED_MAX, Store
from holdfast.engine.wake_up import WakeUp, between_looks, poll_of
from holdfast.engine.worker.chores import unforeseen
from holdfast.escaping import safe_logger
from holdfast.records import ANY, Followed

from .subscriptions import AllTrail, RunTrail, Waiter, page_of

log = safe_logger("holdfast.live")

LOOK_SECONDS = 0.1  # the shortest time between two looks, however many hints come
LOOK_SHARE = 0.25  # of the time goes into looks, at most: people watch, and wait for what is found
POLL_SECONDS = 10.0  # the longest sleep while somebody waits for the end of a run
TRAIL_POLL_SECONDS = 1.0  # the longest sleep while somebody follows a trail: not every row comes with a hint
TROUBLE_SECONDS, TROUBLE_SECONDS_MAX = 0.2, 5.0  # delay after a look that failed, doubling
ROWS_MAX = 1000  # in one read, for all runs
FURTHER_READS = 20  # reads in one look for sources that have more than fits into one
UNREADABLE = (ValueError, ArithmeticError, msgspec.MsgspecError)  # rows that nobody can decode

RunSubscriber = RunTrail | Waiter
Subscriber = RunSubscriber | AllTrail
Source = tuple[str | None, tuple[str, ...]]


class Reader:
    """Subscriptions by run and by source, and the looks for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake_up = WakeUp(poll_of(store, POLL_SECONDS))
        self._runs: dict[UUID, set[RunSubscriber]] = {}
        self._sources: dict[Source, set[AllTrail]] = {}
        self._trails = 0
        self._next_look = 0.0

    def look_soon(self) -> None:
        """Look as soon as the time between two looks allows."""
        self._wake_up.ring()

    def add(self, one: Subscriber) -> None:
        """Look for this subscriber from now on."""
        self._groups(one).setdefault(one.source, set()).add(one)
        self._trails += not isinstance(one, Waiter)

    def remove(self, one: Subscriber) -> bool:
        """Look for it no more. Return False if it was not there."""
        groups = self._groups(one)
        group = groups.get(one.source, set())
        if one not in group:
            return False
        group.remove(one)
        if not group:
            del groups[one.source]
        self._trails -= not isinstance(one, Waiter)
        return True

    def _groups(self, one: Subscriber) -> dict[Any, set[Any]]:
        return self._sources if isinstance(one, AllTrail) else self._runs

    def all(self) -> list[Subscriber]:
        """Return all subscribers."""
        groups: list[set[Any]] = [*self._runs.values(), *self._sources.values()]
        return [one for group in groups for one in group]

    async def run(self) -> None:
        """Look again and again while there are subscribers."""
        clock, trouble = asyncio.get_running_loop().time, 0.0
        unlisten = self._store.listen(self._wake_up.ring)
        try:
            while self._runs or self._sources:
                if (early := self._next_look - clock()) > 0:
                    await asyncio.sleep(early)
                looked_at = clock()
                try:
                    if await self._look():
                        self._wake_up.found()
                    trouble = 0.0
                    apart = max(LOOK_SECONDS, between_looks(clock() - looked_at, LOOK_SHARE))
                except Exception as error:
                    log.warning("cannot read news now, will retry: %s", error, exc_info=unforeseen(error))
                    apart = trouble = min(max(TROUBLE_SECONDS, 2 * trouble), TROUBLE_SECONDS_MAX)
                self._next_look = looked_at + apart
                await self._wake_up.wait(trouble or (TRAIL_POLL_SECONDS if self._trails else None))
        finally:
            unlisten()

    async def _look(self) -> bool:
        """Read all news once. Return whether there were any rows or ends."""
        if not self._sources:
            return await self._look_at_runs()
        # At the same time: the trail of all runs waits for writers that are about to commit.
        both = self._look_at_runs(), self._look_at_sources()
        found = await asyncio.gather(*both, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return any(found)

    async def _look_at_sources(self) -> bool:
        return any([await self._look_at_all(source) for source in tuple(self._sources)])

    async def _look_at_runs(self) -> bool:
        places = ((run, _place(group)) for run, group in self._runs.items())
        asked = [(run, place) for run, place in places if place is not None]
        found, reads = False, FURTHER_READS + -(-len(asked) // FOLLOWED_MAX)
        while asked and reads:
            part, asked = asked[:FOLLOWED_MAX], asked[FOLLOWED_MAX:]
            after, reads = dict(part), reads - 1
            for news in await self._followed(part):
                found, page = True, page_of(news, after[news.run])
                group = self._runs.get(news.run, ())
                for one in tuple(group):
                    # One that came meanwhile may be at an earlier place, and would miss rows.
                    if one.is_live and one.seq is not None and one.seq >= after[news.run]:
                        one.push(page)
                if news.more and (place := _place(group)) is not None and place != BIG_MAX:
                    # Behind all others, or before them, if this read had no room for it at all.
                    asked.insert(len(asked) if news.entries else 0, (news.run, place))
        return found

    async def _followed(self, part: Sequence[tuple[UUID, int]]) -> list[Followed]:
        """Read the news of some runs. A run that cannot be read fails its own subscribers only."""
        try:
            return [*await self._store.follow(part, ANY, ROWS_MAX, BATCH_BYTES)]
        except UNREADABLE as error:
            if len(part) > 1:
                middle = len(part) // 2
                return [*await self._followed(part[:middle]), *await self._followed(part[middle:])]
            _fail(self._runs.get(part[0][0], ()), error)
            return []

    async def _look_at_all(self, source: Source) -> bool:
        found, more, reads = False, True, FURTHER_READS
        while more and reads:
            group = self._sources.get(source, set())
            place = _place(group)
            if place is None:
                break
            try:
                page = await next(iter(group)).read_after(place, ROWS_MAX, BATCH_BYTES)
            except UNREADABLE as error:
                _fail(group, error)
                break
            more, reads, found = page.more, reads - 1, found or bool(page.entries)
            for one in tuple(group):
                if one.is_live and one.seq is not None and one.seq >= place:
                    one.push(page)
        return found


def _fail(group: Collection[RunSubscriber] | Collection[AllTrail], error: Exception) -> None:
    log.warning("cannot read the news of some subscribers: %s", error, exc_info=error)
    for one in tuple(group):
        one.fail(error)


def _place(group: Collection[RunSubscriber] | Collection[AllTrail]) -> int | None:
    """Return the place of the live subscriber that is least far; None: none is live."""
    return min((one.seq for one in group if one.is_live and one.seq is not None), default=None)
