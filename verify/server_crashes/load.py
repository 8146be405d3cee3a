"""The load of serve-kill, in a process of its own: clients that start, read and follow runs, and note it.

Every client repeats a request whose connection broke, with the same keys, until it is answered.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from verify.environment.processes import die_with_parent

from .client import BrokenConnection, HttpClient, RefusedStream

TYPE = "verify.served.v1"
STARTERS, BATCHERS, READERS, FOLLOWERS, ALL_FOLLOWERS = 4, 1, 2, 4, 2
BATCH = 5
PAUSE_SECONDS = 0.02  # between two requests of a client
AGAIN_SECONDS = 0.02  # until a client asks again after a broken connection
REPEATED = 0.1  # share of starts that are repeated although they were answered
END_SECONDS = 60.0  # for followers to see the end, after the last start


@dataclass
class Seen:
    """Answers that the clients got. They are sent to the experiment at the end."""

    ids: dict[str, set[str]] = field(default_factory=dict)  # the ids that were answered for each key
    created: dict[str, int] = field(default_factory=dict)  # how often a key's run was said to be new
    repeated: int = 0  # starts whose connection broke, until they were answered
    found: int = 0  # of these, the start had been recorded before the connection broke
    reads: int = 0
    broken: list[float] = field(default_factory=list)  # when connections broke, by time.monotonic()
    wrong: list[str] = field(default_factory=list)
    runs: dict[str, list[int]] = field(default_factory=dict)  # the numbers of events of each followed run
    ends: dict[str, str] = field(default_factory=dict)
    all_events: list[list[int]] = field(default_factory=list)  # for each follower of all runs
    reconnects: int = 0


class Load:
    """The clients."""

    def __init__(self, port: int, key: str, seed: int) -> None:
        self.seen, self._port, self._key, self._seed = Seen(), port, key, seed
        self._stopping = asyncio.Event()
        self._to_follow: deque[str] = deque()
        self._acked: list[str] = []
        self._is_drained = False

    async def run(self, until: Callable[[], Awaitable[int]]) -> Seen:
        """Run until told to stop; `until` returns the last seq that followers of all runs must see."""
        clients = [
            *(self._start(n) for n in range(STARTERS)),
            *(self._start_many(n) for n in range(BATCHERS)),
            *(self._read(n) for n in range(READERS)),
            *(self._follow() for _ in range(FOLLOWERS)),
        ]
        self.seen.all_events = [[] for _ in range(ALL_FOLLOWERS)]
        tasks = [asyncio.create_task(one) for one in clients]
        every = [asyncio.create_task(self._follow_all(rows)) for rows in self.seen.all_events]
        last = await until()
        async with asyncio.timeout(END_SECONDS):
            await asyncio.gather(*tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while not all(rows and rows[-1] >= last for rows in self.seen.all_events):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for task in every:
            task.cancel()
        await asyncio.gather(*every, return_exceptions=True)
        return self.seen

    def stop(self) -> None:
        """Start no more."""
        self._stopping.set()

    async def _asked(
        self, client: HttpClient, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[Any, int]:
        """Ask until there is an answer; return it, and how often the connection broke. None: refused."""
        broke = 0
        while True:
            try:
                answer = await client.ask(method, path, body, **headers)
            except BrokenConnection:
                broke += 1
                self.seen.broken.append(time.monotonic())
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if answer.status < 300:
                return answer.body, broke
            self.seen.wrong.append(f"{method} {path}: {answer.status} {answer.body}")
            return None, broke

    def _note(self, key: str, started: dict[str, Any] | None, broke: int) -> None:
        if started is None:
            return
        self.seen.ids.setdefault(key, set()).add(started["id"])
        self.seen.created[key] = self.seen.created.get(key, 0) + started["created"]
        self.seen.repeated += bool(broke)
        self.seen.found += bool(broke) and not started["created"]
        self._acked.append(started["id"])

    async def _start(self, number: int) -> None:
        client, dice, n = HttpClient(self._port, self._key), random.Random(f"{self._seed} {number}"), 0
        while not self._stopping.is_set():
            n += 1
            key, body = f"starter {number} {n}", {"type": TYPE, "params": {"n": n}}
            started, broke = await self._asked(client, "POST", "/runs", body, idempotency_key=key)
            self._note(key, started, broke)
            if started is not None and len(self._to_follow) < FOLLOWERS:
                self._to_follow.append(started["id"])
            if dice.random() < REPEATED:
                started, _ = await self._asked(client, "POST", "/runs", body, idempotency_key=key)
                self._note(key, started, 0)
            await asyncio.sleep(PAUSE_SECONDS)
        client.close()

    async def _start_many(self, number: int) -> None:
        client, n = HttpClient(self._port, self._key), 0
        while not self._stopping.is_set():
            n += 1
            keys = [f"batch {number} {n} {item}" for item in range(BATCH)]
            body = {"starts": [{"type": TYPE, "params": {"n": n}, "key": key} for key in keys]}
            answer, broke = await self._asked(client, "POST", "/runs/batch", body)
            for key, item in zip(keys, answer["items"] if answer else (), strict=bool(answer)):
                if "run" in item:
                    self._note(key, item["run"], broke)
                else:
                    self.seen.wrong.append(f"batch: {item}")
            await asyncio.sleep(BATCH * PAUSE_SECONDS)
        client.close()

    async def _read(self, number: int) -> None:
        client, dice = HttpClient(self._port, self._key), random.Random(f"{self._seed} read {number}")
        while not self._stopping.is_set():
            if self._acked:
                run = dice.choice(self._acked[-200:])
                answer, _ = await self._asked(client, "GET", f"/runs/{run}")
                self.seen.reads += 1
                if answer is not None and answer["id"] != run:
                    self.seen.wrong.append(f"GET /runs/{run} gave {answer['id']}")
            await asyncio.sleep(PAUSE_SECONDS)
        client.close()

    async def _follow(self) -> None:
        """Follow one run after the other, each from its first event to its end."""
        client = HttpClient(self._port, self._key)
        while self._to_follow or not self._stopping.is_set():
            if not self._to_follow:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            run = self._to_follow.popleft()
            rows = self.seen.runs.setdefault(run, [])
            while run not in self.seen.ends:
                try:
                    async for event in client.events(f"/runs/{run}/events", rows[-1] if rows else None):
                        if event.name == "end":
                            self.seen.ends[run] = event.data["status"]
                        else:
                            rows.append(int(event.id))
                    # 204: the run has ended, and the event `end` was lost with the connection.
                    self.seen.ends.setdefault(run, "204")
                except RefusedStream as error:
                    self.seen.wrong.append(str(error))
                    self.seen.ends[run] = "refused"
                except BrokenConnection:
                    await self._reconnected()

    async def _follow_all(self, rows: list[int]) -> None:
        client = HttpClient(self._port, self._key)
        while True:
            try:
                async for event in client.events("/events?after=0", rows[-1] if rows else None):
                    rows.append(int(event.id))  # noqa: PERF401 - the stream may break
            except BrokenConnection:
                pass
            await self._reconnected()

    async def _reconnected(self) -> None:
        self.seen.reconnects += 1
        self.seen.broken.append(time.monotonic())
        await asyncio.sleep(AGAIN_SECONDS)


def clients(port: int, key: str, seed: int, pipe: Any) -> None:
    """Run the load: the process of the clients. It stops when the pipe has a word, and sends what it saw."""
    die_with_parent()

    async def run() -> Seen:
        load, loop = Load(port, key, seed), asyncio.get_running_loop()

        async def until() -> int:
            await loop.run_in_executor(None, pipe.recv)
            load.stop()
            last: int = await loop.run_in_executor(None, pipe.recv)
            return last

        return await load.run(until)

    pipe.send(asyncio.run(run()))
