"""Repeated writes: the same (fence, number) gets the first answer and changes nothing."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Item, NewEvent, NewRun, TrailWrite

from .driver import TYPE, StoreDriver, backing_off, done, error, gate, listen, sleep

LOG = (TrailWrite("log", '{"message":"once"}'),)
ITEMS = {
    "checkpoint": (Move.CHECKPOINT, (done("a", cost=3),), {"trail": LOG}),
    "checkpoint of kept": (Move.CHECKPOINT, (done("first", "9"),), {"trail": LOG}),
    "checkpoint with a wait": (Move.CHECKPOINT, (listen("w"),), {}),
    "park": (Move.PARK, (listen("w"),), {"known": 1}),
    "park with a step": (Move.PARK, (done("a"), sleep("n")), {"known": 1}),
    "complete": (Move.COMPLETE, (done("a", cost=3),), {"result": "1", "trail": LOG}),
    "fail": (Move.FAIL, (), {"error": error(), "last_error": "x", "kind": "boom"}),
    "retry": (Move.RETRY, (), {"error": error(), "last_error": "x", "delay_seconds": 60.0}),
    "retry in place": (Move.RETRY, (), {"error": error(), "delay_seconds": 0.5, "in_place": True}),
    "backoff of a step": (
        Move.RETRY, (backing_off("a"),), {"error": error(), "delay_seconds": 60.0, "refund": True},
    ),
    "release": (Move.RELEASE, (), {}),
}  # fmt: skip


def _prepared(driver: StoreDriver, name, **more) -> tuple[object, Item]:
    """Return a holder that has recorded one step, and its next item."""
    claim = driver.held()
    driver.checkpoint(claim)
    move, steps, fields = ITEMS[name]
    return claim, driver.item(claim, move, *steps, **{**fields, **more})


def _whole(driver, run):
    return driver.snapshot(run), driver.everything()


@pytest.mark.spec("LEASE-14")
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_sent_again_is_answered_as_the_first_time_and_changes_nothing(driver, name):
    """After a lost reply the holder asks again and need not guess."""
    claim, item = _prepared(driver, name, started_at=5, events=(NewEvent(topic="none", id="n1"),))
    first = driver.send(item)
    before = _whole(driver, claim.id)
    assert driver.send(item) == first
    driver.clock.turn(1)
    assert driver.send(item) == first
    assert _whole(driver, claim.id) == before
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-14", "PAUSE-3")
@pytest.mark.parametrize("name", sorted(set(ITEMS) - {"complete", "fail"}))
def test_an_item_that_ended_in_a_pause_is_answered_paused_again(driver, name):
    """This holds also after the run was resumed."""
    claim, item = _prepared(driver, name)
    driver.pause(claim.id, by="ann")
    (first,) = driver.send(item)
    assert (first.answer, first.status) == ("paused", Status.PAUSED)
    before = _whole(driver, claim.id)
    assert driver.send(item) == [first]
    assert _whole(driver, claim.id) == before
    driver.resume(claim.id)
    before = _whole(driver, claim.id)
    assert driver.send(item) == [first]
    assert _whole(driver, claim.id) == before


@pytest.mark.spec("LEASE-14")
@pytest.mark.parametrize("name", ITEMS)
def test_a_repeat_is_answered_after_the_run_has_moved_on(driver, name):
    """This holds until another holder has written: an expiry, a cancel or a claim is no write of a holder."""
    claim, item = _prepared(driver, name)
    (first,) = driver.send(item)
    driver.clock.turn(100)
    driver.tick()
    driver.claim(worker="w2")
    if driver.status(claim.id) not in {Status.SUCCEEDED, Status.FAILED}:
        driver.cancel(claim.id)
    before = _whole(driver, claim.id)
    (again,) = driver.send(item)
    assert (again.answer, again.status, again.kept) == (first.answer, first.status, first.kept)
    assert _whole(driver, claim.id) == before


@pytest.mark.spec("LEASE-14", "LEASE-4")
@pytest.mark.parametrize("name", ["checkpoint", "retry", "release"])
def test_once_another_holder_has_written_the_old_ones_repeat_changes_nothing(driver, name):
    """The answer is the first one, or lost: both are true; the run is as the new holder left it."""
    claim, item = _prepared(driver, name)
    driver.send(item)
    driver.clock.turn(100)
    driver.tick()
    new = driver.take(claim.id, "w2")
    driver.checkpoint(new, done("b"))
    before = _whole(driver, claim.id)
    assert driver.send(item)[0].answer in {"applied", "lost"}
    assert _whole(driver, claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_late_duplicates_of_older_numbers_change_nothing(driver):
    """Number 2 after number 4 is answered as applied, and nothing is written twice."""
    claim = driver.held()
    older = [
        driver.item(claim, Move.CHECKPOINT, done("a", cost=1), trail=LOG),
        driver.item(claim, Move.RETRY, backing_off("b"), in_place=True, refund=True, error=error()),
        driver.item(claim, Move.CHECKPOINT, done("b", cost=2), started_at=3),
        driver.item(claim, Move.CHECKPOINT, listen("w")),
        driver.item(claim, Move.RETRY, in_place=True, error=error(), delay_seconds=0.1),
    ]
    for item in older:
        driver.send(item)
    for move in (Move.CHECKPOINT, Move.COMPLETE):
        driver.send(driver.item(claim, move, done("z")))
        before = _whole(driver, claim.id)
        for item in older:
            (verdict,) = driver.send(item)
            assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
        assert _whole(driver, claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_a_repeat_tells_of_the_waits_that_were_settled_since(driver):
    """`settled` is read anew for a repeat."""
    claim = driver.held()
    item = driver.item(claim, Move.CHECKPOINT, listen("w"), known=0)
    (first,) = driver.send(item)
    assert (first.settled, first.seq) == ((), 1)
    driver.emit()
    (again,) = driver.send(item)
    assert [step.key for step in again.settled] == ["w"]
    assert again.answer == "applied"


@pytest.mark.spec("LEASE-14", "REW-1")
def test_a_gate_that_rewinds_open_again_is_no_other_holders_writing(driver):
    """No item opened the gate, so the last item is still known."""
    claim = driver.begun("A", gate("G"))
    item = driver.item(claim, Move.ADVANCE, done("A"))
    first = driver.send(item)
    for _ in range(3):
        driver.rewind(claim.id, "G")
        before = driver.snapshot(claim.id)
        assert driver.send(item) == first
        assert driver.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_a_repeat_starts_nothing_twice(driver):
    """A repeated continue_as starts one next run."""
    claim = driver.held()
    item = driver.item(claim, Move.COMPLETE, result="1", starts=(NewRun(id=driver.id(), type=TYPE),))
    driver.send(item)
    driver.send(item)
    assert sum(driver.stats().by_status.values()) == 2


@pytest.mark.spec("LEASE-14", "LEASE-4")
def test_an_item_that_was_refused_is_refused_again(driver):
    """Only an applied item is answered as applied."""
    claim = driver.held()
    driver.checkpoint(claim)
    item = driver.item(claim, Move.COMPLETE, result="1")
    driver.clock.turn(31)
    assert driver.send(item)[0].answer == "lost"
    driver.tick()
    assert driver.send(item)[0].answer == "lost"
    driver.cancel(claim.id)
    assert driver.send(msgspec.structs.replace(item))[0].answer == "cancelled"


@pytest.mark.spec("START-4")
def test_a_start_sent_twice_with_its_key_is_one_run(driver):
    """A repeated start is safe."""
    new = NewRun(id=driver.id(), type=TYPE, key="k", digest="d")
    first, again = driver.start_many([new])[0], driver.start_many([new])[0]
    assert (first.id, again.id, first.created, again.created) == (new.id, new.id, True, False)
