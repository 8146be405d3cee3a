"""The verbs of the client answer as those of an app: every one of them, against a real server."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

import holdfast as hf
from holdfast.records import ANY, OWN
from tests.client.kit import ALL, EVERY, Serving, shop

ODD = {
    "big": 2**80,
    "whole": 1.0,
    "minus": -0.0,
    "text": "\u2028é\n👍",
    "list": [],
    "none": None,
    "exp": 1e16,
}


@dataclass
class Order:
    id: int
    at: datetime


async def waited(look, seconds=10):
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.02)
    return found


@pytest.mark.spec("HTTP-8", "START-9")
async def test_a_run_is_started_and_its_result_comes_back_exactly(shared):
    async with shared.client() as client:
        handle = await client.start("shop.quick", ODD, labels={"team": "é"}, priority=7, delay=0)
        assert (handle.type, handle.created) == ("shop.quick.v1", True)
        result = await handle.result(10)
        assert result == ODD
        assert math.copysign(1, result["minus"]) == -1
        assert isinstance(result["whole"], float)
        run = await handle.get()
        assert (run.labels, run.priority) == ({"team": "é"}, 7)
        assert run == shared.run(shared.app.known(run.id))
        assert await client.result(run.id) == ODD


@pytest.mark.spec("HTTP-8")
async def test_a_large_value_goes_there_and_back(shared):
    async with shared.client() as client:
        large = "é" * 2_000_000
        assert await (await client.start("shop.quick.v1", large)).result(20) == large
        with pytest.raises(hf.TooLarge, match="the limit is"):
            await client.start("shop.quick.v1", large * 2)


@pytest.mark.spec("HTTP-8")
async def test_a_workflow_function_gives_its_types_to_params_and_result():
    app = shop()

    @app.workflow("shop.typed.v1", retry=hf.Backoff.fixed(0, attempts=7))
    async def typed(ctx, order: Order) -> Order:
        return order

    with Serving(app, worker=True) as server:
        async with server.client() as client:
            order = Order(7, datetime(2030, 1, 1, tzinfo=UTC))
            handle = await client.start(typed, order)
            assert await handle.result(10) == order
            assert (await handle.get()).max_attempts == 7
            many = await client.start_many([(typed, order), (typed, Order(8, order.at), {"key": "k"})])
            assert [(await one.result(10)).id for one in many] == [7, 8]


@pytest.mark.spec("HTTP-8")
async def test_many_starts_are_answered_one_by_one(shared):
    async with shared.client() as client:
        key = str(uuid4())
        starts = [
            ("shop.quick.v1", 1, {"key": key}),
            ("shop.quick.v1", 2, {"key": key}),
            ("shop.nothing", 3),
            ("shop.quick.v1", object()),
            ("shop.quick.v1", 4, {"odd": 1}),
            ("shop.quick.v1", 5),
        ]
        first, reused, unknown, bad, odd, last = await client.start_many(starts)
        assert (await first.result(10), await last.result(10)) == (1, 5)
        assert isinstance(reused, hf.KeyReused)
        assert (reused.key, reused.run_id) == (key, first.id)
        assert isinstance(unknown, hf.UnknownWorkflow)
        assert isinstance(bad, hf.BadValue)
        assert isinstance(odd, hf.UsageError)
        many = await client.start_many([("shop.quick.v1", n) for n in range(1_200)])
        assert len({one.id for one in many}) == 1_200


@pytest.mark.spec("HTTP-8")
async def test_people_move_runs(shared):
    async with shared.client() as client:
        run = (await client.start("shop.order.v1", {"id": 1}, delay=3600)).id
        assert (await client.pause(run)).status is hf.Status.PAUSED
        assert (await client.resume(run, budget=5)).budget == 5
        assert (await client.set_priority(run, 3)).priority == 3
        cancelled = await client.cancel(run)
        assert (cancelled.status, cancelled.params) == (hf.Status.CANCELLED, {"id": 1})
        with pytest.raises(hf.IllegalMove, match=f"cannot pause run {run}: it is cancelled") as refused:
            await client.pause(run)
        assert (refused.value.status, refused.value.run_id, refused.value.move) == ("cancelled", run, "pause")
        assert (await client.delete(run)).deleted_at is not None
        assert await client.get(run) is None
        assert (await client.explain(run)).reason == "deleted"
        assert (await client.restore(run)).deleted_at is None
        assert (await client.rewind(run, hf.BEGINNING)).status is hf.Status.PENDING
        again = await client.rerun(run, {"id": 2}, key=f"again {run}")
        assert (await again.get()).origin == run
        assert not (await client.rerun(run, {"id": 2}, key=f"again {run}")).created
        broken = await client.start("shop.broken.v1")
        with pytest.raises(hf.RunFailed, match="declined") as failed:
            await broken.result(10)
        assert failed.value.error.type == "ValueError"
        assert (await client.retry(broken.id)).status is hf.Status.PENDING


@pytest.mark.spec("HTTP-8")
async def test_gates_are_decided(shared):
    async with shared.client() as client:
        handle = await client.start("shop.gated.v1", 5)
        (gate,) = await waited(lambda: gates_of(client, handle.id))
        assert (gate.step, gate.data) == ("manager", {"amount": 5})
        with pytest.raises(hf.Conflict):
            await handle.approve(digest="another")
        decided = await handle.approve(comment="fine", digest=gate.digest)
        assert (decided.decision.by, decided.decision.comment, decided.repeated) == ("http", "fine", False)
        assert decided.run.type == "shop.gated.v1"
        assert (await client.approve(handle.id)).repeated
        assert await handle.result(10) is True


async def gates_of(client, run):
    return [one for one in await client.approvals() if one.run == run]


@pytest.mark.spec("HTTP-8")
async def test_events_wake_runs(shared):
    async with shared.client() as client:
        number = uuid4().int
        handle = await client.start("shop.order.v1", {"id": number})
        await waited(lambda: waits(client, handle.id))
        emitted = await client.emit(f"paid:{number}", ODD, id=f"e{number}")
        assert (emitted.woken, emitted.duplicate) == (1, False)
        assert (await client.emit(f"paid:{number}", ODD, id=f"e{number}")).duplicate
        await handle.result(10)
        steps = await client.steps(handle.id)
        assert [one.key for one in steps] == [one.key for one in shared.run(shared.app.steps(handle.id))]
        assert steps[0].output == shared.run(shared.app.steps(handle.id))[0].output
        assert await client.steps(handle.id, after=10**6) == []


async def waits(client, run):
    return (await client.known(run)).status is hf.Status.WAITING


@pytest.mark.spec("HTTP-8")
async def test_lists_pages_and_searches(shared):
    async with shared.client() as client:
        team = str(uuid4())
        started = await client.start_many(
            [
                ("shop.order.v1", {"id": f"{team} {n}"}, {"labels": {"team": team}, "delay": 3600})
                for n in range(5)
            ]
        )
        ids = [one.id for one in reversed(started)]
        where = hf.RunFilter(labels={"team": team})
        assert [run.id for run in await client.list(where)] == ids
        first = await client.list(where, 2)
        assert [run.id for run in await client.list(where, 10, first[-1].id)] == ids[2:]
        assert await client.list(where, 10, ids[-1]) == await client.list(where, 0) == []
        assert (await client.list(where, 1))[0] == shared.run(shared.app.list(where, 1))[0]
        bare = hf.RunFilter(labels={"team": None}, values=False, statuses=(hf.Status.PENDING,), roots=True)
        assert {run.params_json for run in await client.list(bare)} == {"null"}
        found = await client.search(f"{team} 3", where)
        assert ([run.id for run in found.runs], found.after, found.looked_at) == ([ids[1]], None, 5)
        assert await client.list(hf.RunFilter(created_until=datetime(2001, 1, 1, tzinfo=UTC))) == []
        assert await client.list(hf.RunFilter(error=("no such", "neither%"))) == []
        assert await client.children([one.id for one in started]) == []
        with pytest.raises(hf.UsageError, match="give a filter"):
            await client.list("failed")


@pytest.mark.spec("HTTP-8")
async def test_the_trail_in_pages(shared):
    async with shared.client() as client:
        handle = await client.start("shop.quick.v1", 1)
        await handle.result(10)
        whole = await client.trail(handle.id)
        assert [one.type for one in whole] == ["created", "leased", "started", "succeeded"]
        assert whole == list(shared.run(shared.app.trail(handle.id)))
        assert [one.type for one in await client.trail(handle.id, types=["succeeded"])] == ["succeeded"]
        assert [one.seq for one in await client.trail(None, whole[-1].seq - 1, 1)] == [whole[-1].seq]
        assert await client.trail(UUID(int=1)) == []
        assert await client.trail(handle.id, until=datetime(2001, 1, 1, tzinfo=UTC)) == []


@pytest.mark.spec("HTTP-8")
async def test_schedules(shared):
    async with shared.client() as client:
        name = f"eu/nightly 50% {uuid4()}"
        made = await client.schedule(
            name, "shop.report", cron="0 3 * * *", zone="Europe/Berlin", labels={"a": "b"}
        )
        assert (
            (await client.schedules(name=name))[0] == made == shared.run(shared.app.schedules(name=name))[0]
        )
        assert (await client.pause_schedule(name)).paused
        assert not (await client.resume_schedule(name)).paused
        assert await (await client.fire_schedule(name)).result(10) == "report"
        assert name in [one.name for one in await client.schedules(ANY)]
        assert await client.unschedule(name)
        assert not await client.unschedule(name)
        assert await client.schedules(name=name) == []
        with pytest.raises(hf.UsageError, match="cron"):
            await client.schedule(name, "shop.report.v1", cron="nonsense")


@pytest.mark.spec("HTTP-8")
async def test_operators_limit_register_and_look(shared):
    async with shared.client() as client:
        limit = await client.limit(key="api/v2", concurrency=3, rate=(100, 60))
        assert limit in await client.limits()
        until = datetime(2040, 1, 1, tzinfo=UTC)
        assert (await client.pause_key("api/v2", until)).paused_until == until
        assert await client.resume_key("api/v2")
        assert await client.unlimit(key="api/v2")
        assert (await client.register("shop.other", runtime="go", enabled=False)).runtime == "go"
        assert [one.workflow_name for one in await client.registry()] == ["shop.other"]
        assert await client.unregister("shop.other")
        assert "shop.quick.v1" in [one.type for one in await client.definitions(schemas=False)]
        assert list(await client.definitions()) == list(shared.run(shared.app.definitions()))
        assert (await client.stats()).workers[0].slots == (await client.workers())[0].slots
        assert (await client.doctor()).findings
        assert abs(await client.now() - datetime.now(UTC)) < timedelta(minutes=1)
        assert await client.unserved(["mail"]) == []
        assert (await client.webhook("hook", "https://example.com/hook")).startswith("whsec_")
        assert [one.name for one in await client.webhooks()] == ["hook"]
        assert await client.remove_webhook("hook")
        assert await client.outbox(hf.OutboxFilter(statuses=(hf.MessageStatus.DEAD,))) == []
        with pytest.raises(hf.UsageError, match="give concurrency"):
            await client.limit(key="x")


@pytest.mark.spec("HTTP-8")
async def test_bulk_operations(server):
    async with server.client() as client:
        for n in range(3):
            await client.start("shop.order.v1", {"id": n}, delay=3600)
        where = hf.RunFilter(type="shop.order%")
        preview = await client.bulk.preview(where, "cancel")
        assert (preview.count, preview.more, len(preview.sample)) == (3, False, 3)
        handle = await client.bulk.cancel(where, key="all")
        report = await handle.result(20)
        assert isinstance(report, hf.BulkReport)
        assert report.done == 3
        assert not (await client.bulk.cancel(where, key="all")).created
        everywhere = await client.bulk.delete(hf.RunFilter(type="shop.order%", tenant=ANY))
        assert (await everywhere.result(20)).done == 3


@pytest.mark.spec("TEN-1", "TEN-2")
async def test_keys_tenants_and_the_audit_log():
    with Serving(open=False) as server:
        operator, key = server.key(*EVERY, name="boss"), server.key(*ALL, name="acme", tenant="acme")
        async with server.client(key=key) as client, server.client(key=operator) as boss:
            who = await client.whoami()
            assert (who.name, who.tenant, who.is_operator) == ("acme", "acme", False)
            run = await client.start("shop.quick.v1", 1)
            assert (await run.get()).tenant == "acme"
            assert await boss.get(run.id) is None
            assert (await boss.of(ANY).get(run.id)).tenant == "acme"
            assert (await boss.of("acme").list())[0].id == run.id
            there = await boss.start("shop.quick.v1", 2, tenant="acme")
            assert (await there.get()).tenant == "acme"
            with pytest.raises(hf.NotAllowed, match="scope operator"):
                await client.list(hf.RunFilter(tenant="other"))
            with pytest.raises(hf.UsageError, match="bound to tenant"):
                await boss.of("acme").list(hf.RunFilter(tenant="other"))
            with pytest.raises(hf.UsageError, match="creates something for one tenant"):
                await boss.emit("topic", tenant=ANY)
            made = await client.create_key("reader", scopes=["runs.read"])
            async with server.client(key=made.secret) as reader:
                assert [one.id for one in await reader.list(hf.RunFilter(values=False))] == [there.id, run.id]
                with pytest.raises(hf.BadValue, match=r"lacks the scope payloads\.read"):
                    _ = (await reader.known(run.id)).params
                with pytest.raises(hf.NotAllowed, match=r"runs\.write"):
                    await reader.cancel(run.id)
            rotated = await client.rotate_key(made.key.id, overlap=0)
            assert rotated.secret != made.secret
            assert (await client.revoke_key(made.key.id)).revoked_by == "acme"
            assert {one.name for one in await client.keys()} == {"acme", "reader"}
            actions = [one.action for one in await client.audit()]
            assert actions[:2] == ["revoke_key", "rotate_key"]
            assert "cancel" in [one.action for one in await client.audit(actions=["cancel"])]
            with pytest.raises(hf.UnknownApiKey):
                await client.revoke_key("z" * 12)
            assert {one.tenant for one in await boss.keys(ANY)} == {"default", "acme"}


@pytest.mark.spec("HTTP-8")
async def test_arguments_that_http_cannot_carry_are_refused(shared):
    async with shared.client() as client:
        for call, words in (
            (client.start("shop.quick.v1", id=uuid4()), "takes no id="),
            (client.start("shop.quick.v1", connection=object()), "needs the store itself"),
            (client.start("shop.quick.v1", ttl=math.inf), "1,000 years"),
            (client.start(7), "not a workflow"),
            (client.emit("t", connection=object()), "needs the store itself"),
            (client.cancel(uuid4(), by="ada"), "the trail names the API key"),
            (client.get("x"), "is not a run id"),
            (client.start("shop.quick.v1", priority=-1), "priority"),
            (client.list(hf.RunFilter(labels={"a=b": "c"})), "= in its name"),
            (client.list(hf.RunFilter(tenant=None)), "tenant is None"),
        ):
            with pytest.raises(hf.UsageError, match=words):
                await call
        assert client.tenant is OWN
