"""Gates: opened for people and decided once, by name; repeats, races and deadlines."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.errors import Conflict, HoldfastError, IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, StepWrite, moment

from .driver import ask, done, gate, nap

decode = msgspec.json.decode
ASK = '{"ask":"Ship it?","data":[1]}'


def _plan(driver, *steps, **fields):
    """Return a run that waits at a gate, with a task after it."""
    return driver.plan(*(steps or (gate("G"), "B")), **fields)


def _code(driver, *steps, **fields):
    """Return a code run that waits at a gate."""
    claim = driver.held(**fields)
    driver.park(claim, *(steps or (ask("G"),)), known=0)
    return claim.id


def _decide(driver, verdict, run, step=None, **fields):
    return {"approve": driver.approve, "reject": driver.reject}[verdict](run, step, **fields)


@pytest.mark.spec("APPR-1", "TRAIL-1")
@pytest.mark.parametrize("name", ["A", "approve", "zz", "10", "Ж"])
def test_a_gate_opens_with_the_step_before_it_whatever_its_name(driver, name):
    """The commit that completes the step before it opens the gate; the run waits, and no worker gets it."""
    claim = driver.begun(name, gate("9", 60.0, ask=ASK, digest="d"), "B")
    assert driver.advance(claim, name, in_place=True).status is Status.WAITING
    assert driver.shape(claim.id) == [(name, "succeeded"), ("9", "waiting"), ("B", "pending")]
    seen = driver.get(claim.id)
    assert (seen.leased_by, seen.attempt, [wait.key for wait in seen.waiting_on]) == (None, 0, ["9"])
    assert driver.step(claim.id, "9").due_at == driver.clock.now + 60_000_000
    told = driver.last(claim.id, "approval_opened")
    assert (told["step"], told["kind"], told["status"]) == ("9", "approval", "waiting")
    assert (driver.claim(), driver.told(claim.id).count("waiting")) == ([], 0)
    driver.assert_replayed(claim.id)


@pytest.mark.spec("APPR-1")
def test_a_plan_may_begin_with_a_gate(driver):
    """The gate is open when the start returns."""
    run = _plan(driver)
    assert (driver.status(run), driver.shape(run)) == (Status.WAITING, [("G", "waiting"), ("B", "pending")])
    assert driver.told(run) == ["created", "approval_opened"]
    driver.assert_replayed(run)
    assert driver.approve(run).run.status is Status.PENDING
    assert driver.advance(driver.take(run), "B").status is Status.SUCCEEDED


@pytest.mark.spec("APPR-1", "APPR-2", "APPR-9")
def test_of_two_gates_in_a_row_only_the_next_one_opens(driver):
    """Two gates are never open together, and a repeated decision does not decide the second."""
    run = _plan(driver, gate("two"), gate("one"), "B")
    first = driver.approve(run, by="ann")
    assert (first.step, first.run.status) == ("two", Status.WAITING)
    assert driver.shape(run) == [("two", "succeeded"), ("one", "waiting"), ("B", "pending")]
    driver.assert_replayed(run)
    before = driver.snapshot(run)
    with pytest.raises(Conflict, match=r"(?s)two.*one"):
        driver.approve(run, by="ann")
    assert driver.approve(run, "two", by="ann").repeated
    assert driver.snapshot(run) == before
    assert driver.approve(run, "one").run.status is Status.PENDING
    assert [status for _, status in driver.shape(run)] == ["succeeded", "succeeded", "ready"]
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-2", "APPR-6")
def test_an_approved_gate_lets_the_plan_go_on_in_the_same_commit(driver):
    """The decision is the output: person, time, comment; the next step is current."""
    run = _plan(driver)
    driver.clock.turn(7)
    decided = driver.approve(run, by="ann", comment="fine")
    at = driver.clock.now
    assert (decided.step, decided.repeated, decided.run) == ("G", False, driver.get(run))
    assert (decided.decision.approved, decided.decision.by, decided.decision.comment) == (True, "ann", "fine")
    assert (decided.decision.at, decided.decision.timed_out) == (moment(at), False)
    step = driver.step(run, "G")
    assert (step.status, step.seq, step.finished_at) == (StepStatus.SUCCEEDED, 0, at)
    assert decode(step.output) == {
        "approved": True, "by": "ann", "comment": "fine", "at": at, "timed_out": False,
    }  # fmt: skip
    seen = driver.get(run)
    assert (seen.status, seen.run_at, seen.attempt, seen.waiting_on) == ("pending", moment(at), 0, ())
    told = driver.last(run, "approved")
    assert (told["step"], told["by"], told["comment"], told["status"]) == ("G", "ann", "fine", "pending")
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-2")
@pytest.mark.parametrize(("last", "status"), [((), Status.SUCCEEDED), ((nap("S"),), Status.WAITING)])
def test_the_step_after_a_gate_decides_where_the_run_goes(driver, last, status):
    """Without a step the run succeeds; with a sleep or an event it waits."""
    run = _plan(driver, gate("G"), *last)
    assert driver.approve(run).run.status is status
    assert driver.told(run)[1:3] == ["approval_opened", "approved"]
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-4", "PLAN-9")
def test_a_rejected_gate_fails_its_plan(driver):
    """The kind is rejected, in one commit; the decision stays the output, later steps stay pending."""
    run = _plan(driver)
    decided = driver.reject(run, by="bob", comment="no")
    assert (decided.run.status, decided.decision.approved) == (Status.FAILED, False)
    assert (driver.get(run).error.kind, driver.get(run).finished_at) == ("rejected", moment(driver.clock.now))
    step = driver.step(run, "G")
    assert (step.status, decode(step.output)["by"]) == (StepStatus.FAILED, "bob")
    assert step.error.kind == "rejected"
    assert driver.shape(run) == [("G", "failed"), ("B", "pending")]
    assert driver.told(run)[-2:] == ["rejected", "failed"]
    assert (driver.last(run, "rejected")["by"], driver.last(run, "failed")["kind"]) == ("bob", "rejected")
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-4", "FLOW-6")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_code_run_is_told_what_was_decided_and_goes_on(driver, verdict):
    """The step succeeds with either verdict, under the next number; the run is pending at once."""
    claim = driver.held()
    driver.park(claim, done("a"), ask("G", delay_seconds=60.0), known=0)
    told = driver.last(claim.id, "approval_opened")
    assert told == {"step": "G", "kind": "approval", "status": "waiting"}
    driver.assert_replayed(claim.id)
    assert _decide(driver, verdict, claim.id, by="ann").run.status is Status.PENDING
    step = driver.step(claim.id, "G")
    assert (step.status, step.seq, step.error) == (StepStatus.SUCCEEDED, 3, None)
    assert decode(step.output)["approved"] is (verdict == "approve")
    driver.assert_replayed(claim.id)
    assert driver.take(claim.id).steps[-1].key == "G"


@pytest.mark.spec("APPR-2", "MOVE-8")
def test_a_gate_is_decided_while_another_branch_is_at_work(driver):
    """The run stays leased and learns of the decision at its next commit; a park finds it."""
    claim = driver.held()
    driver.checkpoint(claim, ask("G"), known=0)
    assert driver.approve(claim.id).run.status is Status.LEASED
    assert "status" not in driver.last(claim.id, "approved")
    verdict = driver.checkpoint(claim, done("a"), known=1)
    assert [(step.key, step.status) for step in verdict.settled] == [("G", StepStatus.SUCCEEDED)]
    again = driver.park(claim, ask("H"), known=1)
    assert (again.status, [step.key for step in again.settled]) == (Status.LEASED, ["G"])
    driver.assert_replayed(claim.id)


@pytest.mark.spec("APPR-2")
def test_a_gate_is_decided_while_its_run_backs_off(driver):
    """A pending run is then due at once."""
    claim = driver.held()
    driver.retry(claim, ask("G"), delay=600.0, known=0)
    assert driver.approve(claim.id).run.status is Status.PENDING
    assert driver.take(claim.id).steps[0].status is StepStatus.SUCCEEDED
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-4")
@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_decision_in_a_pause_takes_effect_at_resume(driver, kind, verdict):
    """The decision is recorded with its time; the run stays paused, and goes on afterwards."""
    run = _plan(driver) if kind == "plan" else _code(driver)
    driver.pause(run)
    at = driver.clock.now
    assert _decide(driver, verdict, run).run.status is Status.PAUSED
    failed = kind == "plan" and verdict == "reject"
    assert driver.step(run, "G").status is (StepStatus.FAILED if failed else StepStatus.SUCCEEDED)
    assert "status" not in driver.last(run, "approved" if verdict == "approve" else "rejected")
    driver.assert_replayed(run)
    driver.clock.turn(9)
    assert driver.resume(run).status is (Status.FAILED if failed else Status.PENDING)
    assert decode(driver.step(run, "G").output)["at"] == at
    assert not failed or driver.get(run).error.kind == "rejected"
    driver.assert_replayed(run)


@pytest.mark.spec("PAUSE-4", "APPR-1", "PLAN-14")
def test_a_plan_decided_in_a_pause_goes_on_by_its_rows(driver):
    """The decision of the last gate ends the run at resume, unless a step was added meanwhile."""
    ends, goes_on, next_gate = (_plan(driver, gate("G"), gate("H")) for _ in range(3))
    for run in (ends, goes_on):
        driver.approve(run)
    for run in (ends, goes_on, next_gate):
        driver.pause(run)
        driver.approve(run, "G" if run == next_gate else "H")
    assert driver.approvals() == []
    driver.append_step(goes_on, "X")
    resumed = [driver.resume(run).status for run in (ends, goes_on, next_gate)]
    assert resumed == [Status.SUCCEEDED, Status.PENDING, Status.WAITING]
    assert [one.step for one in driver.approvals()] == ["H"]
    for run in (ends, goes_on, next_gate):
        driver.assert_replayed(run)


@pytest.mark.spec("APPR-3")
@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(("verdict", "other"), [("approve", "reject"), ("reject", "approve")])
def test_a_decision_again_answers_as_before_and_another_one_is_a_conflict(
    driver, kind, ended, verdict, other
):
    """This holds also after the run has ended; nothing is added."""
    run = _plan(driver) if kind == "plan" else _code(driver)
    first = _decide(driver, verdict, run, by="ann", comment="well")
    if ended and driver.status(run) is Status.PENDING:
        driver.cancel(run)
    before = driver.snapshot(run)
    driver.clock.turn(60)
    again = _decide(driver, verdict, run, "G", by="bob", comment="so")
    assert (again.step, again.decision, again.repeated) == ("G", first.decision, True)
    assert again.run == driver.get(run)
    assert _decide(driver, verdict, run).repeated
    with pytest.raises(Conflict, match="G"):
        _decide(driver, other, run, "G")
    assert driver.snapshot(run) == before


@pytest.mark.spec("APPR-3", "APPR-9")
def test_a_name_that_is_no_gate_is_a_conflict_that_lists_them(driver):
    """The gate is not open yet, is no gate, or is not in this run; nothing changes."""
    run, none = _plan(driver, gate("G"), "B", gate("later")), driver.start("shop.code.v1")
    before = driver.snapshot(run)
    for name in ("later", "B", "nowhere"):
        with pytest.raises(Conflict, match=r"\bG\b"):
            driver.approve(run, name)
    assert driver.snapshot(run) == before
    for name in (None, "G"):
        with pytest.raises(Conflict):
            driver.approve(none, name)


@pytest.mark.spec("APPR-3")
def test_a_gate_of_a_run_that_is_not_there_is_not_found(driver):
    """Unknown, foreign and deleted runs have the same answer."""
    run, gone = _code(driver), _code(driver)
    driver.delete(gone)
    for asked, tenant in ((driver.id(), ANY), (run, "acme"), (gone, ANY)):
        with pytest.raises(UnknownRun):
            driver.approve(asked, "G", tenant=tenant)
    assert driver.approve(run, "G", tenant="default").repeated is False


@pytest.mark.spec("APPR-3", "APPR-5")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize("how", ["cancelled", "timed out", "given up"])
def test_an_undecided_gate_of_an_ended_run_cannot_be_decided(driver, how, verdict):
    """The call is refused with the true status."""
    claim = driver.held(timeout_seconds=20.0)
    driver.checkpoint(claim, ask("G"))
    if how == "cancelled":
        driver.cancel(claim.id)
    elif how == "timed out":
        driver.clock.turn(20)
        driver.tick()
    else:
        driver.checkpoint(claim, StepWrite(key="G", kind=StepKind.APPROVAL, status=StepStatus.CANCELLED))
    before = driver.snapshot(claim.id)
    with pytest.raises(IllegalMove) as refusal:
        _decide(driver, verdict, claim.id, "G")
    assert (refusal.value.status, str(refusal.value.move)) == (driver.status(claim.id), verdict)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("APPR-5")
@pytest.mark.parametrize("plan", [True, False])
def test_of_a_decision_and_a_cancel_at_once_one_wins(driver, plan):
    """Either the cancel or the decision comes first: never both, never none."""
    run = _plan(driver) if plan else _code(driver)

    async def at_once():
        calls = driver.store.decide(run, approved=True, tenant=ANY), driver.store.cancel(run, ANY)
        return await asyncio.gather(*calls, return_exceptions=True)

    decided, cancelled = driver.run(at_once())
    assert not isinstance(cancelled, HoldfastError)
    assert driver.status(run) is Status.CANCELLED
    refused = isinstance(decided, IllegalMove)
    assert driver.step(run, "G").status is (StepStatus.CANCELLED if refused else StepStatus.SUCCEEDED)
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-6")
@pytest.mark.parametrize("plan", [True, False])
def test_a_decision_may_name_the_digest_of_the_question(driver, plan):
    """Another digest than the listed one is a conflict; the listed one, or none, is accepted."""
    run = _plan(driver, gate("G", digest="d1")) if plan else _code(driver, ask("G", digest="d1"))
    (shown,) = driver.approvals()
    before = driver.snapshot(run)
    for verdict in ("approve", "reject"):
        with pytest.raises(Conflict, match="digest"):
            _decide(driver, verdict, run, digest="d2")
    assert driver.snapshot(run) == before
    assert driver.approve(run, digest=shown.digest).repeated is False
    assert driver.approve(run).repeated is True
