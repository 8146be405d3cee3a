"""Renewal of leases on its own session, run by the calling thread: a blocked event loop cannot delay it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.errors import Unavailable
from holdfast.records import Lease, Renewal
from holdfast.stores.blocking_calls import RENEWAL_SECONDS_MAX, outside_loop, renewal_seconds
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import COLLISIONS, DRIVER, error_parts, is_session_lost, translated
from holdfast.stores.postgres.verbs.calls import Calls, json_text

from .pool import PLANS_SECONDS, SLOW_SECONDS
from .session import FRESH_PLANS, Session, connected, disown

_RENEWAL = msgspec.json.Decoder(Renewal)


class Renewer:
    """One session on a private event loop, which runs only during a call."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Session | None = None

    def call(self, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float) -> Any:
        """Return the answer to one statement. Blocks for at most `limit_seconds`."""
        return outside_loop(lambda: self._call(sql, args, column, limit_seconds))

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
                return await self._with_retry(sql, args, column)
        except TimeoutError:
            self._drop()
            await asyncio.sleep(0)
            raise Unavailable(
                f"{self._address.shown}: it has not answered within {limit_seconds:g} s"
            ) from None

    async def _with_retry(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        """Send, and replace a lost session: it is idle most of the time, and may have been lost long ago."""
        for last in (False, False, True):
            try:
                return await self._send(sql, args, column)
            except TimeoutError:
                raise
            except DRIVER as error:
                gone = is_session_lost(error)
                if gone:
                    self._drop()
                if last or not (gone or error_parts(error)[0] in COLLISIONS):
                    raise translated(error, self._address.shown) from error
        raise AssertionError

    async def _send(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        now = asyncio.get_running_loop().time
        if self._session is None or self._session.is_closed():
            self._session = await connected(self._address)
        session, began = self._session, now()
        answer = await session.fetchval(sql, *args, column=column)
        if now() - session.planned_at > PLANS_SECONDS or now() - began > SLOW_SECONDS:
            session.planned_at = now()
            with suppress(*DRIVER):
                await session.execute(FRESH_PLANS)
        return answer

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def close(self) -> None:
        """Close the session. A second close does nothing; the next call connects again."""
        outside_loop(self._close)

    def _close(self) -> None:
        if not self._turn.acquire(timeout=RENEWAL_SECONDS_MAX):
            return  # a renewal without an answer ends by its own limit, and its session with the process
        try:
            loop, session, self._loop, self._session = self._loop, self._session, None, None
            if loop is not None:
                if session is not None:
                    loop.run_until_complete(session.leave())
                loop.close()
        finally:
            self._turn.release()

    def disown(self) -> None:
        """Leave the parent's session alone, in a child."""
        if self._session is not None:
            disown(self._session)


class RenewalVerb(Calls):
    """The verb `renew`."""

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        args = (worker, json_text(leases), float(lease_seconds))
        return _RENEWAL.decode(self._call_blocking(renewal_seconds(lease_seconds), "renew", *args))
