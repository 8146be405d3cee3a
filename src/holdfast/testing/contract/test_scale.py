"""scale: the due runs of each type and tenant, and those that are executed."""

from __future__ import annotations

import pytest

from holdfast.contract import DUE_COUNTED, FOLD_SECONDS
from holdfast.records import SECOND, Chore, NewRun

from .driver import EPOCH, TYPE, listen, sleep

OTHER = "shop.refund.v1"


def shown(driver, **fields):
    """Return each item: type, tenant, due, how many seconds ago the oldest was due, leased."""
    answer = driver.scale(**fields)
    assert answer.now == driver.clock.now
    return [
        (
            one.type, one.tenant, one.due,
            None if one.oldest_due_at is None else (answer.now - one.oldest_due_at) / SECOND, one.leased,
        )
        for one in answer.items
    ]  # fmt: skip


@pytest.mark.spec("OPS-7")
def test_due_and_leased_runs_by_type_and_tenant(driver):
    """The age is that of the oldest due run, in whatever queue it is."""
    assert (driver.scale().items, driver.scale().more) == ((), False)
    driver.start(priority=500)
    driver.clock.turn(5)
    driver.start(priority=1, limit_key="k")
    driver.start(priority=7, limit_key="l")
    driver.start(tenant="acme")
    driver.start(OTHER, limit_key="k")
    driver.clock.turn(1)
    expected = [(TYPE, "acme", 1, 1.0, 0), (TYPE, "default", 3, 6.0, 0), (OTHER, "default", 1, 1.0, 0)]
    assert shown(driver) == sorted(expected)
    assert len(driver.claim(tenants=("default",))) == 3
    expected[1] = (TYPE, "default", 0, None, 3)
    assert shown(driver) == sorted(expected)
    driver.clock.turn(FOLD_SECONDS)
    driver.tick(only=Chore.COUNT)
    assert [one[:3] for one in shown(driver)] == [one[:3] for one in sorted(expected)]


@pytest.mark.spec("OPS-7")
def test_only_pending_runs_whose_time_has_come_are_due(driver):
    """Later, waiting, paused, deleted and ended runs are not."""
    driver.park(driver.held(), sleep(seconds=600.0))
    driver.park(driver.held(), listen())
    driver.complete(driver.held())
    driver.fail(driver.held())
    driver.pause(driver.start())
    driver.delete(driver.start())
    driver.cancel(driver.start())
    assert shown(driver) == []
    driver.start(delay_seconds=10.0)
    assert shown(driver) == []
    driver.clock.turn(10)
    assert shown(driver) == [(TYPE, "default", 1, 0.0, 0)]


@pytest.mark.spec("OPS-7")
def test_one_tenant_sees_its_own_runs(driver):
    driver.start(tenant="acme")
    driver.start()
    assert shown(driver, tenant="acme") == [(TYPE, "acme", 1, 0.0, 0)]
    assert shown(driver, tenant="nobody") == []


@pytest.mark.spec("OPS-7")
def test_an_answer_has_at_most_so_many_items(driver):
    for tenant in ("a", "b", "c"):
        driver.start(tenant=tenant)
    assert ([one[1] for one in shown(driver, limit=2)], driver.scale(limit=2).more) == (["a", "b"], True)
    assert ([one[1] for one in shown(driver, limit=3)], driver.scale(limit=3).more) == (
        ["a", "b", "c"],
        False,
    )
    assert (driver.scale(limit=0).items, driver.scale(limit=0).more) == ((), True)


@pytest.mark.spec("OPS-7")
def test_due_runs_are_counted_up_to_a_bound(driver):
    """`more` tells of the rest."""
    for part in range(0, DUE_COUNTED + 1, 1000):
        size = min(1000, DUE_COUNTED + 1 - part)
        driver.start_many([NewRun(id=driver.id(), type=TYPE, priority=5) for _ in range(size)])
    (one,) = driver.scale().items
    assert (one.due, one.more, one.oldest_due_at) == (DUE_COUNTED, True, EPOCH)
    driver.take(limit=1)
    (one,) = driver.scale().items
    assert (one.due, one.more, one.leased) == (DUE_COUNTED, False, 1)


@pytest.mark.spec("READ-4")
def test_the_overview_is_made_of_counts_and_scale(driver):
    driver.start(tenant="acme")
    driver.clock.turn(3)
    driver.start(OTHER)
    stats = driver.stats()
    assert {status: number for status, number in stats.by_status.items() if number} == {"pending": 2}
    assert (stats.oldest_due_at, stats.unclaimable) == (EPOCH, {TYPE: 1, OTHER: 1})
