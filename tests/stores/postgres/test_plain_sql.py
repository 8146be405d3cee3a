"""Plain SQL of a stranger: an insert is a start, as good as by the verb."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from holdfast.codec import digest
from holdfast.errors import KeyReused
from holdfast.lifecycle import Status
from holdfast.records import NewRun, RunFilter
from holdfast.testing.contract.hand import TYPE, gate, hear, nap, task
from tests.stores.postgres.stranger import refused, started

MORE = "insert into workflow.workflow_run ({}) values ({}) returning id"


@pytest.mark.spec("SQL-1")
def test_an_insert_is_a_whole_start(hand, plain):
    """Pending, due, in the trail, of 3 attempts and priority 100; a worker of the engine takes it."""
    run = started(plain)
    shown = hand.get(run)
    assert (shown.status, shown.priority, shown.max_attempts, shown.attempt) == (Status.PENDING, 100, 3, 0)
    assert (shown.params_json, shown.tenant, shown.key) == ('{"n": 1}', "default", None)
    assert shown.run_at == shown.created_at == shown.updated_at
    assert [(entry.type, entry.data, entry.told) for entry in hand.trail(run)] == [
        ("created", {"type": TYPE}, False)
    ]
    claim = hand.take(run)
    assert (claim.attempt, claim.steps, claim.params) == (1, (), '{"n": 1}')
    hand.complete(claim)
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-1", "LEASE-4")
def test_its_fence_is_none_that_was_ever_given(hand, plain):
    """Its id may be that of a run that was purged, whose holder must stay shut out."""
    claim = hand.held()
    hand.complete(claim)
    hand.purge(ttl_seconds=0)
    assert hand.get(claim.id) is None
    plain(MORE.format("id, type", f"'{claim.id}', '{TYPE}'"))
    assert hand.take(claim.id).fence > claim.fence
    assert hand.checkpoint(claim).answer == "lost"


@pytest.mark.spec("SQL-1")
def test_a_key_that_is_taken_answers_no_row(hand, plain):
    run = started(plain, key="order:42")
    before = hand.everything()
    assert plain("start", type="shop.other.v1", payload="null", key="order:42") == []
    assert plain.one("find", key="order:42") == (run, "pending")
    assert hand.everything() == before


@pytest.mark.spec("SQL-1")
def test_what_is_left_out_is_as_the_published_workflow_says(hand, plain):
    hand.publish(type=TYPE, max_attempts=7, timeout_seconds=60.0, budget=5)
    shown = hand.get(started(plain))
    assert (shown.max_attempts, shown.timeout_seconds, shown.budget_units) == (7, 60.0, 5)
    assert (shown.timeout_at - shown.created_at).total_seconds() == 60
    given = plain.one(MORE.format("type, max_attempts, timeout_seconds", f"'{TYPE}', 2, 5"))
    shown = hand.get(given)
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
def test_a_plan_begins_as_it_does_by_the_verb(hand, plain, steps, status):
    """All its rows, and the first is current: the same run as one that was started by the verb."""
    hand.publish(*steps)
    run, other = started(plain), hand.start()
    assert hand.status(run) is status
    assert [replace(step, fence=0) for step in hand.steps(run)] == [
        replace(step, fence=0) for step in hand.steps(other)
    ]
    assert [(one.type, one.data) for one in hand.trail(run)] == [
        (one.type, one.data) for one in hand.trail(other)
    ]
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-1")
def test_an_event_from_before_the_insert_is_not_for_the_run(hand, plain):
    hand.emit(id="before")
    hand.publish(hear("A"), task("B"))
    run = started(plain)
    assert hand.status(run) is Status.WAITING
    plain("emit", topic="parcel", event="after", payload='{"kg": 3}')
    hand.deliver()
    assert hand.status(run) is Status.PENDING
    assert json.loads(hand.step(run, "A").output)["payload"] == {"kg": 3}


@pytest.mark.spec("SQL-1")
@pytest.mark.parametrize(
    "type", ["", "shop", "shop.order", "shop.order.v0", "shop.order.1", "shop order.x.v1", f"{TYPE}\n"]
)
def test_a_malformed_type_is_refused(hand, plain, type):
    assert (
        refused(
            plain, "is no workflow type: write domain.action.vN", "start", type=type, payload="1", key=None
        )
        == "HF007"
    )
    assert hand.trail() == []


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
def test_what_no_start_may_say_is_refused(hand, plain, columns, values, words):
    refused(plain, words, MORE.format("type, " + columns, f"'{TYPE}', " + values))
    assert hand.trail() == []


@pytest.mark.spec("SQL-7")
def test_another_tenants_key_is_scoped_and_shown_as_it_was_given(hand, plain):
    """One plain unique index; the default tenant's keys as they are, others behind tenant and U+001F."""
    mine = started(plain, key="k")
    theirs = plain.one("start_later", type=TYPE, payload="1", key="k", tenant="acme")
    assert plain("start_later", type=TYPE, payload="1", key="k", tenant="acme") == []
    stored = dict(plain("select id, idempotency_key from workflow.workflow_run"))
    assert stored == {mine: "k", theirs: "acme\x1fk"}
    assert plain.one("find_of_tenant", tenant="acme", key="k")[0] == theirs
    assert hand.get(theirs).key == "k"
    assert hand.run(hand.store.list(RunFilter(tenant="acme", key="k")))[0].id == theirs
    bare = "select idempotency_key from workflow.workflow_run_live where id = :'id'"
    assert plain.one(bare, id=theirs) == "k"
    same = NewRun(id=hand.id(), type=TYPE, params="1", tenant="acme", key="k", digest=digest(TYPE, "1"))
    assert hand.start_many([same])[0].id == theirs
    index = "select indexdef from pg_catalog.pg_indexes where indexname = 'idx_workflow_run_idempotency'"
    assert plain.one(index).startswith("CREATE UNIQUE INDEX")
    assert plain.one(index).endswith("ON workflow.workflow_run USING btree (idempotency_key)")


@pytest.mark.spec("SQL-1", "START-4")
def test_a_start_by_the_engine_finds_the_same_values_under_its_key(hand, plain):
    """However their JSON was written; other values, or another type, are a conflict."""
    run = started(plain, payload='{"b": 1.0,  "a": [null]}', key="k")

    def again(params, type=TYPE):
        new = NewRun(id=hand.id(), type=type, params=params, digest=digest(type, params), key="k")
        return hand.start_many([new])[0]

    assert (again('{"a":[null],"b":1}').id, again('{"a":[null],"b":1}').created) == (run, False)
    assert isinstance(again('{"a":[],"b":1}'), KeyReused)
    assert isinstance(again('{"a":[null],"b":1}', "shop.other.v1"), KeyReused)


@pytest.mark.spec("SQL-1")
def test_an_insert_that_is_rolled_back_never_was(hand, plain):
    with plain.connection.transaction(force_rollback=True):
        started(plain, key="k")
    assert hand.trail() == []
    assert started(plain, key="k")
