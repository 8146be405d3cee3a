"""Plain SQL of a stranger: starts, cancels, looks and tells, and is as good as a verb."""

from __future__ import annotations

import json

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.codec import digest
from holdfast.errors import KeyReused
from holdfast.lifecycle import FINAL, Status
from holdfast.records import NewRun, RunFilter
from holdfast.testing.contract.hand import TYPE, call, done, gate, hear, listen, nap, task
from tests.stores.postgres.stranger import statements

MORE = "insert into workflow.workflow_run ({}) values ({}) returning id"


def started(plain, **values):
    return plain.one("start", **{"type": TYPE, "payload": '{"n": 1}', "key": None, **values})


def refused(plain, words, text, **values):
    with pytest.raises(psycopg.Error, match=words) as caught:
        plain(text, **values)
    assert "\n" not in caught.value.diag.message_primary
    return caught.value.diag.sqlstate


@pytest.mark.spec("SQL-1")
def test_an_insert_is_a_whole_start(hand, plain):
    """Pending, due, in the trail, of 3 attempts and priority 100; a worker of the engine takes it."""
    run = started(plain)
    shown = hand.get(run)
    assert (shown.status, shown.priority, shown.max_attempts, shown.attempt) == (Status.PENDING, 100, 3, 0)
    assert (shown.params_json, shown.tenant, shown.key) == ('{"n": 1}', "default", None)
    assert shown.run_at == shown.created_at == shown.updated_at
    assert [(entry.type, entry.data, entry.told) for entry in hand.trail(run)] == [("created", {"type": TYPE}, False)]
    claim = hand.take(run)
    assert (claim.attempt, claim.steps, claim.params) == (1, (), '{"n": 1}')
    hand.complete(claim)
    hand.assert_replayed(run)


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
    assert [replace(step, fence=0) for step in hand.steps(run)] == [replace(step, fence=0) for step in hand.steps(other)]
    assert [(one.type, one.data) for one in hand.trail(run)] == [(one.type, one.data) for one in hand.trail(other)]
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-1")
def test_an_event_from_before_the_insert_is_not_for_the_run(hand, plain):
    hand.emit(id="before")
    hand.publish(hear("A"), task("B"))
    run = started(plain)
    assert hand.status(run) is Status.WAITING
    plain("emit", topic="parcel", event="after", payload='{"kg": 3}')
    assert hand.status(run) is Status.PENDING
    assert json.loads(hand.step(run, "A").output)["payload"] == {"kg": 3}


@pytest.mark.spec("SQL-1")
@pytest.mark.parametrize("type", ["", "shop", "shop.order", "shop.order.v0", "shop.order.1", "shop order.x.v1", f"{TYPE}\n"])
def test_a_malformed_type_is_refused(hand, plain, type):
    assert refused(plain, "is no workflow type: write domain.action.vN", "start", type=type, payload="1", key=None) == "HF007"
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
        ("payload", r"'\"\u0000\"'".replace('\\"', '"'), "cannot be read back"),
        ("payload", r"'\"\ud800\"'".replace('\\"', '"'), "cannot be read back"),
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
    """One plain unique index; the default tenant's keys as they are, others behind their tenant and U+001F."""
    mine = started(plain, key="k")
    theirs = plain.one("start_later", type=TYPE, payload="1", key="k", tenant="acme")
    assert plain("start_later", type=TYPE, payload="1", key="k", tenant="acme") == []
    stored = dict(plain("select id, idempotency_key from workflow.workflow_run"))
    assert stored == {mine: "k", theirs: "acme\x1fk"}
    assert plain.one("find_of_tenant", tenant="acme", key="k")[0] == theirs
    assert hand.get(theirs).key == "k"
    assert hand.run(hand.store.list(RunFilter(tenant="acme", key="k")))[0].id == theirs
    assert plain.one("select idempotency_key from workflow.workflow_run_live where id = :'id'", id=theirs) == "k"
    same = NewRun(id=hand.id(), type=TYPE, params="1", tenant="acme", key="k", digest=digest(TYPE, "1"))
    assert hand.start_many([same])[0].id == theirs
    index = "select indexdef from pg_catalog.pg_indexes where indexname = 'idx_workflow_run_idempotency'"
    assert plain.one(index) == (
        "CREATE UNIQUE INDEX idx_workflow_run_idempotency ON workflow.workflow_run USING btree (idempotency_key)"
    )


