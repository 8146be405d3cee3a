"""Bulk operations: one verb on every run that a filter matches."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from holdfast import ANY, App, BulkReport, RunFilter, Status, UsageError
from holdfast.engine.bulk.asked import BULK_TYPE, OPERATOR_TENANT
from holdfast.engine.worker.worker import Worker
from holdfast.records import instant
from tests.engine.bulk.orders import failed_orders, retries, shop
from tests.engine.kit import process, until

FAILED = RunFilter(statuses=(Status.FAILED,))


async def times(app, runs):
    """Return when the runs were retried, in order."""
    rows = [await app.trail(run.id, types=("retried",)) for run in runs]
    return sorted(instant(row[0].at) for row in rows)


@pytest.mark.spec("READ-3")
async def test_failed_runs_are_retried_once_each_at_an_even_pace(app):
    order, calls, mended = shop(app)
    runs = await failed_orders(app, order, 30)
    mended.append(True)
    async with app.worker():
        bulk = await app.bulk.retry(FAILED, rate=10, by="ann")
        report = await bulk.result(60)
        for run in runs:
            await until(app, run, Status.SUCCEEDED)
    assert report == BulkReport(done=30)
    assert await retries(app, runs) == [1] * 30
    at = await times(app, runs)
    gaps = [late - soon for soon, late in pairwise(at)]
    assert min(gaps) >= 99_999
    assert at[-1] - at[0] < 4_000_000
    entry = (await app.trail(runs[0].id, types=("retried",)))[0]
    assert entry.data["by"] == f"ann (bulk {str(bulk.id)[-8:]})"
    assert sorted(calls) == sorted([*range(30), *range(30)])


@pytest.mark.spec("READ-4")
async def test_the_counts_are_right_after_bulk_operations(app):
    """Those of the runs, and those of the operations themselves, which are runs too."""
    order, _, mended = shop(app)
    await failed_orders(app, order, 6)
    mended.append(True)
    async with app.worker():
        assert (await (await app.bulk.retry(FAILED)).result(60)).done == 6
        later = [await app.start(order, n, delay=3600) for n in range(4)]
        await asyncio.sleep(1)  # it takes runs that have not changed since it began
        assert (await (await app.bulk.cancel(RunFilter(statuses=(Status.PENDING,)))).result(60)).done == 4
        await asyncio.sleep(1)
        assert (await (await app.bulk.delete(RunFilter(type=order.type))).result(60)).done == 10
    assert len(later) == 4
    assert list(await app.recount()) == []
    counts = await app.counts()
    assert counts.by_type == {BULK_TYPE: {"succeeded": 3}}
    assert counts.totals[order.type] == {
        "started": 10, "failed": 6, "retried": 6, "succeeded": 6, "cancelled": 4,
    }  # fmt: skip


@pytest.mark.spec("READ-3")
async def test_a_worker_executes_bulk_operations_whatever_its_patterns(app):
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 3)
    async with App(app.store, name="other", world=app.world).worker(patterns=("nothing.%",)):
        bulk = await app.bulk.delete(RunFilter())
        assert (await bulk.result(60)).done == 3
    assert [await app.get(run.id) for run in runs] == [None] * 3
    assert [one.type for one in await app.list()] == [BULK_TYPE]


@pytest.mark.spec("READ-3", "LEASE-15")
async def test_a_worker_without_workflows_looks_after_hints_at_most_once_a_second(app):
    """A server of the HTTP API has such a worker: it must not look after every start."""
    order, _, _ = shop(app)
    store, looks = app.store, []

    async def claim(ask):
        looks.append(ask.types)
        return await type(store).claim(store, ask)

    store.__dict__["claim"] = claim
    async with Worker(store, app.world, {}, name="serve", keeper=False, relay=False):
        await asyncio.sleep(5)
        looks.clear()
        for _ in range(100):
            await app.start(order, 1)
            await asyncio.sleep(0.02)
        assert len(looks) <= 6  # in two seconds, with polls that come sooner while it is new
        bulk = await app.bulk.cancel(RunFilter())
        assert (await bulk.result(60)).done == 100


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("cancel", Status.WAITING, Status.CANCELLED),
        ("pause", Status.WAITING, Status.PAUSED),
        ("resume", Status.PAUSED, Status.WAITING),
        ("rewind", Status.WAITING, Status.WAITING),
    ],
)
async def test_the_verb_is_applied_to_all_runs_that_it_can_change(app, verb, before, after):
    """Runs in another status are not even listed; a rewound run waits once more."""

    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        await ctx.step("first", lambda: 1)
        await ctx.await_event("go")

    @app.workflow("shop.end.v1")
    async def end(ctx):
        return 1

    async with app.worker():
        ended = await app.start(end)
        runs = [await app.start(wait) for _ in range(5)]
        for run in runs:
            await until(app, run, Status.WAITING)
            if before is Status.PAUSED:
                await app.pause(run.id)
        await asyncio.sleep(1)
        step = ("first",) if verb == "rewind" else ()
        where = RunFilter(type="shop.wait.v1") if verb == "rewind" else RunFilter()
        preview = await app.bulk.preview(where, verb)
        assert (preview.count, preview.shown, preview.more) == (5, "5", False)
        assert {run.id for run in preview.sample} == {run.id for run in runs}
        report = await (await getattr(app.bulk, verb)(where, *step)).result(60)
        assert report == BulkReport(done=5)
        for run in runs:
            await until(app, run, after)
        assert (await app.get(ended.id)).status is Status.SUCCEEDED
        if verb == "rewind":
            assert [len(await app.trail(run.id, types=("rewound",))) for run in runs] == [1] * 5


@pytest.mark.spec("READ-3")
async def test_refusals_are_counted_by_reason_with_a_few_ids(app):
    order, _, mended = shop(app)
    mended.append(True)
    runs = [await app.start(order, n) for n in range(7)]
    async with app.worker():
        for run in runs:
            await until(app, run)
        await asyncio.sleep(1)
        every = RunFilter(type="shop.%")
        retry = await (await app.bulk.retry(RunFilter(type="shop.%", statuses=(Status.SUCCEEDED,)))).result(
            60
        )
        rewind = await (await app.bulk.rewind(every, "nope")).result(60)
    assert (retry.done, retry.refused) == (0, {"cannot retry: it is succeeded": 7})
    assert len(retry.sample["cannot retry: it is succeeded"]) == 5
    assert (rewind.done, rewind.refused) == (0, {"it has no step 'nope'": 7})


@pytest.mark.spec("READ-3")
async def test_an_operation_never_takes_bulk_operations(app):
    """Not even when its filter names their type."""
    first = await app.bulk.pause(RunFilter())
    await asyncio.sleep(1)
    async with app.worker():
        second = await app.bulk.cancel(RunFilter(type=BULK_TYPE))
        assert await second.result(60) == BulkReport()
        assert await first.result(60) == BulkReport()


@pytest.mark.spec("READ-3", "FLOW-24")
async def test_a_chain_is_taken_by_its_present_run(app):
    """Earlier runs of a chain have succeeded: deleting succeeded runs leaves an open chain alone."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int = 0):
        if n < 3:
            ctx.continue_as(n + 1)
        await ctx.await_event("stop")

    async with app.worker():
        run = await app.start(loop)
        while (await app.present(run.id)).status is not Status.WAITING:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        succeeded = RunFilter(type="shop.%", statuses=(Status.SUCCEEDED,))
        preview = await app.bulk.preview(succeeded)
        assert (preview.count, preview.sample) == (0, ())
        assert await (await app.bulk.delete(succeeded)).result(60) == BulkReport()
        assert await (await app.bulk.cancel(RunFilter(type="shop.%"))).result(60) == BulkReport(done=1)
        assert (await app.present(run.id)).status is Status.CANCELLED


