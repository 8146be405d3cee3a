"""What plain SQL may count on: the rights it needs, and statements that stay right for good."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from psycopg import sql

from holdfast.lifecycle import Status
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.hand import TYPE, Clock, hear, task
from tests.docs import pages
from tests.stores.postgres.opened import opened
from tests.stores.postgres.stranger import PAGE, PUBLISHED, Stranger, statements


@pytest.mark.parametrize("how", ["start", "plan", "take", "prefix", "tell", "cancel", "delete", "keep"])
def test_a_role_needs_no_more_than_the_page_grants(hand, plain, how):
    """The triggers run with the rights of the owner, and need none of the role."""
    role = f"plain_{plain.connection.info.dbname}"
    plain.connection.execute(sql.SQL("drop role if exists {0}; create role {0}").format(sql.Identifier(role)))
    try:
        plain("grants", role=role)
        if how in {"plan", "keep"}:
            plain("grants_events", role=role)
        if how == "plan":
            hand.publish(hear("A"), task("B"))
        plain.connection.execute(
            sql.SQL("grant usage on schema turned to {0}; set role {0}").format(sql.Identifier(role))
        )
        run = plain.one("start", type=TYPE, payload="1", key=None)
        if how == "take":
            plain("take", type=TYPE, me="p1")
            plain("heartbeat", id=run, me="p1")
            assert plain("succeed", id=run, me="p1", result="1")
        elif how == "prefix":
            plain("take_by_prefix", prefix="%", runtime="go", me="p1")
            assert plain("retry", id=run, me="p1", error="no", seconds=1) == [("pending",)]
            assert plain("hurry", id=run) == [(run,)]
        elif how == "delete":
            assert plain("delete", id=run) == plain("restore", id=run) == [(run,)]
        elif how == "tell":
            plain("tell", id=run, what="note", data="{}")
        elif how == "cancel":
            plain("cancel", id=run)
            plain("steps", id=run)
            plain("runs")
        elif how == "plan":
            plain("emit", topic="parcel", event="e", payload="1")
            hand.deliver()
            assert hand.status(run) is Status.PENDING
        elif how == "keep":
            plain("keep")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain("delete from workflow.workflow_run")
        hand.assert_replayed(run)
    finally:
        plain.connection.execute("reset role")
        plain.connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


# What was published.


def test_the_statements_of_the_page_are_kept_as_text():
    """Whoever changes one on the page publishes it: under a further number, for the old one stays right."""
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
    """On all that there is now, and on what adds to it."""
    asyncio.run(_migrated(postgres_database.url))
    if later:
        known = [*migrate.schemas(), LATER]
        monkeypatch.setattr(migrate, "schemas", lambda: known)
        asyncio.run(_migrated(postgres_database.url))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as owner:
        owner.execute("update workflow.workflow_schema set digest = 'older'")
    asyncio.run(_migrated(postgres_database.url))  # all functions, and triggers, once more
    plain = Stranger(postgres_database.dsn, Clock(""), statements(file))
    live(plain)
    plain.close()


async def _migrated(url):
    async with opened(url):
        pass


def live(plain):
    """Every published statement, in lives of a few runs; by the server's own clock."""

    def start(key, **values):
        return plain.one("start", **{"type": TYPE, "payload": '{"n": 1}', "key": key, **values})

    def taken(key):
        run = start(key)
        assert plain.one("take", type=TYPE, me="p1") == (run, {"n": 1})
        assert plain("heartbeat", id=run, me="p1") == [(None,)]
        return run

    first = taken("a")
    assert plain("start", type=TYPE, payload="1", key="a") == []
    assert plain.one("find", key="a") == (first, "leased")
    plain("tell", id=first, what="note", data='{"a": 1}')
    assert plain("succeed", id=first, me="p1", result="[1]") == [(first,)]
    assert plain.one("look", id=first) == ("succeeded", [1], None, 1)
    assert [row[1] for row in plain("trail", id=first)] == [
        "created",
        "leased",
        "started",
        "note",
        "succeeded",
    ]
    assert plain("fail", id=taken("b"), me="p1", error="no") != []
    assert plain("give_back", id=taken("c"), me="p1") != []
    assert plain("cancel", id=plain.one("find", key="c")[0]) != []
    assert plain("cancel_pending_or_leased", id=start("d")) == 1
    run = taken("e")
    assert plain("retry", id=run, me="p1", error="no", seconds=9) == [("pending",)]
    assert plain("hurry", id=run) == [(run,)]
    assert plain("cancel", id=run) != []
    assert plain("delete", id=run) == plain("restore", id=run) == [(run,)]
    prefixed = start("p")
    values = {"prefix": TYPE[:4] + "%", "runtime": "go", "me": "p1"}
    assert plain.one("take_by_prefix", **values) == (prefixed, TYPE, {"n": 1})
    assert plain("succeed", id=prefixed, me="p1", result="1") != []
    later = plain.one("start_later", type=TYPE, payload="1", key="a", tenant="acme")
    assert plain.one("find_of_tenant", tenant="acme", key="a") == (later, "pending")
    assert plain("steps", id=first) == []
    assert [row[2] for row in plain("runs")] == ["failed"]
    plain("keep")
    assert json.dumps(plain.one("emit", topic="t", event="e1", payload="1"))
    (made,) = plain.one("start_by_function", type=TYPE, payload="1", digest="d")
    (claim,) = plain.one("claim", me="p1", type=TYPE)
    assert claim["id"] == made["id"]
    held = {"id": claim["id"], "fence": claim["fence"]}
    assert plain.one("renew", me="p1", **held)["held"][0]["answer"] == "applied"
    assert plain.one("commit", **held, result="1")["verdicts"][0]["answer"] == "applied"
    assert plain.one("pause", id=later, me="ann")["status"] == "pending"
    assert plain.one("cancel_by_function", id=later, me="ann")["status"] == "cancelled"
