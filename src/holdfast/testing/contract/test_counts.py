"""Counts: every move keeps the numbers of runs right, and folding them is not visible."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.contract import FOLD_SECONDS, RATE_SECONDS
from holdfast.errors import UsageError
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, Chore, RunFilter, StepWrite

from .driver import EPOCH, MINUTE, TYPE, done, listen, sleep
from .lives import AGES, LIVES, OTHER, crashed_too_often


def counted(driver, tenant=ANY):
    """Return the kept counts by type and status. A count of 0 may be missing."""
    by_type = driver.counts(tenant).by_type
    return {
        (kind, status): number for kind, one in by_type.items() for status, number in one.items() if number
    }


def totals(driver, tenant=ANY, type=TYPE):
    return {what: number for what, number in driver.counts(tenant).totals.get(type, {}).items() if number}


def listed(driver, tenant=ANY):
    """Count the runs of all pages of a list."""
    found, after = Counter(), None
    while page := driver.run(driver.store.list(RunFilter(tenant=tenant), 1000, after)):
        found.update((run.type, run.status.value) for run in page)
        after = page[-1].id
    return dict(found)


def happened(driver, **fields):
    """Count the entries of the trail that are counted, as `Counted` calls them."""
    words = {"created": "started", "lease_expired": "expired"}
    counted = {"created", "lease_expired", "retried", "succeeded", "failed", "cancelled"}
    entries = [one for one in driver.trail(limit=100_000, **fields) if one.type in counted]
    of_runs = [one for one in entries if one.type != "cancelled" or "step" not in one.data]
    return dict(Counter(words.get(one.type, one.type) for one in of_runs))


def assert_counts(driver, *tenants):
    """Check the kept counts against the rows: for all tenants, for each, and by the store's own recount."""
    for tenant in (ANY, "default", *tenants):
        assert counted(driver, tenant) == listed(driver, tenant)
    assert driver.recount() == []
    kept, shown = driver.counts().by_status(), driver.stats().by_status
    assert {status: kept.get(status, 0) for status in Status} == shown


def fold(driver):
    """Fold everything that is old enough."""
    for _ in range(100):
        if not driver.tick(only=Chore.COUNT).folded:
            return
    raise AssertionError("there is always more to fold")


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("life", LIVES)
def test_every_move_keeps_the_counts_right(driver, life):
    """They agree with the rows, before and after changes are folded; so do the happenings with the trail."""
    statuses = LIVES[life](driver)
    assert Counter(driver.counts().by_status()) == Counter(statuses)
    assert_counts(driver)
    if "purge" not in life:  # a purge takes the trail away
        happenings = driver.counts().totals.values()
        assert sum(map(Counter, happenings), Counter()) == happened(driver)
    before, rates = driver.counts(), driver.rates()
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    after = driver.counts()
    assert (after.by_type, after.totals) == (before.by_type, before.totals)
    assert driver.rates() == rates or "purge" in life  # and old minutes may be gone
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_second_fold_finds_nothing_and_writes_nothing(driver):
    """`due` names the instant of the next fold, and names none when all is folded."""
    driver.held()
    at = driver.due().count_at
    assert at is None or at <= EPOCH + FOLD_SECONDS * 1_000_000
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    assert driver.due().count_at is None
    assert (driver.tick(only=Chore.COUNT).folded, driver.tick().folded) == (0, 0)
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_each_tenant_has_its_own_counts(driver):
    """The counts of all tenants are their sum."""
    driver.start(tenant="acme")
    driver.start(tenant="acme", type=OTHER)
    driver.complete(driver.take(driver.start(), tenants=("default",)))
    assert counted(driver, "acme") == {(TYPE, "pending"): 1, (OTHER, "pending"): 1}
    assert counted(driver, "default") == {(TYPE, "succeeded"): 1}
    assert counted(driver, "nobody") == {}
    assert (totals(driver, "acme"), totals(driver, "nobody")) == ({"started": 1}, {})
    assert_counts(driver, "acme", "nobody")
    assert [row[1:] for row in driver.rates("acme")] == [(TYPE, "started", 1), (OTHER, "started", 1)]
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    assert_counts(driver, "acme", "nobody")