@pytest.mark.spec("SQL-1", "START-4")
def test_a_start_by_the_engine_finds_the_same_values_under_its_key(hand, plain):
    """However their JSON was written; other values, or another type, are a conflict."""
    run = started(plain, payload='{"b": 1.0,  "a": [null]}', key="k")

    def again(params, type=TYPE):
        (answer,) = hand.start_many([NewRun(id=hand.id(), type=type, params=params, digest=digest(type, params), key="k")])
        return answer

    assert (again('{"a":[null],"b":1}').id, again('{"a":[null],"b":1}').created) == (run, False)
    assert isinstance(again('{"a":[],"b":1}'), KeyReused)
    assert isinstance(again('{"a":[null],"b":1}', "shop.other.v1"), KeyReused)


@pytest.mark.spec("SQL-1")
def test_an_insert_that_is_rolled_back_never_was(hand, plain):
    with pytest.raises(ZeroDivisionError), plain.connection.transaction():
        started(plain, key="k")
        raise ZeroDivisionError
    assert hand.trail() == []
    assert started(plain, key="k")


@pytest.mark.spec("SQL-2")
def test_an_update_to_cancelled_is_a_whole_cancel(hand, plain):
    """Steps, fence, lease, trail, parent and children: as the verb does it."""
    claim, child = hand.held(), hand.id()
    hand.checkpoint(claim, done("a"), listen("b"), call("c", child))
    assert plain("cancel", id=claim.id) == [(claim.id,)]
    shown = hand.get(claim.id)
    assert (shown.status, shown.fence, shown.leased_by) == (Status.CANCELLED, claim.fence + 1, None)
    assert shown.finished_at == shown.updated_at
    assert hand.shape(claim.id) == [("a", "succeeded"), ("b", "cancelled"), ("c", "cancelled")]
    assert hand.last(claim.id, "cancelled") == {"by": "sql:postgres"}
    hand.assert_replayed(claim.id)
    assert hand.complete(claim).answer == "cancelled"
    hand.deliver()
    assert hand.status(child) is Status.CANCELLED
    hand.assert_replayed(child)


@pytest.mark.spec("SQL-2")
def test_a_cancelled_child_tells_its_parent(hand, plain):
    claim, child = hand.held(), hand.id()
    hand.park(claim, call("c", child), known=0)
    plain("cancel", id=child)
    hand.deliver()
    assert (hand.status(claim.id), hand.step(claim.id, "c").status) == (Status.PENDING, "failed")


@pytest.mark.spec("SQL-2")
@pytest.mark.parametrize("status", list(Status))
def test_any_open_run_can_be_cancelled_and_no_other(hand, plain, status):
    run = in_status(hand, plain, status)
    assert plain("cancel", id=run) == ([] if status in FINAL else [(run,)])
    if status in FINAL:
        before = hand.snapshot(run)
        text = "update workflow.workflow_run set status = 'cancelled', updated_at = now() where id = :'id'"
        if status is Status.CANCELLED:
            plain(text, id=run)
        else:
            assert refused(plain, f"cannot cancel run {run} by an update: it is {status}", text, id=run) == "HF002"
            assert hand.snapshot(run) == before
        return
    assert hand.status(run) is Status.CANCELLED
    hand.assert_replayed(run)


def in_status(hand, plain, status):
    """A run there, and a leased one in the hands of a plain worker."""
    if status is Status.LEASED:
        started(plain)
        return plain.one("take", type=TYPE, me="p1")[0]
    if status in {Status.PENDING, Status.PAUSED}:
        run = hand.start()
        return hand.pause(run).id if status is Status.PAUSED else run
    claim = hand.held()
    if status is Status.WAITING:
        hand.park(claim, known=0)
    elif status is Status.CANCELLED:
        hand.cancel(claim.id)
    else:
        (hand.complete if status is Status.SUCCEEDED else hand.fail)(claim)
    return claim.id


LEGAL = {
    (Status.PENDING, Status.LEASED),
    *((Status.LEASED, to) for to in (Status.SUCCEEDED, Status.FAILED, Status.PENDING)),
    *((source, Status.CANCELLED) for source in Status if source not in FINAL),
}


