"""Shared by tests of sessions: a store that is open for a while, and a count of its sessions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import StoreError
from holdfast.stores.postgres import PostgresStore

# Functions of the tests, beside those of the store.
VERBS = """
set search_path = workflow;
create sequence tries;
create function nap(seconds double precision) returns double precision language sql volatile as
    'select pg_sleep(seconds); select seconds';
create function stumbles(times integer, code text) returns bigint language plpgsql as $$
declare
    n bigint := nextval('workflow.tries');
begin
    if n <= times then
        raise exception 'stumbled' using errcode = code;
    end if;
    return n;
end $$;
create function who() returns integer language sql volatile as 'select pg_backend_pid()';
"""


@asynccontextmanager
async def opened(url, **settings):
    store = PostgresStore(url, **settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def sessions(admin):
    """The number of sessions that the stores of this database have."""
    return admin.execute(
        "select count(*) from pg_stat_activity "
        "where application_name = 'holdfast' and datname = current_database()"
    ).fetchone()[0]


async def until(holds, seconds=5.0):
    """Wait until a condition holds, because a server acts in its own time; fail after some seconds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def cut_all(admin):
    admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'holdfast' and datname = current_database()"
    )


async def refused(url, said):
    """Assert that opening is refused in one line, without the password."""
    store = PostgresStore(url)
    with pytest.raises(StoreError, match=said) as caught:
        await store.open()
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    await store.close()
