"""Children that are only started: the row has its outcome when it is written, and nobody waits for it."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Lease, StepWrite, moment

from .hand import call, listen

CHILD = "shop.child.v1"


def _started(hand, key="c"):
    return call(key, hand.id(), CHILD, StepStatus.SUCCEEDED)


@pytest.mark.spec("FLOW-7", "MOVE-8")
@pytest.mark.parametrize("before", [True, False])
def test_a_child_that_was_only_started_is_no_news_to_its_holder(hand, before):
    """The run parks: what it waits for has not come. Also when the child is started with the same item."""
    claim = hand.held()
    started = [_started(hand)]
    if before:
        hand.checkpoint(claim, started.pop())
    verdict = hand.park(claim, *started, listen(), known=0)
    assert (verdict.status, verdict.settled) == (Status.WAITING, ())
    hand.emit()
    claim = hand.take(claim.id)
    assert [step.waits for step in claim.steps] == [0, 0]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-7", "RETRY-1")
def test_a_child_that_was_only_started_is_in_no_answer_and_hastens_nothing(hand):
    """Checkpoints, their repeats and renewals tell of waits; a retry comes at once only when one has come."""
    claim = hand.held()
    item = hand.item(claim, Move.CHECKPOINT, _started(hand), listen(), known=0)
    assert [verdict.settled for verdict in hand.send(item) + hand.send(item)] == [(), ()]
    (held,) = hand.renew(Lease(run=claim.id, fence=claim.fence, known=0)).held
    assert held.settled == ()
    hand.retry(claim, delay=60.0, known=0)
    assert hand.get(claim.id).run_at == moment(hand.clock.now + 60_000_000)


@pytest.mark.spec("FLOW-7", "MOVE-8")
@pytest.mark.parametrize("reopened", [False, True])
def test_a_child_that_was_waited_for_is_news_beside_one_that_was_not(hand, reopened):
    """Told apart by whether the row has ever waited."""
    claim, child = hand.held(), hand.id()
    hand.checkpoint(claim, _started(hand), call("w", child, CHILD), known=0)
    if reopened:
        for status in (StepStatus.CANCELLED, StepStatus.WAITING):
            hand.checkpoint(claim, StepWrite(key="w", kind=StepKind.CHILD, status=status))
    hand.cancel(child)
    hand.deliver()
    verdict = hand.park(claim, listen(), known=1)
    assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["w"])
    assert verdict.settled[0].waits == 1 + reopened
