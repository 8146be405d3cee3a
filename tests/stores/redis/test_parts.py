"""Calls for many runs: several short scripts, which keep the server from nobody, in one round trip."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.records import Lease, NewEvent, NewRun, TrailWrite
from holdfast.stores.redis import plain
from holdfast.stores.redis.batches import IN_SCRIPT, SCRIPT_BYTES
from holdfast.stores.redis.verbs import catalog, queue, steps
from holdfast.testing.contract.driver import TYPE, done, listen, noise
from servers.redis_store import server

MANY = 3 * IN_SCRIPT + 1


@pytest.fixture
def trips(driver):
    """The round trips that run scripts: how many each has."""
    numbers, call = [], driver.store._connections._call

    async def noted(commands, *, scripts=0):
        numbers.extend([scripts] if scripts else [])
        return await call(commands, scripts=scripts)

    driver.store._connections._call = noted
    return numbers


def start(driver, number=MANY, **fields):
    return driver.start_many([NewRun(id=driver.id(), type=TYPE, **fields) for _ in range(number)])


@pytest.mark.spec("STORE-3")
def test_many_runs_are_several_scripts_and_one_round_trip(driver, trips):
    stray = driver.held()  # from here on the server has the scripts
    driver.checkpoint(stray, done("a"))
    driver.renew(stray)
    del trips[:]
    runs = [one.id for one in start(driver)]
    assert trips == [4]
    del trips[:]
    driver.store._found = IN_SCRIPT  # the claim before has found many
    claims = driver.claim(limit=MANY)
    assert [one.id for one in claims] == runs
    assert trips == [4]
    del trips[:]
    leases = [Lease(run=one.id, fence=one.fence) for one in claims]
    renewal = driver.run(driver.store._extend("w1", leases, 60.0))
    assert [one.answer for one in renewal.held] == ["applied"] * MANY
    assert [run for run, _ in renewal.strays] == [stray.id]
    assert trips == [4]
    del trips[:]
    for move in ("checkpoint", "complete"):
        steps = (done("a"),) if move == "checkpoint" else ()
        verdicts = driver.send(*(driver.item(one, move, *steps) for one in claims))
        assert [one.answer for one in verdicts] == ["applied"] * MANY
    assert trips == [4, 4]


@pytest.mark.spec("STORE-3")
def test_a_claim_asks_for_much_only_where_the_last_one_has_found_much(driver, trips):
    start(driver)
    del trips[:]
    assert len(driver.claim(limit=MANY)) == MANY
    assert trips == [1, 3]
    assert driver.claim(limit=MANY) == []
    assert driver.claim(limit=MANY) == []
    assert trips == [1, 3, 4, 1]


@pytest.mark.spec("STORE-3")
def test_large_values_are_few_in_one_script(driver, trips):
    start(driver, 1)
    del trips[:]
    start(driver, 5, params=noise(SCRIPT_BYTES // 2))
    assert trips == [5]


@pytest.mark.spec("STORE-3")
def test_of_several_scripts_only_those_are_sent_again_that_were_refused(calling):
    text = """local n = redis.call('INCR', KEYS[1])
        return n == 2 and redis.error_reply('TRYAGAIN now') or n"""

    async def work(all_of):
        await all_of.ask([("DEL", "{refused}:k")])
        answers = await all_of._run([("EVAL", text, 1, "{refused}:k") for _ in range(3)])
        return answers, await all_of.ask([("GET", "{refused}:k")])

    assert calling(server().url("refused"), work) == ([1, 4, 3], ["4"])


@pytest.mark.spec("STORE-3")
def test_several_scripts_that_the_server_has_forgotten_are_each_run_once(driver, trips):
    with server().client() as client:
        client.script_flush()
        assert len({one.id for one in start(driver)}) == MANY
        assert trips[-2:] == [4, 4]
        assert client.zcard(driver.store._names.trail) == MANY


# Items and runs with very many rows.


@pytest.fixture
def few_rows(monkeypatch):
    """Scripts of at most four rows."""
    for module in (queue, plain):
        monkeypatch.setattr(module, "ROWS", 4)


@pytest.fixture
def scripts(driver):
    """The scripts that are run, by name, with the number of their calls."""
    run_all, found = driver.store._connections.run_all, []

    async def noted(name, calls):
        found.append((name, len(calls)))
        return await run_all(name, calls)

    driver.store._connections.run_all = noted
    return found


def logs(count):
    return tuple(TrailWrite("log", f'{{"log_no":{number + 1}}}') for number in range(count))


def logged(driver, run):
    return [row.data_json for row in driver.trail(run) if row.type == "log"]


@pytest.mark.spec("STORE-3", "TRAIL-1")
def test_very_many_log_rows_of_one_item_are_several_scripts(driver, few_rows, scripts):
    claim = driver.held()
    del scripts[:]
    driver.checkpoint(claim, done("one"), trail=logs(11), started_at=driver.clock())
    assert scripts == [("save", 1)] * 3
    assert [row.type for row in driver.trail(claim.id)] == [
        "created", "leased", "started", *["log"] * 11, "step_succeeded",
    ]  # fmt: skip
    assert logged(driver, claim.id) == [row.data for row in logs(11)]
    del scripts[:]
    driver.checkpoint(claim, done("two"))
    assert scripts == [("hold", 1)], "later writes are plain again"


@pytest.mark.spec("STORE-3", "TRAIL-1")
def test_an_item_whose_log_rows_were_half_written_goes_on_when_it_is_sent_again(driver, few_rows):
    claim = driver.held()
    item = driver.item(claim, "checkpoint", done("one"), trail=logs(11))
    assert driver.run(driver.store._change(partial(queue.log_ahead, item=item))) == 4
    for _ in range(2):
        (verdict,) = driver.run(driver.store.commit([item]))
        assert verdict.answer == "applied"
        assert logged(driver, claim.id) == [row.data for row in logs(11)]


@pytest.mark.spec("STORE-3", "LEASE-4")
def test_log_rows_of_a_holder_that_has_lost_the_run_are_not_written(driver, few_rows):
    claim = driver.held()
    late = driver.item(claim, "checkpoint", done("one"), trail=logs(11))
    driver.clock.turn(1000)
    driver.tick()
    (verdict,) = driver.run(driver.store.commit([late]))
    assert (verdict.answer, logged(driver, claim.id)) == ("lost", [])


@pytest.mark.spec("STORE-3")
def test_items_with_many_rows_are_few_in_one_script(driver, few_rows, scripts):
    claims = [driver.held() for _ in range(6)]
    del scripts[:]
    items = [driver.item(one, "checkpoint", done("one"), trail=logs(2)) for one in claims]
    assert {one.answer for one in driver.run(driver.store.commit(items))} == {"applied"}
    assert scripts == [("hold", 6)]


@pytest.mark.spec("STORE-3")
def test_the_steps_of_a_large_run_are_looked_at_by_several_scripts(driver, scripts, monkeypatch):
    """One script must not read 256 MiB of values."""
    monkeypatch.setattr(steps, "BATCH_BYTES", 100)
    monkeypatch.setattr(steps, "LOOKED", 3)
    monkeypatch.setattr(steps, "LOOKED_BYTES", 100)
    monkeypatch.setattr(steps, "AT_ONCE", 2)
    claim = driver.held()
    keys = [f"step {number}" for number in range(10)]
    driver.checkpoint(claim, *(done(key, output=noise(100)) for key in keys))
    del scripts[:]
    assert [step.key for step in driver.steps(claim.id)] == keys
    assert sum(number for name, number in scripts if name == "outline") == 10


@pytest.mark.spec("STORE-3", "EVENT-4")
def test_a_wait_that_is_settled_while_a_large_run_is_loaded_hides_no_step(driver, monkeypatch):
    """The wait gets a higher number between the look at all steps and the read of a page."""
    monkeypatch.setattr(steps, "BATCH_BYTES", 100)
    claim, keys = driver.held(), [f"step {number}" for number in range(6)]
    driver.checkpoint(claim, listen("stop", "stop"), known=0)
    driver.checkpoint(claim, *(done(key, output=noise(300)) for key in keys))
    outline, events = driver.store._outline, ["stop"]

    async def settled_behind(key):
        found = await outline(key)
        while events:
            await driver.store.emit(NewEvent(id="stop", topic=events.pop(), payload="1"))
        return found

    monkeypatch.setattr(driver.store, "_outline", settled_behind)
    seen, after, more = [], -1, True
    while more:
        row = driver.run(driver.store._rows([claim.id]))[0]
        page, more = driver.run(driver.store._steps_after(row, after, 1000))
        seen += [step.key for step in page]
        after = page[-1].seq
    assert not events
    assert seen == [*keys, "stop"]


@pytest.mark.spec("STORE-3", "READ-1")
def test_the_newest_steps_of_a_large_run_are_read_alone(driver, monkeypatch):
    for module in (steps, catalog):
        monkeypatch.setattr(module, "BATCH_BYTES", 1000)
    claim, keys = driver.held(), [f"step {number}" for number in range(9)]
    driver.checkpoint(claim, *(done(key, output=noise(300)) for key in keys))
    read = steps.StepReads._named
    parts = []

    async def noted(store, key, part):
        parts.append(len(part))
        return await read(store, key, part)

    monkeypatch.setattr(steps.StepReads, "_named", noted)
    seen, before = [], 1000
    while page := driver.run(driver.store.steps(claim.id, claim.tenant, before=before, bytes=1000)):
        seen += [step.key for step in page]
        before = page[-1].seq
    assert seen == keys[::-1]
    assert max(parts) < 9
