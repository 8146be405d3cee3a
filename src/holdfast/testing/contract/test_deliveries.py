"""Events that take several calls of `deliver`: each call goes on where the last one ended."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from holdfast.contract import SLICES
from holdfast.lifecycle import Move, Status
from holdfast.records import Chore, NewEvent, NewRun

from .hand import TYPE, listen


def subscribe(hand, topic, count):
    """So many runs that wait on a topic."""
    hand.start_many([NewRun(id=hand.id(), type=TYPE) for _ in range(count)])
    claims = hand.claim(limit=count)
    park(hand, claims, lambda _: listen("first", topic))
    return dict.fromkeys((claim.id for claim in claims), topic)


def park(hand, claims, wait):
    hand.send(*(hand.item(claim, Move.PARK, wait(claim)) for claim in claims))


def send(hand, *topics):
    """An event on each topic, recorded but not delivered."""
    hand.complete(hand.held(), events=tuple(NewEvent(topic=topic, id=f"e-{topic}") for topic in topics))


def delivered(hand, topic_of, calls):
    """How many runs a keeper's calls wake, each of which listens again at once; at most so many calls."""
    woken = call = 0
    while hand.stats().undelivered and call < calls:
        call += 1
        with patch.multiple("holdfast.stores.pacing", IDLE_SECONDS=0.0, BUSY_SECONDS=0.0):
            woken += hand.tick(limit=1, only=Chore.DELIVER).delivered
        claims = hand.claim(limit=len(topic_of))
        park(hand, claims, lambda claim: listen(f"again{call}", topic_of[claim.id]))  # noqa: B023
    return woken


@pytest.mark.spec("EVENT-3")
def test_an_event_reaches_those_behind_subscribers_that_listen_again(hand):
    """These hold a receipt, and stand before all others when the next call begins."""
    subscribers = subscribe(hand, "news", SLICES + 30)
    send(hand, "news")
    assert delivered(hand, subscribers, calls=4) == len(subscribers)
    assert hand.stats().undelivered == 0
    assert not hand.tick(limit=1, only=Chore.DELIVER).more


@pytest.mark.spec("EVENT-3")
def test_each_of_many_events_reaches_all_its_subscribers(hand):
    """More events are under way than a call makes commits, and none is through after one."""
    subscribers = {}
    for n in range(SLICES + 10):
        subscribers |= subscribe(hand, f"t{n:03}", 2)
    send(hand, *sorted(set(subscribers.values())))
    assert delivered(hand, subscribers, calls=12) == len(subscribers)
    assert hand.stats().undelivered == 0


@pytest.mark.spec("EVENT-3")
def test_an_event_reaches_those_behind_waits_that_cannot_take_it(hand):
    """Runs that were started later, and waits for what comes from then on."""
    subscribers = subscribe(hand, "news", 5)
    waiting = [NewRun(id=UUID(int=n + 1), type=TYPE) for n in range(SLICES)]
    hand.start_many(waiting)
    early = hand.claim(limit=SLICES)
    send(hand, "news")
    park(hand, early, lambda _: listen(topic="news", since_now=True))
    hand.start_many([NewRun(id=UUID(int=n + 1_000_001), type=TYPE) for n in range(SLICES)])
    park(hand, hand.claim(limit=SLICES), lambda _: listen(topic="news"))
    assert delivered(hand, subscribers, calls=4) == len(subscribers)
    assert {hand.status(run.id) for run in waiting} == {Status.WAITING}
    assert hand.stats().undelivered == 0


@pytest.mark.spec("EVENT-3")
def test_whoever_emits_and_whoever_delivers_share_their_progress(hand):
    """An event that a call has left is helped to its end by an emit of the same, and counts each run once."""
    subscribers = subscribe(hand, "news", SLICES + 30)
    send(hand, "news")
    assert 0 < delivered(hand, subscribers, calls=1) <= SLICES
    again = hand.emit("news", id="e-news")
    assert (again.woken, again.duplicate) == (len(subscribers), True)
    assert (hand.stats().undelivered, hand.deliver()) == (0, 0)


@pytest.mark.spec("EVENT-3")
def test_an_event_under_way_goes_with_the_run_it_is_addressed_to(hand):
    """Nothing of it is left for an event that comes later."""
    claim = hand.held(ttl_seconds=1.0)
    hand.park(claim, *(listen(f"w{n}", "news") for n in range(SLICES + 2)))
    hand.complete(hand.held(), events=(NewEvent(topic="news", id="mine", run=claim.id),))
    with patch.multiple("holdfast.stores.pacing", IDLE_SECONDS=0.0, BUSY_SECONDS=0.0):
        assert hand.deliver(limit=1) == 1
    hand.cancel(claim.id)
    hand.clock.turn(60)
    hand.deliver()
    hand.purge()
    assert hand.stats().undelivered == 0
    assert hand.tick(only=Chore.DELIVER).delivered == 0
