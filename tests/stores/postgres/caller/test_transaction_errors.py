"""transact on Postgres: lost replies, time limits, other sessions, and what is left on a session."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import msgspec
import pytest

from holdfast.errors import StepTimeout, Unavailable, UsageError
from holdfast.records import ANY, Ask, Lease, NewRun, Outbound
from holdfast.stores.postgres.caller import guarded_session
from holdfast.testing.contract.driver import LEASE, TYPE
from tests.laws.effort import longer
from tests.stores.postgres.caller.holder import Holder, beside, tally
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions.opened import until

PATIENCE = 10.0


@pytest.fixture(params=["Engine", "PsycopgConnect"])
def sync_holder(request, driver):
    """A holder whose functions are sync."""
    holder = Holder(driver, request.param)
    yield holder
    holder.close()


class Held(guarded_session.GuardedSession):
    """Commits that are delayed, or whose answer is lost."""

    go: threading.Event | None = None
    lost = False

    async def execute(self, query, *args, **options):
        if query.startswith("COMMIT") and Held.go is not None:
            go, Held.go = Held.go, None
            await asyncio.to_thread(go.wait, PATIENCE)
        answer = await super().execute(query, *args, **options)
        if query.startswith("COMMIT") and Held.lost:
            Held.lost = False
            raise ConnectionResetError("cut")
        return answer


@pytest.fixture
def held(monkeypatch):
    monkeypatch.setattr("holdfast.stores.postgres.GuardedSession", Held)
    return Held


@pytest.mark.slow
@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("kind", ["Own", "Engine", *longer("AsyncEngine", "PsycopgConnect")])
def test_a_commit_that_is_large_has_longer_than_its_function(driver, kind, monkeypatch):
    """The limits of the server, the driver and the store are those of a small commit."""
    monkeypatch.setattr("holdfast.stores.postgres.sessions.session.COMMAND_SECONDS", 1.0)
    holder = Holder(driver, kind)
    monkeypatch.setattr(holder.store, "call_seconds", 1.0)
    value = '"' + "é" * (2**21 - 10) + '"'
    item = msgspec.structs.replace(
        holder.item(),
        outbox=tuple(Outbound(id=f"m{n}", sink="mail", payload=value, step="last") for n in range(4)),
    )
    assert holder.send(item=item, limit=0.2).answer == "applied"
    assert holder.calls == 1
    assert (tally(), holder.keys()) == (1, ["last"])
    holder.close()


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_commit_that_was_not_heard_is_known_when_it_is_sent_again(driver, held):
    holder = Holder(driver)
    item = holder.item()
    held.lost = True
    with pytest.raises(Unavailable, match="cut"):
        holder.send(item=item)
    assert (holder.send(item=item).answer, holder.calls, tally()) == ("applied", 1, 1)


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_sent_again_while_the_first_is_still_on_its_way_it_is_done_once(driver, held):
    """The second waits for the run's row, finds the first, and rolls back the writes of its function."""
    holder, go = Holder(driver), threading.Event()
    item = holder.item()

    async def both():
        held.go = go
        first = asyncio.ensure_future(holder.transact(item, holder.work(item)))
        await until(lambda: held.go is None)
        second = asyncio.ensure_future(holder.transact(item, holder.work(item)))
        done, _ = await asyncio.wait({second}, timeout=0.2)
        assert not done
        go.set()
        return await asyncio.gather(first, second)

    first, second = driver.run(both())
    assert (first, holder.calls, tally()) == (second, 2, 1)


# Time limits.


@pytest.mark.spec("FLOW-16")
def test_one_that_takes_too_long_is_stopped_and_rolled_back(holder):
    began = time.monotonic()
    with pytest.raises(StepTimeout, match=r"longer than 0\.2 s"):
        holder.send("select pg_sleep(30)", limit=0.2)
    assert time.monotonic() - began < 5
    assert (holder.keys(), tally()) == ([], 0)
    _until_idle()
    assert holder.send().answer == "applied"


@pytest.mark.spec("FLOW-16")
def test_a_slow_sync_function_is_not_waited_for_and_is_rolled_back_when_it_ends(sync_holder):
    """The function cannot be stopped. It is not waited for, and its transaction is not committed."""
    go, ended = threading.Event(), threading.Event()

    def dawdle(_given):
        go.wait(PATIENCE)
        ended.set()

    with pytest.raises(StepTimeout):
        sync_holder.send(dawdle, limit=0.1)
    go.set()
    assert ended.wait(PATIENCE)
    _until_idle()
    assert (sync_holder.keys(), tally()) == ([], 0)


@pytest.mark.spec("FLOW-16")
def test_a_session_that_a_straggler_keeps_is_ended_by_the_server(sync_holder):
    """Otherwise the function would keep its locks as long as it runs."""
    go, said = threading.Event(), []

    def dawdle(given):
        go.wait(PATIENCE)
        try:
            sync_holder.kind.run(given, "select 1")
        except Exception as error:
            said.append(str(error))
            raise

    with pytest.raises(StepTimeout):
        sync_holder.send(dawdle, limit=0.1)
    _until_idle()  # while the function still runs
    go.set()
    deadline = time.monotonic() + PATIENCE
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    assert said
    assert tally() == 0


