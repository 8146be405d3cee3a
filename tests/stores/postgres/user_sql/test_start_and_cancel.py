"""Inserts by user SQL: each is a start, like one by the verb."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from holdfast.codec import digest
from holdfast.errors import KeyReused
from holdfast.lifecycle import Status
from holdfast.records import NewRun, RunFilter
from holdfast.testing.contract.driver import TYPE, gate, hear, nap, task
from tests.stores.postgres.user_sql.user_sql import refused, started

MORE = "insert into workflow.workflow_run ({}) values ({}) returning id"


@pytest.mark.spec("SQL-1")
def test_an_insert_is_a_whole_start(driver, user_sql):
    """Pending, due, in the trail, with 3 attempts and priority 100; a worker of the engine takes it."""
    run = started(user_sql)
    shown = driver.get(run)
    assert (shown.status, shown.priority, shown.max_attempts, shown.attempt) == (Status.PENDING, 100, 3, 0)
    assert (shown.params_json, shown.tenant, shown.key) == ('{"n": 1}', "default", None)
    assert shown.run_at == shown.created_at == shown.updated_at
    assert [(entry.type, entry.data, entry.told) for entry in driver.trail(run)] == [
        ("created", {"type": TYPE}, False)
    ]
    claim = driver.take(run)
    assert (claim.attempt, claim.steps, claim.params) == (1, (), '{"n": 1}')
    driver.complete(claim)
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-1", "LEASE-4")
def test_its_fence_is_none_that_was_ever_given(driver, user_sql):
    """The id may be that of a purged run, whose holder must not be able to write."""
    claim = driver.held()
    driver.complete(claim)
    driver.purge(ttl_seconds=0)
    assert driver.get(claim.id) is None
    user_sql(MORE.format("id, type", f"'{claim.id}', '{TYPE}'"))
    assert driver.take(claim.id).fence > claim.fence
    assert driver.checkpoint(claim).answer == "lost"


@pytest.mark.spec("SQL-1")
def test_a_key_that_is_taken_answers_no_row(driver, user_sql):
    run = started(user_sql, key="order:42")
    before = driver.everything()
    assert user_sql("start", type="shop.other.v1", payload="null", key="order:42") == []
    assert user_sql.one("find", key="order:42") == (run, "pending")
    assert driver.everything() == before


@pytest.mark.spec("SQL-1")
def test_what_is_left_out_is_as_the_published_workflow_says(driver, user_sql):
    driver.publish(type=TYPE, max_attempts=7, timeout_seconds=60.0, budget=5)
    shown = driver.get(started(user_sql))
    assert (shown.max_attempts, shown.timeout_seconds, shown.budget_units) == (7, 60.0, 5)
    assert (shown.timeout_at - shown.created_at).total_seconds() == 60
    given = user_sql.one(MORE.format("type, max_attempts, timeout_seconds", f"'{TYPE}', 2, 5"))
    shown = driver.get(given)
    assert (shown.max_attempts, shown.timeout_seconds) == (2, 5.0)


@pytest.mark.spec("SQL-1")
@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ((task("A"), gate("B")), Status.PENDING),
        ((gate("A", 60.0), task("B")), Status.WAITING),
        ((hear("A"), task("B")), Status.WAITING),
        ((nap("A", 0.0), nap("B")), Status.WAITING),
    ],
)
def test_a_plan_begins_as_it_does_by_the_verb(driver, user_sql, steps, status):
    """All its rows, and the first is current: the same run as one that was started by the verb."""
    driver.publish(*steps)
    run, other = started(user_sql), driver.start()
    assert driver.status(run) is status
    assert [replace(step, fence=0) for step in driver.steps(run)] == [
        replace(step, fence=0) for step in driver.steps(other)
    ]
    assert [(one.type, one.data) for one in driver.trail(run)] == [
        (one.type, one.data) for one in driver.trail(other)
    ]
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-1")
def test_an_event_from_before_the_insert_is_not_for_the_run(driver, user_sql):
    driver.emit(id="before")
    driver.publish(hear("A"), task("B"))
    run = started(user_sql)
    assert driver.status(run) is Status.WAITING
    user_sql("emit", topic="parcel", event="after", payload='{"kg": 3}')
    driver.deliver()
    assert driver.status(run) is Status.PENDING
    assert json.loads(driver.step(run, "A").output)["payload"] == {"kg": 3}


@pytest.mark.spec("SQL-1")
@pytest.mark.parametrize(
    "type", ["", "shop", "shop.order", "shop.order.v0", "shop.order.1", "shop order.x.v1", f"{TYPE}\n"]
)
def test_a_malformed_type_is_refused(driver, user_sql, type):
    words = "is not a workflow type: write domain.action.vN"
    assert refused(user_sql, words, "start", type=type, payload="1", key=None) == "HF007"
    assert driver.trail() == []


@pytest.mark.spec("SQL-1", "SQL-7")
@pytest.mark.parametrize(
    ("columns", "values", "words"),
    [
        ("status", "'leased'", "leave out status"),
        ("status, finished_at", "'succeeded', now()", "leave out finished_at, status"),
        ("fence, attempt", "7, 1", "leave out attempt, fence"),
        ("result", "'1'", "leave out result"),
        ("parent_step", "'A'", "leave out parent_step"),
        ("priority", "1000", "0 to 999"),
        ("max_attempts", "0", "at least 1"),
        ("run_at", "'infinity'", "1970 to 9998"),
        ("labels", "'[1]'", "an object of text"),
        ("labels", "'{\"n\": 1}'", "an object of text"),
        ("payload", r"'\"\u0000\"'".replace('\\"', '"'), "holds a NUL character"),
        ("payload", r"'\"\ud800\"'".replace('\\"', '"'), "holds half of a surrogate pair"),
        ("idempotency_key", "''", "1 to 255"),
        ("idempotency_key", r"U&'a\001Fb'", "U\\+001F"),
        ("tenant", r"U&'a\001Fb'", "U\\+001F"),
        ("parent_id", "gen_random_uuid()", "no run"),
    ],
)
def test_what_no_start_may_say_is_refused(driver, user_sql, columns, values, words):
    refused(user_sql, words, MORE.format("type, " + columns, f"'{TYPE}', " + values))
    assert driver.trail() == []


@pytest.mark.spec("SQL-7")
def test_another_tenants_key_is_scoped_and_shown_as_it_was_given(driver, user_sql):
    """One unique index; the default tenant's keys as they are, others behind tenant and U+001F."""
    mine = started(user_sql, key="k")
    theirs = user_sql.one("start_later", type=TYPE, payload="1", key="k", tenant="acme")
    assert user_sql("start_later", type=TYPE, payload="1", key="k", tenant="acme") == []
    stored = dict(user_sql("select id, idempotency_key from workflow.workflow_run"))
    assert stored == {mine: "k", theirs: "acme\x1fk"}
    assert user_sql.one("find_of_tenant", tenant="acme", key="k")[0] == theirs
    assert driver.get(theirs).key == "k"
    assert driver.run(driver.store.list(RunFilter(tenant="acme", key="k")))[0].id == theirs
    bare = "select idempotency_key from workflow.workflow_run_live where id = :'id'"
    assert user_sql.one(bare, id=theirs) == "k"
    same = NewRun(id=driver.id(), type=TYPE, params="1", tenant="acme", key="k", digest=digest(TYPE, "1"))
    assert driver.start_many([same])[0].id == theirs
    index = "select indexdef from pg_catalog.pg_indexes where indexname = 'idx_workflow_run_idempotency'"
    assert user_sql.one(index).startswith("CREATE UNIQUE INDEX")
    assert user_sql.one(index).endswith("ON workflow.workflow_run USING btree (idempotency_key)")


@pytest.mark.spec("SQL-1", "START-4")
def test_a_start_by_the_engine_finds_the_same_values_under_its_key(driver, user_sql):
    """In whatever form their JSON was written; other values, or another type, are a conflict."""
    run = started(user_sql, payload='{"b": 1.0,  "a": [null]}', key="k")

    def again(params, type=TYPE):
        new = NewRun(id=driver.id(), type=type, params=params, digest=digest(type, params), key="k")
        return driver.start_many([new])[0]

    assert (again('{"a":[null],"b":1}').id, again('{"a":[null],"b":1}').created) == (run, False)
    assert isinstance(again('{"a":[],"b":1}'), KeyReused)
    assert isinstance(again('{"a":[null],"b":1}', "shop.other.v1"), KeyReused)


@pytest.mark.spec("SQL-1")
def test_an_insert_that_is_rolled_back_never_was(driver, user_sql):
    with user_sql.connection.transaction(force_rollback=True):
        started(user_sql, key="k")
    assert driver.trail() == []
    assert started(user_sql, key="k")
