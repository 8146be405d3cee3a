"""Gates in time: deadlines, the inbox of those that are open, and what opens them again."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, RunFilter, moment

from .hand import ask, call, gate

decode = msgspec.json.decode
MICRO = 0.000001


def _open(hand, kind, seconds=10.0, on_timeout="reject"):
    """A run that waits at a gate with a deadline."""
    if kind == "plan":
        return hand.plan(gate("G", seconds, on_timeout=on_timeout), "B")
    claim = hand.held()
    hand.park(claim, ask("G", delay_seconds=seconds, on_timeout=on_timeout), known=0)
    return claim.id


@pytest.mark.spec("APPR-8", "MOVE-5")
@pytest.mark.parametrize("on_timeout", ["reject", "approve"])
@pytest.mark.parametrize("kind", ["plan", "code"])
def test_a_gate_that_nobody_decides_in_time_says_what_it_says_on_its_own(hand, kind, on_timeout):
    """Rejected unless said otherwise, with timed_out in its output; at its instant, not before."""
    run, approved = _open(hand, kind, on_timeout=on_timeout), on_timeout == "approve"
    assert hand.due().chore_at == hand.clock.now + 10_000_000
    hand.clock.turn(10 - MICRO)
    assert hand.tick().total == 0
    hand.clock.turn(MICRO)
    assert hand.tick().lapsed == 1
    output = decode(hand.step(run, "G").output)
    assert (output["approved"], output["timed_out"], output["at"]) == (approved, True, hand.clock.now)
    failed = kind == "plan" and not approved
    assert hand.status(run) is (Status.FAILED if failed else Status.PENDING)
    assert not failed or hand.get(run).error.kind == "rejected"
    told = hand.last(run, "timed_out")
    assert (told["step"], told["approved"]) == ("G", approved)
    assert not {"approved", "rejected"} & set(hand.told(run))
    assert hand.tick().total == 0
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-8", "PAUSE-4")
@pytest.mark.parametrize("on_timeout", ["reject", "approve"])
def test_a_deadline_in_a_pause_takes_effect_at_resume(hand, on_timeout):
    """As a decision does."""
    run, approved = _open(hand, "plan", on_timeout=on_timeout), on_timeout == "approve"
    hand.pause(run)
    hand.clock.turn(10)
    assert (hand.tick().lapsed, hand.status(run)) == (1, Status.PAUSED)
    assert hand.step(run, "G").status is (StepStatus.SUCCEEDED if approved else StepStatus.FAILED)
    hand.assert_replayed(run)
    assert hand.resume(run).status is (Status.PENDING if approved else Status.FAILED)
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8")
@pytest.mark.parametrize("kind", ["plan", "code"])
def test_a_decision_at_the_deadline_counts_and_after_it_is_too_late(hand, kind):
    """Though no keeper has noticed: it is settled as by one, and answered as one that was decided so."""
    in_time, late = _open(hand, kind), _open(hand, kind)
    hand.clock.turn(10)
    assert hand.approve(in_time).decision.timed_out is False
    hand.clock.turn(MICRO)
    with pytest.raises(Conflict):
        hand.approve(late, by="ann")
    said = hand.reject(late, by="ann")
    assert (said.repeated, said.decision.approved, said.decision.timed_out) == (True, False, True)
    assert said.decision.by == ""
    assert hand.status(late) is (Status.FAILED if kind == "plan" else Status.PENDING)
    assert hand.told(late).count("timed_out") == 1
    assert (hand.tick().total, "rejected" in hand.told(late)) == (0, False)
    for run in (in_time, late):
        hand.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8", "FLOW-7")
def test_a_decision_that_comes_too_late_still_tells_the_parent_of_the_end(hand):
    """The refused call has settled the gate, and so failed the child: the parent waits for no keeper."""
    hand.publish(gate("G", 10.0), type="shop.gated.v1")
    claim, child = hand.held(), hand.id()
    hand.park(claim, call("kid", child, "shop.gated.v1"), known=0)
    hand.clock.turn(10 + MICRO)
    with pytest.raises(Conflict):
        hand.approve(child)
    assert (hand.status(child), hand.status(claim.id)) == (Status.FAILED, Status.PENDING)
    assert hand.tick().total == 0
    for run in (child, claim.id):
        hand.assert_replayed(run)


@pytest.mark.spec("APPR-5", "APPR-8")
def test_a_late_approval_of_a_gate_that_approves_itself_is_a_repeat(hand):
    """The verdict is the same; who decided is nobody."""
    run = _open(hand, "plan", on_timeout="approve")
    hand.clock.turn(11)
    said = hand.approve(run, by="ann")
    assert (said.repeated, said.decision.timed_out, said.run.status) == (True, True, Status.PENDING)
    hand.assert_replayed(run)


@pytest.mark.spec("APPR-7", "READ-1")
def test_open_gates_are_listed_over_all_runs_of_a_tenant(hand):
    """Oldest run first, with what is asked; in pages; those of other tenants only when asked for."""
    claim = hand.held()
    shown = {"ask": '{"ask":"Ship?","data":{"n":2}}', "digest": "d"}
    hand.park(claim, ask("z", delay_seconds=60.0, **shown), ask("a"), known=0)
    hand.publish(gate("G", ask='{"ask":"Sure?","data":null}'), gate("H"), type="shop.plan.v1")
    plan, foreign = hand.start("shop.plan.v1"), hand.start("shop.plan.v1", tenant="acme")
    listed = hand.approvals()
    assert [(one.run, one.step) for one in listed] == [(claim.id, "z"), (claim.id, "a"), (plan, "G")]
    first = listed[0]
    assert (first.type, first.tenant) == ("shop.order.v1", "default")
    assert first.digest == hand.step(claim.id, "z").digest is not None
    assert listed[1].digest is None
    assert (first.ask, first.data) == ("Ship?", {"n": 2})
    assert (first.opened_at, first.due_at) == (moment(hand.clock.now), moment(hand.clock.now + 60_000_000))
    assert (listed[2].ask, listed[2].due_at) == ("Sure?", None)
    page = hand.approvals(limit=1)
    for expected in listed:
        assert page == [expected]
        page = hand.approvals(limit=1, after=(expected.run, expected.step))
    assert page == []
    assert [one.run for one in hand.approvals(tenant="acme")] == [foreign]
    assert len(hand.approvals(tenant=ANY)) == 4


@pytest.mark.spec("APPR-7", "DEL-1")
def test_a_gate_is_listed_while_it_can_be_decided(hand):
    """Paused ones too; not decided ones, nor those of runs that have ended or are deleted."""
    decided, paused, cancelled, deleted = (_open(hand, "code") for _ in range(4))
    hand.approve(decided)
    hand.pause(paused)
    hand.cancel(cancelled)
    hand.delete(deleted)
    assert [one.run for one in hand.approvals()] == [paused]
    where = RunFilter(waiting_on=StepKind.APPROVAL)
    assert [run.id for run in hand.run(hand.store.list(where))] == [paused]
    assert hand.run(hand.store.stuck()) == []
    hand.restore(deleted)
    assert [one.run for one in hand.approvals()] == [paused, deleted]


@pytest.mark.spec("APPR-7")
def test_no_gate_is_left_out_when_the_last_of_a_page_is_decided(hand):
    """In code its number is another one by then; the gates behind it are shown all the same."""
    claim = hand.held()
    hand.park(claim, ask("G"), ask("H"), known=0)
    (first,) = hand.approvals(limit=1)
    hand.approve(claim.id, "G")
    assert [one.step for one in hand.approvals(after=(first.run, first.step))] == ["H"]


@pytest.mark.spec("APPR-7")
def test_when_a_gate_was_opened_is_told(hand):
    """Not when its run was started."""
    plan, code = hand.begun("A", gate("G")), hand.take(hand.start("shop.code.v1"), types=("shop.code.v1",))
    hand.clock.turn(20)
    hand.advance(plan, "A")
    hand.clock.turn(3)
    hand.park(code, ask("G"), known=0)
    opened = [one.opened_at for one in hand.approvals()]
    assert opened == [moment(hand.clock.now - 3_000_000), moment(hand.clock.now)]


@pytest.mark.spec("REW-1", "APPR-1")
@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_plan_rewound_to_a_gate_waits_for_a_new_decision(hand, verdict):
    """The old one is forgotten; its deadline counts anew, and either verdict may come now."""
    run = hand.plan(gate("G", 60.0), "B")
    getattr(hand, verdict)(run, by="ann")
    hand.clock.turn(30)
    assert hand.rewind(run, "G").status is Status.WAITING
    assert hand.shape(run) == [("G", "waiting"), ("B", "pending")]
    step = hand.step(run, "G")
    assert (step.output, step.error, step.due_at) == (None, None, hand.clock.now + 60_000_000)
    assert hand.told(run)[-2:] == ["rewound", "approval_opened"]
    hand.assert_replayed(run)
    again = hand.reject(run, by="bob") if verdict == "approve" else hand.approve(run, by="bob")
    assert (again.repeated, again.decision.by) == (False, "bob")
    hand.assert_replayed(run)


@pytest.mark.spec("REW-1", "APPR-1")
def test_a_paused_plan_rewound_to_a_gate_opens_it_at_resume(hand):
    """It stays paused, and asks nobody until then."""
    run = hand.plan(gate("G"), "B")
    hand.approve(run)
    hand.pause(run)
    assert (hand.rewind(run, "G").status, hand.approvals()) == (Status.PAUSED, [])
    hand.assert_replayed(run)
    assert hand.resume(run).status is Status.WAITING
    assert [one.step for one in hand.approvals()] == ["G"]
    hand.assert_replayed(run)


@pytest.mark.spec("REW-2", "APPR-4")
@pytest.mark.parametrize("how", ["rejected", "lapsed"])
def test_a_plan_that_was_rejected_asks_again_when_it_is_retried(hand, how):
    """The gate is the step that failed: it opens once more."""
    run = hand.plan(gate("G", 10.0), "B")
    if how == "rejected":
        hand.reject(run)
    else:
        hand.clock.turn(10)
        hand.tick()
    seen = hand.retry_run(run)
    assert (seen.status, seen.error_json, seen.finished_at) == (Status.WAITING, None, None)
    hand.assert_replayed(run)
    assert hand.approve(run).run.status is Status.PENDING
    hand.assert_replayed(run)


@pytest.mark.spec("REW-1", "APPR-9")
def test_a_gate_that_was_forgotten_is_none_of_the_runs_gates(hand):
    """Rewound to before it, a decision without a name means the one that has been opened."""
    run = hand.plan(gate("G"), gate("H"), "B")
    hand.approve(run)
    hand.approve(run, "H")
    hand.rewind(run, "G")
    assert hand.approve(run).step == "G"
    with pytest.raises(Conflict):
        hand.approve(run)
