"""Cost of lists by filters on Postgres: each takes its index, and a slice reads a bounded number of rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast.contract import OUTLINES_MAX
from holdfast.lifecycle import Status
from holdfast.records import ANY, RunFilter
from holdfast.stores.postgres.verbs.calls import json_text
from holdfast.stores.run_filter import inside
from tests.stores.postgres import kit

MANY = 20_000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
# A run a minute. Nine of ten have a label that a list cannot use to choose; one in 500 has another one.
FILL = """
set search_path = workflow;
insert into workflow_run (
    id, type, status, max_attempts, rev, finished_at, parent_id, labels, error, created_at, updated_at
)
select (
        lpad(to_hex((extract(epoch from m.at) * 1000)::bigint), 12, '0') || '70008000'
        || lpad(to_hex(n), 12, '0')
    )::uuid, 'shop.order.v1', m.status, 3, 5, m.at,
    case when n % 200 > 0 then '018bcfe5-0000-7000-8000-000000000001'::uuid end,
    ('{"customer":"' || (n % 500) || '","env":"' || case when n % 10 = 0 then 'test' else 'prod' end
        || '"}')::json,
    case when m.status = 'failed' then ('{"kind":"fatal","type":"ValueError","step":"s' || (n / 10 % 100)
        || '","message":"no card"}')::json end, m.at, m.at
from generate_series(1, 20000) as n
cross join lateral (select timestamptz '2026-01-01 00:00Z' + n * interval '1 minute' as at,
    case when n % 10 = 1 then 'failed' else 'succeeded' end as status) as m;
insert into workflow_event (workflow_id, event_type, created_at, told)
select id, 'created', created_at, false from workflow_run order by id;
"""
# Two other tenants, whose runs are older: one has a single run, the other 2,100 with a label of most runs.
OTHERS = """
set search_path = workflow;
insert into workflow_run (id, tenant, type, max_attempts, rev, labels, created_at, updated_at)
select (
        lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '70008000'
        || lpad(to_hex(n), 12, '0')
    )::uuid, case when n = 0 then 'small' else 'half' end, 'shop.order.v1', 3, 5,
    case when n > 0 then '{"env":"prod"}'::json end, at, at
