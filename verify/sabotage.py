"""Bugs that can be switched in. A check that passes with such a bug checks nothing.

Each bug is made from outside, in the memory of the process under test: the product has no switch for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from inspect import signature
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import ANY, Answer, Item, Parcel, RelayAsk, Relayed, Verdict
from holdfast.records.moves import Checkpoint
from holdfast.world import Pulse, RealWorld
from verify.environment.stores import is_redis

NO_FENCE, RENEW_ON_LOOP, BLIND_RESEND, TORN = "no-fence", "renew-on-loop", "blind-resend", "torn"
SPLIT_START, FORGETFUL, OPTIMIST = "split-start", "forgetful", "optimist"
HASTY, DEAF, LATE_SYNC = "hasty", "deaf", "late-sync"
RAW_TEXT, UNBOUNDED, UNASKED = "raw-text", "unbounded", "unasked"
CARELESS = "careless"
EARLY_ANSWER, LOST_PLACE = "early-answer", "lost-place"
OLD_EPOCH, UNGUARDED = "old-epoch", "unguarded"

SABOTAGES = {
    NO_FENCE: "the guard of every commit ignores the fence: any worker may write what another holds",
    RENEW_ON_LOOP: "leases are renewed on the event loop, which a step may block",
    BLIND_RESEND: "a commit whose reply was lost is sent again under a new number",
    TORN: "what a transaction writes is committed by itself, before its checkpoint",
    SPLIT_START: "a child is started in a commit of its own, before the row that names it",
    FORGETFUL: "only the process that ends a child tells its parent: a keeper's round does not",
    OPTIMIST: "a message counts as sent when it is taken, until its sink says no",
    HASTY: "a step counts as recorded before the store has it",
    DEAF: "a session that listens for hints is not made again when it was lost",
    LATE_SYNC: "the server answers a commit before it has written it down",
    UNBOUNDED: "a run may record as many bytes as it likes",
    UNASKED: "a worker begins steps without a look at its lease",
    CARELESS: "a wrong value in an HTTP request is an exception that nobody expects",
    EARLY_ANSWER: "the HTTP API answers a start before it is recorded",
    LOST_PLACE: "an event stream begins where it is now, whatever Last-Event-ID says",
    OLD_EPOCH: "a claim on Redis goes on from the stored fence, also after a failover",
    UNGUARDED: "a change on Redis is written, whatever others have changed since it was decided",
    RAW_TEXT: "the commands that list and show runs print stored text as it is",
}


LATE_SECONDS = 0.2  # delay of a commit that was answered before it was made
# Functions of Postgres, the guard of each, and the text that replaces the guard.
UNFENCED = (
    ("commit_checkpoints", "r.fence = i.fence", "true"),
    ("commit_one", "r.fence = commit_one.fence", "true"),
    ("commit_completes", "r.fence = i.fence", "true"),
    ("commit_advances", "r.fence = i.fence", "true"),
    ("commit_item", "r.fence <> item_fence", "false"),
)
# Scripts of Redis by sabotage: the script, a part of its text, and the text that replaces it.
SCRIPTS = {
    NO_FENCE: ("hold", "r[1] == item[1]", "true"),
    OLD_EPOCH: ("claim", "math.max(tonumber(values[3]), epoch)", "tonumber(values[3])"),
    UNGUARDED: ("save", "said[i + 1] = 0", "said[i + 1] = 1"),
}


def apply(name: str, world: RealWorld, url: str = "") -> RealWorld:
    """Switch a bug in, in this process; return the world to use. `url`: of the store."""
    if name == NO_FENCE:
        drop_fence()
    if name in SCRIPTS and is_redis(url):
        change_script(name)
    if name == DEAF:
        go_deaf(url)
    if name == UNASKED:
        ask_nobody()
    return LoopWorld() if name == RENEW_ON_LOOP else world


def apply_to_reader(name: str) -> None:
    """Switch a bug in, in a process that runs CLI commands: `clean` of every module cleans nothing."""
    from holdfast.shown import text  # noqa: F401 - to be patched

    if name != RAW_TEXT:
        return
    modules = [one for key, one in sys.modules.items() if key.startswith(("holdfast.cli", "holdfast.shown"))]
    for module in [one for one in modules if hasattr(one, "clean")]:
        setattr(module, "clean", lambda said, *_: str(said))  # noqa: B010 - for the life of this process


def apply_to_server(name: str | None, app: Any) -> None:
    """Switch a bug in, in the process of a server of the HTTP API, for its life."""
    from holdfast.http.api import live
    from holdfast.records import Started

    store, owed = app.store, set[asyncio.Task[None]]()
    start = store.start

    async def start_later(runs: Sequence[Any], *_: Any) -> list[Started]:
        async def later() -> None:
            await asyncio.sleep(LATE_SECONDS)
            await start(runs)

        owed.add(task := asyncio.create_task(later()))
        task.add_done_callback(owed.discard)
        return [Started(id=one.id, created=True) for one in runs]

    if name == EARLY_ANSWER:
        store.start = start_later
    if name == LOST_PLACE:
        real = live._all_followed  # noqa: SLF001
        setattr(live, "_all_followed", lambda call, _, types: real(call, None, types))  # noqa: B010


def drop_fence() -> None:
    """Remove the fence from the guard of commits in memory and SQLite, for the life of this process."""
    from holdfast.machine import commit

    setattr(commit, "holds", _without_fence(getattr(commit, "holds")))  # noqa: B009, B010 - the same


def _without_fence(holds: Callable[..., bool]) -> Callable[..., bool]:
    """Return the guard, called with the fence that the run has."""
    if "fence" not in signature(holds).parameters:
        raise RuntimeError("the machine's guard asks for no `fence` to take away: mend this sabotage")
    return lambda run, _, now: holds(run, run.fence, now)


def unfence(connection: Any) -> None:
    """Remove the fence from the functions of a Postgres database, through a connection of its driver."""
    connection.execute("set search_path = workflow")
    for function, guard, otherwise in UNFENCED:
        asked = f"select pg_get_functiondef('{function}'::regproc)"
        ((text,),) = connection.execute(asked).fetchall()
        if guard not in text:
            raise RuntimeError(f"{function} has no `{guard}` to take away: mend this sabotage")
        connection.execute(text.replace(guard, otherwise))


def unfence_at(url: str) -> None:
    """Remove the fence from the functions in the database of a store."""
    import psycopg

    from holdfast.stores.postgres.address import parsed

    with psycopg.connect(parsed(url).dsn, autocommit=True) as connection:
        unfence(connection)


def change_script(name: str) -> None:
    """Change a script of the Redis store, for the life of this process."""
    from holdfast.stores.redis import scripts

    changed, guard, otherwise = SCRIPTS[name]
    real = scripts._read  # noqa: SLF001
    if guard not in real(changed):
        raise RuntimeError(f"{changed}.lua has no `{guard}` to take away: mend this sabotage")

    def read(script: str) -> str:
        return real(script).replace(guard, otherwise) if script == changed else real(script)

    setattr(scripts, "_read", read)  # noqa: B010 - the same
    scripts.script.cache_clear()


@contextmanager
def changed_script(name: str) -> Iterator[None]:
    """Change a script of the Redis store, inside the block."""
    from holdfast.stores.redis import scripts

    with patch.object(scripts, "_read", scripts._read):  # noqa: SLF001
        change_script(name)
        try:
            yield
        finally:
            scripts.script.cache_clear()
    scripts.script.cache_clear()


def ask_nobody() -> None:
    """Let no lease ever seem to be over."""
    from holdfast.engine.worker.lease_clock import LeaseClock

    setattr(LeaseClock, "over", False)  # noqa: B010 - for the life of this process


def go_deaf(url: str) -> None:
    """Let a listener whose session was lost not listen again: only its polls are left."""
    if is_redis(url):
        from holdfast.stores.redis import errors
        from holdfast.stores.redis.listener import Listener
    else:
        from holdfast.stores.postgres import errors  # type: ignore[no-redef]
        from holdfast.stores.postgres.sessions.listener import Listener  # type: ignore[assignment]

    async def listen_once(listener: Any) -> None:
        with suppress(*errors.DRIVER):
            await listener._listen_once()  # noqa: SLF001
        await asyncio.Event().wait()

    setattr(Listener, "_listen_forever", listen_once)  # noqa: B010 - for the life of this process


@contextmanager
def unfenced() -> Iterator[None]:
    """Remove the fence from commits in memory and SQLite, inside the block."""
    from holdfast.machine import commit

    with patch.object(commit, "holds", _without_fence(getattr(commit, "holds"))):  # noqa: B009 - no export
        yield


@contextmanager
def forgetful() -> Iterator[None]:
    """Let all stores deliver what runs owe only after a commit, and not in a keeper's round."""
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.postgres import PostgresStore
    from holdfast.stores.redis import RedisStore
    from holdfast.stores.sqlite import SqliteStore

    with (
        _not_in_a_round(MemoryStore, "_owed"),
        _not_in_a_round(SqliteStore, "_owed"),
        _not_in_a_round(PostgresStore, "_deliver"),
        _not_in_a_round(RedisStore, "_owed"),
    ):
        yield


