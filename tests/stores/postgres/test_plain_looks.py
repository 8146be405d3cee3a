"""What plain SQL sees, what it may count on, and what of it stays as it is for good."""

from __future__ import annotations

import asyncio
import json
import re

import psycopg
import pytest
from psycopg import sql

from holdfast.lifecycle import Status
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.hand import TYPE, Clock, backing_off, done, gate, hear, listen, task
from tests.docs import pages
from tests.stores.postgres import kit
from tests.stores.postgres.opened import opened
from tests.stores.postgres.stranger import PAGE, PUBLISHED, Stranger, statements

COLUMNS = "name, status, attempts, leased_by, run_at is not null, topic, due_at is not null"
LIVE = f"select {COLUMNS} from workflow.workflow_step_live where run_id = :'id' order by seq"
# The verbs are told by their search_path from the parts that they are made of.
VERBS = """
select p.proname || '(' || pg_get_function_arguments(p.oid) || ')' from pg_proc as p
where p.pronamespace = 'workflow'::regnamespace and p.proconfig::text like '%search_path%'
    and p.prorettype <> 'trigger'::regtype
"""


@pytest.mark.spec("SQL-9")
def test_the_current_step_of_a_plan_has_its_status_from_the_run(hand, plain):
    """Ready in the queue, running while it is held; a wait with its topic and deadline."""
    run = hand.plan(task("A"), hear("B", "parcel", 60.0), task("C"))
    later = ("B", "pending", 0, None, False, None, False), ("C", "pending", 0, None, False, None, False)
    assert plain(LIVE, id=run) == [("A", "ready", 0, None, True, None, False), *later]
    claim = hand.take(run)
    assert plain(LIVE, id=run) == [("A", "running", 1, "w1", False, None, False), *later]
    hand.advance(claim, "A")
    assert plain(LIVE, id=run)[1:] == [("B", "waiting", 0, None, False, "parcel", True), later[1]]
    hand.emit()
    assert [row[1] for row in plain(LIVE, id=run)] == ["succeeded", "succeeded", "ready"]
    assert [row[3] for row in plain("steps", id=run)] == [step.status.value for step in hand.steps(run)]


@pytest.mark.spec("SQL-9")
def test_steps_of_code_are_seen_with_outcome_and_cost(hand, plain):
    claim = hand.held()
    hand.checkpoint(claim, done("a", '{"n":1}', cost=5), listen("b"))
    hand.retry(claim, backing_off("c"))
    rows = {row[1]: row for row in plain("steps", id=claim.id)}
    assert (rows["a"][2:4], rows["a"][10], rows["a"][12]) == (("task", "succeeded"), {"n": 1}, 5)
    assert (rows["b"][3], rows["b"][8]) == ("waiting", "parcel")
    assert (rows["c"][3], rows["c"][7] is not None, rows["c"][11]["kind"]) == ("ready", True, "boom")
    hand.delete(claim.id)
    assert plain("steps", id=claim.id) == []


@pytest.mark.spec("SQL-6")
def test_the_cursor_of_a_run_is_seen(hand, plain):
    plan = hand.plan(gate("A"), task("B"))
    code = hand.start("shop.other.v1")
    hand.checkpoint(hand.take(code, types=("shop.other.v1",)), done("a"), done("b"))
    text = "select cursor from workflow.workflow_run_live where id = :'id'"
    assert (plain.one(text, id=plan), plain.one(text, id=code)) == ("A", "b")
    assert (hand.get(plan).cursor, hand.get(code).cursor) == ("A", "b")
    (row,) = plain("runs")
    assert row[:4] == (plan, TYPE, "waiting", "A")


@pytest.mark.spec("SQL-6")
def test_tables_columns_and_indexes_of_the_page_are_there(hand, plain):
    text = PAGE.read_text("utf-8").partition("\n## Tables\n")[2].partition("\n## ")[0]
    said = set(re.findall(r"`(\w+)`", text)) - {"rev", "told"}
    columns = "select column_name::text from information_schema.columns where table_schema = 'workflow' and table_name = '{}'"
    there = {
        "workflow_run": {row[0] for row in plain(columns.format("workflow_run"))},
        "workflow_event": {row[0] for row in plain(columns.format("workflow_event"))},
    }
    tables = {row[0] for row in plain("select tablename::text from pg_tables where schemaname = 'workflow'")}
    indexes = {row[0] for row in plain("select indexname::text from pg_indexes where schemaname = 'workflow'")}
    assert said - there["workflow_run"] - there["workflow_event"] - tables - indexes == set()
    promised = "id type payload status priority run_at idempotency_key attempt max_attempts leased_by lease_until"
    promised += " last_error result created_at updated_at deleted_at tenant fence waiting_on started_at finished_at error"
    assert set(promised.split()) <= said & there["workflow_run"]
    assert {"id", "workflow_id", "event_type", "data", "created_at"} <= said & there["workflow_event"]


