"""Many callers at once: each thing happens once, and nobody's share is taken twice."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Ask, NewEvent, NewRun

from .hand import TYPE, done


def _at_once(hand, calls):
    async def all_of_them():
        return await asyncio.gather(*calls)

    return hand.run(all_of_them())


@pytest.mark.spec("START-4")
def test_concurrent_starts_with_one_key_are_one_run(hand):
    """The existing id comes back, nothing is inserted, also under concurrent starts."""
    new = [NewRun(id=hand.id(), type=TYPE, key="k", digest="d") for _ in range(20)]
    answers = [answer for (answer,) in _at_once(hand, [hand.store.start([one]) for one in new])]
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert hand.stats().by_status[Status.PENDING] == 1


@pytest.mark.spec("LEASE-2")
def test_concurrent_claimers_get_disjoint_sets(hand):
    """Together they get all there is, and no run twice."""
    runs = {hand.start() for _ in range(20)}
    asks = [Ask(worker=f"w{n}", types=(TYPE,), limit=3) for n in range(10)]
    taken = [claim.id for claims in _at_once(hand, map(hand.store.claim, asks)) for claim in claims]
    assert len(taken) == 20
    assert set(taken) == runs


@pytest.mark.spec("LEASE-14")
def test_one_item_sent_by_many_at_once_is_applied_once(hand):
    """All get the same answer, and one step row, one trail row and one cost are written."""
    claim = hand.held()
    item = hand.item(claim, Move.CHECKPOINT, done("a", cost=7), trail=())

    async def sent():
        while (answer := (await hand.store.commit([item]))[0].answer) == "busy":
            pass
        return answer

    assert set(_at_once(hand, [sent() for _ in range(10)])) == {"applied"}
    assert hand.told(claim.id) == ["created", "leased", "step_succeeded"]
    assert hand.get(claim.id).cost_units == 7


@pytest.mark.spec("EVENT-2")
def test_one_event_emitted_by_many_at_once_is_one_event(hand):
    """One is the first, the others are duplicates."""
    events = [NewEvent(topic="t", id="x") for _ in range(10)]
    answers = _at_once(hand, map(hand.store.emit, events))
    assert sorted(answer.duplicate for answer in answers) == [False] + 9 * [True]


@pytest.mark.spec("OPS-1")
def test_many_keepers_at_once_do_everything_once(hand):
    """Any number of keepers: each lease expires once."""
    for _ in range(5):
        hand.held()
    hand.clock.turn(31)
    rounds = _at_once(hand, [hand.store.tick(limit=2) for _ in range(4)])
    assert sum(ticked.expired for ticked in rounds) == 5
    assert len(hand.trail(types=("lease_expired",))) == 5


@pytest.mark.spec("LEASE-7", "LEASE-8")
def test_renewals_from_their_thread_and_commits_from_the_loop_do_not_harm_each_other(hand):
    """Every answer is a true one, and the last state is whole."""
    claims = [hand.held() for _ in range(5)]
    answers = []

    def beat():
        answers.extend(hand.renew(*claims) for _ in range(20))

    thread = threading.Thread(target=beat)
    thread.start()
    for n in range(20):
        item = hand.item(claims[n % 5], Move.CHECKPOINT, done(f"s{n}"))
        while (answer := hand.send(item)[0].answer) == "busy":
            pass
        assert answer == "applied"
    thread.join(10)
    assert {one.answer for renewal in answers for one in renewal.held} == {"applied"}
    assert [len(hand.steps(claim.id)) for claim in claims] == [4] * 5
