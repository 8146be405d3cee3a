"""Many priorities, types and limits at once: a verb takes few round trips all the same."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.contract import START
from holdfast.lifecycle import Status
from holdfast.records import ANY, NewEvent, NewRun, RunFilter, moment
from holdfast.stores.redis.link import Link
from holdfast.stores.redis.verbs import keeper
from holdfast.testing.contract.chains import chain
from holdfast.testing.contract.driver import EPOCH, TYPE, call, done, listen
from servers.redis_store import server

LARGE = f'"{"x" * (3 * MIB // 2)}"'
OTHER = "wide.other.v1"
TYPES = tuple(f"wide.t{number}.v1" for number in range(130))


@pytest.fixture
def trips(driver):
    """The round trips of the store: how many commands each has."""
    numbers, call = [], driver.store._connections._call

    async def noted(commands, **options):
        numbers.append(len(commands))
        return await call(commands, **options)

    driver.store._connections._call = noted
    return numbers


@pytest.mark.spec("OPS-7", "STORE-3")
def test_very_many_priorities_cost_no_round_trips(driver, trips):
    later = [NewRun(id=driver.id(), type=TYPE, priority=one, delay_seconds=60.0) for one in range(0, 1000, 7)]
    driver.start_many(later)
    now = [NewRun(id=driver.id(), type=TYPE, priority=one) for one in range(700, 1000, 5)]
    driver.start_many(now)
    driver.due()  # from here on the server has the script
    del trips[:]
    assert driver.due().claim_at == EPOCH
    assert len(trips) <= 3
    del trips[:]
    (found,) = driver.scale().items
    assert (found.due, found.oldest_due_at) == (len(now), EPOCH)
    assert len(trips) <= 7
    assert [one.id for one in driver.claim()] == [one.id for one in now]


@pytest.mark.spec("OPS-7", "STORE-3")
def test_very_many_types_cost_no_round_trips(driver, trips):
    driver.start_many([NewRun(id=driver.id(), type=one) for one in TYPES])
    with server().client() as client:
        client.script_flush()
    driver.due(types=TYPES)
    del trips[:]
    assert driver.due(types=TYPES).claim_at == EPOCH
    assert len(trips) <= 3
    driver.run(driver.store.limit("type", TYPE, concurrency=1))
    del trips[:]
    assert driver.due(types=TYPES).claim_at == EPOCH
    assert len(trips) <= 6
    assert len(driver.run(driver.store.scale(ANY)).items) == len(TYPES)
    assert len(driver.claim(types=TYPES)) == 100


@pytest.mark.spec("STORE-3")
def test_of_very_many_queues_those_with_the_first_due_runs_are_claimed(driver):
    runs = [
        NewRun(id=driver.id(), type=one, priority=500 - number, delay_seconds=60.0 if number % 3 else None)
        for number, one in enumerate(TYPES)
    ]
    late = [NewRun(id=driver.id(), type=one, priority=900 - number) for number, one in enumerate(TYPES)]
    driver.start_many([*runs, *late])
    due = sorted((one.priority, one.id) for one in (*runs[::3], *late))
    assert [one.id for one in driver.claim(types=TYPES)] == [run for _, run in due[:100]]
    driver.store.fast = False
    assert [one.id for one in driver.claim(types=TYPES)] == [run for _, run in due[100:]]


@pytest.mark.spec("LIMIT-1", "STORE-3")
def test_very_many_full_keys_cost_no_round_trips(driver, trips):
    for number in range(40):
        driver.run(driver.store.limit("key", f"k{number}", concurrency=1))
    keys = [f"k{number}" for number in range(40) for _ in range(3)]
    driver.start_many([NewRun(id=driver.id(), type=TYPE, limit_key=key) for key in keys])
    del trips[:]
    assert len(driver.claim()) == 40
    assert len(trips) <= 40
    del trips[:]
    assert driver.claim() == []
    assert len(trips) <= 15
    assert driver.due().claim_at is None
    assert len(trips) <= 20


@pytest.mark.spec("LIMIT-3", "STORE-3")
def test_many_tenants_that_wait_for_a_full_type_cost_no_round_trips(driver, trips):
    driver.run(driver.store.limit("tenant", "%", weight=1.0))
    driver.run(driver.store.limit("type", TYPE, concurrency=0))
    driver.start_many([NewRun(id=driver.id(), type=TYPE, tenant=f"t{number}") for number in range(110)])
    free = driver.start(type=OTHER)
    del trips[:]
    assert [one.id for one in driver.claim(types=(TYPE, OTHER))] == [free]
    assert len(trips) <= 10


@pytest.mark.spec("LIMIT-1", "STORE-3")
def test_claims_are_plain_again_when_there_are_no_limits_any_more(driver, trips):
    driver.run(driver.store.limit("type", TYPE, concurrency=1))
    first = driver.held()
    driver.run(driver.store.unlimit("type", TYPE))
    driver.start()
    driver.claim()
    del trips[:]
    assert len(driver.claim()) == 0
    assert len(driver.claim()) == 0
    driver.complete(first)
    del trips[:]
    driver.start()
    assert len(driver.claim()) == 1
    assert trips == [1, 1]


@pytest.mark.spec("EVENT-1", "STORE-3")
def test_many_events_for_one_run_at_once_are_not_decided_again_and_again(driver, trips):
    claim = driver.held()
    driver.park(claim, *(listen(f"w{number}", f"t{number}") for number in range(20)))
    del trips[:]

    async def emit():
        events = [NewEvent(topic=f"t{number}", id=f"e{number}") for number in range(20)]
        return await asyncio.gather(*(driver.store.emit(event) for event in events))

    assert sum(one.woken for one in driver.run(emit())) == 20
    assert len(trips) <= 20 * 40


@pytest.mark.slow
@pytest.mark.spec("DEL-1", "STORE-3")
def test_the_cost_of_a_long_chain_grows_with_its_length_alone(driver, trips):
    """Each run of the chain is read once, and not again with each slice that is deleted or restored."""
    ids, _ = chain(driver, 150)
    for verb in (driver.delete, driver.restore):
        del trips[:]
        verb(ids[0])
        assert sum(trips) < 3 * len(ids)
    driver.delete(ids[0])
    assert all(driver.get(run) is None for run in ids)


@pytest.mark.slow
@pytest.mark.spec("FLOW-7", "STORE-3")
def test_a_cancel_does_not_carry_out_what_all_other_runs_owe(driver, trips):
    """Only a part of it: a keeper does the rest. What the cancel itself leaves to do is done at once."""
    parent = driver.held()
    children = [driver.id() for _ in range(150)]
    driver.park(parent, *(call(str(run), run, type=OTHER) for run in children), known=0)
    for claim in [*driver.claim(types=(OTHER,)), *driver.claim(types=(OTHER,))]:
        driver.complete(claim)
    top = driver.held()
    middle = driver.id()
    driver.park(top, call("c", middle), known=0)
    below = driver.id()
    driver.park(driver.take(middle), call("c", below), known=0)
    del trips[:]
    driver.cancel(top.id)
    assert {driver.status(run) for run in (top.id, middle, below)} == {Status.CANCELLED}
    assert len(trips) < 60
    driver.deliver()
    assert driver.status(parent.id) is Status.PENDING


@pytest.fixture
def received(monkeypatch):
    """The bytes that have come from the server, in a list of one number."""
    total, take = [0], Link.data_received

    def counted(link, data):
        total[0] += len(data)
        take(link, data)

    monkeypatch.setattr(Link, "data_received", counted)
    return total


@pytest.mark.slow
@pytest.mark.spec("READ-1", "STORE-3")
def test_a_list_of_large_runs_reads_little_more_than_it_answers(driver, received):
    ids = [driver.start(params=f'"{"x" * MIB}"') for _ in range(30)]
    assert [run.id for run in driver.run(driver.store.list(RunFilter()))] == ids[:-8:-1]
    assert received[0] < 2 * BATCH_BYTES
    received[0] = 0
    assert driver.run(driver.store.list(RunFilter(created_until=moment(0)))) == []
    assert received[0] < MIB  # values of runs that do not match are not read
    found = driver.run(driver.store.search("nowhere", RunFilter(), limit=10))
    assert found.looked_at == 30


@pytest.mark.slow
@pytest.mark.spec("READ-1", "STORE-3")
@pytest.mark.parametrize("largest", [None, 1000])
def test_a_page_of_large_steps_reads_no_other_steps(driver, received, largest):
    claim = driver.held()
    for number in range(12):
        driver.checkpoint(claim, done(f"s{number}", LARGE))
    keys, after = [], START
    while True:
        received[0] = 0
        page = driver.steps(claim.id, after=after, largest=largest)
        assert received[0] < BATCH_BYTES + MIB
        if not page:
            break
        keys += [step.key for step in page]
        after = page[-1].seq
    assert keys == [f"s{number}" for number in range(12)]
    whole = driver.steps(claim.id, largest=1000)
    assert [step.key for step in whole] == keys
    assert all(step.left_out and step.output is None for step in whole)


@pytest.mark.slow
@pytest.mark.spec("READ-1", "PLAN-1", "STORE-3")
def test_a_page_of_a_large_plan_shows_its_current_step_as_it_is(driver):
    names = [f"s{number}" for number in range(8)]
    run = driver.plan(*names)
    for name in names[:6]:
        assert driver.advance(driver.take(run), done(name, LARGE)).answer == "applied"
    driver.take(run)
    after, seen = START, []
    while page := driver.steps(run, after=after):
        seen += [(step.key, step.status.value) for step in page]
        after = page[-1].seq
    assert seen[5:] == [("s5", "succeeded"), ("s6", "running"), ("s7", "pending")]
    assert [step.key for step in driver.steps(run, before=8)][:2] == ["s7", "s6"]


@pytest.mark.spec("EVENT-3")
def test_a_slice_that_ends_within_a_run_is_followed_by_one_that_begins_there(driver, monkeypatch):
    """A slice ends when it has copied much: here after each value."""
    monkeypatch.setattr(keeper, "COPIED", 1)
    claims = [driver.held() for _ in range(3)]
    for claim in claims:
        driver.park(claim, listen("z", "t"), listen("a", "t"), listen("m", "t"), known=0)
    for name in ("1", "2", "3"):  # recorded, and not delivered
        event = NewEvent(topic="t", payload="null", id=name)
        driver.run(driver.store._change(lambda snapshot, event=event: keeper.take_in(snapshot, event)))
    driver.run(driver.store.deliver())
    for key, name in (("z", "1"), ("a", "2"), ("m", "3")):
        assert all(f'"id":"{name}"' in driver.step(claim.id, key).output for claim in claims)
