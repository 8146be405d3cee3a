"""The moves of a wait, generated: each kind x every way to settle it x every status of the run."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove
from holdfast.lifecycle import FINAL, OPEN, WAIT_MOVES, Status, StepKind, StepStatus, WaitMove
from holdfast.records import StepWrite, moment

from .driver import ask, call, gate, hear, listen, nap, sleep

CHILD = "shop.child.v1"
CASES = [(rule.move, kind) for rule in WAIT_MOVES for kind in sorted(rule.settles)]
OF_CODE = [case for case in CASES if case[1] is not StepKind.TASK]
OF_PLANS = [case for case in CASES if case[1] is not StepKind.CHILD]
ENDS = [(False, *case, status) for case in OF_CODE for status in sorted(FINAL)] + [
    (True, *case, status) for case in OF_PLANS for status in (Status.FAILED, Status.CANCELLED)
]


def _code_wait(kind, child):
    match kind:
        case StepKind.EVENT:
            return listen("w", "t", delay_seconds=10.0)
        case StepKind.SLEEP:
            return sleep("w", 10.0)
        case StepKind.APPROVAL:
            return ask("w", delay_seconds=10.0)
        case StepKind.CHILD:
            return call("w", child, CHILD)


def _code(driver, kind, status):
    claim, child = driver.held(timeout_seconds=25.0), driver.id()
    driver.checkpoint(claim, _code_wait(kind, child), known=0)
    match status:
        case Status.PENDING:
            driver.retry(claim, delay=600.0)
        case Status.WAITING | Status.PAUSED:
            driver.park(claim, _code_wait(kind, child), known=1)
        case Status.SUCCEEDED:
            driver.complete(claim)
        case Status.FAILED:
            driver.fail(claim)
        case Status.CANCELLED:
            driver.cancel(claim.id, children=False)
    return claim.id, child


def _plan(driver, kind, status):
    if kind is StepKind.TASK:
        claim = driver.begun("w", "B", timeout_seconds=5.0 if status is Status.FAILED else None)
        waits = StepWrite(key="w", status=StepStatus.WAITING, topic="t", delay_seconds=10.0)
        driver.park(claim, waits)
        run = claim.id
    else:
        steps = {StepKind.EVENT: hear("w", "t", 10.0), StepKind.SLEEP: nap("w", 10.0)}
        first = steps.get(kind, gate("w", 10.0))
        run = driver.plan(first, "B", timeout_seconds=5.0 if status is Status.FAILED else None)
    if status is Status.FAILED:
        driver.clock.turn(5)
        driver.tick()
    elif status is Status.CANCELLED:
        driver.cancel(run)
    return run, None


def _settle(driver, move, kind, run, child):
    """Make the move; return True when it changed something."""
    before = driver.snapshot(run)
    match move:
        case WaitMove.LAPSE:
            driver.clock.turn(10)
            driver.tick()
        case WaitMove.DECIDE:
            driver.approve(run, "w")
        case _ if kind is StepKind.CHILD:
            driver.cancel(child)
            driver.deliver()
        case _:
            driver.emit("t")
    return driver.snapshot(run) != before


def _assert_settled(driver, run, kind, *, plan, failed):
    step = driver.step(run, "w")
    if plan and kind is StepKind.TASK:
        assert step.wake is not None
        assert step.status is not StepStatus.WAITING
    else:
        assert step.status is (StepStatus.FAILED if failed else StepStatus.SUCCEEDED)
    assert driver.get(run).waiting_on == ()
    driver.assert_replayed(run)


def _prepared(driver, kind, status, *, plan):
    run, child = (_plan if plan else _code)(driver, kind, status)
    if status is Status.PAUSED:
        driver.pause(run)
    assert driver.status(run) is status
    return run, child


@pytest.mark.spec("MOVE-1", "MOVE-5", "PAUSE-4")
@pytest.mark.parametrize("status", sorted(OPEN))
@pytest.mark.parametrize(("move", "kind"), OF_CODE)
def test_a_wait_of_a_code_run_is_settled_once_in_any_open_status(driver, move, kind, status):
    """Waiting: pending now. Pending: due now. Leased: stays leased. Paused: pending at resume."""
    run, child = _prepared(driver, kind, status, plan=False)
    assert _settle(driver, move, kind, run, child)
    failed = kind is StepKind.CHILD or (move, kind) == (WaitMove.LAPSE, StepKind.EVENT)
    _assert_settled(driver, run, kind, plan=False, failed=failed)
    seen = driver.get(run)
    assert seen.status is (Status.PENDING if status is Status.WAITING else status)
    if status in {Status.WAITING, Status.PENDING}:
        assert seen.run_at == moment(driver.clock.now)
    before = driver.snapshot(run)
    assert not _settle(driver, move, kind, run, child)
    assert driver.snapshot(run) == before
    if status is Status.PAUSED:
        assert driver.resume(run).status is Status.PENDING
        driver.assert_replayed(run)


@pytest.mark.spec("MOVE-1", "MOVE-5", "PAUSE-4")
@pytest.mark.parametrize("status", [Status.WAITING, Status.PAUSED])
@pytest.mark.parametrize(("move", "kind"), OF_PLANS)
def test_a_wait_of_a_plan_is_settled_once_waiting_or_paused(driver, move, kind, status):
    """Waiting: the plan goes on in the same commit. Paused: at resume. No worker is needed."""
    run, child = _prepared(driver, kind, status, plan=True)
    assert _settle(driver, move, kind, run, child)
    failed = move is WaitMove.LAPSE and kind in {StepKind.EVENT, StepKind.APPROVAL}
    _assert_settled(driver, run, kind, plan=True, failed=failed)
    if status is Status.PAUSED:
        assert driver.status(run) is Status.PAUSED
        before = driver.snapshot(run)
        assert not _settle(driver, move, kind, run, child)
        assert driver.snapshot(run) == before
        driver.resume(run)
    assert driver.status(run) is (Status.FAILED if failed else Status.PENDING)
    driver.assert_replayed(run)


@pytest.mark.spec("MOVE-1", "MOVE-3")
@pytest.mark.parametrize(("plan", "move", "kind", "status"), ENDS)
def test_an_end_takes_all_waits_with_it(driver, plan, move, kind, status):
    """Nothing settles them afterwards; a decision is refused with the true status."""
    run, child = _prepared(driver, kind, status, plan=plan)
    before = driver.snapshot(run)
    if move is WaitMove.DECIDE:
        with pytest.raises(IllegalMove) as refusal:
            driver.approve(run, "w")
        assert refusal.value.status is status
    else:
        assert not _settle(driver, move, kind, run, child)
    assert driver.snapshot(run) == before
