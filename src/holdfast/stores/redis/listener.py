"""Wake-ups: a connection for each event loop that listens to the channel of the namespace.

A listener is believed while it is alive: it is asked for a sign of life again and again. One that does not
answer is replaced. In a cluster, a message reaches all nodes, so any node will do.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - the driver's

from holdfast.errors import StoreError
from holdfast.escaping import safe_logger

from .address import Address
from .errors import DRIVER, translated
from .link import Link, packed
from .names import Names
from .nodes import Nodes

Hint = Callable[[], None]
AGAIN_SECONDS, AGAIN_MAX_SECONDS = 0.1, 5.0  # between two tries to connect, doubled each time
ALIVE_SECONDS = 5.0  # so often a silent server is asked for a sign of life
ALIVE_LIMIT_SECONDS = 5.0  # the time that it has for it
_PING = packed([("PING",)])
_inherited: list[object] = []  # listeners of the parent process: to close them here would disturb it

log = safe_logger("holdfast.redis")


class Listeners:
    """All listeners of one store, by event loop."""

    def __init__(self, address: Address, nodes: Nodes | None = None) -> None:
        self._address, self._nodes = address, nodes or Nodes(address)
        self._listeners: dict[asyncio.AbstractEventLoop, Listener] = {}
        self._pid = os.getpid()
        self.alive_seconds, self.alive_limit_seconds = ALIVE_SECONDS, ALIVE_LIMIT_SECONDS

    def listen(self, hint: Hint, holders: Hint | None = None) -> Hint:
        """Call `hint` when there may be news. Return the function that ends it."""
        if self._pid != os.getpid():
            _inherited.append(self._listeners)
            self._listeners, self._pid = {}, os.getpid()
        loop = asyncio.get_running_loop()
        listener = self._listeners.get(loop)
        if listener is None:
            self._listeners = {one: of for one, of in self._listeners.items() if not one.is_closed()}
            listener = Listener(
                self._address, self._nodes, loop, self.alive_seconds, self.alive_limit_seconds
            )
            self._listeners[loop] = listener
        return listener.listen(hint, holders)

    @property
    def hears(self) -> bool:
        """True while hints reach the listeners of this event loop."""
        listener = self._listeners.get(asyncio.get_running_loop())
        return listener is not None and listener.hears

    async def close(self) -> None:
        listeners, self._listeners = self._listeners, {}
        mine = listeners.pop(asyncio.get_running_loop(), None)
        for loop, listener in listeners.items():
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(listener.stop)
        if mine is not None:
            await mine.end()


class Listener:
    """The connection of one event loop, while it has listeners."""

    def __init__(
        self,
        address: Address,
        nodes: Nodes,
        loop: asyncio.AbstractEventLoop,
        alive_seconds: float,
        limit_seconds: float,
    ) -> None:
        self._address, self._nodes, self._loop = address, nodes, loop
        self._alive_seconds, self._limit_seconds = alive_seconds, limit_seconds
        self._channel = Names(address.prefix).channel
        self._hints: dict[object, tuple[Hint, Hint | None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_confirmed = self._is_down = self._is_unused = False
        self._alive_at = 0.0
        self._heard = asyncio.Event()  # set by every message, and at the end of the connection
        self._is_news = self._is_holders = False

    def listen(self, hint: Hint, holders: Hint | None) -> Hint:
        token = object()
        self._hints[token] = hint, holders
        if self._task is None or self._task.done():
            self._begin()

        def end() -> None:
            self._hints.pop(token, None)
            if not self._hints and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop_unused)

        return end

    def _begin(self) -> None:
        self._is_unused = False
        self._task = self._loop.create_task(self._listen_forever(), name="holdfast-listen")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Listen again, if somebody came while the connection was being closed because nobody listened."""
        if self._is_unused and self._hints and task is self._task:
            self._begin()

    @property
    def hears(self) -> bool:
        """True when the subscription is confirmed, and the server has shown lately that it is alive."""
        silent = self._loop.time() - self._alive_at
        return self._is_confirmed and silent < self._alive_seconds + self._limit_seconds

    def stop(self) -> None:
        self._hints.clear()
        if self._task is not None:
            self._task.cancel()

    def _stop_unused(self) -> None:
        if not self._hints:
            self._is_unused = True
            self.stop()

    async def end(self) -> None:
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _listen_forever(self) -> None:
        pause = AGAIN_SECONDS
        while True:
            try:
                await self._listen_once()
            except (*DRIVER, StoreError) as error:
                if self._is_confirmed:
                    pause = AGAIN_SECONDS
                self._report(error)
            finally:
                if self._is_confirmed:
                    self._is_confirmed = False
                    self._notify(holders=False)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause = min(2 * pause, AGAIN_MAX_SECONDS)

    async def _listen_once(self) -> None:
        """Listen until the connection is lost, or the server gives no sign of life."""
        async with asyncio.timeout(self._limit_seconds):
            link = await self._nodes.connected()
        link.heard = self._hear
        try:
            link.tell(packed([("SUBSCRIBE", self._channel)]))
            await self._sign(link, self._limit_seconds)
            while True:
                try:
                    await self._sign(link, self._alive_seconds)
                except TimeoutError:
                    link.tell(_PING)
                    await self._sign(link, self._limit_seconds)
        finally:
            link.heard = None
            link.close()

    async def _sign(self, link: Link, seconds: float) -> None:
        """Wait for the next message."""
        self._heard.clear()
        async with asyncio.timeout(seconds):
            await self._heard.wait()
        if link.is_over:
            raise ConnectionError("the server has closed the connection")

    def _hear(self, message: Any) -> None:
        """Take a message of the server; None: the connection is over."""
        self._heard.set()
        if isinstance(message, ResponseError):
            self._report(message)  # such as: not allowed to listen
            return
        if message is None:
            return
        self._alive_at = self._loop.time()
        match message:
            case ["subscribe", *_]:
                self._is_confirmed = True
                if self._is_down:
                    self._is_down = False
                    log.info("%s: wake-ups come again", self._address.shown)
                self._notify(holders=True)  # something may have been missed
            case ["message", _, word]:
                self._notify(holders=word == "holders")
            case _:  # a sign of life
                pass

    def _notify(self, *, holders: bool) -> None:
        """Call the listeners, once in a turn of the loop, however many messages there were."""
        self._is_holders |= holders
        if not self._is_news:
            self._is_news = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        is_holders, self._is_news, self._is_holders = self._is_holders, False, False
        for hint, holders in tuple(self._hints.values()):
            hint()
            if is_holders and holders is not None:
                holders()

    def _report(self, error: BaseException) -> None:
        if not self._is_down:
            self._is_down = True
            said = error if isinstance(error, StoreError) else translated(error, self._address.shown)
            log.warning("%s; polls find work until wake-ups come again", said)
