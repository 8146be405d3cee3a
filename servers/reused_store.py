"""Postgres stores for tests: one database a process, emptied before each test, with the test's clock."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from holdfast.stores.postgres import PostgresStore
from servers.postgres import postgres_for_tests

# The clock of the store is the server's. Here each session has the time that its test sets. Sequences start
# again with each test, as in a new store.
_TEST_FUNCTIONS = """
set search_path = workflow;
create or replace function clock() returns timestamptz language sql stable as $$
    select case when pg_catalog.current_setting('holdfast.now', true) operator(pg_catalog.<>) ''
        then pg_catalog.timestamptz '1970-01-01 00:00:00+00' operator(pg_catalog.+) (
            pg_catalog.current_setting('holdfast.now', true)::bigint
            operator(pg_catalog.*) interval '1 microsecond'
        ) else pg_catalog.statement_timestamp() end
$$;
grant execute on function workflow.moment(bigint) to public;
-- Makes the function `wipe` with one static statement for each table, which is planned once in a session.
do $do$
declare
    body text;
begin
    select string_agg(
        format('delete from workflow.%I;', tablename), ' '
        order by tablename = 'workflow_count_change', tablename
    )
    into body  -- the trail before its runs, and last what their removal adds
    from pg_tables where schemaname = 'workflow' and tablename <> 'workflow_schema';
    select body || string_agg(format(' perform setval(%L, 1, false);', 'workflow.' || sequencename), '')
    into body
    from pg_sequences where schemaname = 'workflow';
    execute format('create function wipe() returns void language plpgsql as %L', 'begin ' || body || ' end');
end $do$;
"""
_servers = ExitStack()
atexit.register(_servers.close)


@cache
def database(version: int | None = None) -> tuple[str, psycopg.Connection[Any]]:
    """Return the database of this process: its DSN, and a connection that does not use the store."""
    dsn = _made(version)[1]
    connection = psycopg.connect(dsn, autocommit=True)
    _servers.callback(connection.close)
    return dsn, connection


@cache
def _made(version: int | None) -> tuple[str, str]:
    server = _servers.enter_context(postgres_for_tests(version))
    server.create_database("reused")
    url, dsn = server.url("reused"), server.dsn("reused")
    asyncio.run(_migrate(url))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_TEST_FUNCTIONS)
    return url, dsn


async def _migrate(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


class ReusedStore(PostgresStore):
    """A store that reuses the sessions of earlier stores: planning all functions takes longer than a test."""

    _reused: ClassVar[dict[str, tuple[asyncio.AbstractEventLoop, Any, Any]]] = {}

    async def open(self) -> None:
        where = self.address.dsn
        if where not in self._reused:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True, name="reused sessions").start()
            self._reused[where] = (loop, {}, self._renewer)
        self._loop, self._pools, self._renewer = self._reused[where]
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            lenders, self._guarded_pools = self._guarded_pools, {}
            for pool in lenders.values():
                await pool.close()
            await self._listeners.close()

    async def _call(self, verb: str, *args: Any) -> Any:
        if not self._is_open:
            return await super()._call(verb, *args)
        call = super()._call(verb, *args)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))


def make(
    clock: Callable[[], int] | None,
    _folder: Path | None = None,
    version: int | None = None,
    kind: type[ReusedStore] = ReusedStore,
) -> PostgresStore:
    """Return a store with an empty database."""
    _, connection = database(version)
    connection.execute("select workflow.wipe()")
    return kind(_made(version)[0], clock)
