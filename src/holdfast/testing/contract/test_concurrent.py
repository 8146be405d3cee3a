"""Many callers at once: each thing happens once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Ask, NewEvent, NewRun

from .driver import TYPE, done


def _at_once(driver, calls):
    async def all_of_them():
        return await asyncio.gather(*calls)

    return driver.run(all_of_them())


@pytest.mark.spec("START-4")
def test_concurrent_starts_with_one_key_are_one_run(driver):
    """The existing id is returned and nothing is inserted."""
    new = [NewRun(id=driver.id(), type=TYPE, key="k", digest="d") for _ in range(20)]
    answers = [answer for (answer,) in _at_once(driver, [driver.store.start([one]) for one in new])]
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert driver.stats().by_status[Status.PENDING] == 1


@pytest.mark.spec("LEASE-2")
def test_concurrent_claimers_get_disjoint_sets(driver):
    """Together they get all runs, and no run twice."""
    runs = {driver.start() for _ in range(20)}
    asks = [Ask(worker=f"w{n}", types=(TYPE,), limit=3) for n in range(10)]
    taken = [claim.id for claims in _at_once(driver, map(driver.store.claim, asks)) for claim in claims]
    assert len(taken) == 20
    assert set(taken) == runs


@pytest.mark.spec("LEASE-14")
def test_one_item_sent_by_many_at_once_is_applied_once(driver):
    """All get the same answer; one step row, one trail row and one cost are written."""
    claim = driver.held()
    item = driver.item(claim, Move.CHECKPOINT, done("a", cost=7), trail=())

    async def sent():
        while (answer := (await driver.store.commit([item]))[0].answer) == "busy":
            pass
        return answer

    assert set(_at_once(driver, [sent() for _ in range(10)])) == {"applied"}
    assert driver.told(claim.id) == ["created", "leased", "step_succeeded"]
    assert driver.get(claim.id).cost_units == 7


@pytest.mark.spec("EVENT-2")
def test_one_event_emitted_by_many_at_once_is_one_event(driver):
    """One call is the first, the others are duplicates."""
    events = [NewEvent(topic="t", id="x") for _ in range(10)]
    answers = _at_once(driver, map(driver.store.emit, events))
    assert sorted(answer.duplicate for answer in answers) == [False] + 9 * [True]


@pytest.mark.spec("OPS-1")
def test_many_keepers_at_once_do_everything_once(driver):
    """Each lease expires once."""
    for _ in range(5):
        driver.held()
    driver.clock.turn(31)
    rounds = _at_once(driver, [driver.store.tick(limit=2) for _ in range(4)])
    assert sum(ticked.expired for ticked in rounds) == 5
    assert len(driver.trail(types=("lease_expired",))) == 5


@pytest.mark.spec("LEASE-7", "LEASE-8")
def test_renewals_from_their_thread_and_commits_from_the_loop_do_not_harm_each_other(driver):
    """Every answer is true, and the last state is consistent."""
    claims = [driver.held() for _ in range(5)]
    answers = []

    def beat():
        answers.extend(driver.renew(*claims) for _ in range(20))

    thread = threading.Thread(target=beat)
    thread.start()
    for n in range(20):
        item = driver.item(claims[n % 5], Move.CHECKPOINT, done(f"s{n}"))
        while (answer := driver.send(item)[0].answer) == "busy":
            pass
        assert answer == "applied"
    thread.join(10)
    assert {one.answer for renewal in answers for one in renewal.held} == {"applied"}
    assert [len(driver.steps(claim.id)) for claim in claims] == [4] * 5
