"""One request of the worker protocol and its answer, awaited or blocking.

A request is sent once, and once more at once if its connection broke: a kept connection may have been closed
long ago. Everything else is left to the engine, which repeats its calls: after `Unavailable` nobody knows
whether the request was carried out, and the same one again is safe. What a proxy answers in place of the
server is `Unavailable` too: no result may be dropped because of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client.refusals import Asked, Problem
from holdfast.client.transport import CONNECT_SECONDS, Lost, Request, Transport, lost_by
from holdfast.errors import HoldfastError, StoreError, Unavailable
from holdfast.http.problems import Code

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

REQUEST_SECONDS = 30.0  # time limit of a request, without the wait of a long poll
PAUSE_SECONDS = 2.0  # the longest pause that an answer may ask for
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})  # the same request again may help


class Broken(Unavailable):
    """The connection broke before the answer had come."""


class Gone(HoldfastError):
    """The lease of the request has ended."""

    def __init__(self, said: str, *, is_cancelled: bool) -> None:
        super().__init__(said)
        self.is_cancelled = is_cancelled


class Link:
    """The requests of workers to one server. `tenant`: the query that names the tenants of this worker."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.tenant: str | None = None
        self._blocking: dict[int, httpx2.Client] = {}  # connections by thread: a renewal waits for nobody
        self._closing = threading.Lock()

    async def ask(
        self,
        operation: str,
        body: Any,
        answer: type[T],
        *,
        wait: float = 0.0,
        tenant: str | None = None,
        again: bool = True,
    ) -> T:
        """Send a request and return its answer. wait: how long the server may wait before it answers.
        again: send it once more if its connection breaks; else Broken.
        """
        request = self._request(operation, body, tenant)
        until = self.transport.world.monotonic() + REQUEST_SECONDS + wait
        try:
            status, text = await self.transport.sent(request, until, long=wait > 0)
        except Lost as lost:
            if not again and self.transport.world.monotonic() < until:
                raise Broken(str(self.transport.unreachable(str(lost)))) from None
            status, text = await self._again(request, until, wait, lost)
        if 200 <= status < 300:
            return self._read(text, answer)
        problem = self._problem(status, text)
        if pause := _pause(status, problem):
            await asyncio.sleep(pause)
        raise self._error(status, problem, request.asked)

    async def _again(self, request: Request, until: float, wait: float, lost: Lost) -> tuple[int, bytes]:
        if self.transport.world.monotonic() >= until:
            raise self.transport.unreachable(str(lost)) from None
        try:
            return await self.transport.sent(request, until, long=wait > 0)
        except Lost as still:
            raise self.transport.unreachable(str(still)) from None

    def ask_blocking(self, operation: str, body: Any, answer: type[T], limit_seconds: float) -> T:
        """Send a request from a thread of its own, and return its answer. All tries share the limit."""
        request, clock = self._request(operation, body, None), time.monotonic
        until = clock() + limit_seconds
        client = self._blocking_client()
        pause = 0.0
        while True:
            left = max(0.001, until - clock())
            try:
                with lost_by(long=False):
                    response = client.post(
                        request.url,
                        content=request.body,
                        headers={"content-type": "application/json"},
                        timeout=min(left, CONNECT_SECONDS),
                    )
            except Lost as lost:
                if clock() + pause >= until:
                    raise self.transport.unreachable(str(lost)) from None
                time.sleep(pause)
                pause = min(2 * pause, 1.0) or 0.05
                continue
            if response.is_success:
                return self._read(response.content, answer)
            problem = self._problem(response.status_code, response.content)
            raise self._error(response.status_code, problem, request.asked)

    def _request(self, operation: str, body: Any, tenant: str | None) -> Request:
        named = self.tenant if tenant is None else tenant
        query = () if named is None else (("tenant", named),)
        return self.transport.request(operation, query=query, body=body)

    def _read(self, text: bytes, answer: type[T]) -> T:
        """Return the record of an answer. A page of a proxy is no answer."""
        try:
            return self.transport.read(text, answer)
        except StoreError as error:
            raise Unavailable(str(error)) from None

    def _problem(self, status: int, text: bytes) -> Problem:
        """Return the refusal. A page of a proxy, or a redirect, is no answer."""
        try:
            return self.transport.problem(status, text)
        except StoreError as error:
            raise Unavailable(str(error)) from None

    def _error(self, status: int, problem: Problem, asked: Asked) -> HoldfastError:
        """Return the error of a refusal. One whose code is not known here says nothing about the request."""
        if problem.code == Code.LEASE_LOST:
            return Gone(problem.detail, is_cancelled=problem.run_status == "cancelled")
        error = self.transport.refusal(problem, asked)
        says_nothing = status in TRANSIENT or isinstance(error, StoreError)
        return Unavailable(str(error)) if says_nothing and not isinstance(error, Unavailable) else error

    def _blocking_client(self) -> httpx2.Client:
        thread = threading.get_ident()
        found = self._blocking.get(thread)
        if found is None:
            found = self._blocking[thread] = self.transport.blocking()
        return found

    async def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        with self._closing:
            clients, self._blocking = self._blocking, {}
        for one in clients.values():
            one.close()
        await self.transport.close()


def _pause(status: int, problem: Problem) -> float:
    """Return how long a server that is full, or away, wants to be left alone."""
    asked = problem.retry_after_seconds if status in TRANSIENT else None
    return min(asked or 0.0, PAUSE_SECONDS)
