"""Cost of events on SQLite: short commits, no copies of values through Python, no reads of other waits."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import Move
from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.chores import delivery
from holdfast.testing.contract.driver import Clock, StoreDriver, done, listen
from tests.stores.sqlite.files import new_run, until

LARGE = '"' + "x" * (3 * 2**20) + '"'


@pytest.fixture
def driver(tmp_path):
    clock = Clock()
    driver = StoreDriver(SqliteStore(str(tmp_path / "holdfast.db"), clock=clock), clock)
    yield driver
    driver.close()


def commits(driver):
    return driver.stats().extra["commits"]


def waiters(driver, count):
    claims = [driver.held() for _ in range(count)]
    for claim in claims:
        driver.park(claim)
    return claims


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
@pytest.mark.parametrize("by", ["emit", "deliver"])
def test_a_large_event_is_handed_over_a_few_megabytes_a_commit(driver, by):
    """For emit and for deliver."""
    waiters(driver, 7)
    claim = driver.held()
    if by == "deliver":
        driver.complete(claim, events=(NewEvent(topic="parcel", id="e", payload=LARGE),))
    before = commits(driver)
    assert (driver.emit(payload=LARGE).woken if by == "emit" else driver.deliver()) == 7
    assert commits(driver) - before == 8  # one in each: four megabytes are enough; and one that finds no more


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_a_payload_does_not_pass_through_the_process(driver):
    """The database copies it from row to row; nothing that is read for a slice holds it."""
    waiters(driver, 3)
    seen = []
    db = driver.store._transactor.db
    driver.run(driver.store._write(lambda db, _: db.connection.set_row_trace(row_trace(seen))))
    try:
        assert driver.emit(payload=LARGE).woken == 3
    finally:
        db.connection.set_row_trace(None)
    assert seen
    assert max(seen) < BATCH_BYTES / 100


def row_trace(seen):
    def trace(_cursor, row):
        seen.append(max((len(value) for value in row if isinstance(value, str)), default=0))
        return row

    return trace


def steps_of_an_emit(driver, topic):
    """Return how many instructions SQLite's virtual machine executes for a call."""
    counted = []
    connection = driver.store._transactor.db.connection

    def watch(handler):
        driver.run(driver.store._write(lambda _db, _now: connection.set_progress_handler(handler, 1)))

    def count():
        counted.append(1)
        return False

    watch(count)
    assert driver.emit(topic).woken == 1
    taken = len(counted)
    watch(None)
    return taken


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_an_event_does_not_pay_for_what_else_its_run_waits_for(driver):
    """Waiting, and once it is pending."""
    for count in (10, 1000):
        claim = driver.held()
        driver.park(claim, *(listen(f"w{n}", f"{count}-{n}") for n in range(count)))
    for n in range(2):
        few, many = (steps_of_an_emit(driver, f"{count}-{n}") for count in (10, 1000))
        assert many <= few + 60


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_others_write_between_two_slices_of_an_emit(driver):
    """A start that comes while many are woken does not wait for all of them."""
    waiters(driver, 150)
    order = []

    async def emits():
        await driver.store.emit(NewEvent(topic="parcel", id="e"))
        order.append("emitted")

    async def both():
        emitting = asyncio.create_task(emits())
        await until(lambda: driver.store._read(delivery.undelivered) is not None)
        await driver.store.start([new_run()])
        order.append("started")
        await emitting

    driver.run(both())
    assert order == ["started", "emitted"]


@pytest.mark.spec("EVENT-3")
def test_another_process_goes_on_with_an_event_where_one_has_died(driver, tmp_path):
    """The position of the delivery is stored in the file until it ends."""
    claims = waiters(driver, 5)
    driver.complete(driver.held(), events=(NewEvent(topic="parcel", id="e"),))
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert (driver.deliver(limit=2), places(driver)) == (2, [(str(claims[1].id),)])
    for claim in driver.claim():
        driver.park(claim, listen("again"))
    other = StoreDriver(SqliteStore(str(tmp_path / "holdfast.db"), clock=driver.clock), driver.clock)
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert sum(other.deliver(limit=2) for _ in range(3)) == 3
    assert (other.stats().undelivered, places(driver)) == (0, [])
    other.close()


@pytest.mark.spec("EVENT-3", "TTL-1")
def test_the_place_of_an_event_goes_with_it(driver):
    """The position is removed with the run that the event is addressed to."""
    claim = driver.held(ttl_seconds=1.0)
    driver.park(claim, listen("a"), listen("b"))
    driver.complete(driver.held(), events=(NewEvent(topic="parcel", id="e", run=claim.id),))
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        driver.deliver(limit=1)
    assert len(places(driver)) == 1
    driver.cancel(claim.id)
    driver.clock.turn(60)
    assert (driver.purge().runs, places(driver)) == (1, [])


def places(driver):
    return driver.store._read(lambda db: db.all("select run_id from workflow_delivery"))


@pytest.mark.spec("EVENT-4")
def test_a_look_that_a_checkpoint_leaves_is_hinted_at(driver):
    """A keeper then goes on with it at once. A checkpoint without waits wakes no listener."""
    claim, topics, hints = driver.held(), [f"t{n}" for n in range(4)], []
    for topic in topics:
        driver.emit(topic, LARGE)

    async def hinted(*steps):
        hints.clear()
        end = driver.store.listen(lambda: hints.append(1))
        await driver.store.commit([driver.item(claim, Move.CHECKPOINT, *steps)])
        await asyncio.sleep(0)
        end()
        return bool(hints)

    with patch(
        "holdfast.stores.sqlite.connection.hints.POLL_SECONDS", 60.0
    ):  # or the loop looks at the file by itself
        assert not driver.run(hinted(done("plain")))
        assert driver.run(hinted(*(listen(topic, topic) for topic in topics)))
    assert driver.due().chore_at <= driver.clock.now