@pytest.mark.spec("OPS-2")
def test_rates_are_counted_in_the_minute_of_the_commit(driver):
    """By the store's clock. Minutes in which nothing has happened are left out."""
    driver.clock.now = MINUTE + 59_999_999
    driver.start()
    driver.clock.now += 1
    claim = driver.take()
    driver.fail(claim)
    driver.retry_run(claim.id)
    driver.clock.turn(120)
    driver.complete(driver.take())
    every = [
        (0, TYPE, "started", 1), (1, TYPE, "failed", 1), (1, TYPE, "retried", 1), (3, TYPE, "succeeded", 1),
    ]  # fmt: skip
    for _ in range(2):
        assert driver.rates() == every
        assert driver.rates(since=MINUTE + 60_000_000) == every[1:]
        assert driver.rates(since=MINUTE + 119_999_999) == every[1:]
        assert driver.rates(until=MINUTE + 119_999_999) == every[:3]
        assert driver.rates(until=MINUTE) == every[:1]
        assert driver.rates(limit=2) == every[:2]
        assert driver.rates(limit=0) == []
        driver.clock.turn(FOLD_SECONDS)
        fold(driver)
    driver.clock.now = MINUTE  # it has gone back
    assert driver.rates() == every


@pytest.mark.spec("OPS-2")
def test_expired_leases_are_counted(driver):
    """A run that fails by its crashes counts as both."""
    crashed_too_often(driver)
    assert totals(driver) == {"started": 1, "expired": 4, "failed": 1}


@pytest.mark.spec("OPS-2")
def test_happenings_stay_when_their_runs_are_gone(driver):
    """A deleted, restored, rewound or purged run takes nothing away, and starts or ends nothing."""
    claim = driver.held(ttl_seconds=60.0)
    driver.checkpoint(claim)
    driver.complete(claim)
    driver.rewind(claim.id, "first")
    driver.complete(driver.take(claim.id), done("other"))
    open_run = driver.start(delay_seconds=AGES)
    for run in (claim.id, open_run):
        driver.delete(run)
        driver.restore(run)
        driver.delete(run)
    assert totals(driver) == {"started": 2, "succeeded": 2}
    driver.clock.turn(RATE_SECONDS / 2)
    while driver.purge(ttl_seconds=0.0, deleted_seconds=0.0).total:
        pass
    assert totals(driver) == {"started": 2, "succeeded": 2}
    assert [row[1:] for row in driver.rates()] == [(TYPE, "started", 2), (TYPE, "succeeded", 2)]
    assert counted(driver) == {}


@pytest.mark.spec("OPS-2")
def test_a_wait_that_is_given_up_is_no_cancelled_run(driver):
    claim = driver.held()
    driver.park(claim, listen("a"), sleep(seconds=60.0))
    driver.clock.turn(60)
    driver.tick()
    given_up = StepWrite(key="a", kind=StepKind.EVENT, status=StepStatus.CANCELLED)
    driver.checkpoint(driver.take(claim.id), given_up)
    assert "cancelled" in driver.told(claim.id)
    assert totals(driver) == {"started": 1}


@pytest.mark.spec("READ-4")
def test_a_refused_write_changes_no_count(driver):
    """Neither does a repeated one."""
    claim = driver.held()
    item = driver.item(claim, "complete")
    driver.send(item)
    before = driver.counts(), driver.rates()
    driver.send(item)
    driver.complete(claim)
    assert (driver.counts(), driver.rates()) == before


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("since", [None, "x", 1.5, 1 << 70])
def test_an_instant_that_no_store_can_keep_is_refused(driver, since):
    with pytest.raises(UsageError, match="since"):
        driver.rates(since=since)
