"""Promises to user SQL: the rights it needs, and statements that stay valid."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from psycopg import sql

from holdfast.lifecycle import Status
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.driver import TYPE, Clock, hear, task
from tests.docs import pages
from tests.stores.postgres.sessions.opened import opened
from tests.stores.postgres.user_sql.user_sql import PAGE, PUBLISHED, UserSqlSession, statements


@pytest.mark.parametrize("how", ["start", "plan", "take", "prefix", "tell", "cancel", "delete", "keep"])
def test_a_role_needs_no_more_than_the_page_grants(driver, user_sql, how):
    """The triggers run with the rights of the owner, and need no right of the role."""
    role = f"plain_{user_sql.connection.info.dbname}"
    user_sql.connection.execute(
        sql.SQL("drop role if exists {0}; create role {0}").format(sql.Identifier(role))
    )
    try:
        user_sql("grants", role=role)
        if how in {"plan", "keep"}:
            user_sql("grants_events", role=role)
        if how == "plan":
            driver.publish(hear("A"), task("B"))
        user_sql.connection.execute(
            sql.SQL("grant usage on schema turned to {0}; set role {0}").format(sql.Identifier(role))
        )
        run = user_sql.one("start", type=TYPE, payload="1", key=None)
        if how == "take":
            user_sql("take", type=TYPE, me="p1")
            user_sql("heartbeat", id=run, me="p1")
            assert user_sql("succeed", id=run, me="p1", result="1")
        elif how == "prefix":
            user_sql("take_by_prefix", prefix="%", runtime="go", me="p1")
            assert user_sql("retry", id=run, me="p1", error="no", seconds=1) == [("pending",)]
            assert user_sql("hurry", id=run) == [(run,)]
        elif how == "delete":
            assert user_sql("delete", id=run) == user_sql("restore", id=run) == [(run,)]
        elif how == "tell":
            user_sql("tell", id=run, what="note", data="{}")
        elif how == "cancel":
            user_sql("cancel", id=run)
            user_sql("steps", id=run)
            user_sql("runs")
        elif how == "plan":
            user_sql("emit", topic="parcel", event="e", payload="1")
            driver.deliver()
            assert driver.status(run) is Status.PENDING
        elif how == "keep":
            user_sql("keep")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user_sql("delete from workflow.workflow_run")
        driver.assert_replayed(run)
    finally:
        user_sql.connection.execute("reset role")
        user_sql.connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


# Published statements.


def test_the_statements_of_the_page_are_kept_as_text():
    """A changed statement on the page is published under a new number; the old one stays valid."""
    newest = {}
    for file in sorted(PUBLISHED.glob("*.sql"), key=lambda file: int(file.stem)):
        newest |= statements(file)
    kept = {name: text for name, text in statements().items() if not name.startswith("grants")}
    assert kept.items() <= newest.items()
    assert len([block for block in pages.blocks(PAGE) if block.language == "sql"]) == len(statements())


LATER = """
alter table workflow_run add column later integer;
alter table workflow_event add column later text;
create index idx_later on workflow_run (later);
"""


@pytest.mark.spec("SQL-10", "SQL-3")
@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("*.sql")), ids=lambda file: file.stem)
@pytest.mark.parametrize("later", [False, True])
def test_the_published_statements_pass_after_every_migration(postgres_database, monkeypatch, file, later):
    """On the present schema, and on later ones."""
    asyncio.run(_migrated(postgres_database.url))
    if later:
        known = [*migrate.schemas(), LATER]
        monkeypatch.setattr(migrate, "schemas", lambda: known)
        asyncio.run(_migrated(postgres_database.url))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as owner:
        owner.execute("update workflow.workflow_schema set digest = 'older'")
    asyncio.run(_migrated(postgres_database.url))  # all functions and triggers once more
    user_sql = UserSqlSession(postgres_database.dsn, Clock(""), statements(file))
    live(user_sql)
    user_sql.close()


async def _migrated(url):
    async with opened(url):
        pass


def live(user_sql):
    """Run every published statement on a few runs, by the server's own clock."""

    def start(key, **values):
        return user_sql.one("start", **{"type": TYPE, "payload": '{"n": 1}', "key": key, **values})

    def taken(key):
        run = start(key)
        assert user_sql.one("take", type=TYPE, me="p1") == (run, {"n": 1})
        assert user_sql("heartbeat", id=run, me="p1") == [(None,)]
        return run

    first = taken("a")
    assert user_sql("start", type=TYPE, payload="1", key="a") == []
    assert user_sql.one("find", key="a") == (first, "leased")
    user_sql("tell", id=first, what="note", data='{"a": 1}')
    assert user_sql("succeed", id=first, me="p1", result="[1]") == [(first,)]
    assert user_sql.one("look", id=first) == ("succeeded", [1], None, 1)
    assert [row[1] for row in user_sql("trail", id=first)] == [
        "created",
        "leased",
        "started",
        "note",
        "succeeded",
    ]
    assert user_sql("fail", id=taken("b"), me="p1", error="no") != []
    assert user_sql("give_back", id=taken("c"), me="p1") != []
    assert user_sql("cancel", id=user_sql.one("find", key="c")[0]) != []
    assert user_sql("cancel_pending_or_leased", id=start("d")) == 1
    run = taken("e")
    assert user_sql("retry", id=run, me="p1", error="no", seconds=9) == [("pending",)]
    assert user_sql("hurry", id=run) == [(run,)]
    assert user_sql("cancel", id=run) != []
    assert user_sql("delete", id=run) == user_sql("restore", id=run) == [(run,)]
    prefixed = start("p")
    values = {"prefix": TYPE[:4] + "%", "runtime": "go", "me": "p1"}
    assert user_sql.one("take_by_prefix", **values) == (prefixed, TYPE, {"n": 1})
    assert user_sql("succeed", id=prefixed, me="p1", result="1") != []
    later = user_sql.one("start_later", type=TYPE, payload="1", key="a", tenant="acme")
    assert user_sql.one("find_of_tenant", tenant="acme", key="a") == (later, "pending")
    assert user_sql("steps", id=first) == []
    assert [row[2] for row in user_sql("runs")] == ["failed"]
    user_sql("keep")
    assert json.dumps(user_sql.one("emit", topic="t", event="e1", payload="1"))
    (made,) = user_sql.one("start_by_function", type=TYPE, payload="1", digest="d")
    (claim,) = user_sql.one("claim", me="p1", type=TYPE)
    assert claim["id"] == made["id"]
    held = {"id": claim["id"], "fence": claim["fence"]}
    assert user_sql.one("renew", me="p1", **held)["held"][0]["answer"] == "applied"
    assert user_sql.one("commit", **held, result="1")["verdicts"][0]["answer"] == "applied"
    assert user_sql.one("pause", id=later, me="ann")["status"] == "pending"
    assert user_sql.one("cancel_by_function", id=later, me="ann")["status"] == "cancelled"
