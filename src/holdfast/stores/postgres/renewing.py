"""Renewal on a session of its own, driven by the thread that asks: no blocked event loop starves it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from holdfast.errors import Unavailable
from holdfast.records import Lease, Renewal

from .address import Address
from .calls import Calls, json_text
from .errors import DRIVER, IN_THE_WAY, lost, told, translated
from .links import FRESH_PLANS, Link, connected, disown
from .pools import PLANS_SECONDS, SLOW_SECONDS

T = TypeVar("T")

_SHARE, _SECONDS_MIN, _SECONDS_MAX = 0.25, 0.25, 5.0  # of the lease: so that a second try is in time
_RENEWAL = msgspec.json.Decoder(Renewal)


class Renewer:
    """One session on a private event loop, which runs while somebody asks and stands still otherwise."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None

    def call(self, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float) -> Any:
        """The answer to one statement. Blocks, and for no longer than this."""
        return off_the_loop(lambda: self._call(sql, args, column, limit_seconds))

    def _call(self, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float) -> Any:
        if not self._turn.acquire(timeout=limit_seconds):
            raise Unavailable(f"{self._address.shown}: another renewal has not been answered yet")
        try:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            return self._loop.run_until_complete(self._within(sql, args, column, limit_seconds))
        finally:
            self._turn.release()

    async def _within(self, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float) -> Any:
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._again(sql, args, column)
        except TimeoutError:
            self._drop()
            await asyncio.sleep(0)
            raise Unavailable(
                f"{self._address.shown}: it has not answered within {limit_seconds:g} s"
            ) from None

    async def _again(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        """A session that was lost is replaced once: it is idle most of the time, and may be lost for long."""
        for last in (False, False, True):
            try:
                return await self._send(sql, args, column)
            except TimeoutError:
                raise
            except DRIVER as error:
                gone = lost(error)
                if gone:
                    self._drop()
                if last or not (gone or told(error)[0] in IN_THE_WAY):
                    raise translated(error, self._address.shown) from error
        raise AssertionError

    async def _send(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        now = asyncio.get_running_loop().time
        if self._link is None or self._link.is_closed():
            self._link = await connected(self._address)
        link, began = self._link, now()
        answer = await link.fetchval(sql, *args, column=column)
        if now() - link.planned_at > PLANS_SECONDS or now() - began > SLOW_SECONDS:
            link.planned_at = now()
            with suppress(*DRIVER):
                await link.execute(FRESH_PLANS)
        return answer

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abandon()

    def close(self) -> None:
        """Twice is fine; the next call opens it anew."""
        off_the_loop(self._close)

    def _close(self) -> None:
        if not self._turn.acquire(timeout=_SECONDS_MAX):
            return  # a renewal that is not answered ends by its own limit, and its session with the process
        try:
            loop, link, self._loop, self._link = self._loop, self._link, None, None
            if loop is not None:
                if link is not None:
                    loop.run_until_complete(link.leave())
                loop.close()
        finally:
            self._turn.release()

    def disown(self) -> None:
        """In a child: it is the parent's."""
        if self._link is not None:
            disown(self._link)


class RenewingRoom(Calls):
    """A part of the store."""

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        limit = max(_SECONDS_MIN, min(_SECONDS_MAX, _SHARE * lease_seconds))
        args = (worker, json_text(leases), float(lease_seconds))
        return _RENEWAL.decode(self._call_blocking(limit, "renew", *args))


def off_the_loop(work: Callable[[], T]) -> T:
    """Here, unless this thread runs an event loop: two cannot run in one, and then a thread is lent."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    outcome: list[Callable[[], T]] = []

    def run() -> None:
        try:
            answer = work()
            outcome.append(lambda: answer)
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
            outcome.append(_raiser(error))

    thread = threading.Thread(target=run, name="holdfast-aside", daemon=True)
    thread.start()
    thread.join()
    return outcome[0]()


def _raiser(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again
