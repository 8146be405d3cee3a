"""Reads: the same fields on every store, and a trail that can be followed."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import UnknownRun
from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, RunFilter, moment

from .driver import TYPE, done, listen, sleep


def _ids(driver, limit=100, after=None, **where):
    return [run.id for run in driver.run(driver.store.list(RunFilter(**where), limit=limit, after=after))]


@pytest.mark.spec("READ-1")
def test_an_unknown_run_reads_as_nothing(driver):
    """get: None; steps: UnknownRun; trail: empty."""
    run = driver.id()
    assert driver.get(run) is None
    assert driver.trail(run) == []
    with pytest.raises(UnknownRun):
        driver.steps(run)


@pytest.mark.spec("READ-1")
def test_lists_show_the_newest_first_in_pages(driver):
    """The order is by id; the cursor is the last id of the page before."""
    runs = [driver.start() for _ in range(5)][::-1]
    assert _ids(driver, limit=2) == runs[:2]
    assert _ids(driver, limit=2, after=runs[1]) == runs[2:4]
    assert _ids(driver, limit=2, after=runs[3]) == runs[4:]
    assert _ids(driver, after=runs[4]) == []


@pytest.mark.spec("READ-1")
def test_lists_filter_by_each_field(driver):
    """The fields are status, wait, type and prefix (% at the end; _ and case are literal), tenant, key,
    parent.
    """
    parent = driver.start("shop.a_b.v1", key="k")
    child = driver.start("shop.axb.v1", parent=parent)
    other = driver.start("Shop.a_b.v1", tenant="acme", key="k")
    napping, listening = driver.held(type=TYPE), driver.held(type=TYPE)
    driver.park(napping, sleep(), known=0)
    driver.park(listening, listen(), known=0)
    assert _ids(driver, statuses=(Status.WAITING,)) == [listening.id, napping.id]
    assert _ids(driver, statuses=(Status.WAITING, Status.PENDING), type="shop.a%") == [child, parent]
    assert _ids(driver, waiting_on=StepKind.SLEEP) == [napping.id]
    assert _ids(driver, type="shop.a_b.v1") == [parent]
    assert _ids(driver, type="shop.a_%") == [parent]
    assert _ids(driver, tenant="acme") == [other]
    assert len(_ids(driver, tenant=ANY)) == 5
    assert _ids(driver, key="k") == [parent]
    assert _ids(driver, parent=parent) == [child]


@pytest.mark.spec("TRAIL-1")
def test_a_whole_life_is_in_the_trail_in_order(driver):
    """No row is missing or invented; each row has its time."""
    claim = driver.held()
    driver.checkpoint(claim, done("a"), started_at=driver.clock.now)
    driver.clock.turn(1)
    driver.park(claim, listen("w", "t"), known=1)
    driver.clock.turn(1)
    driver.emit("t")
    claim = driver.take(claim.id)
    driver.complete(claim)
    start = moment(driver.clock.now - 2_000_000)
    second, third = moment(driver.clock.now - 1_000_000), moment(driver.clock.now)
    assert [(entry.type, entry.at) for entry in driver.trail(claim.id)] == [
        ("created", start), ("leased", start), ("started", start), ("step_succeeded", start),
        ("waiting", second), ("woken", third), ("leased", third), ("succeeded", third),
    ]  # fmt: skip
    driver.assert_replayed(claim.id)


@pytest.mark.spec("TRAIL-3")
def test_the_trail_can_be_followed_from_a_number_and_listed_over_all_runs(driver):
    """It can be filtered by type and tenant and comes in pages; seq grows over all runs."""
    first, second = driver.start(), driver.start()
    acme = driver.start(tenant="acme")
    driver.cancel(first)
    whole = driver.trail()
    assert [entry.seq for entry in whole] == sorted({entry.seq for entry in whole})
    assert [(entry.run, entry.type) for entry in whole] == [
        (first, "created"), (second, "created"), (acme, "created"), (first, "cancelled"),
    ]  # fmt: skip
    assert driver.trail(limit=2) == whole[:2]
    assert driver.trail(after=whole[1].seq) == whole[2:]
    assert driver.trail(tenant="acme") == [whole[2]]
    assert driver.trail(types=("cancelled", "paused")) == [whole[3]]
    assert driver.trail(first, after=whole[0].seq) == [whole[3]]
    assert driver.trail(first, tenant="acme") == []
    at = driver.clock.now
    assert driver.trail(between=(at, None)) == [entry for entry in whole if entry.at >= moment(at)]
    assert driver.trail(between=(None, at)) == [entry for entry in whole if entry.at < moment(at)]


@pytest.mark.spec("READ-1")
def test_waiting_on_lists_open_runs_by_id(driver):
    """Paused and leased runs are listed, each once; ended ones are not."""
    claims = [driver.held() for _ in range(4)]
    driver.checkpoint(claims[0], listen("a", "t"), listen("b", "t"))
    for claim in claims[1:]:
        driver.park(claim, listen("a", "t"), known=0)
    driver.pause(claims[1].id)
    driver.cancel(claims[2].id)
    expected = [claims[0].id, claims[1].id, claims[3].id]
    assert driver.run(driver.store.waiting_on("t", "default")) == expected


def test_a_listener_is_told_that_there_may_be_news(driver):
    """Hints come on the loop that listens, until it stops listening."""
    import asyncio

    async def heard():
        news = asyncio.Event()
        end = driver.store.listen(news.set)
        await driver.store.start([_new(driver)])
        await asyncio.wait_for(news.wait(), 5)
        end()

    driver.run(heard())


@pytest.mark.spec("OPS-7")
def test_a_listener_knows_whether_hints_reach_it(driver):
    """A store that cannot tell by itself says so within seconds."""
    import asyncio

    async def hears():
        end = driver.store.listen(lambda: None, lambda: None, lambda: None)
        async with asyncio.timeout(5):
            while not driver.store.hears():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        end()

    driver.run(hears())


def test_a_store_that_is_not_open_opens_nothing_for_a_listener(driver):
    """Nobody would close it: only a close ends what a store has opened."""
    import asyncio

    driver.run(driver.store.close())

    async def listened():
        before = asyncio.all_tasks()
        end = driver.store.listen(lambda: None, lambda: None, lambda: None)
        begun = asyncio.all_tasks() - before
        end()
        return begun

    assert driver.run(listened()) == set()


def _new(driver):
    from holdfast.records import NewRun

    return NewRun(id=driver.id(), type=TYPE)


@pytest.mark.spec("LEASE-8")
def test_renewal_works_from_another_thread_while_the_loop_is_blocked(driver):
    """Renew is blocking, and workers call it from their own thread."""
    claim = driver.held()
    driver.clock.turn(20)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(driver.renew(claim)))
    thread.start()
    thread.join(10)
    assert answers[0].held[0].answer == "applied"
    assert driver.get(claim.id).lease_until == moment(driver.clock.now + 30_000_000)


def test_opening_and_closing_twice_is_fine(driver):
    """Close releases everything."""
    driver.run(driver.store.close())
    driver.run(driver.store.close())