from generate_series(0, 2100) as n
cross join lateral (select timestamptz '2025-01-01 00:00Z' + n * interval '1 minute' as at) as m;
"""
READ = """
select coalesce(sum(seq_tup_read), 0) + coalesce(sum(idx_tup_fetch), 0) from pg_stat_xact_user_tables
where relname in ('workflow_run', 'workflow_label', 'workflow_event')
"""
TABLES = "workflow.workflow_run, workflow.workflow_label, workflow.workflow_event"
KINDS = "uuid, uuid, text[], text[], uuid, text[], text[], timestamptz[], text[], uuid[], integer"
ALONE = "set local search_path = workflow; set local enable_seqscan = off; set local enable_bitmapscan = off"
ODD_IDS = "select id from workflow_run where is_odd_id(id, created_at) and created_at >= $8[3] limit $11"
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def full():
    """A connection to a store with many runs."""
    _, connection = kit.database()
    connection.execute("select workflow.wipe()")
    connection.execute(f"truncate {TABLES}")
    connection.execute(FILL)
    connection.execute(OTHERS)
    connection.execute(f"vacuum analyze {TABLES}")
    yield connection
    connection.execute("truncate workflow.workflow_label")
    connection.execute("select workflow.wipe()")


def slice_of(connection, where, after=None):
    """One slice of a list of ten: runs, where the next begins, and how many rows were read."""
    text = json_text(inside(RunFilter(**({"tenant": ANY} | where))))
    with connection.transaction():
        (before,) = connection.execute(READ).fetchone()
        (found,) = connection.execute("select workflow.list_page(%s, 10, %s)", (text, after)).fetchone()
        (now,) = connection.execute(READ).fetchone()
    return found["runs"], found["after"], now - before


STEPS_AND_TRAIL = """
select coalesce(sum(seq_scan), 0) + coalesce(sum(idx_scan), 0) from pg_stat_xact_user_tables
where relname in ('workflow_step', 'workflow_event', 'workflow_account')
"""


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("where", [{}, {"tenant": "default"}, {"tenant": "default", "statuses": ("failed",)}])
def test_outlines_read_the_rows_of_runs_alone(full, where):
    """A whole record of a run also needs its steps and its waits."""
    text = json_text(inside(RunFilter(**({"tenant": ANY} | where))))
    looked = []
    for verb in ("outlines", "list"):
        with full.transaction():
            (before,) = full.execute(STEPS_AND_TRAIL).fetchone()
            (found,) = full.execute(f"select workflow.{verb}(%s, 100, null)", (text,)).fetchone()
            looked.append(full.execute(STEPS_AND_TRAIL).fetchone()[0] - before)
            assert len(found) == 100
    assert looked[0] == 0
    assert looked[1] >= 100


@pytest.mark.spec("READ-1")
def test_one_answer_has_at_most_a_thousand_outlines(full):
    """Whatever limit a reader names who calls the function."""
    for tenant in ("null", '"default"'):
        text = f'{{"tenant":{tenant},"statuses":[]}}'
        (found,) = full.execute("select workflow.outlines(%s, 2147483647, null)", (text,)).fetchone()
        assert len(found) == OUTLINES_MAX


FEW = {
    "label": {"labels": {"customer": "77"}},
    "labels": {"labels": {"customer": "77", "env": "prod"}},
    "no run": {"labels": {"customer": "70", "env": "prod"}},
    "started": {"created_since": FIRST + 9 * HOUR, "created_until": FIRST + 10 * HOUR},
    "started before": {"created_until": FIRST + 2 * HOUR},
    "ended": {"finished_since": FIRST + 9 * HOUR, "finished_until": FIRST + 10 * HOUR},
    "ended before": {"finished_until": FIRST + 2 * HOUR},
    "changed": {"updated_since": FIRST + 9 * HOUR, "updated_until": FIRST + 10 * HOUR},
    "changed since": {"updated_since": FIRST + 330 * HOUR},
    "roots": {"roots": True},
    "error": {"error": "ValueError at s7: no card"},
    "error prefix": {"error": "ValueError at s7%"},
    "no such error": {"error": "KeyError%"},
    "label and error": {"labels": {"env": "prod"}, "error": "ValueError at s7: no card"},
    "rare label and status": {"labels": {"customer": "71"}, "statuses": (Status.FAILED,)},
    "large label, early": {"labels": {"env": "prod"}, "created_until": FIRST + 3 * HOUR},
}


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize("where", FEW.values(), ids=FEW)
def test_a_list_by_a_filter_reads_little_more_than_it_shows(full, where):
    """By the index of its most selective filter. Counting another costs at most 2,000 index entries."""
    runs, after, read = slice_of(full, where)
    assert len(runs) == (0 if "no" in [name.split()[0] for name, one in FEW.items() if one is where] else 10)
    assert (after is None) or runs
    assert read <= 2_600, read


@pytest.mark.spec("READ-2")
def test_filters_that_have_nothing_in_common_are_read_in_slices(full):
    """Each slice is bounded, and all of them together reach the end."""
    where = {"roots": True, "error": "ValueError%", "labels": {"env": "prod"}}
    after, slices = None, 0
    while True:
        runs, after, read = slice_of(full, where, after)
        slices += 1
        assert runs == []
        assert read <= 25_000
        if after is None:
            break
    assert slices <= 2
    text = json_text(inside(RunFilter(tenant=ANY, **where)))
    assert full.execute("select workflow.list(%s, 10, null)", (text,)).fetchone() == ([],)


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize(
    ("where", "looked_at", "most"),
    [
        ({}, 2000, 6_500),
        ({"labels": {"customer": "77"}}, 40, 2_600),
        ({"error": "ValueError%"}, 2000, 12_000),
        ({"labels": {"env": "prod"}}, 2000, 12_000),
        ({"type": "shop.none.v1"}, 0, 9_000),
    ],
    ids=str,
)
def test_one_call_of_a_search_reads_a_bounded_number_of_rows(full, where, looked_at, most):
    """No run holds the text. It looks at no more than 2,000 of the runs that match the filter."""
    text = json_text(inside(RunFilter(tenant=ANY, **where)))
    with full.transaction():
        (before,) = full.execute(READ).fetchone()
        (found,) = full.execute("select workflow.search('zebra', %s, 10, null)", (text,)).fetchone()
        (now,) = full.execute(READ).fetchone()
    assert (found["runs"], found["looked_at"]) == ([], looked_at)
    assert (found["after"] is None) == ("customer" in str(where) or "error" in where)
    assert now - before <= most, now - before


@pytest.mark.spec("READ-2", "READ-4")
@pytest.mark.parametrize("where", [{}, {"roots": True}, {"statuses": (Status.PENDING,)}], ids=str)
def test_a_tenant_pays_nothing_for_the_runs_of_others(full, where):
    runs, after, read = slice_of(full, {"tenant": "small", **where})
    assert (len(runs), after) == (1, None)
    assert read <= 20, read


@pytest.mark.spec("TEN-2")
def test_the_place_of_a_search_is_made_from_ids_of_the_own_tenant(full):
    """The slice walks runs of others, by a label that most runs have, and finds none of the own tenant."""
    text = json_text(inside(RunFilter(tenant="half", labels={"env": "prod"})))
    (newest,) = full.execute(
        "select max(id::text) from workflow.workflow_run where tenant = 'half'"
    ).fetchone()
    after, looked_at, places = None, 0, []
    while True:
        (found,) = full.execute("select workflow.search('zebra', %s, 10, %s)", (text, after)).fetchone()
        looked_at, after = looked_at + found["looked_at"], found["after"]
        if after is None:
            break
        places.append(UUID(after))
    assert looked_at == 2_100
    assert places[0].int == UUID(newest).int + 1
    assert len(places) == 2


def test_counting_children_reads_those_that_are_counted(full):
    """Although nearly all runs are children of one run: its count ends at the most, and others have none."""
    parent = "018bcfe5-0000-7000-8000-000000000001"
    with full.transaction(force_rollback=True):
        full.execute(
            "insert into workflow.workflow_run (id, type, max_attempts, rev) values (%s, 'a.b.v1', 3, 5)",
            (parent,),
        )
        (before,) = full.execute(READ).fetchone()
        (found,) = full.execute(
            "select workflow.children(array(select id from workflow.workflow_run order by id desc limit 50)"
            " || %s::uuid, null, 100)", (parent,)
        ).fetchone()  # fmt: skip
        (now,) = full.execute(READ).fetchone()
    assert [(one["run"], sum(one["by_status"].values()), one["more"]) for one in found] == [
        (parent, 100, True)
    ]
    assert now - before < 300


@pytest.mark.spec("TEN-2")
@pytest.mark.parametrize(
    ("own", "place"),
    [
        ("018bcfe5-0000-7000-8000-000000000009", "018bcfe5-0000-7000-8000-00000000000a"),
        ("018bcfe5-0000-7000-8000-0000000fffff", "018bcfe5-0000-7000-8000-000000100000"),
        ("018bcfe5-0000-7000-8fff-ffffffffffff", "018bcfe5-0000-7000-9000-000000000000"),
    ],
)
def test_the_place_is_the_next_number_after_an_id(full, own, place):
    with full.transaction(force_rollback=True):
        full.execute("set local search_path = workflow")
        full.execute(
            "insert into workflow_run (id, tenant, type, max_attempts, rev)"
            " values (%s, 'odd', 'a.b.v1', 3, 5)",
            (own,),
        )
        (found,) = full.execute(
            "select place_of_tenant('odd', 'ffffffff-ffff-ffff-ffff-ffffffffffff')::text"
        ).fetchone()
    assert found == place


INDEXES = {
    "idx_workflow_run_tenant_roots": {"tenant": "default"},
    "workflow_label_pkey": {"labels": {"customer": "77"}},
    "idx_workflow_label_name": {"labels": {"customer": None}},
    "idx_workflow_run_roots": {"roots": True},
    "idx_workflow_run_error": {"error": "ValueError%"},
    "idx_workflow_run_finished": FEW["ended"],
    "idx_workflow_run_odd_id": FEW["started"],
    "workflow_event_pkey": FEW["changed"],
}


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize("index", INDEXES)
def test_each_filter_uses_its_index(full, index):
    """The plan of its driver names the index, and nothing is read from the table as a whole."""
    where = INDEXES[index]
    wanted = ["77" if index == "workflow_label_pkey" else None]
    since, until = (FIRST + 9 * HOUR).isoformat(), (FIRST + 10 * HOUR).isoformat()
    ever, ranged = ["-infinity", "infinity"], [since, until]
    ended, changed = (ranged if name in where else ever for name in ("finished_since", "updated_since"))
    with full.transaction():
        full.execute(ALONE)
        ((statement,), *_) = full.execute(
            "select statement from drivers_of_filter(%s, %s::text[], %s::timestamptz[])",
            (
                json_text(inside(RunFilter(**({"tenant": ANY} | where)))),
                wanted if "labels" in where else [],
                [*ever, *ended, *changed],
            ),
        ).fetchall()
        if index == "idx_workflow_run_odd_id":
            statement = ODD_IDS
        full.execute(f"prepare driver ({KINDS}) as {statement}")
        times = ",".join([*ever, *ranged, *ranged])
        plan = full.execute(
            "explain execute driver ('ffffffff-ffff-ffff-ffff-ffffffffffff',"
            " '00000000-0000-0000-0000-000000000000', null, '{null,null,null,default,null}', null,"
            f" '{{customer}}', '{{77}}', '{{{times}}}', '{{ValueError}}', null, 20)"
        ).fetchall()
        full.execute("deallocate driver")
    said = "\n".join(row[0] for row in plan)
    assert index in said
    assert "Seq Scan" not in said
