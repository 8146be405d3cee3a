"""Races of people, keepers and holders at one run: one of them moves it, the others see the result."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Ask, Lease, NewEvent
from holdfast.testing.contract.driver import TYPE, done, hear, sleep

LATE = 31.0  # past the lease of a driver's claim
UNKNOWN, ILLEGAL = "HF001", "HF002"


def item(driver, claim, move, *steps, **fields):
    """The arguments of a commit that any session may send."""
    return [driver.item(claim, move, *steps, **fields)], None, None, None, True


def later(driver, sessions, seconds):
    """Move the clock of the driver and of the sessions."""
    driver.clock.turn(seconds)
    for one in sessions:
        one.run("select set_config('holdfast.now', %s, false)", str(driver.clock.now))


def refused(code, call, *args):
    with pytest.raises(psycopg.Error) as refusal:
        call(*args)
    assert refusal.value.sqlstate == code


def answers(verdicts):
    return [one["answer"] for one in verdicts["verdicts"]]


# People beside holders.


@pytest.mark.spec("CANC-1", "CANC-3")
def test_a_cancel_beside_the_end_of_its_run_comes_too_late(driver, sessions):
    """The cancel waits for the commit, and is then refused with the run's new status."""
    one, two = sessions
    claim = driver.held()
    one.begin()
    one.call("commit", *item(driver, claim, Move.COMPLETE, result="1"))
    cancel = two.waits("cancel", claim.id, None, "ann", True)
    one.commit()
    refused(ILLEGAL, cancel.result)
    assert driver.status(claim.id) is Status.SUCCEEDED
    assert "cancelled" not in driver.told(claim.id)


@pytest.mark.spec("CANC-1")
def test_a_cancel_beside_a_checkpoint_keeps_its_step(driver, sessions):
    one, two = sessions
    claim = driver.held()
    one.begin()
    one.call("commit", *item(driver, claim, Move.CHECKPOINT, done("a")))
    cancel = two.waits("cancel", claim.id, None, "ann", True)
    one.commit()
    assert cancel.result()["status"] == "cancelled"
    assert driver.shape(claim.id) == [("a", "succeeded")]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("CANC-2", "LEASE-18")
def test_a_commit_beside_a_cancel_neither_waits_nor_writes(driver, sessions):
    """The commit is busy, and cancelled when it is sent again."""
    one, two = sessions
    claim = driver.held()
    write = item(driver, claim, Move.CHECKPOINT, done("a"))
    one.begin()
    one.call("cancel", claim.id, None, "ann", True)
    assert answers(two.call("commit", *write)) == ["busy"]
    one.commit()
    assert answers(two.call("commit", *write)) == ["cancelled"]
    assert driver.steps(claim.id) == []


@pytest.mark.spec("DEL-1")
@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "rewind", "retry_run"])
def test_a_verb_that_waited_for_a_deletion_finds_no_run(driver, sessions, verb):
    one, two = sessions
    claim = driver.held()
    driver.checkpoint(claim)
    more = {"cancel": (None, "ann", True), "rewind": ("first", None, "ann", True)}
    one.begin()
    one.call("delete", claim.id, None, "bob")
    moving = two.waits(verb, claim.id, *more.get(verb, (None, "ann")))
    one.commit()
    refused(UNKNOWN, moving.result)
    assert driver.restore(claim.id).status is Status.PENDING


@pytest.mark.spec("DEL-1", "LEASE-3")
def test_a_run_that_is_deleted_while_it_is_claimed_is_fenced_off(driver, sessions):
    """The claim came first: its holder can write nothing more."""
    one, two = sessions
    run = driver.start()
    one.begin()
    (claim,) = one.call("claim", Ask(worker="w1", types=(TYPE,), limit=1))
    deleting = two.waits("delete", run, None, "ann")
    one.commit()
    assert deleting.result()["fence"] == claim["fence"] + 1
    assert driver.claim() == []
    assert driver.renew(Lease(run=run, fence=claim["fence"])).held[0].answer == "lost"
    assert driver.restore(run).attempt == 0
    driver.assert_replayed(run)


@pytest.mark.spec("DEL-1", "LEASE-1")
def test_a_run_that_is_being_deleted_is_not_claimed(driver, sessions):
    """A claim neither waits for the run nor takes it."""
    one, two = sessions
    run = driver.start()
    one.begin()
    one.call("delete", run, None, "ann")
    assert two.call("claim", Ask(worker="w1", types=(TYPE,), limit=1)) == []
    one.commit()
    assert driver.claim() == []


@pytest.mark.spec("PAUSE-3")
def test_a_pause_beside_a_park_takes_the_run_where_it_waits(driver, sessions):
    """The pause is not lost between asking the holder and finding none."""
    one, two = sessions
    claim = driver.held()
    one.begin()
    one.call("commit", *item(driver, claim, Move.PARK, sleep()))
    pausing = two.waits("pause", claim.id, None, "ann")
    one.commit()
    assert pausing.result()["status"] == "paused"
    assert driver.resume(claim.id).status is Status.WAITING
    driver.assert_replayed(claim.id)


