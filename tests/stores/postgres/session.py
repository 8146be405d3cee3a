"""Sessions beside the store's own, for races: one keeps its transaction open, another waits for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg

from holdfast.records import Item
from holdfast.stores.postgres.verbs.calls import items_text, json_text
from tests.stores.postgres.kit import database


class Session:
    """One connection. Verbs take records, and return decoded JSON."""

    def __init__(self, now: int) -> None:
        self._connection = psycopg.connect(database()[0], autocommit=True)
        self._thread = ThreadPoolExecutor(1)
        self._connection.execute("set search_path = workflow; set lock_timeout = '20s'")
        self._connection.execute("select set_config('holdfast.now', %s, false)", (str(now),))

    def close(self) -> None:
        self._connection.close()
        self._thread.shutdown()

    def run(self, sql: str, *args: Any) -> list[Any]:
        cursor = self._connection.execute(sql, args or None)
        return [] if cursor.description is None else cursor.fetchall()

    def begin(self) -> None:
        self.run("begin")

    def commit(self) -> None:
        self.run("commit")

    def roll_back(self) -> None:
        self.run("rollback")

    def call(self, verb: str, *args: Any) -> Any:
        places = ", ".join("%s" for _ in args)
        ((answer,),) = self.run(f"select {verb}({places})", *map(_plain, args))
        return answer

    def pages(self, verb: str, *args: Any) -> int:
        """The pages of 8 kB that a call reads: fewest when the catalog is cached."""
        places = ", ".join("%s" for _ in args)
        sql = f"explain (analyze, buffers, format json) select {verb}({places})"
        plan = self.run(sql, *map(_plain, args))[0][0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def waits(self, verb: str, *args: Any) -> Future[Any]:
        """Start a call that another session blocks; its future is done when that session has ended."""
        begun = self._thread.submit(self.call, verb, *args)
        while not begun.done():
            if _is_held_up(self._connection.info.backend_pid):
                return begun
        raise AssertionError(f"{verb} did not wait: {begun.result()}")


def _plain(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Item):
        return items_text(value)
    is_record = isinstance(value, msgspec.Struct | list | tuple | dict)
    return json_text(value) if is_record else value


def _is_held_up(pid: int) -> bool:
    ((blockers,),) = database()[1].execute("select cardinality(pg_blocking_pids(%s))", (pid,)).fetchall()
    return bool(blockers > 0)
