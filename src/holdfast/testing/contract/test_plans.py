"""Plans: all steps are rows from the start, and only the rows decide what comes next."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Answer, Definition, moment

from .hand import TYPE, broken, done, gate, hear, nap, task

# Names whose order is another one than the plan's, however they are compared.
NAMES = ("B", "A", "10", "9")


def _walk(hand, claim, *names, **fields):
    """Each step by its holder, without a new claim in between."""
    for name in names:
        verdict = hand.advance(claim, name, in_place=True, **fields)
    return verdict


@pytest.mark.spec("PLAN-1", "PLAN-3")
def test_a_start_inserts_all_steps_of_the_plan_in_its_order(hand):
    """One commit, one instant: the order is the stored number, never a timestamp, never the name."""
    run = hand.plan(*NAMES)
    steps = hand.steps(run)
    assert [(step.seq, step.key, step.kind) for step in steps] == [
        (seq, name, StepKind.TASK) for seq, name in enumerate(NAMES)
    ]
    assert [step.status.value for step in steps] == ["ready", "pending", "pending", "pending"]
    seen = hand.get(run)
    assert (seen.kind, seen.status, seen.attempt) == ("plan", Status.PENDING, 0)
    assert hand.last(run, "created")["steps"] == list(NAMES)
    assert hand.told(run) == ["created"]
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-3", "PLAN-5", "MOVE-5")
@pytest.mark.parametrize("in_place", [True, False])
def test_a_plan_is_lived_strictly_in_its_order(hand, in_place):
    """At most one step is current; all before it succeeded, all after it pending; then the run succeeds."""
    claim = hand.begun(*NAMES)
    for number, name in enumerate(NAMES):
        statuses = [step.status.value for step in hand.steps(claim.id)]
        assert statuses == ["succeeded"] * number + ["running"] + ["pending"] * (3 - number)
        verdict = hand.advance(claim, done(name, f'"{name}"'), in_place=in_place, result='"all"')
        assert verdict.answer is Answer.APPLIED
        hand.assert_replayed(claim.id)
        if not in_place and number < 3:
            claim = hand.take(claim.id)
    assert verdict.status is Status.SUCCEEDED
    seen = hand.get(claim.id)
    assert (seen.status, seen.result, seen.finished_at) == ("succeeded", "all", moment(hand.clock.now))
    assert (seen.leased_by, seen.lease_until) == (None, None)
    assert [(step.seq, step.output) for step in hand.steps(claim.id)] == [
        (seq, f'"{name}"') for seq, name in enumerate(NAMES)
    ]
    assert hand.told(claim.id)[-2:] == ["step_succeeded", "succeeded"]


@pytest.mark.spec("PLAN-13")
def test_the_holder_goes_on_with_the_next_step_without_a_new_claim(hand):
    """Attempt 1, lease renewed, same fence, no `leased` in the trail; the next row is the answer."""
    claim = hand.begun("B", "A", max_attempts=5)
    hand.retry(claim, in_place=True, delay=0.1)
    assert hand.get(claim.id).attempt == 2
    hand.clock.turn(29)
    verdict = hand.advance(claim, "B", in_place=True)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    (row,) = verdict.settled
    assert (row.key, row.seq, row.status, row.max_attempts) == ("A", 1, StepStatus.PENDING, 5)
    seen = hand.get(claim.id)
    assert (seen.attempt, seen.crashes, seen.fence) == (1, 0, claim.fence)
    assert seen.lease_until == moment(hand.clock.now + 30_000_000)
    assert hand.told(claim.id) == ["created", "leased", "retried", "step_succeeded"]
    assert hand.last(claim.id, "step_succeeded") == {"step": "B"}


@pytest.mark.spec("PLAN-5", "PLAN-13")
def test_a_plan_goes_back_to_the_queue_between_steps_unless_the_holder_stays(hand):
    """Pending now, attempt 0; the rows are those of a holder who stays, but for `leased`."""
    claim = hand.begun("B", "A")
    hand.clock.turn(5)
    assert hand.advance(claim, "B").status is Status.PENDING
    seen = hand.get(claim.id)
    assert (seen.attempt, seen.run_at, seen.leased_by) == (0, moment(hand.clock.now), None)
    assert hand.last(claim.id, "step_succeeded") == {"step": "B", "status": "pending"}
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "ready")]
    assert hand.advance(claim, "A").answer == "lost"
    again = hand.take(claim.id)
    assert (again.attempt, again.kind, [step.key for step in again.steps]) == (1, "plan", ["B", "A"])
    assert again.steps[1].status is StepStatus.PENDING, "as it is stored"
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-3", "PLAN-5", "LEASE-4")
@pytest.mark.parametrize(
    "steps",
    [
        (done("later"),),
        (done("before"),),
        (done("nowhere"),),
        (broken("current"),),
        (done("current"), done("later")),
        (),
    ],
)
def test_only_the_current_step_advances_a_plan(hand, steps):
    """Exactly one, succeeded, the first that has not: any other is lost, and nothing changes."""
    claim = hand.begun("before", "current", "later")
    hand.advance(claim, "before", in_place=True)
    before = hand.snapshot(claim.id)
    assert hand.commit(claim, Move.ADVANCE, *steps, in_place=True).answer == "lost"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "LEASE-4")
@pytest.mark.parametrize("move", [Move.CHECKPOINT, Move.COMPLETE])
def test_a_plan_goes_on_by_advance_alone(hand, move):
    """What is a code run's end or step is none of a plan's: it is lost, and nothing changes."""
    claim = hand.begun("current", "later")
    before = hand.snapshot(claim.id)
    steps = (done("current"),) if move is Move.CHECKPOINT else ()
    assert hand.commit(claim, move, *steps).answer == "lost"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "LEASE-4")
def test_a_code_run_does_not_advance(hand):
    """It has no planned step that could be the current one."""
    claim = hand.held()
    hand.checkpoint(claim)
    before = hand.snapshot(claim.id)
    assert hand.advance(claim, "first").answer == "lost"
    assert hand.advance(claim, "second").answer == "lost"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14", "PLAN-5")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("next_step", ["A", gate("A"), None])
@pytest.mark.parametrize("cost", [0, 5])
def test_an_advance_sent_again_changes_nothing(hand, next_step, in_place, cost):
    """The lost reply: answered as the first time, also after the run has moved on."""
    claim = hand.begun("B", *([next_step] if next_step else []))
    item = hand.item(claim, Move.ADVANCE, done("B", cost=cost), in_place=in_place, result="1")
    first = hand.send(item)
    before = hand.snapshot(claim.id)
    assert hand.send(item) == first
    hand.clock.turn(1)
    assert hand.send(item) == first
    assert hand.snapshot(claim.id) == before
    assert hand.get(claim.id).cost_units == cost
    hand.assert_replayed(claim.id)


def _expire(hand, run):
    hand.clock.turn(31)
    hand.tick()


def _expire_and_claim(hand, run):
    _expire(hand, run)
    hand.clock.turn(3600)
    hand.take(run)


MEANWHILE = {
    "nothing": lambda hand, run: hand.get(run),
    "cancel": lambda hand, run: hand.cancel(run),
    "rewind all": lambda hand, run: hand.rewind(run, "A"),
    "rewind it": lambda hand, run: hand.rewind(run, "B"),
    "rewind the next": lambda hand, run: hand.rewind(run, "C"),
    "append": lambda hand, run: hand.append_step(run, "E"),
    "pause": lambda hand, run: hand.pause(run),
    "expire": _expire,
    "claim": _expire_and_claim,
}


@pytest.mark.spec("LEASE-14", "PLAN-5")
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_an_advance_sent_again_is_answered_the_same_whatever_came_of_its_run(hand, meanwhile):
    """Until another holder has written. Of an older one only this much is said, that it was applied."""
    claim = hand.begun("A", "B", "C", task("D", max_attempts=7))
    items = [hand.item(claim, Move.ADVANCE, done(name), in_place=True) for name in "ABC"]
    hand.send(items[0])
    first = hand.send(items[1])
    assert [(step.key, step.status) for step in first[0].settled] == [("C", "pending")]
    MEANWHILE[meanwhile](hand, claim.id)
    before = hand.snapshot(claim.id)
    assert hand.send(items[1]) == first
    (older,) = hand.send(items[0])
    assert (older.answer, older.status, older.settled) == ("applied", "leased", ())
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14", "PLAN-5")
def test_an_older_advance_sent_again_is_applied_and_no_more(hand):
    """Also when those after it have left the run row alone, or ended the run."""
    claim = hand.begun("A", "B", "C")
    items = [hand.item(claim, Move.ADVANCE, done(name), in_place=True) for name in "ABC"]
    for count, item in enumerate(items, 1):
        first = hand.send(item)
        assert hand.send(item) == first
        for older in items[: count - 1]:
            (verdict,) = hand.send(older)
            assert (verdict.answer, verdict.status, verdict.settled) == ("applied", "leased", ())


@pytest.mark.spec("PLAN-10", "PLAN-12")
def test_what_a_start_needs_is_taken_from_the_published_plan(hand):
    """max_attempts: the step's, else the start's, else the workflow's, else 3; in the rows from the start."""
    steps = (task("own", max_attempts=7), task("usual"), gate("G", 9.0, digest="d"), hear("E", "t"), nap("S"))
    hand.publish(*steps, max_attempts=4)
    hand.publish("alone", type="shop.other.v1")
    given, usual = hand.start(max_attempts=2), hand.start()
    assert [step.max_attempts for step in hand.steps(given)[:2]] == [7, 2]
    assert [step.max_attempts for step in hand.steps(usual)[:2]] == [7, 4]
    (alone,) = hand.steps(hand.start("shop.other.v1"))
    assert alone.max_attempts == 3
    _, _, asked, heard, slept = hand.steps(usual)
    assert (asked.kind, asked.timeout_seconds, asked.digest, asked.due_at) == ("approval", 9.0, "d", None)
    assert (heard.kind, heard.topic, slept.kind, slept.timeout_seconds) == ("event", "t", "sleep", 60.0)


