"""A holder whose steps are transactions: driven step by step, with a table of the user to check."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec

from holdfast.lifecycle import Move
from holdfast.records import StepWrite
from tests.stores.postgres.caller.engines import KINDS, own
from tests.stores.postgres.kit import database

TABLES = """
create table if not exists public.tally (n integer);
create table if not exists public.item (id integer primary key);
create table if not exists public.line (item integer references public.item deferrable initially deferred);
delete from public.tally; delete from public.line; delete from public.item;
"""
ADD = "insert into tally values (1)"


class Holder:
    """One held run, and functions on one kind of connection."""

    def __init__(self, driver: Any, kind: str = "Own", dsn: str | None = None) -> None:
        database()[1].execute(TABLES)
        self.driver, self.store, self.kind = driver, driver.store, KINDS[kind]()
        self.on = driver.run(self.kind.open(dsn or database()[0]))
        self.claim = driver.held()
        self.calls = 0

    def close(self) -> None:
        self.driver.run(self.kind.close())

    def item(self, *steps: StepWrite) -> Any:
        return self.driver.item(self.claim, Move.CHECKPOINT, *steps)

    def work(self, item: Any, *does: Any, key: str = "last") -> Any:
        """Return a function that adds one row, then runs statements or functions; async like its kind."""

        def made() -> Any:
            steps = (*item.steps, StepWrite(key=key, output='"7"'))
            return msgspec.structs.replace(item, steps=steps)

        def sync(given: Any) -> Any:
            self.calls += 1
            for one in (ADD, *does):
                self.kind.run(given, one) if isinstance(one, str) else one(given)
            return made()

        async def awaited(given: Any) -> Any:
            self.calls += 1
            for one in (ADD, *does):
                answer = self.kind.run(given, one) if isinstance(one, str) else one(given)
                if hasattr(answer, "__await__"):
                    await answer
            return made()

        return sync if self.kind.is_sync else awaited

    def transact(self, item: Any, work: Any, limit: float = 5.0) -> Any:
        on = own(self.on)
        return self.store.transact(item, work, limit, *(() if on is None else (on,)))

    def send(self, *does: Any, item: Any = None, limit: float = 5.0, **options: Any) -> Any:
        item = item or self.item()
        return self.driver.run(self.transact(item, self.work(item, *does, **options), limit))

    def keys(self) -> list[str]:
        return [step.key for step in self.driver.steps(self.claim.id)]


def tally() -> int:
    """The number of rows that other sessions see."""
    ((count,),) = database()[1].execute("select count(*) from public.tally").fetchall()
    return int(count)


def beside(holder: Any, ask: Any) -> None:
    """Call the store from another thread, while the holder's transaction is open."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(asyncio.run(ask(holder.store))))
    thread.start()
    thread.join(10)
    assert done
