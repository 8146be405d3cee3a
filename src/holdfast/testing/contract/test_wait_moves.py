"""The moves of a wait, generated: each kind x every way to settle it x every status of the run."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove
from holdfast.lifecycle import FINAL, OPEN, WAIT_MOVES, Status, StepKind, StepStatus, WaitMove
from holdfast.records import StepWrite, moment

from .hand import ask, call, gate, hear, listen, nap, sleep

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


def _code(hand, kind, status):
    claim, child = hand.held(timeout_seconds=25.0), hand.id()
    hand.checkpoint(claim, _code_wait(kind, child), known=0)
    match status:
        case Status.PENDING:
            hand.retry(claim, delay=600.0)
        case Status.WAITING | Status.PAUSED:
            hand.park(claim, _code_wait(kind, child), known=1)
        case Status.SUCCEEDED:
            hand.complete(claim)
        case Status.FAILED:
            hand.fail(claim)
        case Status.CANCELLED:
            hand.cancel(claim.id, children=False)
    return claim.id, child


def _plan(hand, kind, status):
    if kind is StepKind.TASK:
        claim = hand.begun("w", "B", timeout_seconds=5.0 if status is Status.FAILED else None)
        waits = StepWrite(key="w", status=StepStatus.WAITING, topic="t", delay_seconds=10.0)
        hand.park(claim, waits)
        run = claim.id
    else:
        steps = {StepKind.EVENT: hear("w", "t", 10.0), StepKind.SLEEP: nap("w", 10.0)}
        first = steps.get(kind, gate("w", 10.0))
        run = hand.plan(first, "B", timeout_seconds=5.0 if status is Status.FAILED else None)
    if status is Status.FAILED:
        hand.clock.turn(5)
        hand.tick()
    elif status is Status.CANCELLED:
        hand.cancel(run)
    return run, None


def _settle(hand, move, kind, run, child):
    """Make the move; whether it did anything."""
    before = hand.snapshot(run)
    match move:
        case WaitMove.LAPSE:
            hand.clock.turn(10)
            hand.tick()
        case WaitMove.DECIDE:
            hand.approve(run, "w")
        case _ if kind is StepKind.CHILD:
            hand.cancel(child)
            hand.deliver()
        case _:
            hand.emit("t")
    return hand.snapshot(run) != before


def _assert_settled(hand, run, kind, *, plan, failed):
    step = hand.step(run, "w")
    if plan and kind is StepKind.TASK:
        assert step.wake is not None
        assert step.status is not StepStatus.WAITING
    else:
        assert step.status is (StepStatus.FAILED if failed else StepStatus.SUCCEEDED)
    assert hand.get(run).waiting_on == ()
    hand.assert_replayed(run)


def _prepared(hand, kind, status, *, plan):
    run, child = (_plan if plan else _code)(hand, kind, status)
    if status is Status.PAUSED:
        hand.pause(run)
    assert hand.status(run) is status
    return run, child


@pytest.mark.spec("MOVE-1", "MOVE-5", "PAUSE-4")
@pytest.mark.parametrize("status", sorted(OPEN))
@pytest.mark.parametrize(("move", "kind"), OF_CODE)
def test_a_wait_of_a_code_run_is_settled_once_in_any_open_status(hand, move, kind, status):
    """Waiting: pending now. Pending: due now. Leased: it stays so. Paused: pending at resume."""
    run, child = _prepared(hand, kind, status, plan=False)
    assert _settle(hand, move, kind, run, child)
    failed = kind is StepKind.CHILD or (move, kind) == (WaitMove.LAPSE, StepKind.EVENT)
    _assert_settled(hand, run, kind, plan=False, failed=failed)
    seen = hand.get(run)
    assert seen.status is (Status.PENDING if status is Status.WAITING else status)
    if status in {Status.WAITING, Status.PENDING}:
        assert seen.run_at == moment(hand.clock.now)
    before = hand.snapshot(run)
    assert not _settle(hand, move, kind, run, child)
    assert hand.snapshot(run) == before
    if status is Status.PAUSED:
        assert hand.resume(run).status is Status.PENDING
        hand.assert_replayed(run)


@pytest.mark.spec("MOVE-1", "MOVE-5", "PAUSE-4")
@pytest.mark.parametrize("status", [Status.WAITING, Status.PAUSED])
@pytest.mark.parametrize(("move", "kind"), OF_PLANS)
def test_a_wait_of_a_plan_is_settled_once_waiting_or_paused(hand, move, kind, status):
    """Waiting: the plan goes on by it in the same commit. Paused: at resume. Nobody holds or queues it."""
    run, child = _prepared(hand, kind, status, plan=True)
    assert _settle(hand, move, kind, run, child)
    failed = move is WaitMove.LAPSE and kind in {StepKind.EVENT, StepKind.APPROVAL}
    _assert_settled(hand, run, kind, plan=True, failed=failed)
    if status is Status.PAUSED:
        assert hand.status(run) is Status.PAUSED
        before = hand.snapshot(run)
        assert not _settle(hand, move, kind, run, child)
        assert hand.snapshot(run) == before
        hand.resume(run)
    assert hand.status(run) is (Status.FAILED if failed else Status.PENDING)
    hand.assert_replayed(run)


@pytest.mark.spec("MOVE-1", "MOVE-3")
@pytest.mark.parametrize(("plan", "move", "kind", "status"), ENDS)
def test_an_end_takes_all_waits_with_it(hand, plan, move, kind, status):
    """Nothing settles them afterwards; a decision is refused with the true status."""
    run, child = _prepared(hand, kind, status, plan=plan)
    before = hand.snapshot(run)
    if move is WaitMove.DECIDE:
        with pytest.raises(IllegalMove) as refusal:
            hand.approve(run, "w")
        assert refusal.value.status is status
    else:
        assert not _settle(hand, move, kind, run, child)
    assert hand.snapshot(run) == before
