"""Checks before a store is opened on a server, and messages when the server cannot be reached."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StoreError
from holdfast.stores.postgres import PostgresStore, server_check
from tests.stores.postgres.sessions.opened import refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((":port", ":1"), "connection refused"),
        (("/holdfast", "/elsewhere"), r'no such database \(database "elsewhere.*: create it'),
        (("@127.0.0.1", "@nobody.invalid"), "cannot be reached"),
        (("postgres:hunter2", "stranger:hunter2"), "does not let this user in"),
        (("sslmode=disable", "sslmode=perhaps"), "sslmode"),
        (
            ("sslmode=disable", "no_such_setting=1&sslmode=disable"),
            '"no_such_setting": check the options of the',
        ),
    ],
)
def test_an_address_that_leads_nowhere_is_told_in_one_line_without_the_password(
    proxy, database, change, said
):
    url = proxy.url().replace("postgres@", "postgres:hunter2@").replace(database.name, "holdfast")
    url = url.replace(f":{proxy.port}", ":port").replace(*change)
    url = url.replace(":port", f":{proxy.port}").replace("/holdfast", f"/{database.name}")

    asyncio.run(refused(url, said))


GOOD = {
    "version": 15, "standby": False, "encoding": "UTF8", "read_only": "off", "fsync": "on",
    "full_page_writes": "on", "synchronous_commit": "on", "isolation": "read committed",
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"fsync": "off"}, "fsync=off .* set fsync=on in its configuration"),
        ({"version": 12}, "this is Postgres 12, and at least 13 is needed"),
        ({"encoding": "SQL_ASCII"}, "the encoding of this database is SQL_ASCII"),
        ({"standby": True}, "is a standby: name the primary"),
        ({"read_only": "on"}, "takes no writes"),
        ({"isolation": "serializable"}, "`read committed` is needed"),
    ],
)
def test_a_server_that_does_not_keep_its_word_is_refused(found, said):
    with pytest.raises(StoreError, match=said):
        asyncio.run(
            server_check.check_server(_Server(found), PostgresStore("postgresql://db/orders").address)
        )


@pytest.mark.parametrize("name", ["synchronous_commit", "full_page_writes"])
def test_a_server_that_may_forget_what_it_confirmed_is_told_of(name, caplog):
    asyncio.run(
        server_check.check_server(_Server({name: "off"}), PostgresStore("postgresql://db/orders").address)
    )
    assert f"{name} is off" in caplog.text


class _Server:
    def __init__(self, found):
        self._found = GOOD | found

    async def fetchrow(self, _):
        return self._found


def test_a_real_server_without_fsync_is_refused_unless_that_is_said(database):
    if "allow_fsync_off" not in database.url:
        pytest.skip("the server of these tests keeps its word")

    async def main():
        with pytest.raises(StoreError, match="allow_fsync_off=1"):
            await PostgresStore(database.dsn).open()

    asyncio.run(main())
