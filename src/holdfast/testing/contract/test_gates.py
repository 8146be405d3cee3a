"""Gates: opened for people, decided once, by name; what a repeat, a race or a deadline makes of them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.errors import Conflict, HoldfastError, IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, StepWrite, moment

from .hand import ask, done, gate, nap

decode = msgspec.json.decode
ASK = '{"ask":"Ship it?","data":[1]}'


def _plan(hand, *steps, **fields):
    """A run that waits at a gate, with a task behind it."""
    return hand.plan(*(steps or (gate("G"), "B")), **fields)


def _code(hand, *steps, **fields):
    """A code run that waits at a gate."""
    claim = hand.held(**fields)
    hand.park(claim, *(steps or (ask("G"),)), known=0)
    return claim.id


def _decide(hand, verdict, run, step=None, **fields):
    return {"approve": hand.approve, "reject": hand.reject}[verdict](run, step, **fields)


@pytest.mark.spec("APPR-1", "TRAIL-1")
@pytest.mark.parametrize("name", ["A", "approve", "zz", "10", "Ж"])
def test_a_gate_opens_with_the_step_before_it_whatever_its_name(hand, name):
    """In the commit that completes its predecessor; the run waits, and no worker gets it."""
    claim = hand.begun(name, gate("9", 60.0, ask=ASK, digest="d"), "B")
    assert hand.advance(claim, name, in_place=True).status is Status.WAITING
    assert hand.shape(claim.id) == [(name, "succeeded"), ("9", "waiting"), ("B", "pending")]
    seen = hand.get(claim.id)
    assert (seen.leased_by, seen.attempt, [wait.key for wait in seen.waiting_on]) == (None, 0, ["9"])
    assert hand.step(claim.id, "9").due_at == hand.clock.now + 60_000_000
    told = hand.last(claim.id, "approval_opened")
    assert (told["step"], told["kind"], told["status"]) == ("9", "approval", "waiting")
    assert (hand.claim(), hand.told(claim.id).count("waiting")) == ([], 0)
    hand.assert_replayed(claim.id)


@pytest.mark.spec("APPR-1")
def test_a_plan_may_begin_with_a_gate(hand):
    """It is open when the start returns."""
    run = _plan(hand)
    assert (hand.status(run), hand.shape(run)) == (Status.WAITING, [("G", "waiting"), ("B", "pending")])
    assert hand.told(run) == ["created", "approval_opened"]
    hand.assert_replayed(run)
    assert hand.approve(run).run.status is Status.PENDING
    assert hand.advance(hand.take(run), "B").status is Status.SUCCEEDED


@pytest.mark.spec("APPR-1", "APPR-2", "APPR-9")
def test_of_two_gates_in_a_row_only_the_next_one_opens(hand):
    """Two are never open together, and a repeated decision does not decide the second."""
    run = _plan(hand, gate("two"), gate("one"), "B")
    first = hand.approve(run, by="ann")
    assert (first.step, first.run.status) == ("two", Status.WAITING)
    assert hand.shape(run) == [("two", "succeeded"), ("one", "waiting"), ("B", "pending")]
    hand.assert_replayed(run)
    before = hand.snapshot(run)
    with pytest.raises(Conflict, match=r"(?s)two.*one"):
        hand.approve(run, by="ann")
    assert hand.approve(run, "two", by="ann").repeated
    assert hand.snapshot(run) == before
    assert hand.approve(run, "one").run.status is Status.PENDING
    assert [status for _, status in hand.shape(run)] == ["succeeded", "succeeded", "ready"]
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-2", "APPR-6")
def test_an_approved_gate_lets_the_plan_go_on_in_the_same_commit(hand):
    """The decision is its output: who, when, why; the next step is current."""
    run = _plan(hand)
    hand.clock.turn(7)
    decided = hand.approve(run, by="ann", comment="fine")
    at = hand.clock.now
    assert (decided.step, decided.repeated, decided.run) == ("G", False, hand.get(run))
    assert (decided.decision.approved, decided.decision.by, decided.decision.comment) == (True, "ann", "fine")
    assert (decided.decision.at, decided.decision.timed_out) == (moment(at), False)
    step = hand.step(run, "G")
    assert (step.status, step.seq, step.finished_at) == (StepStatus.SUCCEEDED, 0, at)
    assert decode(step.output) == {
        "approved": True, "by": "ann", "comment": "fine", "at": at, "timed_out": False,
    }  # fmt: skip
    seen = hand.get(run)
    assert (seen.status, seen.run_at, seen.attempt, seen.waiting_on) == ("pending", moment(at), 0, ())
    told = hand.last(run, "approved")
    assert (told["step"], told["by"], told["comment"], told["status"]) == ("G", "ann", "fine", "pending")
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-2")
@pytest.mark.parametrize(("last", "status"), [((), Status.SUCCEEDED), ((nap("S"),), Status.WAITING)])
def test_what_stands_behind_a_gate_decides_where_the_run_goes(hand, last, status):
    """Nothing: it succeeds; a sleep or an awaited event: it waits for that."""
    run = _plan(hand, gate("G"), *last)
    assert hand.approve(run).run.status is status
    assert hand.told(run)[1:3] == ["approval_opened", "approved"]
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-4", "PLAN-9")
def test_a_rejected_gate_fails_its_plan(hand):
    """Kind rejected, in one commit; the decision stays its output, later steps stay pending."""
    run = _plan(hand)
    decided = hand.reject(run, by="bob", comment="no")
    assert (decided.run.status, decided.decision.approved) == (Status.FAILED, False)
    assert (hand.get(run).error.kind, hand.get(run).finished_at) == ("rejected", moment(hand.clock.now))
    step = hand.step(run, "G")
    assert (step.status, decode(step.output)["by"]) == (StepStatus.FAILED, "bob")
    assert decode(step.error)["kind"] == "rejected"
    assert hand.shape(run) == [("G", "failed"), ("B", "pending")]
    assert hand.told(run)[-2:] == ["rejected", "failed"]
    assert (hand.last(run, "rejected")["by"], hand.last(run, "failed")["kind"]) == ("bob", "rejected")
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-4", "FLOW-6")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_code_run_is_told_what_was_decided_and_goes_on(hand, verdict):
    """The step succeeds either way, under the next seq; the run is pending at once."""
    claim = hand.held()
    hand.park(claim, done("a"), ask("G", delay_seconds=60.0), known=0)
    told = hand.last(claim.id, "approval_opened")
    assert told == {"step": "G", "kind": "approval", "status": "waiting"}
    hand.assert_replayed(claim.id)
    assert _decide(hand, verdict, claim.id, by="ann").run.status is Status.PENDING
    step = hand.step(claim.id, "G")
    assert (step.status, step.seq, step.error) == (StepStatus.SUCCEEDED, 3, None)
    assert decode(step.output)["approved"] is (verdict == "approve")
    hand.assert_replayed(claim.id)
    assert hand.take(claim.id).steps[-1].key == "G"


@pytest.mark.spec("APPR-2", "MOVE-8")
def test_a_gate_is_decided_while_another_branch_is_at_work(hand):
    """The run stays leased and learns it at its next boundary; a park finds it there."""
    claim = hand.held()
    hand.checkpoint(claim, ask("G"), known=0)
    assert hand.approve(claim.id).run.status is Status.LEASED
    assert "status" not in hand.last(claim.id, "approved")
    verdict = hand.checkpoint(claim, done("a"), known=1)
    assert [(step.key, step.status) for step in verdict.settled] == [("G", StepStatus.SUCCEEDED)]
    again = hand.park(claim, ask("H"), known=1)
    assert (again.status, [step.key for step in again.settled]) == (Status.LEASED, ["G"])
    hand.assert_replayed(claim.id)


@pytest.mark.spec("APPR-2")
def test_a_gate_is_decided_while_its_run_backs_off(hand):
    """Pending runs too; it is due at once then."""
    claim = hand.held()
    hand.retry(claim, ask("G"), delay=600.0, known=0)
    assert hand.approve(claim.id).run.status is Status.PENDING
    assert hand.take(claim.id).steps[0].status is StepStatus.SUCCEEDED
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-4")
@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_decision_in_a_pause_takes_effect_at_resume(hand, kind, verdict):
    """Recorded with its time; the run stays paused, and goes on by it afterwards."""
    run = _plan(hand) if kind == "plan" else _code(hand)
    hand.pause(run)
    at = hand.clock.now
    assert _decide(hand, verdict, run).run.status is Status.PAUSED
    failed = kind == "plan" and verdict == "reject"
    assert hand.step(run, "G").status is (StepStatus.FAILED if failed else StepStatus.SUCCEEDED)
    assert "status" not in hand.last(run, "approved" if verdict == "approve" else "rejected")
    hand.assert_replayed(run)
    hand.clock.turn(9)
    assert hand.resume(run).status is (Status.FAILED if failed else Status.PENDING)
    assert decode(hand.step(run, "G").output)["at"] == at
    assert not failed or hand.get(run).error.kind == "rejected"
    hand.assert_replayed(run)


@pytest.mark.spec("PAUSE-4", "APPR-1", "PLAN-14")
def test_a_plan_decided_in_a_pause_goes_on_by_its_rows(hand):
    """The last gate's decision ends the run at resume, unless a step was added meanwhile."""
    ends, goes_on, next_gate = (_plan(hand, gate("G"), gate("H")) for _ in range(3))
    for run in (ends, goes_on):
        hand.approve(run)
    for run in (ends, goes_on, next_gate):
        hand.pause(run)
        hand.approve(run, "G" if run == next_gate else "H")
    assert hand.approvals() == []
    hand.append_step(goes_on, "X")
    resumed = [hand.resume(run).status for run in (ends, goes_on, next_gate)]
    assert resumed == [Status.SUCCEEDED, Status.PENDING, Status.WAITING]
    assert [one.step for one in hand.approvals()] == ["H"]
    for run in (ends, goes_on, next_gate):
        hand.assert_replayed(run)


