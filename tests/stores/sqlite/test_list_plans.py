"""The plans of lists by filters on SQLite: each driver uses its index, in its order."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import apsw
import pytest

from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, RunFilter
from holdfast.stores.run_filter import inside
from holdfast.stores.sqlite import listing, migrate
from holdfast.stores.sqlite.connection.database import Database

NO_VALUES = defaultdict(lambda: None)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def db():
    db = Database(lambda: apsw.Connection(":memory:"))
    migrate.migrate(db, ":memory:")
    yield db
    db.close()


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize(
    ("where", "indexes"),
    [
        ({"labels": {"a": "1"}}, ["PRIMARY KEY (name=? AND value=? AND run_id>? AND run_id<?)"]),
        ({"labels": {"a": None}}, ["idx_workflow_label_name (name=? AND run_id>? AND run_id<?)"]),
        ({"error": "a"}, ["idx_workflow_run_error (<expr>=? AND id>? AND id<?)"]),
        ({"error": "a%"}, ["idx_workflow_run_error (<expr>>? AND <expr><?)"]),
        ({"error": ("a", "b")}, ["idx_workflow_run_error (<expr>=?)"]),
        ({"roots": True}, ["idx_workflow_run_roots (id>? AND id<?)"]),
        (
            {"tenant": "acme"},
            [
                f"idx_workflow_run_tenant_{part} (tenant=? AND id>? AND id<?)"
                for part in ("roots", "children")
            ],
        ),
        (
            {"tenant": "acme", "roots": True},
            ["idx_workflow_run_tenant_roots (tenant=? AND id>? AND id<?)"],
        ),
        ({"statuses": (Status.WAITING,)}, ["idx_workflow_run_status (status=? AND id>? AND id<?)"]),
        ({"waiting_on": StepKind.SLEEP}, ["idx_workflow_step_open (run_id>? AND run_id<?)"]),
        (
            {"finished_since": AT},
            ["idx_workflow_run_finished (finished_at>?", "idx_workflow_run_finished_ttl"],
        ),
        (
            {"updated_until": AT},
            ["idx_workflow_run_changed (updated_at>?", "idx_workflow_run_odd_id (created_at>?"],
        ),
    ],
    ids=str,
)
def test_each_driver_uses_its_index(db, where, indexes):
    """Without a sort, except that of several statuses together."""
    driver = next(iter(listing._drivers(inside(RunFilter(**({"tenant": ANY} | where))))))
    plan = "\n".join(row[3] for row in db.all(f"explain query plan {driver.sql}", NO_VALUES))
    for index in indexes:
        assert index in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN workflow_run\n" not in f"{plan}\n"


@pytest.mark.spec("READ-2")
def test_ids_are_checked_one_by_one(db):
    """The planner looks up each id, whatever the terms are."""
    terms, _ = listing._terms(RunFilter(error="%", statuses=(Status.FAILED,), roots=True, finished_since=AT))
    sql = listing._SQL["matching"].replace("$terms", " and ".join(terms))
    plan = [row[3] for row in db.all(f"explain query plan {sql}", NO_VALUES)]
    assert any("json_each" in line for line in plan), plan
    assert any(line.startswith("SEARCH workflow_run") and line.endswith("id=?)") for line in plan), plan


def test_open_waits_drive_no_list_that_has_another_driver():
    """A walk over them passes the waits of all other kinds."""
    for fields, drives in (
        ({"labels": {"a": "b"}}, False),
        ({"statuses": (Status.WAITING,)}, False),
        ({}, True),
    ):
        where = RunFilter(waiting_on=StepKind.APPROVAL, roots=True, **fields)
        assert any("idx_workflow_step_open" in one.sql for one in listing._drivers(where)) is drives
