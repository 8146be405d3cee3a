"""Redis in virtual time: a play stands still while the server answers, so each play runs the same way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import Context
from typing import Any

from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.address import Address
from holdfast.stores.redis.connections import Connections
from holdfast.stores.redis.snapshot import Snapshot
from verify.environment.stores import namespace

ANSWER_SECONDS = 60.0
Listener = tuple[asyncio.AbstractEventLoop, Callable[[], None], Callable[[], None] | None]
NEWS = frozenset(
    {"hold", "start"}
)  # scripts after which there may be work; `save` is asked what it has changed


class Sessions:
    """An event loop in a thread for the connections of all plays."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="verify-sessions")
        self._thread.start()

    def ask(self, work: Any) -> Any:
        """Wait for an answer of the server: nothing else runs meanwhile, and no virtual time passes."""
        # In an empty context: the caller may have crashed before the answer is there.
        return Context().run(asyncio.run_coroutine_threadsafe, work, self.loop).result(ANSWER_SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class VirtualConnections(Connections):
    """Connections whose answers take no virtual time. `on_trip` is called after each answer of a script."""

    def __init__(self, address: Address, sessions: Sessions, news: Callable[[], None]) -> None:
        super().__init__(address)
        self._sessions, self._news = sessions, news
        self.on_trip: Callable[[str], None] | None = None

    async def _call(self, commands: Sequence[Any], *, scripts: int = 0) -> list[Any]:
        await asyncio.sleep(0)  # other tasks get a turn, as with any server
        answers: list[Any] = self._sessions.ask(super()._call(commands, scripts=scripts))
        return answers

    async def run_all(self, name: str, calls: Sequence[Any]) -> list[Any]:
        answers = await super().run_all(name, calls)
        if name in NEWS:
            self._news()
        if self.on_trip is not None:
            self.on_trip(name)
            await asyncio.sleep(0)  # does not return in a crashed process
        return answers

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        with self._changing:
            pools, self._pools = self._pools, {}
        self.is_open = False
        for pool in pools.values():
            self._sessions.ask(pool.close())


class VirtualRedisStore(RedisStore):
    """A store for one play. It has no subscription, which would wait in real time: it calls its own
    listeners."""

    def __init__(self, url: str, sessions: Sessions, clock: Callable[[], int]) -> None:
        super().__init__(url, clock)
        self._connections: VirtualConnections = VirtualConnections(self.address, sessions, self._notify)
        self._hints: dict[object, Listener] = {}

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        token = object()
        self._hints[token] = asyncio.get_running_loop(), hint, holders

        def end() -> None:
            self._hints.pop(token, None)

        return end

    def hears(self) -> bool:
        return True

    @property
    def on_trip(self) -> Callable[[str], None] | None:
        """The function that is called after each answer of a script: a verb may run several."""
        return self._connections.on_trip

    @on_trip.setter
    def on_trip(self, on_trip: Callable[[str], None] | None) -> None:
        self._connections.on_trip = on_trip

    def end(self) -> None:
        """Close the store after a play that has not closed it."""
        self._end_renewals()
        self._connections.end()

    async def _save(self, snapshot: Snapshot) -> list[int]:
        answer = await super()._save(snapshot)
        if any(answer) and (snapshot.is_news or snapshot.calls_holders):
            self._notify(calls_holders=snapshot.calls_holders)
        return answer

    def _notify(self, *, calls_holders: bool = False) -> None:
        """Call the listeners, on their loops: a renewal saves on a loop of its own."""
        for loop, hint, holders in tuple(self._hints.values()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(hint)
                if calls_holders and holders is not None:
                    loop.call_soon_threadsafe(holders)


class VirtualRedis:
    """The maker of stores for plays, one at a time. Each play has a namespace of its own."""

    def __init__(self) -> None:
        self._sessions = Sessions()
        self._store: VirtualRedisStore | None = None
        self._namespace = ExitStack()

    def __call__(self, clock: Callable[[], int]) -> VirtualRedisStore:
        self._end()
        clock()  # binds the clock to the event loop of the play, not to the loop of the sessions
        url = self._namespace.enter_context(namespace())
        self._store = VirtualRedisStore(url, self._sessions, clock)
        return self._store

    def _end(self) -> None:
        if self._store is not None:
            self._store.end()
            self._store = None
        self._namespace.close()

    def close(self) -> None:
        self._end()
        self._sessions.close()
