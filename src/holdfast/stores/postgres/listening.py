"""Hints that there may be news. Never trusted, never needed: who listens polls as well.

One session for each event loop on which somebody listens, with LISTEN and nothing else. It is asked for a
sign of life, for a link that died in silence looks like one on which nothing happens. Whenever it is
made, all who listen are called once: something may have come while nobody heard it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.errors import StoreError
from holdfast.escaping import safe_logger

from .address import Address
from .errors import DRIVER, translated
from .links import Link, bury, connected, disown

log = safe_logger("holdfast.postgres")

ALIVE_SECONDS, ALIVE_LIMIT_SECONDS = 5.0, 5.0
LINGER_SECONDS = 30.0  # a client that waits for one result after the other listens again and again
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0

Hint = Callable[[], None]

# Where no session can listen, whoever listens in this process is told at least of what it does itself.
_NEWS = frozenset(
    {
        "start",
        "start_together",
        "emit_at_once",
        "deliver_event",
        "deliver",
        "decide",
        "resume",
        "rewind",
        "retry_run",
        "restore",
    }
    | {"append_step", "resume_key", "unlimit", "fire_schedule", "expire"}
)


def brings_news(verb: str, args: tuple[Any, ...]) -> bool:
    """Whether someone may have work now. A commit says so itself, by its last argument."""
    return verb in _NEWS or (verb in {"commit", "commit_again"} and any(arg is True for arg in args))


class Ears:
    """Who listens, on which event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._changing = threading.Lock()  # listeners come and go on several event loops
        self._ears: dict[asyncio.AbstractEventLoop, Ear] = {}

    def listen(self, hint: Hint) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news; the answer ends it."""
        loop = asyncio.get_running_loop()
        with self._changing:
            self._forget_ended()
            ear = self._ears.get(loop)
            if ear is None:
                ear = self._ears[loop] = Ear(self._address, loop)
        return ear.listen(hint)

    def _forget_ended(self) -> None:
        for loop in [loop for loop in self._ears if loop.is_closed()]:
            self._ears.pop(loop).bury()

    def ring(self) -> None:
        """There is news, from this process: for all who listen, on whatever loop."""
        with self._changing:
            ears = list(self._ears.items())
        for loop, ear in ears:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(ear.ring)

    async def close(self) -> None:
        with self._changing:
            ears, self._ears = self._ears, {}
        for loop, ear in ears.items():
            if loop is asyncio.get_running_loop():
                await ear.end()
            elif loop.is_closed():
                ear.bury()
            else:
                loop.call_soon_threadsafe(ear.stop)

    def disown(self) -> None:
        """In a child: they are the parent's."""
        for ear in self._ears.values():
            ear.disown()

    @property
    def heard(self) -> bool:
        """Whether hints would come now to all who listen."""
        return all(ear.hears for ear in self._ears.values())


class Ear:
    """The session of one event loop, while somebody listens there and for a while after."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address, self._loop = address, loop
        self._hints: list[Hint] = []
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._rung = False
        self._ending: asyncio.TimerHandle | None = None
        self._is_down = False
        self.hears = False

    def listen(self, hint: Hint) -> Callable[[], None]:
        # The same hint may be given twice: each is an entry of its own, told apart by identity.
        entry = lambda: hint()  # noqa: E731, PLW0108
        self._hints.append(entry)
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._task is None and self._address.listen:
            self._task = self._loop.create_task(self._hear(), name="holdfast-listen")

        def end() -> None:
            if entry in self._hints:
                self._hints.remove(entry)
                if not self._hints and self._task is not None and not self._loop.is_closed():
                    self._ending = self._loop.call_later(LINGER_SECONDS, self.stop)

        return end

    def ring(self) -> None:
        """Once a turn of the loop, however many commits there were."""
        if not self._rung:
            self._rung = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._rung = False
        for hint in tuple(self._hints):
            hint()

    async def _hear(self) -> None:
        pause = PAUSE_SECONDS
        while True:
            try:
                await self._hear_once()
            except (*DRIVER, StoreError) as error:
                if self.hears:
                    pause = PAUSE_SECONDS
                self.hears = False
                self._complain(error)
            finally:
                self._cut()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _hear_once(self) -> None:
        """Until the link is lost."""
        self._link = link = await connected(self._address)
        gone = asyncio.Event()
        link.add_termination_listener(lambda _: gone.set())
        async with asyncio.timeout(ALIVE_LIMIT_SECONDS):
            await link.add_listener(self._address.channel, lambda *_: self.ring())
        self.hears = True
        if self._is_down:
            self._is_down = False
            log.info("%s: hints come again", self._address.shown)
        self.ring()
        while True:
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await gone.wait()
                raise ConnectionResetError("the server has closed the connection")
            except TimeoutError:
                await link.execute("select 1", timeout=ALIVE_LIMIT_SECONDS)

    def _complain(self, error: BaseException) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("no hints for now, polling goes on: %s", translated(error, self._address.shown))

    def _cut(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abandon()

    def stop(self) -> None:
        """On its own loop."""
        self._ending, self.hears = None, False
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def end(self) -> None:
        task = self._task
        self._hints.clear()
        if self._ending is not None:
            self._ending.cancel()
        self.stop()
        if task is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)  # or the transport of what was cut would outlive its loop

    def bury(self) -> None:
        """Its loop has ended."""
        self._hints.clear()
        if self._link is not None:
            bury(self._link)

    def disown(self) -> None:
        if self._link is not None:
            disown(self._link)