@pytest.mark.spec("APPR-3")
@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(("verdict", "other"), [("approve", "reject"), ("reject", "approve")])
def test_a_decision_again_answers_as_before_and_another_one_is_a_conflict(hand, kind, ended, verdict, other):
    """Also after the run has ended; nothing is added."""
    run = _plan(hand) if kind == "plan" else _code(hand)
    first = _decide(hand, verdict, run, by="ann", comment="well")
    if ended and hand.status(run) is Status.PENDING:
        hand.cancel(run)
    before = hand.snapshot(run)
    hand.clock.turn(60)
    again = _decide(hand, verdict, run, "G", by="bob", comment="so")
    assert (again.step, again.decision, again.repeated) == ("G", first.decision, True)
    assert again.run == hand.get(run)
    assert _decide(hand, verdict, run).repeated
    with pytest.raises(Conflict, match="G"):
        _decide(hand, other, run, "G")
    assert hand.snapshot(run) == before


@pytest.mark.spec("APPR-3", "APPR-9")
def test_a_name_that_is_no_gate_is_a_conflict_that_lists_them(hand):
    """Not open yet, no gate at all, or no gate in this run; nothing changes."""
    run, none = _plan(hand, gate("G"), "B", gate("later")), hand.start("shop.code.v1")
    before = hand.snapshot(run)
    for name in ("later", "B", "nowhere"):
        with pytest.raises(Conflict, match=r"\bG\b"):
            hand.approve(run, name)
    assert hand.snapshot(run) == before
    for name in (None, "G"):
        with pytest.raises(Conflict):
            hand.approve(none, name)


