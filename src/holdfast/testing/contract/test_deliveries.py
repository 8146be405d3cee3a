"""Events that take several calls of `deliver`: each call goes on where the last one ended."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from holdfast.contract import SLICES
from holdfast.lifecycle import Move, Status
from holdfast.records import Chore, NewEvent, NewRun

from .driver import TYPE, listen


def subscribe(driver, topic, count):
    """Start runs that wait on a topic."""
    driver.start_many([NewRun(id=driver.id(), type=TYPE) for _ in range(count)])
    claims = driver.claim(limit=count)
    park(driver, claims, lambda _: listen("first", topic))
    return dict.fromkeys((claim.id for claim in claims), topic)


def park(driver, claims, wait):
    driver.send(*(driver.item(claim, Move.PARK, wait(claim)) for claim in claims))


def send(driver, *topics):
    """Record an event on each topic, without delivering it."""
    driver.complete(driver.held(), events=tuple(NewEvent(topic=topic, id=f"e-{topic}") for topic in topics))


def delivered(driver, topic_of, calls):
    """Return the number of runs that a keeper's calls wake; each of them listens again at once."""
    woken = call = 0
    while driver.stats().undelivered and call < calls:
        call += 1
        with patch.multiple("holdfast.stores.pacing", IDLE_SECONDS=0.0, BUSY_SECONDS=0.0):
            woken += driver.tick(limit=1, only=Chore.DELIVER).delivered
        claims = driver.claim(limit=len(topic_of))
        park(driver, claims, lambda claim: listen(f"again{call}", topic_of[claim.id]))  # noqa: B023
    return woken


@pytest.mark.spec("EVENT-3")
def test_an_event_reaches_those_behind_subscribers_that_listen_again(driver):
    """Runs that have taken the event come before all others when the next call begins."""
    subscribers = subscribe(driver, "news", SLICES + 30)
    send(driver, "news")
    assert delivered(driver, subscribers, calls=4) == len(subscribers)
    assert driver.stats().undelivered == 0
    assert not driver.tick(limit=1, only=Chore.DELIVER).more


@pytest.mark.spec("EVENT-3")
def test_each_of_many_events_reaches_all_its_subscribers(driver):
    """There are more events than commits in a call, and no event is delivered completely by one commit."""
    subscribers = {}
    for n in range(SLICES + 10):
        subscribers |= subscribe(driver, f"t{n:03}", 2)
    send(driver, *sorted(set(subscribers.values())))
    assert delivered(driver, subscribers, calls=12) == len(subscribers)
    assert driver.stats().undelivered == 0


@pytest.mark.spec("EVENT-3")
def test_an_event_reaches_those_behind_waits_that_cannot_take_it(driver):
    """Such waits are of runs that started later, and waits with `since_now`."""
    subscribers = subscribe(driver, "news", 5)
    waiting = [NewRun(id=UUID(int=n + 1), type=TYPE) for n in range(SLICES)]
    driver.start_many(waiting)
    early = driver.claim(limit=SLICES)
    send(driver, "news")
    park(driver, early, lambda _: listen(topic="news", since_now=True))
    driver.start_many([NewRun(id=UUID(int=n + 1_000_001), type=TYPE) for n in range(SLICES)])
    park(driver, driver.claim(limit=SLICES), lambda _: listen(topic="news"))
    assert delivered(driver, subscribers, calls=4) == len(subscribers)
    assert {driver.status(run.id) for run in waiting} == {Status.WAITING}
    assert driver.stats().undelivered == 0


@pytest.mark.spec("EVENT-3")
def test_an_emit_and_a_delivery_share_their_progress(driver):
    """A repeated emit goes on with a delivery that a call has left, and counts each run once."""
    subscribers = subscribe(driver, "news", SLICES + 30)
    send(driver, "news")
    assert 0 < delivered(driver, subscribers, calls=1) <= SLICES
    again = driver.emit("news", id="e-news")
    assert (again.woken, again.duplicate) == (len(subscribers), True)
    assert (driver.stats().undelivered, driver.deliver()) == (0, 0)


@pytest.mark.spec("EVENT-3")
def test_an_undelivered_event_is_purged_with_its_run(driver):
    """Nothing of its progress is left for a later event."""
    claim = driver.held(ttl_seconds=1.0)
    driver.park(claim, *(listen(f"w{n}", "news") for n in range(SLICES + 2)))
    driver.complete(driver.held(), events=(NewEvent(topic="news", id="mine", run=claim.id),))
    with patch.multiple("holdfast.stores.pacing", IDLE_SECONDS=0.0, BUSY_SECONDS=0.0):
        assert driver.deliver(limit=1) == 1
    driver.cancel(claim.id)
    driver.clock.turn(60)
    driver.deliver()
    driver.purge()
    assert driver.stats().undelivered == 0
    assert driver.tick(only=Chore.DELIVER).delivered == 0
