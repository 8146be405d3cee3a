"""A Postgres store for a test: one database a process, emptied before each test, its clock the test's."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from holdfast.stores.postgres import PostgresStore, migrate

# The store's clock is the server's; here it is whatever the test says, for each session.
_TURNED = """
set search_path = workflow;
create or replace function clock() returns timestamptz language sql stable as $$
    select coalesce(workflow.moment(nullif(current_setting('holdfast.now', true), '')::bigint), statement_timestamp())
$$;
create function wipe() returns void language plpgsql as $$
declare
    name text;
begin
    for name in select tablename from pg_tables where schemaname = 'workflow' and tablename <> 'workflow_schema' loop
        execute format('delete from workflow.%I', name);
    end loop;
    perform setval(format('workflow.%I', sequencename), 1, false) from pg_sequences where schemaname = 'workflow';
end $$;
"""


@cache
def database() -> tuple[str, Any]:
    """A database of this process's own: its URL, and a connection for whoever looks behind the store's back."""
    server = os.environ["HOLDFAST_TEST_PG_DSN"]
    name = f"hf_{os.getpid()}_{uuid4().hex[:6]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"create database {name}")
    url = server.replace("/postgres?", f"/{name}?")
    asyncio.run(_migrate(url))
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(_TURNED)
    return url, connection


def _leave_out_broken(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create schema workflow")
        connection.execute("set search_path = workflow, pg_temp")
        for text in migrate.schemas():
            connection.execute(text)
        for name, text in list(migrate.functions().items()):
            try:
                with connection.transaction():
                    connection.execute(text)
            except psycopg.Error as error:
                print(f"LEFT OUT {name}: {error}")
                del migrate.functions()[name]
        connection.rollback()


async def _migrate(url: str) -> None:
    if os.environ.get("HF_TOLERANT"):
        await asyncio.to_thread(_leave_out_broken, url)
    store = PostgresStore(url + "&allow_fsync_off=1")
    await store.open()
    await store.close()


class Kept(PostgresStore):
    """A store whose sessions outlive it: each would plan all functions anew, which takes longer than a test."""

    _kept: dict[str, Any] = {}

    async def open(self) -> None:
        if not self._kept:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True, name="kept sessions").start()
            self._kept.update(loop=loop, pools={}, renewer=self._renewer)
        self._pools, self._renewer = self._kept["pools"], self._kept["renewer"]
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._ears.close()

    async def _call(self, verb: str, *args: Any) -> Any:
        if not self._is_open:
            return await super()._call(verb, *args)
        call = super()._call(verb, *args)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._kept["loop"]))


def make(clock: Any, _folder: Path) -> PostgresStore:
    """A fresh store, as far as a test can tell."""
    url, connection = database()
    connection.execute("select workflow.wipe()")
    return Kept(url + "&allow_fsync_off=1", clock)
