"""A worker over HTTP executes runs as one at the store does: the same engine, the same record."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Scope
from tests.remote.kit import Serving, ended, shop, until, working


@pytest.mark.spec("HTTP-3")
async def test_a_run_with_waits_children_and_a_gate_is_executed_over_http(server, app):
    @app.workflow("shop.child.v1")
    async def child(ctx, n: int):
        return n + 1

    @app.workflow("shop.all.v1")
    async def all_(ctx, n: int):
        doubled = await ctx.step("double", lambda: 2 * n)
        await ctx.sleep(0.05)
        paid = await ctx.await_event("paid")
        started = await ctx.start(child, 1)
        called = await ctx.call("shop.child", 2)
        gate = await ctx.approval("boss", ask="Ship?", data={"n": n})
        mapped = await ctx.map("square", lambda one: one * one, [1, 2, 3])
        return [doubled, paid.payload, str(started), called, gate.approved, mapped]

    async with working(app):
        run = await app.start(all_, 2**60)
        await app.emit("paid", {"euro": 9007199254740993, "ä": "\U0001f680"})
        await until(lambda: server.store.approvals(ANY))
        await app.approve(run.id)
        doubled, paid, started, called, approved, mapped = await run.result(30)
        assert (doubled, called, approved, mapped) == (2**61, 3, True, [1, 4, 9])
        assert paid == {"euro": 9007199254740993, "ä": "\U0001f680"}
        assert (await ended(app, started))[0].result == 2
        assert (await app.get(started)).parent == run.id


@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_code_gets_the_id_that_the_server_has_made_for_a_child(app, checkpoint):
    """Also without a wait after it, and when the code is executed again under the same lease."""
    seen = []

    @app.workflow("shop.parent.v1", checkpoint=checkpoint, retry=hf.Backoff.fixed(0, attempts=2))
    async def parent(ctx):
        seen.append(await ctx.start("shop.order.v1", 1))
        if len(seen) == 1:
            raise RuntimeError("once more")
        return str(seen[-1])

    async with working(app):
        run = await app.start(parent)
        child = await run.result(30)
        assert [str(one) for one in seen] == [child, child]
        assert (await ended(app, child))[0].parent == run.id


@pytest.mark.spec("HTTP-3")
async def test_a_chain_a_plan_and_a_budget_work_over_http(app):
    @app.workflow("shop.count.v1", budget=10.0)
    async def count(ctx, left: int):
        await ctx.step("pay", lambda: ctx.cost(1.5))
        if left:
            ctx.continue_as(left - 1)
        return "counted"

    plan = app.plan("shop.fulfil.v1", [hf.Task("PICK"), hf.Sleep("REST", 0.05), hf.Task("SHIP")])

    @plan.task("PICK")
    def pick(task):
        return task.params

    @plan.task("SHIP")
    async def ship(task):
        return f"{task.outputs['PICK']} shipped"

    async with working(app):
        counted, fulfilled = await app.start(count, 2), await app.start(plan, "book")
        assert await counted.result(30) == "counted"
        assert await fulfilled.result(30) == "book shipped"
        last = await app.present(counted.id)
        assert (last.id != counted.id, last.cost, last.budget) == (True, 4.5, 10.0)


async def test_a_plan_that_was_started_before_it_was_published_gets_its_rows(server, app):
    plan = app.plan("shop.late.v1", [hf.Task("ONLY")])

    @plan.task("ONLY")
    def only(task):
        return "done"

    async with server.client() as client:
        run = await client.start("shop.late.v1")
    async with working(app):
        assert (await ended(app, run.id))[0].result == "done"


@pytest.mark.spec("LEASE-2")
async def test_several_workers_share_the_runs_of_one_server_and_execute_each_once(server):
    apps = [shop(server.url) for _ in range(3)]
    runs = [one.id for one in await apps[0].start_many([("shop.order.v1", n) for n in range(60)])]
    workers = [one.worker(slots=5, grace=0) for one in apps]
    for one in workers:
        await one.__aenter__()
    found = await ended(apps[0], *runs)
    for one in workers:
        await one.stop()
    for one in apps:
        await one.close()
    assert [one.result for one in found] == list(range(60))
    ran = sorted(name for one in apps for name in one.ran)
    assert ran == sorted(f"{what} {n}" for what in ("charge", "ship") for n in range(60))
    assert all(one.ran for one in apps), "each worker has done some"


@pytest.mark.spec("CANC-6")
async def test_a_cancel_reaches_a_running_step_within_a_second(app):
    async with working(app):
        run = await app.start("shop.held.v1", 60)
        await until(lambda: "begun" in app.ran)
        await asyncio.sleep(0.6)  # the watch begins when a lease is old enough
        await run.cancel()
        await until(lambda: "interrupted" in app.ran, 3)  # a heartbeat would come after ten seconds
        assert (await run.get()).status is Status.CANCELLED
    assert not app.store.book.all()


async def test_a_pause_takes_effect_at_the_next_step(server, app):
    async with working(app):
        run = await app.start("shop.held.v1", 0.5)
        await until(lambda: "begun" in app.ran)
        await app.pause(run.id)
        await until(lambda: server.store.get(run.id, ANY).status is Status.PAUSED)
        assert app.ran == ["begun", "ended"]
        await app.resume(run.id)
        assert await run.result(30) == "after"
        assert app.ran == ["begun", "ended", "after"]


async def test_an_event_reaches_a_branch_that_waits_beside_a_running_step(app):
    @app.workflow("shop.both.v1")
    async def both(ctx):
        async def slow():
            await asyncio.sleep(8)

        async def waits():
            await ctx.await_event("parcel")
            app.ran.append("heard")

        branch = asyncio.ensure_future(waits())
        step = asyncio.ensure_future(ctx.step("slow", slow))
        await branch
        step.cancel()
        return "heard"

    async with working(app):
        run = await app.start(both)
        await asyncio.sleep(0.5)
        await app.emit("parcel")
        await until(lambda: "heard" in app.ran, 5)  # a heartbeat would come after ten seconds
        assert await run.result(30) == "heard"


@pytest.mark.spec("HTTP-3")
async def test_a_transaction_and_a_start_in_ones_own_transaction_are_refused_in_one_line(app):
    @app.workflow("shop.paid.v1")
    async def paid(ctx):
        await ctx.transaction(lambda _: None, name="write")

    async with working(app):
        run = await app.start(paid)
        (found,) = await ended(app, run.id)
        assert (found.status, found.error.kind) == (Status.FAILED, "usage")
        assert "ctx.transaction needs a worker at the store itself" in found.error.message
        with pytest.raises(UsageError, match="connection= needs the store itself"):
            await app.start(paid, connection=object())


def test_an_app_with_a_codec_does_not_work_over_http():
    with pytest.raises(UsageError, match="the server encrypts values"):
        hf.App("http://localhost:1", codec=hf.Compress())


async def test_verbs_that_need_the_store_are_refused_in_one_line(app):
    with pytest.raises(UsageError, match="purge needs the store itself"):
        await app.purge()
    await app.close()


async def test_function_sinks_are_not_served_and_the_worker_says_so(app, caplog):
    @app.sink("mail")
    def mail(delivery):
        raise AssertionError("never called")

    async with working(app) as worker:
        assert worker.relay.names == ()
    assert "delivers no messages to mail" in caplog.text


@pytest.mark.spec("TEN-4")
async def test_a_key_takes_runs_of_its_own_tenant_and_an_operator_those_of_all(tmp_path):
    with Serving(f"sqlite:///{tmp_path / 'runs.db'}", open=False) as server:
        everyone = server.key(*Scope, name="operator")
        acme = server.key(Scope.WORK, name="acme", tenant="acme")
        starter = shop(server.url, key=everyone)
        runs = {one: (await starter.start("shop.order.v1", 1, tenant=one)).id for one in ("acme", "other")}
        worker = shop(server.url, key=acme)
        async with working(worker):
            await until(lambda: "ship 1" in worker.ran)
            await asyncio.sleep(0.3)
        found = {name: server.store.get(run, ANY) for name, run in runs.items()}
        assert (found["acme"].status, found["other"].status) == (Status.SUCCEEDED, Status.PENDING)
        async with working(starter):
            assert (await ended(starter, runs["other"]))[0].result == 1
        with pytest.raises(UsageError, match="the API key is of tenant 'acme'"):
            async with working(shop(server.url, key=acme), tenants=["other"]):
                pass
        with pytest.raises(UsageError, match="one tenant, or of all"):
            async with working(shop(server.url, key=everyone), tenants=["acme", "other"]):
                pass


async def test_a_key_with_the_scope_work_alone_is_enough_for_children_chains_and_plans(tmp_path):
    with Serving(f"sqlite:///{tmp_path / 'runs.db'}", open=False) as server:
        app = shop(server.url, key=server.key(Scope.WORK, name="worker"))

        @app.workflow("shop.parent.v1")
        async def parent(ctx, left: int):
            await ctx.call("shop.order", 7)
            if left:
                ctx.continue_as(left - 1)
            return "end"

        plan = app.plan("shop.fulfil.v1", [hf.Task("ONE"), hf.Task("TWO")])

        @plan.task("ONE")
        def one(task):
            return 1

        async with server.client(key=server.key(*Scope, name="starter")) as client:
            chain, lacking = await client.start("shop.parent.v1", 1), await client.start("shop.fulfil.v1")
            async with working(app):
                assert await chain.result(30) == "end"
                assert (await client.get(lacking.id)).status is Status.PENDING