@pytest.mark.spec("PLAN-12")
@pytest.mark.parametrize(
    "other",
    [("A",), ("A", "B"), ("B", "A", "C"), ("B", task("A", max_attempts=9)), ("B", gate("A")), ()],
)
def test_the_same_version_with_other_steps_is_refused(hand, other):
    """Conflict, and none of the call's definitions is written: another plan is another version."""
    hand.publish("B", "A")
    steps = tuple(task(step) if isinstance(step, str) else step for step in other)
    changed = Definition(type=TYPE, kind="plan" if steps else "code", steps=steps)
    first = Definition(type="shop.another.v1", kind="plan", steps=(task("X"),))
    before = hand.run(hand.store.definitions())
    with pytest.raises(Conflict, match=r"shop\.order\.v1"):
        hand.run(hand.store.publish([first, changed]))
    assert hand.run(hand.store.definitions()) == before


@pytest.mark.spec("PLAN-12")
def test_a_plan_may_change_its_defaults_and_code_may_not_become_a_plan(hand):
    """Only the steps are what a version stands for; the same again writes nothing."""
    hand.publish("B", "A")
    hand.publish("B", "A", max_attempts=9, description="more patient")
    (known,) = hand.run(hand.store.definitions())
    assert (known.kind, known.max_attempts, [step.name for step in known.steps]) == ("plan", 9, ["B", "A"])
    hand.publish(type="shop.code.v1")
    with pytest.raises(Conflict, match=r"shop\.code\.v1"):
        hand.publish("B", type="shop.code.v1")


