"""Listeners: wake-ups when there may be news. They are never trusted and never required: a caller that
listens polls too.

Each event loop with a listener has one session for LISTEN. The session is asked for a sign of life, because a
dead session looks like one on which nothing happens. A worker looks for work now and then: its look goes over
this session, and its answer is the sign of life, so that an idle worker asks no more than that. After each
connect all listeners are called once: something may have happened while nobody listened. They are also called
when the session is lost, because they have to look more often from then on.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import DRIVER, is_session_lost, translated

from .session import Session, close_without_loop, connected, disown

log = safe_logger("holdfast.postgres")

ALIVE_SECONDS, ALIVE_LIMIT_SECONDS = 45.0, 5.0  # longer than an idle worker sleeps: its looks come first
SILENT_SECONDS = 5.0  # a session that was heard of since then needs no further sign of life
LINGER_SECONDS = 30.0  # a client that waits for one result after the other listens again and again
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0

LEASES = "leases"  # the payload of a wake-up after a move of a leased run by somebody other than its holder

Hint = Callable[[], None]

# Without LISTEN, listeners in this process are at least told of its own calls.
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
        "import_runs",
        "import_events",
        "relocate",
    }
    | {"append_step", "resume_key", "unlimit", "fire_schedule", "expire"}
)


_CALLS = frozenset({"cancel", "pause", "resume", "rewind", "delete", "relocate"})


def may_call_holders(verb: str) -> bool:
    """Return True when the verb may move a leased run, for listeners that do not LISTEN."""
    return verb in _CALLS


def brings_news(verb: str, args: tuple[Any, ...]) -> bool:
    """Return True when somebody may have work now. A commit says so itself, by an argument."""
    return verb in _NEWS or (verb in {"commit", "commit_again"} and any(arg is True for arg in args))


class Listeners:
    """The listeners of all event loops."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._changing = threading.Lock()  # listeners come and go on several event loops
        self._listeners: dict[asyncio.AbstractEventLoop, Listener] = {}

    def listen(self, hint: Hint, holders: Hint | None = None) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news, and `holders` when a leased run may have
        been moved. Return the function that ends it."""
        loop = asyncio.get_running_loop()
        with self._changing:
            self._forget_ended()
            listener = self._listeners.get(loop)
            if listener is None:
                listener = self._listeners[loop] = Listener(self._address, loop)
        return listener.listen(hint, holders)

    def _forget_ended(self) -> None:
        for loop in [loop for loop in self._listeners if loop.is_closed()]:
            self._listeners.pop(loop).close_without_loop()

    def notify(self, *, holders: bool = False) -> None:
        """Call all listeners, on every loop: this process has made news."""
        with self._changing:
            listeners = list(self._listeners.items())
        for loop, listener in listeners:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(partial(listener.notify, holders=holders))

    async def close(self) -> None:
        with self._changing:
            listeners, self._listeners = self._listeners, {}
        mine = listeners.pop(asyncio.get_running_loop(), None)
        for loop, listener in listeners.items():
            try:
                loop.call_soon_threadsafe(listener.stop)
            except RuntimeError:  # the loop has ended
                listener.close_without_loop()
        if mine is not None:  # last: the caller may give up meanwhile
            await mine.end()

    def disown(self) -> None:
        """Leave the parent's sessions alone, in a child."""
        for listener in self._listeners.values():
            listener.disown()

    async def ask(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        """Return the answer to a statement, from the session of this event loop that listens, if it needs a
        sign of life; None when it was not asked.
        """
        listener = self._listeners.get(asyncio.get_running_loop())
        return None if listener is None else await listener.ask(sql, args, column)

    @property
    def hears(self) -> bool:
        """True when wake-ups reach the listeners of this event loop."""
        listener = self._listeners.get(asyncio.get_running_loop())
        return listener is not None and listener.is_listening

    @property
    def all_listening(self) -> bool:
        """True when wake-ups reach all listeners now."""
        return all(listener.is_listening for listener in self._listeners.values())


class Listener:
    """The session of one event loop, while it has listeners and for a while after."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address, self._loop = address, loop
        self._hints: list[tuple[Hint, Hint | None]] = []
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._rung = self._rung_holders = False
        self._ending: asyncio.TimerHandle | None = None
        self._is_down = self._asking = False
        self._alive_at = 0.0
        self.is_listening = False

    def listen(self, hint: Hint, holders: Hint | None = None) -> Callable[[], None]:
        # The same hint may be given twice: each is an entry of its own, told apart by identity.
        entry = ((lambda: hint()), holders)  # noqa: PLW0108
        self._hints.append(entry)
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._task is None and self._address.listen:
            self._task = self._loop.create_task(self._listen_forever(), name="holdfast-listen")

        def end() -> None:
            if entry in self._hints:
                self._hints.remove(entry)
                if not self._hints and self._task is not None and not self._loop.is_closed():
                    self._ending = self._loop.call_later(LINGER_SECONDS, self.stop)

        return end

    def notify(self, *, holders: bool = False) -> None:
        """Call the listeners, once in a turn of the loop, however many commits there were."""
        self._rung_holders |= holders
        if not self._rung:
            self._rung = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        called, self._rung, self._rung_holders = self._rung_holders, False, False
        for hint, holders in tuple(self._hints):
            hint()
            if called and holders is not None:
                holders()

    async def _listen_forever(self) -> None:
        pause = PAUSE_SECONDS
        while True:
            try:
                await self._listen_once()
            except (*DRIVER, StoreError) as error:
                if self.is_listening:
                    pause, self.is_listening = PAUSE_SECONDS, False
                    self.notify()
                self._report(error)
            finally:
                self._cut()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _listen_once(self) -> None:
        """Listen until the session is lost."""
        self._session = session = await connected(self._address)
        gone = asyncio.Event()
        session.add_termination_listener(lambda _: gone.set())
        async with asyncio.timeout(ALIVE_LIMIT_SECONDS):
            await session.add_listener(self._address.channel, self._heard)
        self.is_listening, self._alive_at = True, self._loop.time()
        if self._is_down:
            self._is_down = False
            log.info("%s: wake-ups come again", self._address.shown)
        self.notify(holders=True)
        while True:
            try:
                async with asyncio.timeout(
                    max(self._alive_at + ALIVE_SECONDS - self._loop.time(), PAUSE_SECONDS)
                ):
                    await gone.wait()
                raise ConnectionResetError("the server has closed the connection")
            except TimeoutError:
                if not self._asking and self._is_silent(ALIVE_SECONDS):
                    self._asking = True
                    try:
                        await session.execute("select 1", timeout=ALIVE_LIMIT_SECONDS)
                    finally:
                        self._asking = False
                    self._alive_at = self._loop.time()

    def _is_silent(self, seconds: float) -> bool:
        return self._loop.time() - self._alive_at >= seconds

    async def ask(self, sql: str, args: tuple[Any, ...], column: int) -> Any:
        """Return the answer to a statement, if the session needs a sign of life; None when it was not asked,
        or has refused or lost it: then the caller asks elsewhere.
        """
        session = self._session
        if session is None or not self.is_listening or self._asking or not self._is_silent(SILENT_SECONDS):
            return None
        self._asking = True
        try:
            answer = await session.fetchval(sql, *args, column=column, timeout=ALIVE_LIMIT_SECONDS)
        except DRIVER as error:
            if isinstance(error, TimeoutError) or is_session_lost(error):
                session.abandon()  # the task that listens notices it
            return None
        except BaseException:
            session.abandon()  # the driver is still busy with it
            raise
        finally:
            self._asking = False
        self._alive_at = self._loop.time()
        return answer

    def _heard(self, *said: Any) -> None:
        self.notify(holders=said[-1] == LEASES)

    def _report(self, error: BaseException) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("no wake-ups for now, polling goes on: %s", translated(error, self._address.shown))

    def _cut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def stop(self) -> None:
        """End the session. Call this on its own loop."""
        self._ending, self.is_listening = None, False
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
            await asyncio.sleep(0)  # otherwise the transport of the closed session would outlive its loop

    def close_without_loop(self) -> None:
        """Close the session after its loop has ended."""
        self._hints.clear()
        if self._session is not None:
            close_without_loop(self._session)

    def disown(self) -> None:
        if self._session is not None:
            disown(self._session)
