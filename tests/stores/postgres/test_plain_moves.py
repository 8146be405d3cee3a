"""Plain SQL of a stranger: a cancel, a small change, and no move that there is not."""

from __future__ import annotations

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


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    "change",
    [
        "payload = '7'",
        "fence = fence + 1",
        "max_attempts = 9",
        "type = 'a.b.v1'",
        "tenant = 'x'",
        "deleted_at = now()",
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