@pytest.mark.spec("PLAN-12")
def test_a_run_that_is_older_than_its_plan_gets_its_steps_at_the_first_claim(hand):
    """Inserted by whoever has the plan, in one commit; then it is given back, the attempt too."""
    run = hand.start(max_attempts=2)
    assert (hand.steps(run), hand.get(run).kind) == ([], "code")
    hand.take(run)
    hand.clock.turn(31)
    hand.tick()
    claim = hand.take(run)
    plan = (task("B"), task("A", max_attempts=5))
    item = hand.item(claim, Move.ADVANCE, plan=plan)
    (verdict,) = hand.send(item)
    assert (verdict.answer, verdict.status) == ("applied", Status.PENDING)
    before = hand.snapshot(run)
    assert hand.send(item) == [verdict]
    assert hand.snapshot(run) == before
    seen = hand.get(run)
    assert (seen.kind, seen.attempt, seen.crashes) == ("plan", 1, 1), "inserting rows is no progress"
    assert [(s.seq, s.key, s.max_attempts) for s in hand.steps(run)] == [(0, "B", 2), (1, "A", 5)]
    assert hand.told(run, 4) == ["step_added", "step_added", "released"]
    hand.assert_replayed(run)
    claim = hand.take(run)
    assert claim.attempt == 2
    hand.advance(claim, "B", in_place=True)
    assert hand.advance(claim, "A").status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-12", "PLAN-2")
