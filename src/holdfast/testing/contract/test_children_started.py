"""Children that are only started: the step has its outcome at once, and nobody waits for the child."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Lease, StepWrite, moment

from .driver import call, listen

CHILD = "shop.child.v1"


def _started(driver, key="c"):
    return call(key, driver.id(), CHILD, StepStatus.SUCCEEDED)


@pytest.mark.spec("FLOW-7", "MOVE-8")
@pytest.mark.parametrize("before", [True, False])
def test_a_child_that_was_only_started_is_no_news_to_its_holder(driver, before):
    """The run parks, because the awaited event has not come; also when the same item starts the child."""
    claim = driver.held()
    started = [_started(driver)]
    if before:
        driver.checkpoint(claim, started.pop())
    verdict = driver.park(claim, *started, listen(), known=0)
    assert (verdict.status, verdict.settled) == (Status.WAITING, ())
    driver.emit()
    claim = driver.take(claim.id)
    assert [step.waits for step in claim.steps] == [0, 0]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-7", "RETRY-1")
def test_a_child_that_was_only_started_is_in_no_answer_and_hastens_nothing(driver):
    """Answers and renewals name only waits; a retry comes at once only when a wait was settled."""
    claim = driver.held()
    item = driver.item(claim, Move.CHECKPOINT, _started(driver), listen(), known=0)
    assert [verdict.settled for verdict in driver.send(item) + driver.send(item)] == [(), ()]
    (held,) = driver.renew(Lease(run=claim.id, fence=claim.fence, known=0)).held
    assert held.settled == ()
    driver.retry(claim, delay=60.0, known=0)
    assert driver.get(claim.id).run_at == moment(driver.clock.now + 60_000_000)


@pytest.mark.spec("FLOW-7", "MOVE-8")
@pytest.mark.parametrize("reopened", [False, True])
def test_a_child_that_was_waited_for_is_news_beside_one_that_was_not(driver, reopened):
    """The two differ by whether the row has ever waited."""
    claim, child = driver.held(), driver.id()
    driver.checkpoint(claim, _started(driver), call("w", child, CHILD), known=0)
    if reopened:
        for status in (StepStatus.CANCELLED, StepStatus.WAITING):
            driver.checkpoint(claim, StepWrite(key="w", kind=StepKind.CHILD, status=status))
    driver.cancel(child)
    driver.deliver()
    verdict = driver.park(claim, listen(), known=1)
    assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["w"])
    assert verdict.settled[0].waits == 1 + reopened
