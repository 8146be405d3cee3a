"""What a hostile reader found: times beyond every calendar, and the corners of limits and repeats."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent, RunFilter, TrailWrite

from .hand import done, listen, sleep

TOO_LATE = 4000.0
ENDLESS = [1e12, 9.2e12, 1e30, math.inf]


def listed(hand):
    return [run.id for run in hand.run(hand.store.list(RunFilter()))]


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("seconds", ENDLESS)
@pytest.mark.parametrize("field", ["delay_seconds", "timeout_seconds", "ttl_seconds"])
def test_a_run_with_an_endless_time_does_not_break_what_is_read(hand, field, seconds):
    """A thousand years are as good as for ever: the run is shown, and so are its neighbours."""
    neighbour, run = hand.start(), hand.start(**{field: seconds})
    assert hand.get(run).id == run
    assert listed(hand) == [run, neighbour]


@pytest.mark.parametrize("seconds", ENDLESS)
def test_a_run_that_is_kept_for_ever_can_end(hand, seconds):
    """Whatever its ttl: it completes, and its expiry is a date."""
    claim = hand.held(ttl_seconds=seconds)
    assert hand.complete(claim).status is Status.SUCCEEDED
    assert hand.get(claim.id).expires_at.year > 3000


@pytest.mark.spec("LEASE-6")
def test_a_run_that_is_kept_for_ever_does_not_stop_the_keeper(hand):
    """It fails at the crash cap like any other, and the leases of its neighbours run out."""
    kept, other = hand.start(ttl_seconds=1e30), hand.start()
    for _ in range(4):
        hand.claim()
        hand.clock.turn(TOO_LATE)
        hand.tick()
        hand.clock.turn(TOO_LATE)
    assert (hand.status(kept), hand.status(other)) == (Status.FAILED, Status.FAILED)


@pytest.mark.parametrize("seconds", ENDLESS)
def test_an_endless_sleep_and_an_endless_backoff_are_recorded(hand, seconds):
    """The run parks and backs off; it can be seen, and be cancelled."""
    sleeper, trier = hand.held(), hand.held()
    assert hand.park(sleeper, sleep("nap", seconds), known=0).status is Status.WAITING
    assert hand.retry(trier, delay=seconds).status is Status.PENDING
    assert hand.get(trier.id).run_at.year > 3000
    assert {hand.cancel(sleeper.id).status, hand.cancel(trier.id).status} == {Status.CANCELLED}


def test_nan_in_an_item_is_refused_and_nothing_of_that_batch_is_written(hand):
    """All or nothing: neither the item nor its neighbour."""
    first, second = hand.held(), hand.held()
    before = hand.everything()
    good = hand.item(first, Move.CHECKPOINT, done("a"))
    for bad in (
        hand.item(second, Move.PARK, sleep("nap", math.nan)),
        hand.item(second, Move.RETRY, done("b"), delay_seconds=math.nan),
    ):
        with pytest.raises(UsageError, match="NaN"):
            hand.send(good, bad)
        assert hand.everything() == before
    assert (hand.steps(first.id), hand.steps(second.id)) == ([], [])


def test_a_ttl_is_counted_in_whole_microseconds_alike_on_every_store(hand):
    """Half a microsecond is rounded once, in one place."""
    claim = hand.held(ttl_seconds=0.0000005)
    hand.complete(claim)
    run = hand.get(claim.id)
    assert run.expires_at == run.finished_at


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_what_is_not_delivered_is_due_at_once_also_when_the_clock_was_set_back(hand):
    """A keeper finishes what the emitter began, and waits for no clock to come round again."""
    waiter, emitter = hand.held(), hand.held()
    hand.park(waiter, listen(), known=0)
    hand.checkpoint(emitter, events=(NewEvent(topic="parcel", id="e1"),))
    hand.clock.turn(-100)
    assert hand.due().chore_at <= hand.clock.now
    assert hand.tick().delivered == 1
    assert hand.status(waiter.id) is Status.PENDING


@pytest.mark.spec("TRAIL-4")
@pytest.mark.parametrize("given", ['"x"', "null", "[1]", "true", "1.5"])
def test_what_a_step_logs_under_any_name_does_not_stop_claims(hand, given):
    """The number of logs is a number, whatever user code calls its own data."""
    claim = hand.held()
    row = '{"message":"m","step":"a","log_no":' + given + "}"
    hand.checkpoint(claim, done("a"), trail=(TrailWrite("log", row), TrailWrite("log", '{"log_no":2}')))
    hand.release(claim)
    assert hand.take(claim.id).logs == 2


def test_a_negative_limit_shows_nothing(hand):
    """Not everything, as SQL would have it."""
    hand.start()
    assert hand.run(hand.store.list(RunFilter(), -1)) == []
    assert hand.trail(limit=-1) == []
    assert hand.claim(limit=-1) == []
