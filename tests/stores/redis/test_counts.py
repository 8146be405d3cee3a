"""Kept counts on Redis: damage and repair, recounts beside other writers, and hours that expire."""

from __future__ import annotations

import pytest

from holdfast.contract import RATE_SECONDS
from holdfast.errors import StoreError
from holdfast.records import ANY, Ask, Miscount, NewRun
from holdfast.stores.redis.batches import IN_SCRIPT
from holdfast.stores.redis.verbs import counts
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.test_counts import assert_counts
from servers.redis_store import server

HOURS = 3600


def key(driver, *parts):
    return driver.store._names(*parts)


@pytest.fixture
def client():
    with server().client() as client:
        yield client


def spoil(client, driver, number, *keys, status="pending"):
    for name in keys:
        client.hset(key(driver, *name), f"{TYPE}:{status}", number)


def wrong(tenant, kept, real, status="pending"):
    return Miscount(tenant=tenant, type=TYPE, status=status, kept=kept, real=real)


@pytest.mark.spec("READ-4")
def test_a_wrong_count_is_found_and_repaired(driver, client):
    driver.start()
    spoil(client, driver, 7, ("counts",), ("counts", "default"))
    assert driver.recount() == [wrong("default", 7, 1)]
    assert driver.counts().by_status() == {"pending": 7}
    assert driver.recount(repair=True) == [wrong("default", 7, 1)]
    assert driver.recount() == []
    assert_counts(driver)


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("count", ["1.5", "007", "0x10", "9" * 19])
def test_a_count_that_another_program_has_spoilt_leaves_no_run_half_written(driver, client, count):
    """The server adds to whole numbers only, and would say so after other writes."""
    driver.start()
    spoil(client, driver, count, ("counts",))
    for start in (driver.start, lambda: driver.start(tenant="other", key="k")):
        with pytest.raises(StoreError, match="is no number"):
            start()
    assert client.zcard(key(driver, "trail")) == client.zcard(key(driver, "runs")) == 1


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize(
    ("spoilt", "found"),
    [
        (("counts",), [wrong("", 7, 1)]),
        (("counts", "default"), [wrong("", 1, 7), wrong("default", 7, 1)]),
    ],
)
def test_the_count_of_all_tenants_is_wrong_when_the_tenants_do_not_explain_it(driver, client, spoilt, found):
    driver.start()
    spoil(client, driver, 7, spoilt)
    assert driver.recount() == found
    assert driver.recount(repair=True) == found
    assert driver.recount() == []
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_counts_of_runs_that_are_gone_are_repaired(driver, client):
    driver.start()
    spoil(client, driver, 3, ("counts",), ("counts", "default"), status="failed")
    client.hset(key(driver, "counts", "default"), "no:such", 0)  # a count of 0 is none
    assert driver.recount(repair=True) == [wrong("default", 3, 0, "failed")]
    assert driver.recount() == []


class Stepwise(counts.Recount):
    """A recount that stops after each page, for others to write."""

    between = staticmethod(lambda: None)

    async def _run(self, what, *words):
        answer = await super()._run(what, *words)
        if what == "page":
            await self.between()
        return answer


@pytest.mark.slow
@pytest.mark.spec("READ-4")
def test_runs_that_move_during_a_recount_are_counted_once(driver, client, monkeypatch):
    """Behind and before its cursor: claims, completes, starts, deletes, purges."""
    for _ in range(12):
        driver.start(ttl_seconds=1.0)
    spoil(client, driver, 99, ("counts",), ("counts", "default"), status="failed")
    monkeypatch.setattr(counts, "RUNS", 2)
    monkeypatch.setattr(counts, "Recount", Stepwise)
    store, pages = driver.store, []

    async def between():
        pages.append(len(pages))
        (claim,) = await store.claim(Ask(worker="w1", types=(TYPE,), limit=1))
        if len(pages) % 2:
            await store.commit([driver.item(claim, "complete")])
        await store.start([NewRun(id=driver.id(), type=TYPE)])
        if len(pages) == 3:
            driver.clock.turn(5)
            assert (await store.purge()).runs == 2
        if len(pages) == 4:
            await store.delete(claim.id, ANY)

    monkeypatch.setattr(Stepwise, "between", staticmethod(between))
    assert driver.recount(repair=True) == [wrong("default", 99, 0, "failed")]
    assert len(pages) > 5
    monkeypatch.setattr(Stepwise, "between", staticmethod(_nothing))
    assert driver.recount() == []
    assert_counts(driver)


async def _nothing():
    pass


@pytest.mark.spec("READ-4")
def test_a_recount_waits_for_another_and_leaves_nothing_behind(driver, client, monkeypatch):
    driver.start()
    monkeypatch.setattr(counts, "WAITS", 2)
    client.hset(key(driver, "recount"), mapping={"token": "other", "cursor": "done"})
    with pytest.raises(StoreError, match="others recount too"):
        driver.recount()
    client.delete(key(driver, "recount"))
    assert driver.recount() == []
    assert [*client.scan_iter(match=f"[{{]{driver.store.address.prefix}[}}]:recount*")] == []


@pytest.mark.spec("READ-4")
def test_hours_of_happenings_expire_and_nothing_else_does(driver, client):
    driver.complete(driver.held())
    hour = driver.clock.now - driver.clock.now % (HOURS * 1_000_000)
    for name in (("rates", str(hour)), ("rates", str(hour), "default")):
        assert RATE_SECONDS < client.ttl(key(driver, *name)) <= RATE_SECONDS + 4 * HOURS
    prefix = driver.store.address.prefix
    lasting = [name for name in client.scan_iter(match=f"[{{]{prefix}[}}]:*") if ":rates:" not in name]
    assert {client.ttl(name) for name in lasting} == {-1}


@pytest.mark.spec("READ-4")
def test_a_batch_of_starts_adds_to_each_count_once(driver, client):
    """However many runs there are in a script."""
    client.config_resetstat()
    driver.run(driver.store.start([NewRun(id=driver.id(), type=TYPE) for _ in range(IN_SCRIPT)]))
    calls = client.info("commandstats")
    assert calls["cmdstat_hincrby"]["calls"] == 6  # runs and starts, and the minute; all tenants and one
