"""Renewal of leases on a connection of its own, run by the calling thread: a blocked event loop cannot delay
it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import Unavailable
from holdfast.machine.durations import micros
from holdfast.records import Answer, Held, Lease, Renewal, Step
from holdfast.stores.blocking_calls import outside_loop, renewal_seconds
from holdfast.stores.redis.batches import AT_ONCE, IN_SCRIPT, Batch
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.redis.view import RedisView

from .queue import renew

_inherited: list[object] = []  # loops of the parent process: to close them here would disturb it

PAGE = 1000  # leased runs that are read at once


class RenewalVerb(Core):
    """The verb `renew`, as a mixin of the store."""

    _renewing: threading.Lock
    _renewal_loop: asyncio.AbstractEventLoop | None
    _renewal_pid: int  # the process that the lock and the loop belong to

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        limit = renewal_seconds(lease_seconds)
        return outside_loop(lambda: self._renewed(worker, leases, lease_seconds, limit))

    def _renewed(self, worker: str, leases: Sequence[Lease], lease_seconds: float, limit: float) -> Renewal:
        self._disown_renewals()
        if not self._renewing.acquire(timeout=limit):
            raise Unavailable(f"{self.address.shown}: another renewal has not been answered yet")
        try:
            if not self._connections.is_open:
                raise Unavailable(f"{self.address.shown}: the store is not open")
            if self._renewal_loop is None:
                self._renewal_loop = asyncio.new_event_loop()

            async def within() -> Renewal:
                async with asyncio.timeout(limit):
                    return await self._extend(worker, leases, lease_seconds)

            try:
                return self._renewal_loop.run_until_complete(within())
            except TimeoutError:
                raise Unavailable(f"{self.address.shown}: it has not answered within {limit:g} s") from None
        finally:
            self._renewing.release()

    async def _extend(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        if not self.fast:
            return await self._change(lambda snapshot: renew(snapshot, worker, leases, lease_seconds))
        held: list[Held] = []
        mine = renewed = 0
        for at in range(0, max(1, len(leases)), AT_ONCE):
            some = leases[at : at + AT_ONCE]
            parts = [some[begin : begin + IN_SCRIPT] for begin in range(0, max(1, len(some)), IN_SCRIPT)]
            batches = [self._renewal(worker, part, lease_seconds) for part in parts]
            words: list[str] = []
            for said, mine, number in await self._run_all("renew", batches):  # noqa: B007 - the last one
                words, renewed = words + said, renewed + number
            held += map(_held, words)
            news = [one for one, word in zip(some, words, strict=True) if word.endswith("n")]
            if news:
                settled = await self._read(partial(settled_of, leases=news))
                held = [*held[:at], *_with_news(some, held[at:], settled)]
        named = {(lease.run, lease.fence) for lease in leases}
        strays = [] if mine == renewed else [one async for one in self._leased_by(worker) if one not in named]
        return Renewal(held=tuple(held), strays=tuple(sorted(strays)))

    async def _leased_by(self, worker: str) -> AsyncIterator[tuple[UUID, int]]:
        """Yield the leased runs of a worker, with their fences. Some that come or go meanwhile may be left
        out."""
        key = self._names.of("leased:worker", worker)
        at = 0
        while True:
            (page,) = await self._connections.ask([("ZRANGE", key, at, at + PAGE - 1, "WITHSCORES")])
            for id_, fence in page:
                yield UUID(id_), int(fence)
            if len(page) < PAGE:
                return
            at += PAGE

    def _renewal(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Batch:
        """Return the call of renew.lua."""
        names, ids = self._names, [str(one.run) for one in leases]
        keys = (key for id_ in ids for key in (names.run(id_), names.trail_of(id_)))
        batch = self._batch(names("leases"), names.of("leased:worker", worker), each=keys)
        batch.say(micros(lease_seconds), worker, _heartbeat(worker), [_said(one) for one in leases])
        return batch

    def _disown_renewals(self) -> None:
        """Leave the parent's loop alone, in a child. Its lock, too: a thread of the parent may have held it
        during the fork, and nobody would release it here."""
        if self._renewal_pid != os.getpid():
            _inherited.append(self._renewal_loop)
            self._renewal_loop, self._renewing = None, threading.Lock()
            self._renewal_pid = os.getpid()

    def _end_renewals(self) -> None:
        """Close the connection of renewals."""
        self._disown_renewals()

        def end() -> None:
            with self._renewing:
                loop, self._renewal_loop = self._renewal_loop, None
                if loop is not None:
                    loop.run_until_complete(self._connections.leave())
                    loop.close()

        outside_loop(end)


def _heartbeat(worker: str) -> str:
    return msgspec.json.encode({"worker": worker}).decode()


def _said(one: Lease) -> tuple[Any, ...]:
    """Return a lease as renew.lua wants it."""
    return (
        str(one.fence), "" if one.known is None else one.known,
        "" if one.started_at is None else str(one.started_at), one.heartbeat, one.survived,
        False if one.progress is None else one.progress,
    )  # fmt: skip


def _held(said: str) -> Held:
    if said in {"", "c"}:
        return Held(answer=Answer.CANCELLED if said else Answer.LOST)
    return Held(answer=Answer.APPLIED, renewed=True, pause_asked=said[0] == "p")


def settled_of(snapshot: Snapshot, leases: Sequence[Lease]) -> dict[UUID, tuple[tuple[Step, ...], bool]]:
    """Return, for each run, the waits that were settled since its holder knew."""
    view = RedisView(snapshot)
    view.prefetch(lease.run for lease in leases)
    found = {}
    for lease in leases:
        row = view.run(lease.run)
        if row is not None and lease.known is not None:
            found[lease.run] = view.news(row, lease.known)
    return found


def _with_news(
    leases: Sequence[Lease], held: Sequence[Held], found: dict[UUID, tuple[tuple[Step, ...], bool]]
) -> list[Held]:
    return [
        msgspec.structs.replace(one, settled=found[lease.run][0], more=found[lease.run][1])
        if lease.run in found
        else one
        for lease, one in zip(leases, held, strict=True)
    ]
