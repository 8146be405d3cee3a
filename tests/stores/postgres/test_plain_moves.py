"""Plain SQL of a stranger: a cancel, a small change, and no move that there is not."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.lifecycle import FINAL, Status
from holdfast.testing.contract.hand import TYPE, call, done, listen
from tests.stores.postgres.stranger import refused, started


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
            assert (
                refused(plain, f"cannot cancel run {run} by an update: it is {status}", text, id=run)
                == "HF002"
            )
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


@pytest.mark.spec("SQL-4", "START-13", "TRAIL-1")
def test_the_trail_tells_of_another_priority_and_of_no_other_change(hand, plain):
    run = hand.start()
    plain(
        "update workflow.workflow_run set labels = '{\"a\": \"b\"}', priority = 100 where id = :'id'", id=run
    )
    assert hand.told(run) == ["created"]
    plain("hurry", id=run)
    assert hand.told(run) == ["created", "reprioritized"]
    assert hand.last(run, "reprioritized") == {"by": "sql:postgres", "priority": 1}
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-4", "RETRY-9")
def test_a_run_that_is_put_off_does_not_time_out_before_it_is_due(hand, plain):
    run, other = hand.start(timeout_seconds=60.0), hand.start(timeout_seconds=60.0)
    hand.clock.turn(30)
    plain("update workflow.workflow_run set run_at = now() + interval '1 hour' where id = :'id'", id=run)
    plain("hurry", id=other)  # which gives it no more time
    hand.clock.turn(31)
    hand.tick()
    assert (hand.status(run), hand.status(other)) == (Status.PENDING, Status.FAILED)
    hand.clock.turn(3600 - 31)
    assert hand.take(run).id == run
    hand.clock.turn(61)
    hand.tick()
    assert hand.get(run).error.kind == "timeout"


@pytest.mark.spec("SQL-2", "CANC-5", "REW-3")
@pytest.mark.parametrize("keep", [True, False])
def test_a_cancel_that_was_rewound_cancels_no_child_of_the_next_execution(hand, plain, keep):
    """A cancel by plain SQL owes the cancels of the children, and no keeper comes before the rewind."""
    claim, former, new = hand.held(), hand.id(), hand.id()
    hand.park(claim, call("c", former), known=0)
    plain("cancel", id=claim.id)
    plain(f"select workflow.rewind(:'id', null, null, 'ann', {str(not keep).lower()})", id=claim.id)
    again = next(one for one in hand.claim() if one.id == claim.id)
    hand.park(again, call("c", new), known=0)
    hand.tick()
    assert hand.status(new) is Status.PENDING
    assert (hand.status(former) is Status.CANCELLED) is not keep
    assert hand.status(claim.id) is Status.WAITING


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    "change",
    [
        "payload = '7'",
        "fence = fence + 1",
        "max_attempts = 9",
        "type = 'a.b.v1'",
        "tenant = 'x'",
        "owes = 1",
        "attempt = 0 - 1",
        "id = gen_random_uuid()",
    ],
)
def test_what_the_database_keeps_is_not_set(hand, plain, status, change):
    run = in_status(hand, plain, status)
    before = hand.snapshot(run)
    text = f"update workflow.workflow_run set {change} where id = :'id'"
    refused(plain, "leave it out|only priority, run_at and labels", text, id=run)
    assert hand.snapshot(run) == before


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize(
    ("change", "way"),
    [
        ("payload = '7', fence = 9", "sets payload, fence, .*: leave it out; payload: when a run is started"),
        ("leased_by = 'p1'", "leased_by: with status = 'leased', by a claim or a heartbeat"),
        ("result = '7'", "result: by the worker that holds the run, with a heartbeat or an end"),
        ("pause_asked_by = 'ann'", r"pause_asked_by: by select workflow\.pause\(run, tenant, who\)"),
        (
            "deleted_at = now(), priority = 1",
            "the delete of run .* sets priority.*; priority: while the run is p",
        ),
        ("fence = 9", "which the database keeps: leave it out$"),
    ],
)
def test_a_refused_column_names_the_way_that_works(hand, plain, change, way):
    text = f"update workflow.workflow_run set {change} where id = :'id'"
    with pytest.raises(psycopg.Error) as caught:
        plain(text, id=hand.start())
    assert re.search(way, caught.value.diag.message_primary), caught.value


@pytest.mark.spec("SQL-12")
def test_what_is_set_only_while_a_run_is_pending_says_so(hand, plain):
    run = hand.pause(hand.start()).id
    text = "update workflow.workflow_run set priority = 1 where id = :'id'"
    refused(plain, "is paused: only priority.*; priority: while the run is pending", text, id=run)


DELETE = "update workflow.workflow_run set deleted_at = now() where id = :'id'"
RESTORE = "update workflow.workflow_run set deleted_at = null where id = :'id'"


@pytest.mark.spec("SQL-12", "MOVE-5")
@pytest.mark.parametrize("status", list(Status))
def test_a_plain_delete_and_restore_are_those_of_the_verbs(hand, plain, status):
    """The row, the trail and the fence are the same, but for the name of who did it."""
    mine, theirs = in_status(hand, plain, status), in_status(hand, plain, status)
    fences = {run: hand.get(run).fence for run in (mine, theirs)}
    assert plain(DELETE, id=mine) == 1
    hand.delete(theirs, by="ann")
    assert hand.get(mine) is None
    assert plain(DELETE, id=mine) == len(plain("cancel", id=mine)) == 0
    assert plain(RESTORE, id=mine) == 1
    hand.restore(theirs, by="ann")
    assert plain(RESTORE, id=mine) == 1  # it is shown already: nothing is told
    shown, like = hand.get(mine), hand.get(theirs)
    assert (shown.status, shown.leased_by, shown.attempt) == (like.status, like.leased_by, like.attempt)
    assert shown.fence - fences[mine] == like.fence - fences[theirs]
    assert hand.told(mine) == hand.told(theirs)
    who = hand.last(mine, "deleted").pop("by")
    assert (who[:4], hand.last(mine, "deleted") | {"by": "ann"}) == ("sql:", hand.last(theirs, "deleted"))
    hand.assert_replayed(mine)


@pytest.mark.spec("SQL-12", "LEASE-5")
def test_a_plain_delete_shuts_the_holder_out(hand, plain):
    """Of the engine, with a pause that was asked for: it lands there."""
    claim = hand.held()
    hand.pause(claim.id, by="ann")
    assert plain(DELETE, id=claim.id) == 1
    assert hand.complete(claim).answer == "lost"
    plain(RESTORE, id=claim.id)
    assert hand.status(claim.id) is Status.PAUSED
    assert hand.told(claim.id)[-3:] == ["deleted", "paused", "restored"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("at", ["'-infinity'", "'infinity'", "now() - interval '9 years'"])
def test_the_time_of_a_plain_delete_is_that_of_the_store(hand, plain, at):
    run = hand.start()
    plain(f"update workflow.workflow_run set deleted_at = {at} where id = :'id'", id=run)
    ((deleted_at, now),) = plain("select deleted_at, workflow.clock() from workflow.workflow_run")
    assert deleted_at == now
    assert hand.restore(run).status is Status.PENDING


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("status", list(Status))
def test_a_raw_delete_is_refused_with_the_way_that_works(hand, plain, status):
    run = in_status(hand, plain, status)
    before = hand.everything()
    said = "has rows in other tables: set deleted_at = now.*holdfast purge.*workflow.purge"
    assert refused(plain, said, "delete from workflow.workflow_run where id = :'id'", id=run) == "HF007"
    assert hand.everything() == before


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