@pytest.mark.spec("SQL-5")
def test_the_page_names_every_function_that_may_be_called(hand, plain):
    """With its arguments, which no later version may change."""
    text = PAGE.read_text("utf-8").partition("\n## Functions\n")[2].partition("\n## ")[0]
    listed = re.findall(r"`(\w+\([^`]*\))`", text)
    assert sorted(listed) == sorted(row[0] for row in plain(VERBS))


@pytest.mark.spec("SQL-5")
def test_the_store_sends_nothing_but_calls_of_functions():
    """No statement of Python's reads or writes a table of runs."""
    from importlib.resources import files

    folder = files("holdfast.stores.postgres")
    texts = {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".py")}
    found = {name for name, text in texts.items() if re.search(r"\b(from|into|update|join) [\w.\"{}]*workflow_(?!schema)", text)}
    assert found == set()


def test_what_the_verbs_write_passes_the_triggers_by():
    """Each update of a run says rev + 1, each insert its rev, and each trail row whether it was told."""
    for name, text in migrate.functions().items():
        for statement in re.findall(r"\b(?:update|insert into) workflow_run\b.*?;", text, re.DOTALL):
            assert re.search(r"\brev = \w+\.rev \+ 1|\brev,", statement), f"{name}: {statement[:200]}"
        for statement in re.findall(r"\binsert into workflow_event\b.*?\)", text, re.DOTALL):
            assert "told" in statement, f"{name}: {statement}"


@pytest.mark.spec("STORE-1")
def test_who_listens_hears_of_what_plain_sql_has_done(hand, plain):
    with psycopg.connect(kit.database()[0], autocommit=True) as other:
        other.execute("listen holdfast_workflow")
        run = plain.one("start", type=TYPE, payload="1", key=None)
        assert [(one.channel, one.payload) for one in other.notifies(timeout=5, stop_after=1)] == [("holdfast_workflow", "")]
        plain("cancel", id=run)
        assert len(list(other.notifies(timeout=5, stop_after=1))) == 1


@pytest.mark.parametrize("how", ["start", "plan", "take", "tell", "cancel", "keep"])
def test_a_role_needs_no_more_than_the_page_grants(hand, plain, how):
    """The triggers run with the rights of whoever sends the statement."""
    role = f"plain_{plain.connection.info.dbname}"
    plain.connection.execute(sql.SQL("drop role if exists {0}; create role {0}").format(sql.Identifier(role)))
    try:
        plain("grants", role=role)
        if how == "plan":
            hand.publish(hear("A"), task("B"))
        plain.connection.execute(sql.SQL("grant usage on schema turned to {0}; set role {0}").format(sql.Identifier(role)))
        run = plain.one("start", type=TYPE, payload="1", key=None)
        if how == "take":
            plain("take", type=TYPE, me="p1")
            plain("heartbeat", id=run, me="p1")
            assert plain("succeed", id=run, me="p1", result="1")
        elif how == "tell":
            plain("tell", id=run, what="note", data="{}")
        elif how == "cancel":
            plain("cancel", id=run)
            plain("steps", id=run)
            plain("runs")
        elif how == "plan":
            plain("emit", topic="parcel", event="e", payload="1")
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
    assert {name: text for name, text in statements().items() if name != "grants"}.items() <= newest.items()
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
        monkeypatch.setattr(migrate, "schemas", lambda kept=(*migrate.schemas(), LATER): list(kept))
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
    assert [row[1] for row in plain("trail", id=first)] == ["created", "leased", "started", "note", "succeeded"]
    assert plain("fail", id=taken("b"), me="p1", error="no") != []
    assert plain("give_back", id=taken("c"), me="p1") != []
    assert plain("cancel", id=plain.one("find", key="c")[0]) != []
    assert plain("cancel_pending_or_leased", id=start("d")) == 1
    run = taken("e")
    assert plain("retry", id=run, me="p1", error="no", seconds=9) == [("pending",)]
    assert plain("hurry", id=run) == [(run,)]
    assert plain("cancel", id=run) != []
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