@pytest.mark.spec("APPR-3")
def test_a_gate_of_a_run_that_is_not_there_is_not_found(hand):
    """Unknown, foreign or deleted alike."""
    run, gone = _code(hand), _code(hand)
    hand.delete(gone)
    for asked, tenant in ((hand.id(), ANY), (run, "acme"), (gone, ANY)):
        with pytest.raises(UnknownRun):
            hand.approve(asked, "G", tenant=tenant)
    assert hand.approve(run, "G", tenant="default").repeated is False


@pytest.mark.spec("APPR-3", "APPR-5")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize("how", ["cancelled", "timed out", "given up"])
def test_a_gate_that_nobody_decided_cannot_be_any_more(hand, how, verdict):
    """Refused with the true status."""
    claim = hand.held(timeout_seconds=20.0)
    hand.checkpoint(claim, ask("G"))
    if how == "cancelled":
        hand.cancel(claim.id)
    elif how == "timed out":
        hand.clock.turn(20)
        hand.tick()
    else:
        hand.checkpoint(claim, StepWrite(key="G", kind=StepKind.APPROVAL, status=StepStatus.CANCELLED))
    before = hand.snapshot(claim.id)
    with pytest.raises(IllegalMove) as refusal:
        _decide(hand, verdict, claim.id, "G")
    assert (refusal.value.status, str(refusal.value.move)) == (hand.status(claim.id), verdict)
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("APPR-5")
@pytest.mark.parametrize("plan", [True, False])
def test_of_a_decision_and_a_cancel_at_once_one_wins(hand, plan):
    """Cancelled before the decision, or decided before the cancel: never both undone, never both lost."""
    run = _plan(hand) if plan else _code(hand)

    async def at_once():
        calls = hand.store.decide(run, approved=True, tenant=ANY), hand.store.cancel(run, ANY)
        return await asyncio.gather(*calls, return_exceptions=True)

    decided, cancelled = hand.run(at_once())
    assert not isinstance(cancelled, HoldfastError)
    assert hand.status(run) is Status.CANCELLED
    refused = isinstance(decided, IllegalMove)
    assert hand.step(run, "G").status is (StepStatus.CANCELLED if refused else StepStatus.SUCCEEDED)
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-6")
@pytest.mark.parametrize("plan", [True, False])
def test_a_decision_may_be_bound_to_what_was_shown(hand, plan):
    """Another digest than the one that the inbox shows is a conflict; that one, or none, counts."""
    run = _plan(hand, gate("G", digest="d1")) if plan else _code(hand, ask("G", digest="d1"))
    (shown,) = hand.approvals()
    before = hand.snapshot(run)
    for verdict in ("approve", "reject"):
        with pytest.raises(Conflict, match="digest"):
            _decide(hand, verdict, run, digest="d2")
    assert hand.snapshot(run) == before
    assert hand.approve(run, digest=shown.digest).repeated is False
    assert hand.approve(run).repeated is True
