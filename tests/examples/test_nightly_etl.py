"""The nightly load: a schedule, 500 children under a limit, and a deploy of v2 while runs of v1 are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

import holdfast as hf
from tests.examples.processes import Processes, store_url
from tests.laws.effort import longer

SHOPS = 500
AT_ONCE = 50
GIVEN_UP = {"succeeded", "lease_expired", "released", "retried", "failed"}  # the lease is over


@pytest.fixture(params=["sqlite", *longer("postgres", "redis")])
def etl(request, tmp_path) -> Iterator[Processes]:
    processes = Processes(
        "nightly_etl", tmp_path, store_url(request, tmp_path), ETL_SHOPS=str(SHOPS), ETL_PACE="0.2"
    )
    yield processes
    processes.stop()


def children(etl, parent):
    return etl.store.list(hf.RunFilter(parent=parent), limit=1000)


def is_done(etl, run):
    return etl.store.get(run).status is hf.Status.SUCCEEDED


def most_at_once(etl, runs):
    """Return the most of these runs that were leased at the same time, by the trail."""
    at_once, most, after = set(), 0, 0
    while page := etl.store.trail(after=after, limit=1000):
        for entry in page:
            if entry.run in runs:
                if entry.type == "leased":
                    at_once.add(entry.run)
                elif entry.type in GIVEN_UP:
                    at_once.discard(entry.run)
            most = max(most, len(at_once))
        after = page[-1].seq
    return most


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_night_of_500_shops_survives_a_deploy_in_its_middle(etl):
    assert etl.start("-m", "etl").wait(60) == 0, etl.log
    first = etl.worker("etl:app", "--lease", "2s", ETL_VERSION="1")
    night = UUID(etl.cli("schedule", "fire", "nightly")["run"])
    etl.until(lambda: len(children(etl, night)) == SHOPS)
    open_at_deploy = {one.id for one in children(etl, night) if one.status is not hf.Status.SUCCEEDED}
    assert open_at_deploy
    etl.kill(first)  # the deploy: v2 is published, and finishes what v1 began
    etl.worker("etl:app", "--lease", "2s", ETL_VERSION="2")
    etl.until(lambda: is_done(etl, night))

    assert etl.store.get(night).result == {"shops": SHOPS, "rows": 3 * SHOPS}
    done = children(etl, night)
    assert len(done) == SHOPS
    assert {one.status for one in done} == {hf.Status.SUCCEEDED}
    assert {one.id for one in done} >= open_at_deploy
    assert Counter(one.type for one in done) == {"etl.shop.v1": SHOPS}, "a started run keeps its version"

    assert 1 < most_at_once(etl, {one.id for one in done}) <= AT_ONCE

    second = UUID(etl.cli("schedule", "fire", "nightly")["run"])
    etl.until(lambda: is_done(etl, second))
    assert {one.type for one in children(etl, second)} == {"etl.shop.v2"}
