"""set_priority: an open run moves in the queue."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status

from .hand import listen


@pytest.mark.spec("START-13")
def test_a_pending_run_is_claimed_by_its_new_priority(hand):
    """At once; the trail says who, and nothing else of the run changes."""
    runs = [hand.start() for _ in range(3)]
    before = hand.get(runs[2])
    after = hand.set_priority(runs[2], 5, by="ann")
    assert (after.priority, after.status, after.fence, after.run_at) == (
        5, Status.PENDING, before.fence, before.run_at,
    )  # fmt: skip
    assert hand.get(runs[2]) == after
    hand.set_priority(runs[0], 999)
    assert hand.last(runs[2], "reprioritized") == {"by": "ann", "priority": 5}
    assert [hand.take(limit=1).id for _ in runs] == [runs[2], runs[1], runs[0]]
    hand.assert_replayed(runs[2])


@pytest.mark.spec("START-13")
def test_the_new_priority_counts_between_tenants_and_under_limits(hand):
    """Whichever way a claim walks the queue."""
    first, second = hand.start(limit_key="k"), hand.start(limit_key="k")
    hand.run(hand.store.limit("key", "k", concurrency=1))
    hand.set_priority(second, 0)
    assert [claim.id for claim in hand.claim(tenants=("default",))] == [second]
    assert hand.status(first) is Status.PENDING


@pytest.mark.spec("START-13")
def test_a_leased_run_goes_on_and_has_the_new_priority_in_the_queue(hand):
    """Its holder notices nothing."""
    claim, other = hand.held(), hand.start()
    hand.set_priority(claim.id, 1)
    assert hand.get(claim.id).status is Status.LEASED
    assert hand.checkpoint(claim).answer == "applied"
    assert hand.release(claim).answer == "applied"
    assert [one.id for one in hand.claim()] == [claim.id, other]


@pytest.mark.spec("START-13")
@pytest.mark.parametrize("status", ["waiting", "paused"])
def test_a_run_at_rest_takes_its_new_priority_along(hand, status):
    claim, other = hand.held(), hand.start()
    if status == "waiting":
        hand.park(claim, listen())
    else:
        hand.release(claim)
        hand.pause(claim.id)
    assert hand.set_priority(claim.id, 1).status == status
    if status == "waiting":
        hand.emit()
    else:
        hand.resume(claim.id)
    assert [one.id for one in hand.claim()] == [claim.id, other]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("START-13")
def test_the_same_priority_changes_nothing(hand):
    run = hand.start(priority=7)
    before = hand.snapshot(run)
    assert hand.set_priority(run, 7) == before[0]
    assert hand.snapshot(run) == before


@pytest.mark.spec("START-13")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_run_that_has_ended_is_refused(hand, end):
    """With its true status, and nothing changes."""
    claim = hand.held()
    getattr(hand, end)(claim.id if end == "cancel" else claim)
    before = hand.snapshot(claim.id)
    with pytest.raises(IllegalMove, match=f"cannot reprioritize run .*: it is {before[0].status}") as refused:
        hand.set_priority(claim.id, 5)
    assert (refused.value.move, refused.value.status) == ("reprioritize", before[0].status)
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("START-13")
def test_a_plan_keeps_its_rows_and_a_deleted_run_is_unknown(hand):
    plan = hand.plan("A", "B")
    steps = hand.steps(plan)
    assert hand.set_priority(plan, 3).priority == 3
    assert hand.steps(plan) == steps
    hand.delete(plan)
    with pytest.raises(UnknownRun):
        hand.set_priority(plan, 4)
    assert hand.restore(plan).priority == 3
