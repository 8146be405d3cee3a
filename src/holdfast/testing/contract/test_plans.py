"""Plans: all steps are rows from the start, and only the rows decide the next step."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Answer, Definition, moment

from .driver import TYPE, broken, done, gate, hear, nap, task

# Names whose sorted order differs from the plan's, however they are compared.
NAMES = ("B", "A", "10", "9")


def _walk(driver, claim, *names, **fields):
    """Advance each step by its holder, without a new claim."""
    for name in names:
        verdict = driver.advance(claim, name, in_place=True, **fields)
    return verdict


@pytest.mark.spec("PLAN-1", "PLAN-3")
def test_a_start_inserts_all_steps_of_the_plan_in_its_order(driver):
    """The order is the stored number, not a time and not the name; it is one commit."""
    run = driver.plan(*NAMES)
    steps = driver.steps(run)
    assert [(step.seq, step.key, step.kind) for step in steps] == [
        (seq, name, StepKind.TASK) for seq, name in enumerate(NAMES)
    ]
    assert [step.status.value for step in steps] == ["ready", "pending", "pending", "pending"]
    seen = driver.get(run)
    assert (seen.kind, seen.status, seen.attempt) == ("plan", Status.PENDING, 0)
    assert driver.last(run, "created")["steps"] == list(NAMES)
    assert driver.told(run) == ["created"]
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-3", "PLAN-5", "MOVE-5")
@pytest.mark.parametrize("in_place", [True, False])
def test_a_plan_runs_strictly_in_its_order(driver, in_place):
    """At most one step is current; all before it succeeded, all after it are pending; then the run
    succeeds.
    """
    claim = driver.begun(*NAMES)
    for number, name in enumerate(NAMES):
        statuses = [step.status.value for step in driver.steps(claim.id)]
        assert statuses == ["succeeded"] * number + ["running"] + ["pending"] * (3 - number)
        verdict = driver.advance(claim, done(name, f'"{name}"'), in_place=in_place, result='"all"')
        assert verdict.answer is Answer.APPLIED
        driver.assert_replayed(claim.id)
        if not in_place and number < 3:
            claim = driver.take(claim.id)
    assert verdict.status is Status.SUCCEEDED
    seen = driver.get(claim.id)
    assert (seen.status, seen.result, seen.finished_at) == ("succeeded", "all", moment(driver.clock.now))
    assert (seen.leased_by, seen.lease_until) == (None, None)
    assert [(step.seq, step.output) for step in driver.steps(claim.id)] == [
        (seq, f'"{name}"') for seq, name in enumerate(NAMES)
    ]
    assert driver.told(claim.id)[-2:] == ["step_succeeded", "succeeded"]


@pytest.mark.spec("PLAN-13")
def test_the_holder_goes_on_with_the_next_step_without_a_new_claim(driver):
    """Attempt 1, renewed lease, same fence, no `leased` in the trail; the answer has the next row."""
    claim = driver.begun("B", "A", max_attempts=5)
    driver.retry(claim, in_place=True, delay=0.1)
    assert driver.get(claim.id).attempt == 2
    driver.clock.turn(29)
    verdict = driver.advance(claim, "B", in_place=True)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    (row,) = verdict.settled
    assert (row.key, row.seq, row.status, row.max_attempts) == ("A", 1, StepStatus.PENDING, 5)
    seen = driver.get(claim.id)
    assert (seen.attempt, seen.crashes, seen.fence) == (1, 0, claim.fence)
    assert seen.lease_until == moment(driver.clock.now + 30_000_000)
    assert driver.told(claim.id) == ["created", "leased", "retried", "step_succeeded"]
    assert driver.last(claim.id, "step_succeeded") == {"step": "B"}


@pytest.mark.spec("PLAN-5", "PLAN-13")
def test_a_plan_goes_back_to_the_queue_between_steps_unless_the_holder_stays(driver):
    """The run is pending now with attempt 0; the trail differs only by `leased`."""
    claim = driver.begun("B", "A")
    driver.clock.turn(5)
    assert driver.advance(claim, "B").status is Status.PENDING
    seen = driver.get(claim.id)
    assert (seen.attempt, seen.run_at, seen.leased_by) == (0, moment(driver.clock.now), None)
    assert driver.last(claim.id, "step_succeeded") == {"step": "B", "status": "pending"}
    assert driver.shape(claim.id) == [("B", "succeeded"), ("A", "ready")]
    assert driver.advance(claim, "A").answer == "lost"
    again = driver.take(claim.id)
    assert (again.attempt, again.kind, [step.key for step in again.steps]) == (1, "plan", ["B", "A"])
    assert again.steps[1].status is StepStatus.PENDING, "as it is stored"
    driver.assert_replayed(claim.id)


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
def test_only_the_current_step_advances_a_plan(driver, steps):
    """An item with any other step, or with several, is lost, and nothing changes."""
    claim = driver.begun("before", "current", "later")
    driver.advance(claim, "before", in_place=True)
    before = driver.snapshot(claim.id)
    assert driver.commit(claim, Move.ADVANCE, *steps, in_place=True).answer == "lost"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "LEASE-4")
@pytest.mark.parametrize("move", [Move.CHECKPOINT, Move.COMPLETE])
def test_a_plan_goes_on_by_advance_alone(driver, move):
    """Moves of code runs are lost for a plan, and nothing changes."""
    claim = driver.begun("current", "later")
    before = driver.snapshot(claim.id)
    steps = (done("current"),) if move is Move.CHECKPOINT else ()
    assert driver.commit(claim, move, *steps).answer == "lost"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "LEASE-4")
def test_a_code_run_does_not_advance(driver):
    """It has no planned step."""
    claim = driver.held()
    driver.checkpoint(claim)
    before = driver.snapshot(claim.id)
    assert driver.advance(claim, "first").answer == "lost"
    assert driver.advance(claim, "second").answer == "lost"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14", "PLAN-5")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("next_step", ["A", gate("A"), None])
@pytest.mark.parametrize("cost", [0, 5])
def test_an_advance_sent_again_changes_nothing(driver, next_step, in_place, cost):
    """After a lost reply the answer is the first one, also when the run has moved on."""
    claim = driver.begun("B", *([next_step] if next_step else []))
    item = driver.item(claim, Move.ADVANCE, done("B", cost=cost), in_place=in_place, result="1")
    first = driver.send(item)
    before = driver.snapshot(claim.id)
    assert driver.send(item) == first
    driver.clock.turn(1)
    assert driver.send(item) == first
    assert driver.snapshot(claim.id) == before
    assert driver.get(claim.id).cost_units == cost
    driver.assert_replayed(claim.id)


def _expire(driver, run):
    driver.clock.turn(31)
    driver.tick()


def _expire_and_claim(driver, run):
    _expire(driver, run)
    driver.clock.turn(3600)
    driver.take(run)


MEANWHILE = {
    "nothing": lambda driver, run: driver.get(run),
    "cancel": lambda driver, run: driver.cancel(run),
    "rewind all": lambda driver, run: driver.rewind(run, "A"),
    "rewind it": lambda driver, run: driver.rewind(run, "B"),
    "rewind the next": lambda driver, run: driver.rewind(run, "C"),
    "append": lambda driver, run: driver.append_step(run, "E"),
    "pause": lambda driver, run: driver.pause(run),
    "expire": _expire,
    "claim": _expire_and_claim,
}


@pytest.mark.spec("LEASE-14", "PLAN-5")
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_an_advance_sent_again_is_answered_the_same_whatever_came_of_its_run(driver, meanwhile):
    """This holds until another holder has written. For an older advance the answer is only that it was
    applied.
    """
    claim = driver.begun("A", "B", "C", task("D", max_attempts=7))
    items = [driver.item(claim, Move.ADVANCE, done(name), in_place=True) for name in "ABC"]
    driver.send(items[0])
    first = driver.send(items[1])
    assert [(step.key, step.status) for step in first[0].settled] == [("C", "pending")]
    MEANWHILE[meanwhile](driver, claim.id)
    before = driver.snapshot(claim.id)
    assert driver.send(items[1]) == first
    (older,) = driver.send(items[0])
    assert (older.answer, older.status, older.settled) == ("applied", "leased", ())
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14", "PLAN-5")
def test_an_older_advance_sent_again_is_applied_and_no_more(driver):
    """This holds also when later ones have left the run row alone, or ended the run."""
    claim = driver.begun("A", "B", "C")
    items = [driver.item(claim, Move.ADVANCE, done(name), in_place=True) for name in "ABC"]
    for count, item in enumerate(items, 1):
        first = driver.send(item)
        assert driver.send(item) == first
        for older in items[: count - 1]:
            (verdict,) = driver.send(older)
            assert (verdict.answer, verdict.status, verdict.settled) == ("applied", "leased", ())


@pytest.mark.spec("PLAN-10", "PLAN-12")
def test_missing_fields_of_a_start_come_from_the_published_plan(driver):
    """max_attempts is the step's, else the start's, else the workflow's, else 3; rows have it from the
    start.
    """
    steps = (task("own", max_attempts=7), task("usual"), gate("G", 9.0, digest="d"), hear("E", "t"), nap("S"))
    driver.publish(*steps, max_attempts=4)
    driver.publish("alone", type="shop.other.v1")
    given, usual = driver.start(max_attempts=2), driver.start()
    assert [step.max_attempts for step in driver.steps(given)[:2]] == [7, 2]
    assert [step.max_attempts for step in driver.steps(usual)[:2]] == [7, 4]
    (alone,) = driver.steps(driver.start("shop.other.v1"))
    assert alone.max_attempts == 3
    _, _, asked, heard, slept = driver.steps(usual)
    assert (asked.kind, asked.timeout_seconds, asked.digest, asked.due_at) == ("approval", 9.0, "d", None)
    assert (heard.kind, heard.topic, slept.kind, slept.timeout_seconds) == ("event", "t", "sleep", 60.0)


@pytest.mark.spec("PLAN-12")
@pytest.mark.parametrize(
    "other",
    [("A",), ("A", "B"), ("B", "A", "C"), ("B", task("A", max_attempts=9)), ("B", gate("A")), ()],
)
def test_the_same_version_with_other_steps_is_refused(driver, other):
    """It is a conflict, and no definition of the call is written: another plan needs another version."""
    driver.publish("B", "A")
    steps = tuple(task(step) if isinstance(step, str) else step for step in other)
    changed = Definition(type=TYPE, kind="plan" if steps else "code", steps=steps)
    first = Definition(type="shop.another.v1", kind="plan", steps=(task("X"),))
    before = driver.run(driver.store.definitions())
    with pytest.raises(Conflict, match=r"shop\.order\.v1"):
        driver.run(driver.store.publish([first, changed]))
    assert driver.run(driver.store.definitions()) == before


@pytest.mark.spec("PLAN-12")
def test_a_plan_may_change_its_defaults_and_code_may_not_become_a_plan(driver):
    """Only the steps belong to the version; publishing the same again writes nothing."""
    driver.publish("B", "A")
    driver.publish("B", "A", max_attempts=9, description="more patient")
    (known,) = driver.run(driver.store.definitions())
    assert (known.kind, known.max_attempts, [step.name for step in known.steps]) == ("plan", 9, ["B", "A"])
    driver.publish(type="shop.code.v1")
    with pytest.raises(Conflict, match=r"shop\.code\.v1"):
        driver.publish("B", type="shop.code.v1")


@pytest.mark.spec("PLAN-12")
def test_a_run_that_is_older_than_its_plan_gets_its_steps_at_the_first_claim(driver):
    """The worker with the plan inserts the rows in one commit; then the run is given back with its
    attempt.
    """
    run = driver.start(max_attempts=2)
    assert (driver.steps(run), driver.get(run).kind) == ([], "code")
    driver.take(run)
    driver.clock.turn(31)
    driver.tick()
    claim = driver.take(run)
    plan = (task("B"), task("A", max_attempts=5))
    item = driver.item(claim, Move.ADVANCE, plan=plan)
    (verdict,) = driver.send(item)
    assert (verdict.answer, verdict.status) == ("applied", Status.PENDING)
    before = driver.snapshot(run)
    assert driver.send(item) == [verdict]
    assert driver.snapshot(run) == before
    seen = driver.get(run)
    assert (seen.kind, seen.attempt, seen.crashes) == ("plan", 1, 1), "inserting rows is no progress"
    assert [(s.seq, s.key, s.max_attempts) for s in driver.steps(run)] == [(0, "B", 2), (1, "A", 5)]
    assert driver.told(run, 4) == ["step_added", "step_added", "released"]
    driver.assert_replayed(run)
    claim = driver.take(run)
    assert claim.attempt == 2
    driver.advance(claim, "B", in_place=True)
    assert driver.advance(claim, "A").status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-12", "PLAN-2")
def test_rows_that_are_there_are_not_inserted_again(driver):
    """When two workers insert rows, only the first one's count."""
    claim = driver.begun("B", "A")
    verdict = driver.advance(claim, None, plan=(task("X"), task("Y")))
    assert (verdict.answer, verdict.status) == ("applied", Status.PENDING)
    assert driver.shape(claim.id) == [("B", "ready"), ("A", "pending")]
    assert (driver.get(claim.id).attempt, driver.told(claim.id)[-1]) == (0, "released")
    assert "step_added" not in driver.told(claim.id)
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-12", "APPR-1")
def test_a_plan_that_comes_late_and_begins_with_a_gate_waits(driver):
    """It waits as it would have at the start, and no worker holds it."""
    claim = driver.held()
    assert driver.advance(claim, None, plan=(gate("G"), task("B"))).status is Status.WAITING
    assert driver.shape(claim.id) == [("G", "waiting"), ("B", "pending")]
    assert driver.get(claim.id).leased_by is None
    driver.assert_replayed(claim.id)
    driver.approve(claim.id, "G")
    assert driver.take(claim.id).attempt == 1


