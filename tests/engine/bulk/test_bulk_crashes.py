"""Bulk operations under crashes: none twice, none left out, after a crash at any store call."""

from __future__ import annotations

import pytest

from holdfast import BEGINNING, App, Fatal, RunFilter, Status
from holdfast.lifecycle import FINAL
from holdfast.records import ANY
from holdfast.testing import explore
from tests.laws.effort import longer

ORDERS = 3
WORDS = {
    "retry": "retried",
    "cancel": "cancelled",
    "pause": "paused",
    "rewind": "rewound",
    "delete": "deleted",
}


def shop():
    app = App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx, fails: bool) -> None:
        if fails:
            raise Fatal("out of stock")

    @app.workflow("shop.open.v1")
    async def open_(ctx) -> str:
        return "open"

    return app, order, open_


def operated(stage, order, verb):
    """Start orders and a bulk operation on them; return its report, and how often each order was moved."""
    # Delayed runs are not executed, so that the crashes concern the operation. Retried ones fail once more.
    fails = verb == "retry"
    runs = [stage.start(order, fails, delay=0 if fails else 3600) for _ in range(ORDERS)]
    for _ in range(30):
        stage.advance(1)
        if not fails or all(run.status is Status.FAILED for run in runs):
            break
    stage.advance(1)
    arguments = (BEGINNING,) if verb == "rewind" else ()
    bulk = getattr(stage.app.bulk, verb)
    handle = stage.do(bulk(RunFilter(type="shop.order.v1"), *arguments, rate=2))
    for _ in range(60):
        if stage.do(handle.get()).status in FINAL:
            break
        stage.advance(1)
    report = stage.do(handle.result(1))
    # the trail of a deleted run is shown in the audit of all tenants only
    moved = [row.run for row in stage.do(stage.app.trail(tenant=ANY, types=(WORDS[verb],)))]
    for one in stage.do(stage.app.list(RunFilter(type="shop.order.v1"))):
        if one.status not in FINAL:
            stage.do(stage.app.cancel(one.id))
    return report.done, report.refused, report.left_out, [moved.count(run.id) for run in runs]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("READ-3", "TEST-2")
@pytest.mark.parametrize(
    ("store", "verb"),
    [("memory", "retry"), *longer(("memory", "pause"), ("memory", "delete"), ("sqlite", "retry"))],
)
def test_a_bulk_operation_does_nothing_twice_after_a_crash_at_any_store_call(store, verb):
    """Also its report is the same after every crash, lost reply and repeated call."""
    app, order, open_ = shop()
    seen = []

    def script(stage, run):
        seen.append(operated(stage, order, verb))

    # Not checked: the orders end in different ways, depending on when they were moved.
    report = explore(open_, app=app, store=store, script=script, check=False)
    assert seen == [(ORDERS, {}, {}, [1] * ORDERS)] * report.plays
    assert report.plays > 50