@pytest.mark.spec("MOVE-1", "MOVE-3", "SQL-4")
@pytest.mark.parametrize("to", list(Status))
@pytest.mark.parametrize("source", list(Status))
def test_an_update_makes_no_move_that_there_is_not(hand, plain, source, to):
    """Refused with the true status, and nothing has changed; what is legal is in the trail."""
    if source is to:
        return
    run = in_status(hand, plain, source)
    before = hand.snapshot(run)
    lease = ", leased_by = 'p1', lease_until = now() + interval '9 seconds'" if to is Status.LEASED else ""
    text = f"update workflow.workflow_run set status = '{to}'{lease} where id = :'id'"
    if (source, to) in LEGAL:
        assert plain(text, id=run) == 1
        assert hand.status(run) is to
    else:
        assert refused(plain, f"run {run} by an update: it is {source}", text, id=run) == "HF002"
        assert hand.snapshot(run) == before
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_of_a_pending_run_priority_time_and_labels_may_be_set(hand, plain):
    first, second = hand.start(), hand.start()
    assert plain("hurry", id=second) == [(second,)]
    assert [claim.id for claim in hand.claim()] == [second, first]
    third = hand.start()
    text = "update workflow.workflow_run set priority = -1 where id = :'id'"
    assert refused(plain, "0 to 999", text, id=third) == "HF007"


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    "change",
    ["payload = '7'", "fence = fence + 1", "max_attempts = 9", "type = 'a.b.v1'", "tenant = 'x'", "deleted_at = now()",
     "owes = 1", "attempt = 0 - 1", "id = gen_random_uuid()"],
)  # fmt: skip
def test_what_the_database_keeps_is_not_set(hand, plain, status, change):
    run = in_status(hand, plain, status)
    before = hand.snapshot(run)
    text = f"update workflow.workflow_run set {change} where id = :'id'"
    refused(plain, "leave it out|only priority, run_at and labels", text, id=run)
    assert hand.snapshot(run) == before


def test_a_status_that_nobody_knows_is_refused(hand, plain):
    hand.start()
    refused(plain, "'done' is no status: pending, leased", "update workflow.workflow_run set status = 'done'")


def test_a_deleted_run_is_not_changed(hand, plain):
    run = hand.start()
    hand.delete(run)
    assert plain("cancel", id=run) == []
    hand.restore(run)
    assert hand.status(run) is Status.PENDING


def test_updates_want_read_committed(hand, plain):
    """A snapshot from before would hide the steps that were written since."""
    run = hand.start()
    plain.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with plain.connection.transaction():
        refused(plain, "READ COMMITTED", "cancel", id=run)


@pytest.mark.spec("SQL-8", "MOVE-5")
def test_a_worker_tells_the_trail_and_it_decides_nothing(hand, plain):
    run = hand.start()
    assert plain("tell", id=run, what="succeeded", data='{"status": "failed", "step": "a"}') == 1
    assert plain("insert into workflow.workflow_event (workflow_id, event_type) values (:'id', 'note')", id=run) == 1
    assert [(one.type, one.told) for one in hand.trail(run)] == [("created", False), ("succeeded", True), ("note", True)]
    assert hand.trail(run)[1].data == {"status": "failed", "step": "a"}
    assert hand.status(run) is Status.PENDING
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-8")
@pytest.mark.parametrize(
    ("what", "data", "words"),
    [("note", "[1]", "is an object"), ("note", '{"a":"\\u0000"}', "cannot be read back"), ("", "{}", "1 to 255")],
)
def test_a_trail_row_that_could_not_be_read_is_refused(hand, plain, what, data, words):
    refused(plain, words, "tell", id=hand.start(), what=what, data=data)


@pytest.mark.spec("SQL-8")
def test_a_trail_row_of_no_run_is_refused(hand, plain):
    assert refused(plain, "no run", "tell", id=hand.id(), what="note", data="{}") == "HF001"


@pytest.mark.spec("SQL-8", "TRAIL-3")
def test_who_follows_a_run_by_number_misses_nothing_that_was_told(hand, plain):
    """The number of a told row is taken when the run is his: no later one is seen before it."""
    claim = hand.held()
    with plain.connection.transaction():
        plain("tell", id=claim.id, what="note", data="{}")
        assert hand.checkpoint(claim).answer == "busy"
    seen = hand.trail(claim.id)[-1]
    hand.checkpoint(claim)
    assert [one.type for one in hand.trail(claim.id, after=seen.seq)] == ["step_succeeded"]
    assert seen.type == "note"


def test_all_statements_of_the_page_are_known():
    """Each block has a name, or it is run by nobody."""
    from tests.docs import pages
    from tests.stores.postgres.stranger import PAGE

    assert len([block for block in pages.blocks(PAGE) if block.language == "sql"]) == len(statements())