@contextmanager
def _not_in_a_round(store: Any, part: str) -> Iterator[None]:
    """Let the method `part` do nothing when `tick` calls it."""
    round_ = ContextVar("round", default=False)
    tick, real = store.tick, getattr(store, part)

    async def ticked(store: Any, *args: Any, **options: Any) -> Any:
        mark = round_.set(True)
        try:
            return await tick(store, *args, **options)
        finally:
            round_.reset(mark)

    async def spared(store: Any, *args: Any) -> tuple[int, bool]:
        return (0, False) if round_.get() else await real(store, *args)

    with patch.object(store, "tick", ticked), patch.object(store, part, spared):
        yield


@contextmanager
def broken(name: str | None, store: str = "") -> Iterator[None]:
    """Switch a bug of the store itself in, inside the block."""
    stores = {NO_FENCE: unfenced, FORGETFUL: forgetful}
    in_script = name is not None and name in SCRIPTS and is_redis(store)
    with (
        stores[name]() if name in stores else nullcontext(),
        changed_script(name) if in_script and name is not None else nullcontext(),
    ):
        yield


class LoopWorld(RealWorld):
    """A world whose pulse is a timer of the event loop."""

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        return _LoopPulse(beat, interval_seconds)


class _LoopPulse:
    def __init__(self, beat: Callable[[], None], interval_seconds: float) -> None:
        self._beat, self._interval = beat, interval_seconds
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval_seconds, self._run)

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._run)
        self._beat()

    def ask(self) -> None:
        self._loop.call_soon_threadsafe(self._beat)

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._timer.cancel)