def _until_idle():
    """Wait until no session has a transaction open, except this one."""
    deadline = time.monotonic() + PATIENCE
    sql = (
        "select count(*) from pg_stat_activity where xact_start is not null "
        "and datname = current_database() and pid <> pg_backend_pid()"
    )
    while database()[1].execute(sql).fetchone()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.spec("FLOW-16", "LEASE-8")
def test_while_it_runs_its_lease_is_renewed_and_others_write(mine):
    """No row of the engine is locked meanwhile."""

    async def others(_given):
        lease = Lease(run=mine.claim.id, fence=mine.claim.fence)
        renewal = await asyncio.to_thread(mine.store.renew, "w1", [lease], LEASE)
        assert [one.answer for one in renewal.held] == ["applied"]
        await asyncio.to_thread(beside, mine, lambda store: store.pause(mine.claim.id, ANY, by="me"))

    assert mine.send(others).answer == "paused"
    assert tally() == 1


@pytest.mark.spec("FLOW-16")
def test_functions_that_keep_all_their_connections_keep_no_verb_from_its_own(mine):
    """Functions beyond the number of connections wait for their turn."""

    async def story():
        claims = [await _claimed(mine) for _ in range(12)]
        at_it, go = [], asyncio.Event()

        async def wait(_given):
            at_it.append(1)
            await go.wait()

        sent = []
        for claim in claims:
            mine.claim = claim
            item = mine.item()
            sent.append(asyncio.ensure_future(mine.transact(item, mine.work(item, wait))))
        await until(lambda: len(at_it) == 8)
        assert (await mine.store.get(claims[0].id, ANY)).id == claims[0].id
        go.set()
        return [one.answer for one in await asyncio.gather(*sent)]

    assert mine.driver.run(story()) == ["applied"] * 12
    assert tally() == 12


async def _claimed(holder):
    await holder.store.start([NewRun(id=holder.driver.id(), type=TYPE)])
    (claim,) = await holder.store.claim(Ask(worker="w1", types=(TYPE,), limit=1, lease_seconds=LEASE))
    return claim


# Calls of the engine from inside, and what is left on a session.


@pytest.mark.spec("FLOW-16", "START-7")
@pytest.mark.parametrize("fails", [False, True])
def test_a_start_on_its_connection_is_a_part_of_it_and_any_other_call_is_refused(holder, fails):
    run = NewRun(id=holder.driver.id(), type=TYPE)

    async def starts(given):
        (started,) = await holder.store.start([run], given)
        assert started.created
        with pytest.raises(UsageError, match="called from inside the function of a transaction"):
            await holder.store.get(run.id, ANY)
        with pytest.raises(UsageError, match="called from inside the function of a transaction"):
            await holder.transact(holder.claim and holder.item(), None)
        if fails:
            raise OSError("not now")

    def starts_plain(given):
        with pytest.raises(StopIteration):
            holder.store.start([run], given).send(None)
        if fails:
            raise OSError("not now")

    item = holder.item()
    work = holder.work(item, starts_plain if holder.kind.is_sync else starts)
    if fails:
        with pytest.raises(OSError, match="not now"):
            holder.driver.run(holder.transact(item, work))
    else:
        holder.driver.run(holder.transact(item, work))
    assert ((holder.driver.get(run.id) is None), tally()) == (fails, 0 if fails else 1)


@pytest.mark.spec("FLOW-16")
def test_what_is_left_on_a_session_is_met_by_nobody(mine):
    """One session serves all functions, and is reset each time."""
    found = []

    async def leave(given):
        found.append(await given.fetchval("select pg_backend_pid()"))
        await given.execute("create temporary table left_over (n integer)")
        await given.execute("set search_path = nowhere; set work_mem = '7MB'; set application_name = 'x'")
        await given.execute("select pg_advisory_lock(7)")

    async def look(given):
        found.append(await given.fetchval("select pg_backend_pid()"))
        assert await given.fetchval("select to_regclass('pg_temp.left_over')") is None
        assert await given.fetchval("show search_path") == '"$user", public'
        assert await given.fetchval("show application_name") == "holdfast"
        assert not await given.fetchval("select count(*) from pg_locks where locktype = 'advisory'")

    async def codec(given):
        found.append(await given.fetchval("select pg_backend_pid()"))
        await given.set_type_codec("json", encoder=repr, decoder=len, schema="pg_catalog")

    async def no_codec(given):
        found.append(await given.fetchval("select pg_backend_pid()"))
        assert await given.fetchval("select '[1]'::json") == "[1]"

    async def story():
        for n, step in enumerate((leave, look, codec, no_codec)):
            item = mine.item()
            await mine.transact(item, mine.work(item, step, key=f"n{n}"))
            await until(partial(_is_free, mine.store))

    mine.driver.run(story())
    first, second, third, last = found
    assert first == second == third != last


def _is_free(store):
    (pool,) = store._guarded_pools.values()
    return pool._idle or not pool.sessions
