"""Many waits, and large values: a slice a commit, nobody is left out, and nobody is counted twice."""

from __future__ import annotations

import base64
import random
from unittest.mock import patch

import pytest

from holdfast.contract import SLICES
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import Chore, Lease, NewEvent

from .hand import LEASE, TYPE, call, listen, sleep

CHILD = "shop.child.v1"

# Three megabytes, which no codec makes smaller.
LARGE = '"' + base64.b64encode(random.Random(1).randbytes(9 * 2**18)).decode() + '"'


@pytest.mark.spec("EVENT-3")
def test_a_large_event_reaches_all_who_wait_and_counts_each_once(hand):
    """It takes several commits. The same again changes nothing, and answers the same number."""
    claims = [hand.held() for _ in range(5)]
    for claim in claims:
        hand.park(claim)
    runs = [claim.id for claim in claims]
    assert hand.emit("parcel", LARGE, id="large").woken == 5
    assert {hand.status(run) for run in runs} == {Status.PENDING}
    again = hand.emit("parcel", LARGE, id="large")
    assert (again.woken, again.duplicate) == (5, True)
    assert hand.stats().undelivered == 0


@pytest.mark.spec("EVENT-4", "MOVE-2")
def test_a_park_takes_some_large_events_and_the_next_look_finds_the_rest(hand):
    """The run does not rest before it has seen all of them."""
    claim, topics = hand.held(), [f"t{n}" for n in range(5)]
    for topic in topics:
        hand.emit(topic, LARGE)
    verdict = hand.park(claim, *(listen(topic, topic) for topic in topics), known=0)
    first = settled(hand, claim.id)
    assert verdict.status is Status.LEASED
    assert 0 < first < 5
    looks = 1
    while settled(hand, claim.id) < 5:
        assert hand.commit(claim, Move.PARK, known=verdict.seq).status is Status.LEASED
        looks += 1
        assert looks <= 5
    assert sorted(hand.step(claim.id, topic).status for topic in topics) == [StepStatus.SUCCEEDED] * 5


@pytest.mark.spec("EVENT-4", "MOVE-2")
@pytest.mark.parametrize("then", ["works on", "is paused", "is lost"])
def test_what_a_look_leaves_is_found_though_the_run_does_not_rest(hand, then):
    """It works in another branch and neither parks nor opens a wait: a keeper goes on with the look."""
    claim, topics = hand.held(), [f"t{n}" for n in range(5)]
    for topic in topics:
        hand.emit(topic, LARGE)
    hand.checkpoint(claim, *(listen(topic, topic) for topic in topics), known=0)
    first = settled(hand, claim.id)
    assert 0 < first < 5
    assert hand.due((TYPE,)).chore_at <= hand.clock.now
    if then == "is paused":
        hand.pause(claim.id)
        hand.release(claim)
    elif then == "is lost":
        hand.clock.turn(LEASE + 1)
        assert hand.tick(only=Chore.EXPIRE).expired == 1
    woken = hand.deliver()
    assert woken == (0 if then == "is paused" else 5 - first)
    assert settled(hand, claim.id) == 5
    assert (hand.stats().undelivered, hand.deliver()) == (0, 0)
    assert [hand.told(claim.id).count(what) for what in ("waiting", "woken")] == [5, 5]
    if then == "works on":
        lease = Lease(run=claim.id, tenant=claim.tenant, fence=claim.fence, known=0)
        assert hand.renew(lease).held[0].more
        assert hand.complete(claim).status is Status.SUCCEEDED


@pytest.mark.spec("MOVE-2")
def test_a_look_at_children_that_ended_with_large_results_is_bounded_too(hand):
    """A park over many of them is no single commit of all their results."""
    parent, children = hand.held(), [hand.id() for _ in range(5)]
    hand.checkpoint(parent, *(call(f"c{n}", child, CHILD) for n, child in enumerate(children)), known=0)
    for claim in hand.claim(types=(CHILD,)):
        hand.complete(claim, result=LARGE)
    assert hand.commit(parent, Move.PARK, known=5).status is Status.LEASED
    assert 0 < settled(hand, parent.id) < 5
    hand.deliver()
    assert settled(hand, parent.id) == 5
    assert hand.stats().undelivered == 0


def settled(hand, run):
    return sum(step.status is StepStatus.SUCCEEDED for step in hand.steps(run))


@pytest.mark.spec("OPS-1")
def test_one_part_of_a_round_is_done_without_the_others(hand):
    """So that a keeper can give each its turn."""
    sleeper, lost, late = hand.held(), hand.held(), hand.start(timeout_seconds=50.0)
    hand.park(sleeper, sleep(seconds=50.0))
    hand.clock.turn(60)
    for only, counts in (
        (Chore.DELIVER, (0, 0, 0, 0)),
        (Chore.EXPIRE, (1, 0, 0, 0)),
        (Chore.TIME_OUT, (0, 1, 0, 0)),
        (Chore.LAPSE, (0, 0, 1, 0)),
    ):
        done = hand.tick(only=only)
        assert (done.expired, done.timed_out, done.lapsed, done.delivered) == counts
        assert not done.more
        assert hand.tick(only=only).total == 0
    assert [hand.status(run) for run in (lost.id, late, sleeper.id)] == [
        Status.PENDING,
        Status.FAILED,
        Status.PENDING,
    ]


@pytest.mark.spec("OPS-1")
def test_a_round_ends_after_so_many_commits_and_says_that_there_is_more(hand):
    """The other chores have their turn, whatever is due."""
    claim = hand.held()
    hand.park(claim, *(sleep(f"nap{n}") for n in range(SLICES + 1)))
    hand.clock.turn(60)
    done = hand.tick(limit=1, only=Chore.LAPSE)
    assert (done.lapsed, done.more) == (SLICES, True)
    assert hand.due((TYPE,)).chore_at <= hand.clock.now
    done = hand.tick(limit=1, only=Chore.LAPSE)
    assert (done.lapsed, done.more) == (1, False)


@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("chore", [Chore.DELIVER, Chore.LAPSE])
def test_a_round_ends_when_its_time_is_over_and_says_that_there_is_more(hand, chore):
    """Or the keeper would take it for one that hangs. Each round does something."""
    claims = [hand.held() for _ in range(3)]
    for claim in claims:
        hand.park(claim, listen() if chore is Chore.DELIVER else sleep())
    hand.complete(hand.held(), events=(NewEvent(topic="parcel", id="e"),))
    hand.clock.turn(60)
    rounds = 0
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        while (done := hand.tick(limit=1, only=chore)).more:
            rounds += 1
            assert done.total == 1 or rounds > 3  # the last one may find that nothing is left
            assert rounds <= 4
    assert rounds >= 2
    assert {hand.status(claim.id) for claim in claims} == {Status.PENDING}


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_what_one_call_leaves_the_next_one_delivers(hand):
    """More events than one call hands over, all for one run: each wait is settled once, none is forgotten."""
    claim, count = hand.held(), SLICES + 5
    listens = [listen(f"w{n}", f"t{n}") for n in range(count)]
    hand.park(claim, *listens)
    other = hand.held()
    hand.complete(other, events=tuple(NewEvent(topic=f"t{n}", id=f"n{n}") for n in range(count)))
    total = hand.deliver(limit=1)
    assert 0 < total <= count
    while hand.stats().undelivered:
        total += hand.deliver(limit=1)
    assert total == count
    assert settled(hand, claim.id) == count