def test_rows_that_are_there_are_not_inserted_again(hand):
    """Two workers may have meant to: after the first, only the rows count."""
    claim = hand.begun("B", "A")
    verdict = hand.advance(claim, None, plan=(task("X"), task("Y")))
    assert (verdict.answer, verdict.status) == ("applied", Status.PENDING)
    assert hand.shape(claim.id) == [("B", "ready"), ("A", "pending")]
    assert (hand.get(claim.id).attempt, hand.told(claim.id)[-1]) == (0, "released")
    assert "step_added" not in hand.told(claim.id)
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-12", "APPR-1")
def test_a_plan_that_comes_late_and_begins_with_a_gate_waits(hand):
    """As it would have at the start; nobody holds it any more."""
    claim = hand.held()
    assert hand.advance(claim, None, plan=(gate("G"), task("B"))).status is Status.WAITING
    assert hand.shape(claim.id) == [("G", "waiting"), ("B", "pending")]
    assert hand.get(claim.id).leased_by is None
    hand.assert_replayed(claim.id)
    hand.approve(claim.id, "G")
    assert hand.take(claim.id).attempt == 1


@pytest.mark.spec("PLAN-14", "PLAN-2")
def test_a_step_that_is_added_later_is_executed_last(hand):
    """A row behind the last one, whatever its name."""
    run = hand.plan("B", max_attempts=6)
    added = hand.append_step(run, "A")
    assert (added.seq, added.key, added.kind, added.status) == (1, "A", "task", "pending")
    assert added.max_attempts == 6
    assert hand.append_step(run, "0", max_attempts=2).max_attempts == 2
    assert hand.last(run, "step_added") == {"step": "0"}
    hand.assert_replayed(run)
    claim = hand.take(run)
    assert [step.key for step in claim.steps] == ["B", "A", "0"]
    assert _walk(hand, claim, "B", "A", "0").status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-14")
def test_a_step_is_added_only_to_an_open_plan_and_under_a_name_of_its_own(hand):
    """Ended: refused with the true status; no plan, or a name that is there: conflict."""
    code, claim = hand.start("shop.code.v1"), hand.begun("A")
    for run, name in ((code, "X"), (claim.id, "A")):
        before = hand.snapshot(run)
        with pytest.raises(Conflict) as refusal:
            hand.append_step(run, name)
        assert not isinstance(refusal.value, IllegalMove)
        assert hand.snapshot(run) == before
    hand.advance(claim, "A")
    with pytest.raises(IllegalMove) as ended:
        hand.append_step(claim.id, "X")
    assert ended.value.status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-14", "PLAN-5")
@pytest.mark.parametrize("first", ["append", "advance"])
def test_a_step_added_while_the_last_one_ends_is_executed_or_refused(hand, first):
    """Whoever commits first: never accepted and left behind."""
    claim = hand.begun("A")
    if first == "append":
        hand.append_step(claim.id, "X")
        verdict = hand.advance(claim, "A", in_place=True)
        assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["X"])
        assert hand.advance(claim, "X").status is Status.SUCCEEDED
    else:
        hand.advance(claim, "A")
        with pytest.raises(IllegalMove):
            hand.append_step(claim.id, "X")
        assert hand.shape(claim.id) == [("A", "succeeded")]
    hand.assert_replayed(claim.id)
