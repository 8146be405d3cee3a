"""Outlines: the runs of a list, with a few fields of each."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from holdfast.contract import OUTLINES_MAX
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, RunFilter, moment
from holdfast.records.shown import outline

from .chains import chain
from .driver import done

LARGE = '"' + "x" * 10_000 + '"'


def outlines(driver, limit=OUTLINES_MAX, after=None, **where):
    return [*driver.run(driver.store.outlines(RunFilter(**where), limit, after))]


@pytest.mark.spec("READ-1")
def test_an_outline_has_the_times_and_the_status_of_its_run(driver):
    """A time that has not come is None."""
    ended, running, waiting = driver.held(), driver.held(), driver.start()
    began = moment(driver.clock.now)
    for claim in (ended, running):
        driver.checkpoint(claim, done("a"), started_at=driver.clock.now)
    driver.clock.turn(5)
    driver.complete(ended)
    driver.pause(running.id)
    found = {one.id: one for one in outlines(driver)}
    assert [*found] == sorted([ended.id, running.id, waiting], reverse=True)
    first, second, third = (found[run] for run in (ended.id, running.id, waiting))
    assert (first.status, second.status, third.status) == (Status.SUCCEEDED, Status.LEASED, Status.PENDING)
    assert (first.started_at, first.finished_at) == (began, moment(driver.clock.now))
    assert (second.started_at, second.finished_at) == (began, None)
    assert (third.started_at, third.finished_at, third.created_at) == (None, None, began)
    assert [one.pause_asked for one in (first, second, third)] == [False, True, False]


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("tenant", ["default", ANY])
def test_outlines_have_the_pages_of_a_list(driver, tenant):
    """They are for one tenant or for all, with and without a status, and after a cursor."""
    for n in range(5):
        driver.start(tenant="other" if n == 2 else "default")
    driver.complete(driver.claim(1)[0])
    for where in ({}, {"statuses": (Status.PENDING,)}, {"statuses": (Status.PENDING, Status.SUCCEEDED)}):
        filter_ = RunFilter(tenant=tenant, **where)
        listed, after = [], None
        while page := driver.run(driver.store.list(filter_, 2, after)):
            assert outlines(driver, 2, after, tenant=tenant, **where) == [*map(outline, page)]
            listed, after = [*listed, *page], page[-1].id
        assert outlines(driver, 2, after, tenant=tenant, **where) == []
        assert outlines(driver, tenant=tenant, **where) == [*map(outline, listed)]
        assert outlines(driver, 0, tenant=tenant, **where) == []


@pytest.mark.spec("READ-1")
def test_the_outline_of_a_run_in_a_chain_names_the_present_run(driver):
    """This holds for the first run of the chain and for a later one."""
    ids, _ = chain(driver, 3)
    alone = driver.start()
    found = {one.id: one.present for one in outlines(driver)}
    assert found == {**dict.fromkeys(ids, ids[-1]), alone: alone}


@pytest.mark.spec("READ-1")
def test_large_values_end_no_page_of_outlines(driver):
    """Outlines are as small as any others."""
    for _ in range(3):
        driver.start(params=LARGE)
    claim = driver.claim()[0]
    driver.checkpoint(claim, done("a", output=LARGE))
    driver.complete(claim, result=LARGE)
    with patch("holdfast.bounds.BATCH_BYTES", 1_000):
        assert len(outlines(driver)) == len(outlines(driver, tenant=ANY)) == 3


@pytest.mark.spec("READ-1")
def test_a_deleted_run_has_an_outline_only_when_it_is_asked_for(driver):
    """As in a list."""
    kept, deleted = driver.start(), driver.start()
    driver.delete(deleted)
    assert [one.id for one in outlines(driver)] == [kept]
    assert [one.id for one in outlines(driver, deleted=True)] == [deleted, kept]


@pytest.mark.spec("READ-1")
def test_one_call_returns_a_bounded_number_of_outlines(driver):
    """A higher limit is refused."""
    driver.start()
    assert len(outlines(driver, OUTLINES_MAX)) == 1
    with pytest.raises(UsageError, match="at most 1,000"):
        outlines(driver, OUTLINES_MAX + 1)