@pytest.mark.spec("PLAN-14", "PLAN-2")
def test_a_step_that_is_added_later_is_executed_last(driver):
    """Its row comes after the last one, whatever its name."""
    run = driver.plan("B", max_attempts=6)
    added = driver.append_step(run, "A")
    assert (added.seq, added.key, added.kind, added.status) == (1, "A", "task", "pending")
    assert added.max_attempts == 6
    assert driver.append_step(run, "0", max_attempts=2).max_attempts == 2
    assert driver.last(run, "step_added") == {"step": "0"}
    driver.assert_replayed(run)
    claim = driver.take(run)
    assert [step.key for step in claim.steps] == ["B", "A", "0"]
    assert _walk(driver, claim, "B", "A", "0").status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-14")
def test_a_step_is_added_only_to_an_open_plan_and_under_a_name_of_its_own(driver):
    """An ended run is refused with the true status; a code run, or a known name, is a conflict."""
    code, claim = driver.start("shop.code.v1"), driver.begun("A")
    for run, name in ((code, "X"), (claim.id, "A")):
        before = driver.snapshot(run)
        with pytest.raises(Conflict) as refusal:
            driver.append_step(run, name)
        assert not isinstance(refusal.value, IllegalMove)
        assert driver.snapshot(run) == before
    driver.advance(claim, "A")
    with pytest.raises(IllegalMove) as ended:
        driver.append_step(claim.id, "X")
    assert ended.value.status is Status.SUCCEEDED


@pytest.mark.spec("PLAN-14", "PLAN-5")
@pytest.mark.parametrize("first", ["append", "advance"])
def test_a_step_added_while_the_last_one_ends_is_executed_or_refused(driver, first):
    """The first commit wins: a step is never accepted and left out."""
    claim = driver.begun("A")
    if first == "append":
        driver.append_step(claim.id, "X")
        verdict = driver.advance(claim, "A", in_place=True)
        assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["X"])
        assert driver.advance(claim, "X").status is Status.SUCCEEDED
    else:
        driver.advance(claim, "A")
        with pytest.raises(IllegalMove):
            driver.append_step(claim.id, "X")
        assert driver.shape(claim.id) == [("A", "succeeded")]
    driver.assert_replayed(claim.id)