# Plans whose wait is opened again, beside the event.


@pytest.mark.spec("EVENT-4", "REW-1")
@pytest.mark.parametrize("verb", ["rewind", "retry_run"])
def test_an_event_that_comes_while_a_plans_wait_is_opened_anew_reaches_it(driver, sessions, verb):
    """The row is done when its topic is read, and waits when the event comes."""
    one, two = sessions
    run = driver.plan(hear("w", seconds=10.0), "after")
    later(driver, sessions, 10)
    driver.tick()
    assert driver.status(run) is Status.FAILED
    one.begin()
    one.call(verb, run, *(("w", None, "ann", True) if verb == "rewind" else (None, "ann")))
    two.call("emit", NewEvent(topic="parcel", id="e"))
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    delivery.result()
    driver.deliver()
    assert (driver.status(run), driver.stats().undelivered) == (Status.PENDING, 0)


@pytest.mark.spec("EVENT-4", "PAUSE-2")
def test_an_event_that_comes_while_a_plan_is_resumed_reaches_it(driver, sessions):
    """The pause came before the wait was opened: resume opens it."""
    one, two = sessions
    claim = driver.begun("first", hear("w"), "after")
    driver.pause(claim.id)
    assert driver.advance(claim, "first").status is Status.PAUSED
    one.begin()
    assert one.call("resume", claim.id, None, "ann")["status"] == "waiting"
    two.call("emit", NewEvent(topic="parcel", id="e"))
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    delivery.result()
    driver.deliver()
    assert (driver.status(claim.id), driver.stats().undelivered) == (Status.PENDING, 0)


# Keepers.


@pytest.mark.spec("LEASE-7", "LEASE-5")
def test_a_lease_that_is_being_renewed_does_not_expire(driver, sessions):
    """A late keeper skips the lease, and finds it renewed."""
    one, two = sessions
    claim = driver.held()
    one.begin()
    one.call("renew", "w1", [Lease(run=claim.id, fence=claim.fence)], 3600.0)
    later(driver, [two], LATE)
    assert two.call("expire", 500) == {"done": 0, "failed": []}
    one.commit()
    assert two.call("expire", 500) == {"done": 0, "failed": []}
    assert driver.get(claim.id).crashes == 0


@pytest.mark.spec("LEASE-7")
def test_a_renewal_beside_the_expiry_is_told_that_it_is_lost(driver, sessions):
    """Also when the holder's own clock says that the lease has not ended."""
    one, two = sessions
    claim = driver.held()
    later(driver, [one], LATE)
    one.begin()
    assert one.call("expire", 500)["done"] == 1
    renewing = two.waits("renew", "w1", [Lease(run=claim.id, fence=claim.fence)], 30.0)
    one.commit()
    assert [held["answer"] for held in renewing.result()["held"]] == ["lost"]
    assert (driver.status(claim.id), driver.get(claim.id).crashes) == (Status.PENDING, 1)


@pytest.mark.spec("LEASE-7", "LEASE-18")
def test_a_commit_beside_the_expiry_takes_no_effect(driver, sessions):
    one, two = sessions
    claim = driver.held()
    write = item(driver, claim, Move.COMPLETE, result="1")
    later(driver, [one], LATE)
    one.begin()
    assert one.call("expire", 500)["done"] == 1
    assert answers(two.call("commit", *write)) == ["busy"]
    one.commit()
    assert answers(two.call("commit", *write)) == ["lost"]
    assert driver.status(claim.id) is Status.PENDING


@pytest.mark.spec("LEASE-6", "MOVE-2")
@pytest.mark.parametrize("chore", ["expire", "time_out"])
def test_keepers_share_what_is_due_and_none_waits_for_another(driver, sessions, chore):
    """Each run is moved once, and a keeper that dies leaves its runs to the others."""
    one, two = sessions
    runs = [driver.start(timeout_seconds=20.0 if chore == "time_out" else None) for _ in range(6)]
    if chore == "expire":
        assert len(driver.claim()) == 6
    later(driver, sessions, LATE)
    one.begin()
    assert one.call(chore, 2)["done"] == 2
    assert two.call(chore, 500)["done"] == 4
    one.roll_back()
    assert two.call(chore, 500)["done"] == 2
    assert two.call(chore, 500)["done"] == 0
    word = "lease_expired" if chore == "expire" else "timed_out"
    assert [driver.told(run).count(word) for run in runs] == [1] * 6
    for run in runs:
        driver.assert_replayed(run)


@pytest.mark.spec("LEASE-18", "LEASE-6")
@pytest.mark.parametrize("chore", ["expire", "time_out"])
def test_a_row_that_a_person_keeps_locked_stops_no_keeper(driver, sessions, chore):
    one, two = sessions
    runs = [driver.start(timeout_seconds=20.0 if chore == "time_out" else None) for _ in range(3)]
    if chore == "expire":
        driver.claim()
    later(driver, sessions, LATE)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    assert two.call(chore, 500)["done"] == 2
    one.roll_back()
    assert two.call(chore, 500)["done"] == 1
