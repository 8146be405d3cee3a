"""A holder whose steps are transactions: driven by hand, with a table beside the engine's to look at."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec

from holdfast.lifecycle import Move
from holdfast.records import StepWrite
from tests.stores.postgres.engines import KINDS, own
from tests.stores.postgres.kit import database

TABLES = """
create table if not exists public.tally (n integer);
create table if not exists public.item (id integer primary key);
create table if not exists public.line (item integer references public.item deferrable initially deferred);
delete from public.tally; delete from public.line; delete from public.item;
"""
ADD = "insert into tally values (1)"


class Holder:
    """One run, held, and functions on a connection of some kind."""

    def __init__(self, hand: Any, kind: str = "Own", dsn: str | None = None) -> None:
        database()[1].execute(TABLES)
        self.hand, self.store, self.kind = hand, hand.store, KINDS[kind]()
        self.on = hand.run(self.kind.open(dsn or database()[0]))
        self.claim = hand.held()
        self.calls = 0

    def close(self) -> None:
        self.hand.run(self.kind.close())

    def item(self, *steps: StepWrite) -> Any:
        return self.hand.item(self.claim, Move.CHECKPOINT, *steps)

    def work(self, item: Any, *does: Any, key: str = "last") -> Any:
        """Adds one, then does these: statements, or functions of the connection; async where its kind is."""

        def made() -> Any:
            steps = (*item.steps, StepWrite(key=key, output='"7"'))
            return msgspec.structs.replace(item, steps=steps)

        def plain(given: Any) -> Any:
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

        return plain if self.kind.plain else awaited

    def transact(self, item: Any, work: Any, limit: float = 5.0) -> Any:
        on = own(self.on)
        return self.store.transact(item, work, limit, *(() if on is None else (on,)))

    def send(self, *does: Any, item: Any = None, limit: float = 5.0, **options: Any) -> Any:
        item = item or self.item()
        return self.hand.run(self.transact(item, self.work(item, *does, **options), limit))

    def keys(self) -> list[str]:
        return [step.key for step in self.hand.steps(self.claim.id)]


def tally() -> int:
    """What everybody else sees."""
    ((count,),) = database()[1].execute("select count(*) from public.tally").fetchall()
    return int(count)


def beside(holder: Any, ask: Any) -> None:
    """A call of the store by somebody else, while this one is at it."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(asyncio.run(ask(holder.store))))
    thread.start()
    thread.join(10)
    assert done
