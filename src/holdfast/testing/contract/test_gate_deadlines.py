"""Deadlines of gates, the list of open gates, and gates that open again."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, RunFilter, moment

from .driver import ask, call, gate, sleep

decode = msgspec.json.decode
MICRO = 0.000001


def _open(driver, kind, seconds=10.0, on_timeout="reject"):
    """Return a run that waits at a gate with a deadline."""
    if kind == "plan":
        return driver.plan(gate("G", seconds, on_timeout=on_timeout), "B")
    claim = driver.held()
    driver.park(claim, ask("G", delay_seconds=seconds, on_timeout=on_timeout), known=0)
    return claim.id


@pytest.mark.spec("APPR-8", "MOVE-5")
@pytest.mark.parametrize("on_timeout", ["reject", "approve"])
@pytest.mark.parametrize("kind", ["plan", "code"])
def test_a_gate_that_nobody_decides_in_time_takes_its_default(driver, kind, on_timeout):
    """The default is rejected, with timed_out in the output; it comes at the deadline, not before."""
    run, approved = _open(driver, kind, on_timeout=on_timeout), on_timeout == "approve"
    assert driver.due().chore_at == driver.clock.now + 10_000_000
    driver.clock.turn(10 - MICRO)
    assert driver.tick().total == 0
    driver.clock.turn(MICRO)
    assert driver.tick().lapsed == 1
    output = decode(driver.step(run, "G").output)
    assert (output["approved"], output["timed_out"], output["at"]) == (approved, True, driver.clock.now)
    failed = kind == "plan" and not approved
    assert driver.status(run) is (Status.FAILED if failed else Status.PENDING)
    assert not failed or driver.get(run).error.kind == "rejected"
    told = driver.last(run, "timed_out")
    assert (told["step"], told["approved"]) == ("G", approved)
    assert not {"approved", "rejected"} & set(driver.told(run))
    assert driver.tick().total == 0
    driver.assert_replayed(run)


@pytest.mark.spec("MOVE-4", "APPR-8")
@pytest.mark.parametrize("gate_first", [True, False])
def test_waits_that_are_due_at_the_same_time_are_settled_in_the_order_of_their_steps(driver, gate_first):
    """A sleep and a gate of one run: the order decides the numbers of their outcomes."""
    claim = driver.held()
    waits = [ask("G", delay_seconds=10.0, on_timeout="reject"), sleep("nap", seconds=10.0)]
    driver.park(claim, *(waits if gate_first else reversed(waits)), known=0)
    driver.clock.turn(10)
    assert driver.tick().lapsed == 2
    assert (driver.step(claim.id, "G").seq < driver.step(claim.id, "nap").seq) is gate_first
    driver.assert_replayed(claim.id)


@pytest.mark.spec("APPR-8", "PAUSE-4")
@pytest.mark.parametrize("on_timeout", ["reject", "approve"])
def test_a_deadline_in_a_pause_takes_effect_at_resume(driver, on_timeout):
    """A deadline acts like a decision in a pause."""
    run, approved = _open(driver, "plan", on_timeout=on_timeout), on_timeout == "approve"
    driver.pause(run)
    driver.clock.turn(10)
    assert (driver.tick().lapsed, driver.status(run)) == (1, Status.PAUSED)
    assert driver.step(run, "G").status is (StepStatus.SUCCEEDED if approved else StepStatus.FAILED)
    driver.assert_replayed(run)
    assert driver.resume(run).status is (Status.PENDING if approved else Status.FAILED)
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8")
@pytest.mark.parametrize("kind", ["plan", "code"])
def test_a_decision_at_the_deadline_counts_and_after_it_is_too_late(driver, kind):
    """A late decision settles the gate as timed out, and is answered so, though no keeper has noticed."""
    in_time, late = _open(driver, kind), _open(driver, kind)
    driver.clock.turn(10)
    assert driver.approve(in_time).decision.timed_out is False
    driver.clock.turn(MICRO)
    with pytest.raises(Conflict):
        driver.approve(late, by="ann")
    said = driver.reject(late, by="ann")
    assert (said.repeated, said.decision.approved, said.decision.timed_out) == (True, False, True)
    assert said.decision.by == ""
    assert driver.status(late) is (Status.FAILED if kind == "plan" else Status.PENDING)
    assert driver.told(late).count("timed_out") == 1
    assert (driver.tick().total, "rejected" in driver.told(late)) == (0, False)
    for run in (in_time, late):
        driver.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8", "FLOW-7")
def test_a_decision_that_comes_too_late_still_tells_the_parent_of_the_end(driver):
    """The refused call settles the gate and fails the child: the parent needs no keeper."""
    driver.publish(gate("G", 10.0), type="shop.gated.v1")
    claim, child = driver.held(), driver.id()
    driver.park(claim, call("kid", child, "shop.gated.v1"), known=0)
    driver.clock.turn(10 + MICRO)
    with pytest.raises(Conflict):
        driver.approve(child)
    assert (driver.status(child), driver.status(claim.id)) == (Status.FAILED, Status.PENDING)
    assert driver.tick().total == 0
    for run in (child, claim.id):
        driver.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8")
def test_a_late_approval_of_a_gate_that_approves_itself_is_a_repeat(driver):
    """The verdict is the same; no person is named as the decider."""
    run = _open(driver, "plan", on_timeout="approve")
    driver.clock.turn(11)
    said = driver.approve(run, by="ann")
    assert (said.repeated, said.decision.timed_out, said.run.status) == (True, True, Status.PENDING)
    driver.assert_replayed(run)


@pytest.mark.spec("APPR-7", "READ-1")
def test_open_gates_are_listed_over_all_runs_of_a_tenant(driver):
    """The oldest run comes first, with the question, in pages; gates of other tenants only on request."""
    claim = driver.held()
    shown = {"ask": '{"ask":"Ship?","data":{"n":2}}', "digest": "d"}
    driver.park(claim, ask("z", delay_seconds=60.0, **shown), ask("a"), known=0)
    driver.publish(gate("G", ask='{"ask":"Sure?","data":null}'), gate("H"), type="shop.plan.v1")
    plan, foreign = driver.start("shop.plan.v1"), driver.start("shop.plan.v1", tenant="acme")
    listed = driver.approvals()
    assert [(one.run, one.step) for one in listed] == [(claim.id, "z"), (claim.id, "a"), (plan, "G")]
    first = listed[0]
    assert (first.type, first.tenant) == ("shop.order.v1", "default")
    assert first.digest == driver.step(claim.id, "z").digest is not None
    assert listed[1].digest is None
    assert (first.ask, first.data) == ("Ship?", {"n": 2})
    assert (first.opened_at, first.due_at) == (
        moment(driver.clock.now),
        moment(driver.clock.now + 60_000_000),
    )
    assert (listed[2].ask, listed[2].due_at) == ("Sure?", None)
    page = driver.approvals(limit=1)
    for expected in listed:
        assert page == [expected]
        page = driver.approvals(limit=1, after=(expected.run, expected.step))
    assert page == []
    assert [one.run for one in driver.approvals(tenant="acme")] == [foreign]
    assert len(driver.approvals(tenant=ANY)) == 4


@pytest.mark.spec("APPR-7", "DEL-1")
def test_a_gate_is_listed_while_it_can_be_decided(driver):
    """Gates of paused runs are listed; decided ones and those of ended or deleted runs are not."""
    decided, paused, cancelled, deleted = (_open(driver, "code") for _ in range(4))
    driver.approve(decided)
    driver.pause(paused)
    driver.cancel(cancelled)
    driver.delete(deleted)
    assert [one.run for one in driver.approvals()] == [paused]
    where = RunFilter(waiting_on=StepKind.APPROVAL)
    assert [run.id for run in driver.run(driver.store.list(where))] == [paused]
    assert driver.run(driver.store.stuck()) == []
    driver.restore(deleted)
    assert [one.run for one in driver.approvals()] == [paused, deleted]


@pytest.mark.spec("APPR-7")
def test_no_gate_is_left_out_when_the_last_of_a_page_is_decided(driver):
    """The number of a decided gate changes in code runs; the next page still shows the gates after it."""
    claim = driver.held()
    driver.park(claim, ask("G"), ask("H"), known=0)
    (first,) = driver.approvals(limit=1)
    driver.approve(claim.id, "G")
    assert [one.step for one in driver.approvals(after=(first.run, first.step))] == ["H"]


@pytest.mark.spec("APPR-7")
def test_the_opening_time_of_a_gate_is_shown(driver):
    """This is not the start of its run."""
    plan, code = (
        driver.begun("A", gate("G")),
        driver.take(driver.start("shop.code.v1"), types=("shop.code.v1",)),
    )
    driver.clock.turn(20)
    driver.advance(plan, "A")
    driver.clock.turn(3)
    driver.park(code, ask("G"), known=0)
    opened = [one.opened_at for one in driver.approvals()]
    assert opened == [moment(driver.clock.now - 3_000_000), moment(driver.clock.now)]


@pytest.mark.spec("REW-1", "APPR-1")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_plan_rewound_to_a_gate_waits_for_a_new_decision(driver, verdict):
    """The old decision is forgotten; the deadline counts anew, and either verdict is possible."""
    run = driver.plan(gate("G", 60.0), "B")
    getattr(driver, verdict)(run, by="ann")
    driver.clock.turn(30)
    assert driver.rewind(run, "G").status is Status.WAITING
    assert driver.shape(run) == [("G", "waiting"), ("B", "pending")]
    step = driver.step(run, "G")
    assert (step.output, step.error, step.due_at) == (None, None, driver.clock.now + 60_000_000)
    assert driver.told(run)[-2:] == ["rewound", "approval_opened"]
    driver.assert_replayed(run)
    again = driver.reject(run, by="bob") if verdict == "approve" else driver.approve(run, by="bob")
    assert (again.repeated, again.decision.by) == (False, "bob")
    driver.assert_replayed(run)


@pytest.mark.spec("REW-1", "APPR-1")
def test_a_paused_plan_rewound_to_a_gate_opens_it_at_resume(driver):
    """The run stays paused, and the gate is not open until then."""
    run = driver.plan(gate("G"), "B")
    driver.approve(run)
    driver.pause(run)
    assert (driver.rewind(run, "G").status, driver.approvals()) == (Status.PAUSED, [])
    driver.assert_replayed(run)
    assert driver.resume(run).status is Status.WAITING
    assert [one.step for one in driver.approvals()] == ["G"]
    driver.assert_replayed(run)


@pytest.mark.spec("REW-2", "APPR-4")
@pytest.mark.parametrize("how", ["rejected", "lapsed"])
def test_a_plan_that_was_rejected_asks_again_when_it_is_retried(driver, how):
    """The gate is the step that failed: it opens again."""
    run = driver.plan(gate("G", 10.0), "B")
    if how == "rejected":
        driver.reject(run)
    else:
        driver.clock.turn(10)
        driver.tick()
    seen = driver.retry_run(run)
    assert (seen.status, seen.error_json, seen.finished_at) == (Status.WAITING, None, None)
    driver.assert_replayed(run)
    assert driver.approve(run).run.status is Status.PENDING
    driver.assert_replayed(run)


@pytest.mark.spec("REW-1", "APPR-9")
def test_a_forgotten_gate_cannot_be_decided(driver):
    """After a rewind to before it, a decision without a name means the gate that is open."""
    run = driver.plan(gate("G"), gate("H"), "B")
    driver.approve(run)
    driver.approve(run, "H")
    driver.rewind(run, "G")
    assert driver.approve(run).step == "G"
    with pytest.raises(Conflict):
        driver.approve(run)
