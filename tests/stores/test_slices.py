"""What an event costs on SQLite: short commits, values that stay in the database, no other wait looked at."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import Move
from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore, waits
from holdfast.testing.contract.hand import Clock, Hand, done, listen
from tests.stores.files import new_run, until

LARGE = '"' + "x" * (3 * 2**20) + '"'


@pytest.fixture
def hand(tmp_path):
    clock = Clock()
    hand = Hand(SqliteStore(str(tmp_path / "holdfast.db"), clock=clock), clock)
    yield hand
    hand.close()


def commits(hand):
    return hand.stats().extra["commits"]


def waiters(hand, count):
    claims = [hand.held() for _ in range(count)]
    for claim in claims:
        hand.park(claim)
    return claims


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
@pytest.mark.parametrize("by", ["emit", "deliver"])
def test_a_large_event_is_handed_over_a_few_megabytes_a_commit(hand, by):
    """By whoever delivers it."""
    waiters(hand, 7)
    claim = hand.held()
    if by == "deliver":
        hand.complete(claim, events=(NewEvent(topic="parcel", id="e", payload=LARGE),))
    before = commits(hand)
    assert (hand.emit(payload=LARGE).woken if by == "emit" else hand.deliver()) == 7
    assert commits(hand) - before == 8  # one in each: four megabytes are enough; and one that finds no more


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_a_payload_does_not_pass_through_the_process(hand):
    """The database copies it from row to row; nothing that is read for a slice holds it."""
    waiters(hand, 3)
    seen = []
    db = hand.store._committer.db
    hand.run(hand.store._write(lambda db, _: db.connection.set_row_trace(row_trace(seen))))
    try:
        assert hand.emit(payload=LARGE).woken == 3
    finally:
        db.connection.set_row_trace(None)
    assert seen
    assert max(seen) < BATCH_BYTES / 100


def row_trace(seen):
    def trace(_cursor, row):
        seen.append(max((len(value) for value in row if isinstance(value, str)), default=0))
        return row

    return trace


def steps_of_an_emit(hand, topic):
    """How many instructions SQLite's machine executes for it."""
    counted = []
    connection = hand.store._committer.db.connection

    def watch(handler):
        hand.run(hand.store._write(lambda _db, _now: connection.set_progress_handler(handler, 1)))

    def count():
        counted.append(1)
        return False

    watch(count)
    assert hand.emit(topic).woken == 1
    taken = len(counted)
    watch(None)
    return taken


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_an_event_does_not_pay_for_what_else_its_run_waits_for(hand):
    """Waiting, and once it is pending."""
    for count in (10, 1000):
        claim = hand.held()
        hand.park(claim, *(listen(f"w{n}", f"{count}-{n}") for n in range(count)))
    for n in range(2):
        few, many = (steps_of_an_emit(hand, f"{count}-{n}") for count in (10, 1000))
        assert many <= few + 60


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_others_write_between_two_slices_of_an_emit(hand):
    """A start that comes while many are woken does not wait for all of them."""
    waiters(hand, 150)
    order = []

    async def emits():
        await hand.store.emit(NewEvent(topic="parcel", id="e"))
        order.append("emitted")

    async def both():
        emitting = asyncio.create_task(emits())
        await until(lambda: hand.store._read(waits.undelivered) is not None)
        await hand.store.start([new_run()])
        order.append("started")
        await emitting

    hand.run(both())
    assert order == ["started", "emitted"]


@pytest.mark.spec("EVENT-3")
def test_another_process_goes_on_with_an_event_where_one_has_died(hand, tmp_path):
    """How far it has come stands in the file, as long as it is under way."""
    claims = waiters(hand, 5)
    hand.complete(hand.held(), events=(NewEvent(topic="parcel", id="e"),))
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert (hand.deliver(limit=2), places(hand)) == (2, [(str(claims[1].id),)])
    for claim in hand.claim():
        hand.park(claim, listen("again"))
    other = Hand(SqliteStore(str(tmp_path / "holdfast.db"), clock=hand.clock), hand.clock)
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert sum(other.deliver(limit=2) for _ in range(3)) == 3
    assert (other.stats().undelivered, places(hand)) == (0, [])
    other.close()


@pytest.mark.spec("EVENT-3", "TTL-1")
def test_the_place_of_an_event_goes_with_it(hand):
    """It goes when the run is removed that the event is addressed to."""
    claim = hand.held(ttl_seconds=1.0)
    hand.park(claim, listen("a"), listen("b"))
    hand.complete(hand.held(), events=(NewEvent(topic="parcel", id="e", run=claim.id),))
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        hand.deliver(limit=1)
    assert len(places(hand)) == 1
    hand.cancel(claim.id)
    hand.clock.turn(60)
    assert (hand.purge().runs, places(hand)) == (1, [])


def places(hand):
    return hand.store._read(lambda db: db.all("select run_id from workflow_delivery"))


@pytest.mark.spec("EVENT-4")
def test_a_look_that_a_checkpoint_leaves_is_hinted_at(hand):
    """So that a keeper goes on with it at once; a checkpoint without waits hints at nothing."""
    claim, topics, hints = hand.held(), [f"t{n}" for n in range(4)], []
    for topic in topics:
        hand.emit(topic, LARGE)

    async def hinted(*steps):
        hints.clear()
        end = hand.store.listen(lambda: hints.append(1))
        await hand.store.commit([hand.item(claim, Move.CHECKPOINT, *steps)])
        await asyncio.sleep(0)
        end()
        return bool(hints)

    with patch("holdfast.stores.sqlite.hints.POLL_SECONDS", 60.0):  # or the loop looks at the file by itself
        assert not hand.run(hinted(done("plain")))
        assert hand.run(hinted(*(listen(topic, topic) for topic in topics)))
    assert hand.due().chore_at <= hand.clock.now
