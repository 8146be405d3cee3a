"""Many waits and large values: one slice in each commit, no run left out, and none counted twice."""

from __future__ import annotations

import base64
import random
from unittest.mock import patch

import pytest

from holdfast.contract import SLICES
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import Chore, Lease, NewEvent

from .driver import LEASE, TYPE, call, listen, sleep

CHILD = "shop.child.v1"

# Three megabytes, which no codec makes smaller.
LARGE = '"' + base64.b64encode(random.Random(1).randbytes(9 * 2**18)).decode() + '"'


@pytest.mark.spec("EVENT-3")
def test_a_large_event_reaches_all_who_wait_and_counts_each_once(driver):
    """It takes several commits. A repeat changes nothing, and returns the same number."""
    claims = [driver.held() for _ in range(5)]
    for claim in claims:
        driver.park(claim)
    runs = [claim.id for claim in claims]
    assert driver.emit("parcel", LARGE, id="large").woken == 5
    assert {driver.status(run) for run in runs} == {Status.PENDING}
    again = driver.emit("parcel", LARGE, id="large")
    assert (again.woken, again.duplicate) == (5, True)
    assert driver.stats().undelivered == 0


@pytest.mark.spec("EVENT-4", "MOVE-2")
def test_a_park_takes_some_large_events_and_the_next_look_finds_the_rest(driver):
    """The run does not park before it has seen all of them."""
    claim, topics = driver.held(), [f"t{n}" for n in range(5)]
    for topic in topics:
        driver.emit(topic, LARGE)
    verdict = driver.park(claim, *(listen(topic, topic) for topic in topics), known=0)
    first = settled(driver, claim.id)
    assert verdict.status is Status.LEASED
    assert 0 < first < 5
    looks = 1
    while settled(driver, claim.id) < 5:
        assert driver.commit(claim, Move.PARK, known=verdict.seq).status is Status.LEASED
        looks += 1
        assert looks <= 5
    assert sorted(driver.step(claim.id, topic).status for topic in topics) == [StepStatus.SUCCEEDED] * 5


@pytest.mark.spec("EVENT-4", "MOVE-2")
@pytest.mark.parametrize("then", ["works on", "is paused", "is lost"])
def test_events_that_a_commit_leaves_are_delivered_by_a_keeper(driver, then):
    """The run works in another branch and neither parks nor opens a wait."""
    claim, topics = driver.held(), [f"t{n}" for n in range(5)]
    for topic in topics:
        driver.emit(topic, LARGE)
    driver.checkpoint(claim, *(listen(topic, topic) for topic in topics), known=0)
    first = settled(driver, claim.id)
    assert 0 < first < 5
    assert driver.due((TYPE,)).chore_at <= driver.clock.now
    if then == "is paused":
        driver.pause(claim.id)
        driver.release(claim)
    elif then == "is lost":
        driver.clock.turn(LEASE + 1)
        assert driver.tick(only=Chore.EXPIRE).expired == 1
    woken = driver.deliver()
    assert woken == (0 if then == "is paused" else 5 - first)
    assert settled(driver, claim.id) == 5
    assert (driver.stats().undelivered, driver.deliver()) == (0, 0)
    assert [driver.told(claim.id).count(what) for what in ("waiting", "woken")] == [5, 5]
    if then == "works on":
        lease = Lease(run=claim.id, tenant=claim.tenant, fence=claim.fence, known=0)
        assert driver.renew(lease).held[0].more
        assert driver.complete(claim).status is Status.SUCCEEDED


@pytest.mark.spec("MOVE-2")
def test_a_look_at_children_that_ended_with_large_results_is_bounded_too(driver):
    """A park over many of them does not read all their results in one commit."""
    parent, children = driver.held(), [driver.id() for _ in range(5)]
    driver.checkpoint(parent, *(call(f"c{n}", child, CHILD) for n, child in enumerate(children)), known=0)
    for claim in driver.claim(types=(CHILD,)):
        driver.complete(claim, result=LARGE)
    assert driver.commit(parent, Move.PARK, known=5).status is Status.LEASED
    assert 0 < settled(driver, parent.id) < 5
    driver.deliver()
    assert settled(driver, parent.id) == 5
    assert driver.stats().undelivered == 0


def settled(driver, run):
    return sum(step.status is StepStatus.SUCCEEDED for step in driver.steps(run))


@pytest.mark.spec("OPS-1")
def test_one_part_of_a_round_is_done_without_the_others(driver):
    """So a keeper can give each chore its turn."""
    sleeper, lost, late = driver.held(), driver.held(), driver.start(timeout_seconds=50.0)
    driver.park(sleeper, sleep(seconds=50.0))
    driver.clock.turn(60)
    for only, counts in (
        (Chore.DELIVER, (0, 0, 0, 0)),
        (Chore.EXPIRE, (1, 0, 0, 0)),
        (Chore.TIME_OUT, (0, 1, 0, 0)),
        (Chore.LAPSE, (0, 0, 1, 0)),
    ):
        done = driver.tick(only=only)
        assert (done.expired, done.timed_out, done.lapsed, done.delivered) == counts
        assert not done.more
        assert driver.tick(only=only).total == 0
    assert [driver.status(run) for run in (lost.id, late, sleeper.id)] == [
        Status.PENDING,
        Status.FAILED,
        Status.PENDING,
    ]


@pytest.mark.spec("OPS-1")
def test_a_round_ends_after_so_many_commits_and_says_that_there_is_more(driver):
    """Other chores get their turn, however much is due."""
    claim = driver.held()
    driver.park(claim, *(sleep(f"nap{n}") for n in range(SLICES + 1)))
    driver.clock.turn(60)
    done = driver.tick(limit=1, only=Chore.LAPSE)
    assert (done.lapsed, done.more) == (SLICES, True)
    assert driver.due((TYPE,)).chore_at <= driver.clock.now
    done = driver.tick(limit=1, only=Chore.LAPSE)
    assert (done.lapsed, done.more) == (1, False)


@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("chore", [Chore.DELIVER, Chore.LAPSE])
def test_a_round_ends_when_its_time_is_over_and_says_that_there_is_more(driver, chore):
    """Otherwise the keeper would take it for a hanging one. Each round does something."""
    claims = [driver.held() for _ in range(3)]
    for claim in claims:
        driver.park(claim, listen() if chore is Chore.DELIVER else sleep())
    driver.complete(driver.held(), events=(NewEvent(topic="parcel", id="e"),))
    driver.clock.turn(60)
    rounds = 0
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        while (done := driver.tick(limit=1, only=chore)).more:
            rounds += 1
            assert done.total == 1 or rounds > 3  # the last one may find that nothing is left
            assert rounds <= 4
    assert rounds >= 2
    assert {driver.status(claim.id) for claim in claims} == {Status.PENDING}


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_the_next_call_delivers_what_one_call_leaves(driver):
    """There are more events than one call delivers, all for one run: each wait is settled once."""
    claim, count = driver.held(), SLICES + 5
    listens = [listen(f"w{n}", f"t{n}") for n in range(count)]
    driver.park(claim, *listens)
    other = driver.held()
    driver.complete(other, events=tuple(NewEvent(topic=f"t{n}", id=f"n{n}") for n in range(count)))
    total = driver.deliver(limit=1)
    assert 0 < total <= count
    while driver.stats().undelivered:
        total += driver.deliver(limit=1)
    assert total == count
    assert settled(driver, claim.id) == count