@pytest.mark.spec("READ-3")
async def test_the_sample_of_a_preview_passes_over_runs_that_are_not_taken(app):
    """Earlier runs of a chain lie between those that are taken."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int = 0):
        if n < 3:
            ctx.continue_as(n + 1)

    @app.workflow("shop.end.v1")
    async def end(ctx):
        return 1

    taken = []
    async with app.worker():
        for workflow in (end, loop, end, end, loop, end, end):
            run = await app.start(workflow)
            while (present := await app.present(run.id)).status is not Status.SUCCEEDED:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)
            taken.append(present.id)
    where = RunFilter(type="shop.%", statuses=(Status.SUCCEEDED,))
    preview = await app.bulk.preview(where, "delete")
    newest = sorted(taken, reverse=True)[:5]
    assert (preview.count, [run.id for run in preview.sample]) == (7, newest)
    assert [run.params_json for run in preview.sample] == ["null"] * 5


@pytest.mark.spec("READ-3")
async def test_an_operation_is_stopped_by_a_pause_and_goes_on_after_resume(app):
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 40)
    async with app.worker(patterns=("none.%",)):
        bulk = await app.bulk.retry(FAILED, rate=10)
        await asyncio.sleep(1.5)
        await app.pause(bulk.id)
        stopped = await until(app, bulk, Status.PAUSED)
        done = sum(await retries(app, runs))
        await asyncio.sleep(60)
        assert sum(await retries(app, runs)) == done == stopped.progress["done"]
        assert (0 < done < 40, stopped.progress["total"]) == (True, 40)
        await app.resume(bulk.id)
        assert await bulk.result(60) == BulkReport(done=40)
    assert await retries(app, runs) == [1] * 40


@pytest.mark.spec("READ-3")
async def test_after_a_kill_another_worker_finishes_the_operation(app):
    """None twice, none left out, all counted, and never faster than the rate."""
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 60)
    bulk = await app.bulk.retry(FAILED, rate=20)
    for seed in range(3):
        worker = await process(app, seed, patterns=("none.%",), lease=3)
        await asyncio.sleep(1.23)
        worker.kill()
    async with app.worker(patterns=("none.%",)):
        assert await bulk.result(60) == BulkReport(done=60)
    assert await retries(app, runs) == [1] * 60
    at = await times(app, runs)
    assert all(late - soon >= 950_000 for soon, late in zip(at, at[20:], strict=False))


@pytest.mark.spec("READ-3")
async def test_a_large_operation_is_a_chain_whose_report_is_whole(app, monkeypatch):
    from holdfast.engine.bulk import workflow

    monkeypatch.setattr(workflow, "PAGES", 2)
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 25)
    async with app.worker(patterns=("none.%",)):
        bulk = await app.bulk.retry(FAILED, rate=5)
        assert await bulk.result(60) == BulkReport(done=25)
    last = await app.present(bulk.id)
    assert last.id != bulk.id
    assert await retries(app, runs) == [1] * 25
    rows = [(await app.trail(run.id, types=("retried",)))[0] for run in runs]
    assert {row.data["by"] for row in rows} == {f"(bulk {str(bulk.id)[-8:]})"}


@pytest.mark.spec("READ-3", "TEN-6")
async def test_an_operation_belongs_to_the_tenant_of_its_asker_and_touches_no_other(app):
    order, _, _ = shop(app)
    ours = await failed_orders(app, order, 2, tenant="acme")
    theirs = await failed_orders(app, order, 2, tenant="beta")
    acme = app.of("acme")
    async with app.worker():
        assert (await acme.bulk.preview(FAILED)).count == 2
        bulk = await acme.bulk.retry(FAILED)
        assert (await bulk.result(60)).done == 2
        assert (await app.get(bulk.id)).tenant == "acme"
        with pytest.raises(UsageError, match="bound to tenant 'acme'"):
            await acme.bulk.retry(RunFilter(tenant=ANY))
    assert (await retries(app, ours), await retries(app, theirs)) == ([1, 1], [0, 0])


@pytest.mark.spec("READ-3", "TEN-6")
async def test_all_tenants_are_touched_only_when_asked_for(app):
    """Such an operation belongs to no tenant: its report names runs of all."""
    order, _, _ = shop(app)
    runs = [
        *await failed_orders(app, order, 2, tenant="acme"),
        *await failed_orders(app, order, 2, tenant="beta"),
    ]
    async with app.worker():
        assert (await (await app.bulk.retry(FAILED)).result(60)).done == 0
        every = await app.bulk.retry(RunFilter(tenant=ANY))
        assert (await every.result(60)).done == 4
    assert await retries(app, runs) == [1] * 4
    assert (await app.get(every.id)).tenant == OPERATOR_TENANT
    assert await app.of("default").get(every.id) is None
    for name in (OPERATOR_TENANT, "holdfast.x"):
        with pytest.raises(UsageError, match="belong to the engine"):
            app.of(name)
        with pytest.raises(UsageError, match="belong to the engine"):
            await app.start(order, 1, tenant=name)


@pytest.mark.spec("READ-3")
async def test_names_of_the_engine_are_reserved(app):
    with pytest.raises(UsageError, match="belong to the engine"):

        @app.workflow("holdfast.mine.v1")
        async def mine(ctx): ...

    with pytest.raises(UsageError, match="belong to the engine"):
        await app.start(BULK_TYPE, {"verb": "delete", "where": {}})
    with pytest.raises(UsageError, match="belong to the engine"):
        await app.schedule("nightly", BULK_TYPE, {"verb": "delete", "where": {}}, every=60)


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda bulk: bulk.retry(None), "is not a filter"),
        (lambda bulk: bulk.retry(RunFilter(deleted=True)), "takes no deleted runs"),
        (lambda bulk: bulk.retry(RunFilter(), rate=0), "rate is 0: give a whole number from 1 to 10,000"),
        (lambda bulk: bulk.retry(RunFilter(), rate=True), "rate is True"),
        (lambda bulk: bulk.rewind(RunFilter(), ""), "not a step's name"),
        (lambda bulk: bulk.cancel(RunFilter(type=7)), "type"),
        (lambda bulk: bulk.preview(RunFilter(), "explode"), "'explode' is not a verb of bulk operations"),
        (lambda bulk: bulk.cancel(RunFilter(tenant=None)), "tenant is None"),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_starts(app, wrong, why):
    with pytest.raises(UsageError, match=why):
        await wrong(app.bulk)
    assert await app.list(RunFilter(tenant=ANY)) == []


@pytest.mark.spec("READ-3")
async def test_an_operation_cannot_be_repeated(app):
    bulk = await app.bulk.retry(FAILED)
    with pytest.raises(UsageError, match="is a bulk operation, which cannot be repeated: start a new one"):
        await app.rerun(bulk.id)


@pytest.mark.spec("READ-3", "START-3")
async def test_with_a_key_a_second_call_returns_the_first_operation(app):
    one, two = [await app.bulk.retry(FAILED, key="mend") for _ in range(2)]
    assert (one.id, one.created, two.created) == (two.id, True, False)


@pytest.mark.spec("READ-3")
async def test_an_unknown_filter_of_a_newer_version_is_refused_and_not_ignored(app):
    from holdfast.engine.bulk.asked import Bulk, BulkVerb
    from holdfast.engine.bulk.workflow import BULK

    async with app.worker():
        run = await app.start(BULK, Bulk(verb=BulkVerb.DELETE, where={"moon": "full"}))
        ended = await until(app, run)
    assert (ended.status, ended.error.message) == (
        Status.FAILED,
        "this worker does not know the filter 'moon': a newer version started this run",
    )


@pytest.mark.spec("READ-3")
async def test_every_field_of_a_filter_survives_the_way_through_json(app):
    from holdfast.engine.bulk.asked import Bulk, BulkVerb, filter_of, written

    where = RunFilter(
        statuses=(Status.FAILED, Status.PAUSED), type="shop.%", key="k", parent=app.world.uuid7()
    )
    bulk = Bulk(verb=BulkVerb.DELETE, where=written(where))
    again = filter_of(bulk, "acme")
    assert again == RunFilter(
        statuses=where.statuses, type="shop.%", key="k", parent=where.parent, tenant="acme", values=False
    )
