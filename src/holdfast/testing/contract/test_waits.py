"""Waits: a parked run needs no worker, and each wait is settled once, in the order of the outcomes."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import SECOND, Chore, StepWrite, moment

from .driver import TYPE, backing_off, done, listen, sleep


@pytest.mark.spec("MOVE-2", "TRAIL-1")
def test_a_parked_run_holds_nothing_and_says_what_it_waits_for(driver):
    """The run waits, the lease is cleared, the attempt is refunded, and the wait has its step row."""
    claim = driver.held()
    verdict = driver.park(claim, listen("w", "parcel", delay_seconds=60.0), known=0)
    assert (verdict.answer, verdict.status, verdict.settled, verdict.seq) == ("applied", "waiting", (), 1)
    seen = driver.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.topic) == ("w", StepKind.EVENT, "parcel")
    assert wait.due_at == driver.clock.now + 60_000_000
    assert driver.last(claim.id, "waiting") == {"step": "w", "kind": "event", "status": "waiting"}
    assert driver.run(driver.store.waiting_on("parcel", "default")) == [claim.id]
    assert driver.run(driver.store.waiting_on("parcel", "acme")) == []
    driver.assert_replayed(claim.id)


@pytest.mark.spec("START-3", "MOVE-8")
def test_a_sleep_ends_at_its_instant_and_never_early(driver):
    """Timers are due at equality; the run is pending at once, with fresh counts."""
    claim = driver.held()
    driver.park(claim, sleep(seconds=60.0))
    driver.clock.turn(59.999999)
    assert driver.tick().total == 0
    driver.clock.turn(0.000001)
    assert driver.tick().lapsed == 1
    seen, nap = driver.get(claim.id), driver.step(claim.id, "nap")
    assert (seen.status, seen.run_at, seen.attempt) == (Status.PENDING, moment(driver.clock.now), 0)
    assert (nap.status, nap.output, nap.finished_at) == (StepStatus.SUCCEEDED, "null", driver.clock.now)
    told = driver.last(claim.id, "woken")
    assert (told["step"], told["status"]) == ("nap", "pending")
    driver.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-8")
def test_a_park_whose_time_has_come_is_answered_at_once(driver):
    """Park looks first: an outcome that is there is the answer, and the run stays leased."""
    claim = driver.held()
    verdict = driver.park(claim, sleep(due_at=driver.clock.now, delay_seconds=None), known=0)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    assert [(step.key, step.status) for step in verdict.settled] == [("nap", "succeeded")]
    assert driver.get(claim.id).lease_until is not None
    assert driver.told(claim.id)[-2:] == ["waiting", "woken"]
    assert "status" not in driver.last(claim.id, "woken")
    driver.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-8")
def test_a_park_that_finds_its_event_is_answered_with_it(driver):
    """No event is lost between the question and the park."""
    claim = driver.held()
    driver.emit("parcel", '{"at":"door"}', id="evt-9")
    verdict = driver.park(claim, listen(), known=0)
    (step,) = verdict.settled
    assert (verdict.status, step.seq, step.status) == (Status.LEASED, 2, "succeeded")
    at = driver.clock.now
    assert driver.step(claim.id, "wait").output == (
        f'{{"id":"evt-9","topic":"parcel","at":{at},"payload":{{"at":"door"}}}}'
    )
    assert driver.last(claim.id, "woken") == {"step": "wait", "event": "evt-9"}


@pytest.mark.spec("MOVE-8", "FLOW-9")
def test_a_park_is_answered_with_what_was_settled_while_the_holder_ran(driver):
    """The run stays leased when any wait has been settled with seq > known."""
    claim = driver.held()
    driver.checkpoint(claim, listen("a", "t"), known=0)
    driver.emit("t")
    assert driver.status(claim.id) is Status.LEASED
    verdict = driver.park(claim, sleep(), known=1)
    assert (verdict.status, [s.key for s in verdict.settled], verdict.seq) == (Status.LEASED, ["a"], 3)
    verdict = driver.park(claim, sleep(), known=3)
    assert (verdict.status, verdict.settled) == (Status.WAITING, ())
    driver.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-9")
def test_a_run_may_have_several_waits_open_and_wakes_at_the_first(driver):
    """The others stay open; `waiting_on` lists all, first due first; the end of the run removes them."""
    claim = driver.held()
    driver.park(claim, listen("e", "t"), sleep("long", 100.0), sleep("short", 10.0), known=0)
    assert [wait.key for wait in driver.get(claim.id).waiting_on] == ["short", "long", "e"]
    driver.clock.turn(10)
    assert driver.tick().lapsed == 1
    again = driver.take(claim.id)
    assert [wait.key for wait in driver.get(claim.id).waiting_on] == ["long", "e"]
    assert [(step.key, step.seq, step.status) for step in again.steps] == [
        ("e", 1, "waiting"), ("long", 2, "waiting"), ("short", 4, "succeeded"),
    ]  # fmt: skip
    driver.complete(again)
    assert driver.get(claim.id).waiting_on == ()
    assert driver.run(driver.store.waiting_on("t", "default")) == []
    driver.clock.turn(100)
    assert driver.tick().total == 0
    driver.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-9", "PAUSE-4")
def test_outcomes_are_numbered_in_the_order_in_which_they_became_known(driver):
    """A settled wait takes the next seq; of several due waits the earliest comes first."""
    claim = driver.held()
    driver.park(claim, sleep("late", 20.0), sleep("soon", 10.0), listen("e", "t"), known=0)
    driver.emit("t")
    driver.clock.turn(30)
    driver.tick()
    assert [(step.key, step.seq) for step in driver.steps(claim.id)] == [("e", 4), ("soon", 5), ("late", 6)]


def test_the_wait_that_was_opened_first_takes_the_event(driver):
    """Two waits of one run are for one topic. Their keys do not matter."""
    claims = [driver.held() for _ in range(3)]
    for claim in claims:
        driver.park(claim, listen("z", "t"), listen("a", "t"), known=0)
    driver.emit("t")
    assert [driver.step(claim.id, "z").status for claim in claims] == ["succeeded"] * 3
    driver.emit("t")
    assert [driver.step(claim.id, "a").status for claim in claims] == ["succeeded"] * 3


def test_an_open_wait_written_again_stays_as_it_is(driver):
    """The first due_at is kept: another execution sleeps until the first wake time."""
    claim = driver.held()
    driver.park(claim, sleep(seconds=60.0), listen("e", "t"), known=0)
    driver.emit("t")
    claim = driver.take(claim.id)
    driver.clock.turn(5)
    verdict = driver.park(claim, sleep(seconds=60.0), known=4)
    assert (verdict.status, verdict.kept) == (Status.WAITING, ())
    assert driver.step(claim.id, "nap").due_at == driver.clock.now + 55_000_000
    assert driver.told(claim.id)[-1] == "waiting"
    driver.assert_replayed(claim.id)


def test_a_wait_opened_by_a_checkpoint_waits_while_the_run_goes_on(driver):
    """A leased run learns of it at its next commit, with `known`."""
    claim = driver.held()
    assert driver.checkpoint(claim, sleep(seconds=5.0), known=0).seq == 1
    driver.clock.turn(5)
    assert driver.tick().lapsed == 1
    assert driver.status(claim.id) is Status.LEASED
    verdict = driver.checkpoint(claim, done("a"), known=1)
    assert ([step.key for step in verdict.settled], verdict.seq) == (["nap"], 3)
    assert driver.checkpoint(claim, done("b"), known=3).settled == ()
    assert driver.checkpoint(claim, done("c")).settled == ()


def test_a_run_that_backs_off_is_woken_by_its_wait(driver):
    """A pending run is then due now; a retry that finds an outcome is due at once."""
    claim = driver.held()
    driver.retry(claim, backing_off("a"), listen("e", "t"), refund=True, delay=600.0, known=0)
    assert driver.claim() == []
    driver.emit("t")
    claim = driver.take(claim.id)
    driver.checkpoint(claim, listen("f", "u"), known=3)
    driver.emit("u")
    driver.retry(claim, delay=600.0, known=4)
    assert driver.take(claim.id).id == claim.id
    driver.assert_replayed(claim.id)


def test_a_park_with_nothing_left_to_wait_for_stays_leased(driver):
    """A run that waits for nothing would never wake: the recorded outcomes are in `kept`."""
    claim = driver.held()
    driver.park(claim, sleep(seconds=1.0), known=0)
    driver.clock.turn(1)
    driver.tick()
    again = driver.take(claim.id)
    verdict = driver.park(again, sleep(seconds=1.0), known=2)
    assert (verdict.answer, verdict.status, verdict.kept) == ("applied", Status.LEASED, (("nap", "null"),))


@pytest.mark.spec("MOVE-7")
def test_an_open_run_can_always_go_on(driver):
    """For every open run `due` knows an instant, or an event can come."""
    claim = driver.held()
    driver.park(claim, sleep(seconds=60.0), known=0)
    assert driver.due().chore_at == driver.clock.now + 60_000_000
    driver.clock.turn(60)
    driver.tick()
    assert driver.due((TYPE,)).claim_at == driver.clock.now


def test_lapses_are_swept_in_slices(driver):
    """A tick with a small limit still settles all that is due."""
    for _ in range(5):
        driver.park(driver.held(), sleep(seconds=1.0), known=0)
    driver.clock.turn(1)
    assert driver.tick(limit=2).lapsed == 5
    assert driver.stats().by_status[Status.PENDING] == 5


@pytest.mark.spec("MOVE-8")
def test_a_wait_opened_while_another_branch_works_is_answered_at_once_if_it_can_be(driver):
    """Every move looks first: for an event that is there, and for a time that has come."""
    claim = driver.held()
    driver.emit("parcel", '"here"')
    verdict = driver.checkpoint(claim, listen("w", "parcel"), sleep("nap", seconds=0.0), known=0)
    assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["nap", "w"])
    assert verdict.seq == max(step.seq for step in driver.steps(claim.id))
    assert driver.get(claim.id).waiting_on == ()
    driver.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1", "LEASE-6")
def test_a_run_that_was_woken_has_fresh_attempts_and_crashes(driver):
    """A settled wait is progress."""
    run = driver.start()
    driver.take(run)
    driver.clock.turn(31)
    driver.tick()
    claim = driver.take(run)
    driver.park(claim, listen("w", "t"), known=0)
    assert (driver.get(run).attempt, driver.get(run).crashes) == (1, 1)
    driver.emit("t")
    assert (driver.get(run).attempt, driver.get(run).crashes) == (0, 0)


@pytest.mark.spec("EVENT-4", "MOVE-5")
def test_a_wait_that_is_given_up_frees_its_event_for_the_next(driver):
    """An open wait is closed; a settled and unread one is undone; for an unknown one nothing happens."""
    claim = driver.held()
    driver.checkpoint(claim, listen("open", "a"), listen("took", "b"))
    driver.emit("b", '"here"')
    given_up = [
        StepWrite(key=key, kind=StepKind.EVENT, status=StepStatus.CANCELLED) for key in ("open", "took")
    ]
    never = StepWrite(key="never", kind=StepKind.EVENT, status=StepStatus.CANCELLED)
    verdict = driver.checkpoint(claim, *given_up, never, listen("next", "b"), known=0)
    assert [step.key for step in verdict.settled] == ["next"]
    assert {step.key: step.status.value for step in driver.steps(claim.id)} == {
        "open": "cancelled", "took": "cancelled", "next": "succeeded",
    }  # fmt: skip
    assert driver.emit("a").woken == 0
    driver.assert_replayed(claim.id)


@pytest.mark.spec("EVENT-4", "MOVE-5")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_wait_that_was_given_up_may_be_opened_anew(driver, at_once):
    """It may take earlier events too; an outcome of the old wait does not replace it."""
    claim = driver.held()
    driver.checkpoint(claim, listen("w", "t"))
    driver.emit("t", '"here"')
    given_up = StepWrite(key="w", kind=StepKind.EVENT, status=StepStatus.CANCELLED)
    if at_once:
        verdict = driver.checkpoint(claim, given_up, listen("w", "t"), known=2)
    else:
        driver.checkpoint(claim, given_up)
        late = StepWrite(key="w", kind=StepKind.EVENT, output="1")
        assert driver.checkpoint(claim, late).kept == (("w", None),)
        verdict = driver.checkpoint(claim, listen("w", "t"), known=3)
    assert [(step.key, step.status) for step in verdict.settled] == [("w", StepStatus.SUCCEEDED)]
    assert [step.key for step in driver.steps(claim.id)] == ["w"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("OPS-1")
def test_due_says_which_chore_is_due(driver):
    """Leases, timeouts, waits and undelivered events are listed separately, and not before their time."""
    now, chores = driver.clock.now, [one for one in Chore if one is not Chore.COUNT]  # it has its own tests
    assert [driver.due().is_due(chore) for chore in chores] == [False] * 4
    leased = driver.held(timeout_seconds=50.0)
    asleep = driver.held()
    driver.park(asleep, sleep(delay_seconds=20.0))
    due = driver.due()
    assert (due.lapse_at, due.time_out_at, due.deliver_at) == (now + 20 * SECOND, now + 50 * SECOND, None)
    assert due.expire_at in {leased.lease_until, leased.lease_until + 1}
    found = []
    for seconds in (20, 31, 50):
        driver.clock.now = now + seconds * SECOND
        found.append([str(chore) for chore in chores if driver.due().is_due(chore)])
        driver.tick()
    assert found == [["lapse"], ["expire"], ["time_out"]]
    assert [driver.due().is_due(chore) for chore in chores] == [False] * 4
