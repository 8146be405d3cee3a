"""A write may be sent twice: the same (fence, number) is answered as the first time and changes nothing."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Item, NewEvent, NewRun, TrailWrite

from .hand import TYPE, Hand, backing_off, done, error, gate, listen, sleep

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


def _prepared(hand: Hand, name, **more) -> tuple[object, Item]:
    """A holder who has recorded one step, and his next item."""
    claim = hand.held()
    hand.checkpoint(claim)
    move, steps, fields = ITEMS[name]
    return claim, hand.item(claim, move, *steps, **{**fields, **more})


def _whole(hand, run):
    return hand.snapshot(run), hand.everything()


@pytest.mark.spec("LEASE-14")
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_sent_again_is_answered_as_the_first_time_and_changes_nothing(hand, name):
    """The lost reply: the holder asks again and never guesses."""
    claim, item = _prepared(hand, name, started_at=5, events=(NewEvent(topic="none", id="n1"),))
    first = hand.send(item)
    before = _whole(hand, claim.id)
    assert hand.send(item) == first
    hand.clock.turn(1)
    assert hand.send(item) == first
    assert _whole(hand, claim.id) == before
    hand.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-14", "PAUSE-3")
@pytest.mark.parametrize("name", sorted(set(ITEMS) - {"complete", "fail"}))
def test_an_item_that_ended_in_a_pause_is_answered_paused_again(hand, name):
    """Also after the run was resumed."""
    claim, item = _prepared(hand, name)
    hand.pause(claim.id, by="ann")
    (first,) = hand.send(item)
    assert (first.answer, first.status) == ("paused", Status.PAUSED)
    before = _whole(hand, claim.id)
    assert hand.send(item) == [first]
    assert _whole(hand, claim.id) == before
    hand.resume(claim.id)
    before = _whole(hand, claim.id)
    assert hand.send(item) == [first]
    assert _whole(hand, claim.id) == before


@pytest.mark.spec("LEASE-14")
@pytest.mark.parametrize("name", ITEMS)
def test_a_repeat_is_answered_after_the_run_has_moved_on(hand, name):
    """Until another holder has written: expiry, a cancel or another's claim are no writes of a holder."""
    claim, item = _prepared(hand, name)
    (first,) = hand.send(item)
    hand.clock.turn(100)
    hand.tick()
    hand.claim(worker="w2")
    if hand.status(claim.id) not in {Status.SUCCEEDED, Status.FAILED}:
        hand.cancel(claim.id)
    before = _whole(hand, claim.id)
    (again,) = hand.send(item)
    assert (again.answer, again.status, again.kept) == (first.answer, first.status, first.kept)
    assert _whole(hand, claim.id) == before


@pytest.mark.spec("LEASE-14", "LEASE-4")
@pytest.mark.parametrize("name", ["checkpoint", "retry", "release"])
def test_once_another_holder_has_written_the_old_ones_repeat_changes_nothing(hand, name):
    """Answered as the first time, or lost: both are true; the run is as the new holder left it."""
    claim, item = _prepared(hand, name)
    hand.send(item)
    hand.clock.turn(100)
    hand.tick()
    new = hand.take(claim.id, "w2")
    hand.checkpoint(new, done("b"))
    before = _whole(hand, claim.id)
    assert hand.send(item)[0].answer in {"applied", "lost"}
    assert _whole(hand, claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_late_duplicates_of_older_numbers_change_nothing(hand):
    """Number 2 after number 4: applied then, applied now, and nothing is written twice."""
    claim = hand.held()
    older = [
        hand.item(claim, Move.CHECKPOINT, done("a", cost=1), trail=LOG),
        hand.item(claim, Move.RETRY, backing_off("b"), in_place=True, refund=True, error=error()),
        hand.item(claim, Move.CHECKPOINT, done("b", cost=2), started_at=3),
        hand.item(claim, Move.CHECKPOINT, listen("w")),
        hand.item(claim, Move.RETRY, in_place=True, error=error(), delay_seconds=0.1),
    ]
    for item in older:
        hand.send(item)
    for move in (Move.CHECKPOINT, Move.COMPLETE):
        hand.send(hand.item(claim, move, done("z")))
        before = _whole(hand, claim.id)
        for item in older:
            (verdict,) = hand.send(item)
            assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
        assert _whole(hand, claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_a_repeat_tells_of_the_waits_that_were_settled_since(hand):
    """For a repeat `settled` is looked up anew."""
    claim = hand.held()
    item = hand.item(claim, Move.CHECKPOINT, listen("w"), known=0)
    (first,) = hand.send(item)
    assert (first.settled, first.seq) == ((), 1)
    hand.emit()
    (again,) = hand.send(item)
    assert [step.key for step in again.settled] == ["w"]
    assert again.answer == "applied"


@pytest.mark.spec("LEASE-14", "REW-1")
def test_a_gate_that_rewinds_open_again_is_no_other_holders_writing(hand):
    """However often: no item opened it, so that the last one there was is still known."""
    claim = hand.begun("A", gate("G"))
    item = hand.item(claim, Move.ADVANCE, done("A"))
    first = hand.send(item)
    for _ in range(3):
        hand.rewind(claim.id, "G")
        before = hand.snapshot(claim.id)
        assert hand.send(item) == first
        assert hand.snapshot(claim.id) == before


@pytest.mark.spec("LEASE-14")
def test_a_repeat_starts_nothing_twice(hand):
    """continue_as sent twice: one next run."""
    claim = hand.held()
    item = hand.item(claim, Move.COMPLETE, result="1", starts=(NewRun(id=hand.id(), type=TYPE),))
    hand.send(item)
    hand.send(item)
    assert sum(hand.stats().by_status.values()) == 2


@pytest.mark.spec("LEASE-14", "LEASE-4")
def test_an_item_that_was_refused_is_refused_again(hand):
    """Only what was applied is answered as applied: a lost item stays lost."""
    claim = hand.held()
    hand.checkpoint(claim)
    item = hand.item(claim, Move.COMPLETE, result="1")
    hand.clock.turn(31)
    assert hand.send(item)[0].answer == "lost"
    hand.tick()
    assert hand.send(item)[0].answer == "lost"
    hand.cancel(claim.id)
    assert hand.send(msgspec.structs.replace(item))[0].answer == "cancelled"


@pytest.mark.spec("START-4")
def test_a_start_sent_twice_with_its_key_is_one_run(hand):
    """Sending the same call again is safe."""
    new = NewRun(id=hand.id(), type=TYPE, key="k", digest="d")
    first, again = hand.start_many([new])[0], hand.start_many([new])[0]
    assert (first.id, again.id, first.created, again.created) == (new.id, new.id, True, False)
