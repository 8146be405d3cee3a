"""Guards: the fast paths use the guard of the machine, and the tables refuse rows that no move may leave."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import apsw
import pytest

from holdfast.lifecycle import RULES, Move, Status, StepStatus
from holdfast.records import ANY, Item
from holdfast.records.moves import Complete, Fail, Retry
from holdfast.stores.sqlite.sql import FOLDER, statements
from tests.stores.sqlite.files import ask, new_run, raw_connection, with_store


def guarded(sql):
    """Return the statuses that the last condition of a statement accepts."""
    condition = sql.partition("returning ")[0].rpartition("where ")[2]
    listed = re.search(r"\bstatus in \(([^)]*)\)", condition)
    if listed is not None:
        return set(re.findall(r"'(\w+)'", listed[1]))
    return set(re.findall(r"\bstatus = '(\w+)'", condition))


@pytest.mark.spec("MOVE-1")
def test_what_claims_many_runs_at_once_lets_those_through_that_the_table_of_moves_names():
    """In the very statement that takes them. All other moves ask the table itself, in the machine."""
    sql = statements("claiming/claim")["claim"]
    assert guarded(sql) == {status.value for status in RULES[Move.CLAIM].sources}


@pytest.mark.spec("LEASE-4")
@pytest.mark.parametrize("statement", ["begin", "checkpoint", "whole", "started", "complete", "advance"])
def test_what_is_written_many_at_once_is_guarded_item_by_item(statement):
    """Leased, under this item's own fence, and not past its time: in the very statement that writes."""
    sql = statements("fast_writes")[statement]
    assert "status = 'leased'" in sql
    assert "lease_until >= :now" in sql
    assert "fence = item.value ->> 1" in sql or "workflow_run.fence = item.fence" in sql


@pytest.mark.spec("MOVE-6")
def test_the_tables_know_exactly_the_statuses_of_the_machine():
    """Statuses in the checks are those in lifecycle.py, no more and no fewer."""
    schema = " ".join((FOLDER / "schema" / "0001.sql").read_text().split())
    checks = re.findall(r"status text not null(?: default '\w+')? check \(([^)]*)\)", schema)
    found = [set(re.findall(r"status = '(\w+)'", check)) for check in checks[:2]]
    assert found == [{status.value for status in Status}, {status.value for status in StepStatus}]


@pytest.mark.spec("MOVE-6")
@pytest.mark.parametrize(
    "change",
    [
        "status = 'running'",
        "status = 'leased'",
        "leased_by = 'someone', lease_until = 5",
        "status = 'leased', leased_by = 'someone'",
        "status = 'succeeded'",
        "finished_at = 5",
        "status = 'paused'",
    ],
)
def test_a_row_that_no_move_leaves_behind_is_refused_by_the_table(tmp_path, change):
    """Unknown status, lease without holder, holder without lease, end without its time: all refused."""
    path = tmp_path / "holdfast.db"
    with_store(path, lambda store: store.start([new_run()]))
    with raw_connection(path) as db, pytest.raises(apsw.ConstraintError):
        db.execute(f"update workflow_run set {change}")


@pytest.mark.spec("MOVE-6")
def test_one_seq_and_one_key_of_a_run_have_one_row(tmp_path):
    """A second row of one (run, seq) or (run, key) is refused, and a step status nobody knows too."""
    path = tmp_path / "holdfast.db"
    with_store(path, lambda store: store.start([new_run()]))
    insert = "insert into workflow_step (run_id, seq, key, kind, status) values ('r', ?, ?, 'task', ?)"
    with raw_connection(path) as db:
        db.execute(insert, (1, "a", "succeeded"))
        for row in [(1, "b", "succeeded"), (2, "a", "succeeded"), (2, "b", "done")]:
            with pytest.raises(apsw.ConstraintError):
                db.execute(insert, row)


@pytest.mark.spec("SQL-3", "STORE-2")
def test_plain_sql_reads_what_the_interface_shows(tmp_path):
    """Ids, statuses and JSON are text that a person can read; instants are integer microseconds."""
    path = tmp_path / "holdfast.db"
    run = new_run(params='{"n":1}', key="order:42", tenant="acme")

    async def story(store):
        await store.start([run])
        return await store.get(run.id, ANY)

    shown = with_store(path, story)
    with raw_connection(path) as db:
        row = db.execute(
            "select id, status, payload, idempotency_key, attempt, typeof(created_at) from workflow_run"
        ).fetchone()
    assert row == (str(run.id), shown.status, '{"n":1}', "acme\x1forder:42", 0, "integer")
    assert shown.key == "order:42"


@pytest.mark.spec("SQL-3")
@pytest.mark.parametrize("move", [Move.COMPLETE, Move.FAIL, Move.RETRY])
def test_a_plain_select_reads_how_a_run_has_ended(tmp_path, move):
    """By Python's own sqlite3, which knows nothing of us: status, result, last_error, attempt."""
    path, run = tmp_path / "holdfast.db", new_run()
    error = '{"kind":"fatal","message":"no stock"}'
    ends = {
        Move.COMPLETE: Complete(result='{"paid":[1,"ä"]}'),
        Move.FAIL: Fail(error=error, last_error="fatal: no stock", kind="fatal"),
        Move.RETRY: Retry(error=error, last_error="fatal: no stock", delay_seconds=60.0),
    }

    async def story(store):
        await store.start([run])
        (claim,) = await store.claim(ask())
        await store.commit([Item(run=run.id, fence=claim.fence, number=1, move=ends[move])])
        return await store.get(run.id, ANY)

    shown = with_store(path, story)
    with closing(sqlite3.connect(path)) as db:
        row = db.execute(
            "select status, result, last_error, attempt from workflow_run where id = ?", (str(run.id),)
        ).fetchone()
    assert row == (shown.status.value, shown.result_json, shown.last_error, shown.attempt)
    assert row[0] == {Move.COMPLETE: "succeeded", Move.FAIL: "failed", Move.RETRY: "pending"}[move]
