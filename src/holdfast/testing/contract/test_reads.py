"""Reads: the same fields on every store, and a trail that can be followed."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import UnknownRun
from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, RunFilter, moment

from .hand import TYPE, done, listen, sleep


def _ids(hand, limit=100, after=None, **where):
    return [run.id for run in hand.run(hand.store.list(RunFilter(**where), limit=limit, after=after))]


@pytest.mark.spec("READ-1")
def test_what_is_unknown_reads_as_nothing(hand):
    """get: None; steps: UnknownRun; trail: empty."""
    run = hand.id()
    assert hand.get(run) is None
    assert hand.trail(run) == []
    with pytest.raises(UnknownRun):
        hand.steps(run)


@pytest.mark.spec("READ-1")
def test_lists_show_the_newest_first_in_pages(hand):
    """By id, those after the cursor: the last id of the page before."""
    runs = [hand.start() for _ in range(5)][::-1]
    assert _ids(hand, limit=2) == runs[:2]
    assert _ids(hand, limit=2, after=runs[1]) == runs[2:4]
    assert _ids(hand, limit=2, after=runs[3]) == runs[4:]
    assert _ids(hand, after=runs[4]) == []


@pytest.mark.spec("READ-1")
def test_lists_filter_by_each_field(hand):
    """Status, wait, type and prefix (% at the end; _ and case are literal), tenant, key, parent."""
    parent = hand.start("shop.a_b.v1", key="k")
    child = hand.start("shop.axb.v1", parent=parent)
    other = hand.start("Shop.a_b.v1", tenant="acme", key="k")
    napping, listening = hand.held(type=TYPE), hand.held(type=TYPE)
    hand.park(napping, sleep(), known=0)
    hand.park(listening, listen(), known=0)
    assert _ids(hand, statuses=(Status.WAITING,)) == [listening.id, napping.id]
    assert _ids(hand, statuses=(Status.WAITING, Status.PENDING), type="shop.a%") == [child, parent]
    assert _ids(hand, waiting_on=StepKind.SLEEP) == [napping.id]
    assert _ids(hand, type="shop.a_b.v1") == [parent]
    assert _ids(hand, type="shop.a_%") == [parent]
    assert _ids(hand, tenant="acme") == [other]
    assert len(_ids(hand, tenant=ANY)) == 5
    assert _ids(hand, key="k") == [parent]
    assert _ids(hand, parent=parent) == [child]


@pytest.mark.spec("TRAIL-1")
def test_a_whole_life_is_in_the_trail_in_order(hand):
    """Never missing, never invented; each row has its time."""
    claim = hand.held()
    hand.checkpoint(claim, done("a"), started_at=hand.clock.now)
    hand.clock.turn(1)
    hand.park(claim, listen("w", "t"), known=1)
    hand.clock.turn(1)
    hand.emit("t")
    claim = hand.take(claim.id)
    hand.complete(claim)
    start = moment(hand.clock.now - 2_000_000)
    second, third = moment(hand.clock.now - 1_000_000), moment(hand.clock.now)
    assert [(entry.type, entry.at) for entry in hand.trail(claim.id)] == [
        ("created", start), ("leased", start), ("started", start), ("step_succeeded", start),
        ("waiting", second), ("woken", third), ("leased", third), ("succeeded", third),
    ]  # fmt: skip
    hand.assert_replayed(claim.id)


@pytest.mark.spec("TRAIL-3")
def test_the_trail_can_be_followed_from_a_number_and_listed_over_all_runs(hand):
    """By type, tenant, in pages; seq grows over all runs."""
    first, second = hand.start(), hand.start()
    acme = hand.start(tenant="acme")
    hand.cancel(first)
    whole = hand.trail()
    assert [entry.seq for entry in whole] == sorted({entry.seq for entry in whole})
    assert [(entry.run, entry.type) for entry in whole] == [
        (first, "created"), (second, "created"), (acme, "created"), (first, "cancelled"),
    ]  # fmt: skip
    assert hand.trail(limit=2) == whole[:2]
    assert hand.trail(after=whole[1].seq) == whole[2:]
    assert hand.trail(tenant="acme") == [whole[2]]
    assert hand.trail(types=("cancelled", "paused")) == [whole[3]]
    assert hand.trail(first, after=whole[0].seq) == [whole[3]]
    assert hand.trail(first, tenant="acme") == []
    at = hand.clock.now
    assert hand.trail(between=(at, None)) == [entry for entry in whole if entry.at >= moment(at)]
    assert hand.trail(between=(None, at)) == [entry for entry in whole if entry.at < moment(at)]


@pytest.mark.spec("READ-1")
def test_waiting_on_lists_open_runs_by_id(hand):
    """Paused and leased ones too; each once; ended ones not."""
    claims = [hand.held() for _ in range(4)]
    hand.checkpoint(claims[0], listen("a", "t"), listen("b", "t"))
    for claim in claims[1:]:
        hand.park(claim, listen("a", "t"), known=0)
    hand.pause(claims[1].id)
    hand.cancel(claims[2].id)
    expected = [claims[0].id, claims[1].id, claims[3].id]
    assert hand.run(hand.store.waiting_on("t", "default")) == expected


def test_a_listener_is_told_that_there_may_be_news(hand):
    """Hints come on the loop that asked for them, until it has had enough."""
    import asyncio

    async def heard():
        news = asyncio.Event()
        end = hand.store.listen(news.set)
        await hand.store.start([_new(hand)])
        await asyncio.wait_for(news.wait(), 5)
        end()

    hand.run(heard())


def _new(hand):
    from holdfast.records import NewRun

    return NewRun(id=hand.id(), type=TYPE)


@pytest.mark.spec("LEASE-8")
def test_renewal_works_from_another_thread_while_the_loop_is_blocked(hand):
    """Renew is blocking and is called from a thread of its own."""
    claim = hand.held()
    hand.clock.turn(20)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(hand.renew(claim)))
    thread.start()
    thread.join(10)
    assert answers[0].held[0].answer == "applied"
    assert hand.get(claim.id).lease_until == moment(hand.clock.now + 30_000_000)


def test_opening_and_closing_twice_is_fine(hand):
    """Close lets go of everything; twice is fine."""
    hand.run(hand.store.close())
    hand.run(hand.store.close())