class _StoreWrapper:
    """A wrapper of a store; subclasses change some verbs."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Return any other verb of the store."""
        return getattr(self._store, name)


class Early(_StoreWrapper):
    """A store that starts children before the commit that records them."""

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        started = [step.child for item in batch for step in item.steps if step.child is not None]
        if started:
            await self._store.start(started)
        return await self._store.commit(batch)  # type: ignore[no-any-return]


class Hasty(_StoreWrapper):
    """A store that answers checkpoints first, and writes them later."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._owed: set[asyncio.Task[None]] = set()

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        if not all(isinstance(item.move, Checkpoint) for item in batch):
            await asyncio.gather(*self._owed)
            return await self._store.commit(batch)  # type: ignore[no-any-return]
        self._owed.add(task := asyncio.create_task(self._keep(batch)))
        task.add_done_callback(self._owed.discard)
        return [Verdict(answer=Answer.APPLIED, status=Status.LEASED)] * len(batch)

    async def _keep(self, batch: Sequence[Item]) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await self._store.commit(batch)


class Optimist(_StoreWrapper):
    """A store whose messages count as sent as soon as a relay takes them."""

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        parcels: list[Parcel] = await self._store.relay(ask)
        if parcels:
            await self._store.relayed([Relayed(id=one.id, fence=one.fence, answer="sent") for one in parcels])
        return parcels

    async def relayed(self, answers: Sequence[Relayed]) -> list[bool]:
        for one in answers:
            if one.answer != "sent":
                await self._store.resend(one.id, ANY)
        return [True] * len(answers)


class Blind(_StoreWrapper):
    """A store that numbers commits when they are sent, not when they are made: a resend gets a new number."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._numbers: dict[tuple[Any, int], int] = {}

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        while True:
            try:
                return await self._store.commit([self._numbered(item) for item in batch])  # type: ignore[no-any-return]
            except Unavailable:
                await asyncio.sleep(0.05)

    def _numbered(self, item: Item) -> Item:
        name = (item.run, item.fence)
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return msgspec.structs.replace(item, number=number)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    BLIND_RESEND: Blind,
    SPLIT_START: Early,
    OPTIMIST: Optimist,
    HASTY: Hasty,
}
