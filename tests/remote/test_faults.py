"""Lost answers, a server that goes away, a wrong clock, a blocked event loop: no result is dropped."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from holdfast.client.work.store import RemoteStore
from holdfast.errors import Unavailable, UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Answer, Ask, Item, Scope, StepWrite
from holdfast.records.moves import Complete
from holdfast.world import RealWorld
from tests.remote.kit import Serving, ended, shop, until, working

LEASE_SECONDS = 1.0


def losing(path, times=1):
    """Functions for `Faults.lose`: they lose the answers to this request, after the work was done."""
    return [lambda _, asked: asked == path for _ in range(times)]


@pytest.mark.spec("HTTP-3")
async def test_a_result_whose_answer_was_lost_is_sent_again_and_its_step_does_not_run_again(server, app):
    async with working(app):
        run = await app.start("shop.held.v1", 0.3)
        await until(lambda: "begun" in app.ran)
        server.faults.lose += losing("/leases/batch", 3)
        assert await run.result(30) == "after"
    assert app.ran == ["begun", "ended", "after"]
    steps = [one.data["step"] for one in server.store.trail(run.id, ANY, ["step_succeeded"])]
    assert steps == ["work", "after"]


HTML, PROBLEM = (b"content-type", b"text/html"), (b"content-type", b"application/problem+json")
PAGES = [
    *[(status, HTML, b"<html>") for status in (404, 302, 401, 403, 400, 200, 524)],
    (404, PROBLEM, b'{"code": "no-such-route"}'),
    (404, PROBLEM, b'{"code": "not-found"}'),
    (200, HTML, b"{}"),
]


class Proxy:
    """A proxy in front of the server: it answers some requests in its place."""

    def __init__(self, app):
        self.app, self.pages = app, {}  # by path

    async def __call__(self, scope, receive, send):
        if not (pages := self.pages.get(scope.get("path"))):
            return await self.app(scope, receive, send)
        status, kind, body = pages.pop(0)
        await send({"type": "http.response.start", "status": status, "headers": [kind]})
        return await send({"type": "http.response.body", "body": body})


@pytest.mark.spec("HTTP-3")
async def test_a_page_of_a_proxy_drops_no_result(server, app):
    proxy = server.faults.app = Proxy(server.faults.app)
    async with working(app):
        run = await app.start("shop.held.v1", 0.1)
        await until(lambda: "begun" in app.ran)
        proxy.pages = {"/leases/batch": PAGES[:3], "/leases/heartbeat": PAGES[:3]}
        assert await run.result(30) == "after"
    assert app.ran == ["begun", "ended", "after"]
    assert server.store.get(run.id, ANY).fence == 1
    assert proxy.pages["/leases/batch"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda one: f"{one[0]} {one[2].decode()}")
async def test_what_a_proxy_answers_is_no_answer(server, page):
    """Awaited or blocking, the engine is told to send the same request again."""
    proxy = server.faults.app = Proxy(server.faults.app)
    store = RemoteStore(server.url)
    await store.open()
    proxy.pages = {"/leases/heartbeat": [page] * 9}  # a request is sent again when its connection is lost
    with pytest.raises(Unavailable):
        await store.strays("one")
    with pytest.raises(Unavailable):
        store.renew("one", [], LEASE_SECONDS)
    await store.close()


async def test_an_item_that_is_refused_makes_no_other_run_lost(server, app):
    """The engine sends a batch again, item by item, when one of them is refused."""
    runs = await app.start_many([("shop.order.v1", n) for n in range(2)])
    claims = await app.store.claim(Ask(worker="one", types=("shop.order.v1",), limit=2, lease_seconds=30))
    good, bad = [
        Item(run=one.id, fence=one.fence, number=1, move=Complete(result="1"), steps=steps)
        for one, steps in zip(claims, [(), (StepWrite(key="k" * 1000),)], strict=True)
    ]
    with pytest.raises(UsageError):
        await app.store.commit([good, bad])
    (verdict,) = await app.store.commit([good])
    assert (verdict.answer, verdict.status) == (Answer.APPLIED, Status.SUCCEEDED)
    (verdict,) = await app.store.commit([good])
    assert verdict.answer is Answer.LOST, "it is forgotten now"
    assert len(runs) == 2
    await app.close()


async def test_many_lost_answers_of_every_kind_lose_no_run_and_record_nothing_twice(server, app):
    chance = random.Random(7)
    paths = ("/leases/batch", "/leases/claim", "/leases/heartbeat", "/workers/register")
    async with working(app, slots=8, lease=LEASE_SECONDS):
        runs = [one.id for one in await app.start_many([("shop.order.v1", n) for n in range(30)])]
        for _ in range(40):
            server.faults.lose += losing(chance.choice(paths))
            await asyncio.sleep(0.02)
        server.faults.lose.clear()
        found = await ended(app, *runs, seconds=60)
    assert [one.result for one in found] == list(range(30))
    for run in runs:
        steps = [one.data["step"] for one in server.store.trail(run, ANY, ["step_succeeded"])]
        assert steps == ["charge", "ship"]


@pytest.mark.spec("LEASE-17")
async def test_a_run_whose_claim_was_not_answered_is_given_back_and_executed(server, app):
    async with working(app, lease=LEASE_SECONDS):
        await until(lambda: any(one.waits for one in app.store._open_claims.values()))
        server.faults.lose += losing("/leases/claim")
        run = await app.start("shop.order.v1", 1)
        (found,) = await ended(app, run.id)
    assert (found.result, found.crashes) == (1, 0)


@pytest.mark.spec("HTTP-3")
async def test_a_server_that_restarts_costs_no_lease(server, app):
    async with working(app, lease=30):  # a busy machine needs seconds for a server
        run = await app.start("shop.held.v1", 1.5)
        await until(lambda: "begun" in app.ran)
        server.stop()
        server.begin_later(1.0)
        (found,) = await ended_later(app, run.id)
    assert (found.result, found.fence, app.ran) == ("after", 1, ["begun", "ended", "after"])


async def test_runs_come_again_after_the_server_was_away(server, app):
    async with working(app):
        await asyncio.sleep(0.2)
        server.stop()
        await asyncio.sleep(0.5)
        server.begin()
        run = await app.start("shop.order.v1", 3)
        assert (await ended(app, run.id))[0].result == 3


async def test_a_worker_may_start_before_its_server(server, app):
    server.stop()
    server.begin_later(0.3)
    async with working(app):
        run = await app.start("shop.order.v1", 4)
        assert (await ended(app, run.id))[0].result == 4


async def test_a_server_that_stays_away_is_said_after_a_while(server, monkeypatch):
    monkeypatch.setattr("holdfast.client.work.store.OPEN_SECONDS", 0.2)
    server.stop()
    store = RemoteStore(server.url)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await store.open()
    await store.close()


async def ended_later(app, run):
    """Wait for the end of a run, whose server may be away."""
    while True:
        try:
            return await ended(app, run)
        except Exception:  # noqa: BLE001 - it is away
            await asyncio.sleep(0.1)


class Off(RealWorld):
    """A machine whose wall clock is an hour ahead, or behind."""

    def __init__(self, hours):
        super().__init__()
        self._off = hours * 3_600_000_000

    def now(self):
        return super().now() + self._off


@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_an_hour_off_changes_nothing(server, hours):
    app = shop(server.url, key="", world=Off(hours))
    server_now = server.store.now()

    @app.workflow("shop.timed.v1", timeout=60)
    async def timed(ctx):
        began = ctx.now()
        await ctx.sleep(0.3)
        found = await ctx.await_event("paid", timeout=20)
        await ctx.step("after", lambda: None)
        return [began.timestamp(), (ctx.now() - began).total_seconds(), found.payload]

    async with working(app):
        run = await app.start(timed)
        await asyncio.sleep(1.0)
        await app.emit("paid", 7)
        began, took, payload = await run.result(30)
        steps = await app.steps(run.id)
    assert payload == 7
    assert abs(began - server_now / 1_000_000) < 600, "it is the server's clock"
    assert 0.2 < took < 600
    assert all(abs(one.started_at - server_now) < 600_000_000 for one in steps if one.started_at)


class Slow:
    """A network that is slow for claims, and that may cut those that wait."""

    def __init__(self, app, before=0.0, after=0.0):
        self.app, self.before, self.after, self.cuts, self.polls = app, before, after, 0, 0

    async def __call__(self, scope, receive, send):
        if scope.get("path") != "/leases/claim":
            return await self.app(scope, receive, send)
        body, taken = await receive(), []
        self.polls += b'"wait_ms":25000' in body["body"]
        if self.cuts and b'"wait_ms":25000' in body["body"]:
            self.cuts -= 1
            await asyncio.sleep(2 * LEASE_SECONDS)
            return scope["extensions"]["holdfast.abort"]["call"]()
        await asyncio.sleep(self.before)

        async def given():
            return body if not taken and not taken.append(body) else await receive()

        async def late(message):
            if message["type"] == "http.response.start":
                await asyncio.sleep(self.after)
            await send(message)

        return await self.app(scope, given, late)


@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize(("before", "after"), [(1.2, 0.0), (0.0, 1.2)], ids=["request", "answer"])
async def test_a_slow_claim_uses_up_no_time_of_its_run(server, app, before, after):
    """The time of a run is never ahead of the store's: it counts from the answer of its claim."""
    network = server.faults.app = Slow(server.faults.app, before, after)
    ahead = []

    @app.workflow("shop.young.v1", timeout=1.0 + 2 * after)
    async def young(ctx):
        return await ctx.step("a", lambda: "in time")

    @app.workflow("shop.clock.v1")
    async def clock(ctx):
        at = ctx.now()
        ahead.append(at.timestamp() - server.store.now() / 1_000_000)
        await ctx.step("a", lambda: None)
        await ctx.sleep(0.01)
        ahead.append(ctx.now().timestamp() - server.store.now() / 1_000_000)
        network.before = network.after = 0.0
        await ctx.sleep(0.01)
        return (ctx.now() - at).total_seconds()

    async with working(app):
        await until(lambda: network.polls)
        await asyncio.sleep(before)
        assert await (await app.start(young)).result(30) == "in time"
        run = await app.start(clock)
        assert await run.result(30) > 0
        steps = await app.steps(run.id)
    assert max(ahead) <= 0
    assert [one.key for one in steps if one.started_at and one.started_at > one.finished_at] == []


@pytest.mark.spec("HTTP-3")
async def test_a_claim_that_was_cut_off_and_sent_again_counts_no_lease_from_the_first_request(server, app):
    network = server.faults.app = Slow(server.faults.app)
    network.cuts = 1
    async with working(app, lease=LEASE_SECONDS):
        await until(lambda: network.polls == 2)  # the second one, two lease times after the first
        run = await app.start("shop.order.v1", 6)
        (found,) = await ended(app, run.id)
        words = [one.type for one in server.store.trail(run.id, ANY)]
    assert (found.result, found.fence, "lease_expired" in words) == (6, 2, False)


@pytest.mark.spec("LEASE-8")
async def test_a_blocked_event_loop_keeps_its_lease(server, app):
    lease = 2 * LEASE_SECONDS  # a busy machine needs a while for a heartbeat

    @app.workflow("shop.blocked.v1")
    async def blocked(ctx):
        async def block():
            time.sleep(2.5 * lease)  # noqa: ASYNC251 - on purpose

        await ctx.step("block", block)
        return "done"

    async with working(app, lease=lease, slots=1):
        run = await app.start(blocked)
        assert await run.result(30) == "done"
    assert server.store.get(run.id, ANY).fence == 1


async def test_a_run_that_comes_to_a_blocked_event_loop_is_given_back(server, app):
    """The open claim of a blocked worker brings a run that nobody there can begin: others need not wait."""
    began = asyncio.Event()

    @app.workflow("shop.blocked.v1")
    async def blocked(ctx):
        async def block():
            began.set()
            await asyncio.sleep(0.1)
            time.sleep(3 * LEASE_SECONDS)  # noqa: ASYNC251 - on purpose

        await ctx.step("block", block)

    async def starts():
        await asyncio.sleep(0.4)
        return (await server.app.start("shop.order.v1", 5)).id

    async with working(app, lease=LEASE_SECONDS):
        await app.start(blocked)
        await began.wait()
        starting = asyncio.run_coroutine_threadsafe(starts(), server.loop)
        await asyncio.sleep(0.15)
        run = await asyncio.wrap_future(starting)
        (found,) = await ended(app, run)
    words = [one.type for one in server.store.trail(run, ANY)]
    assert (found.result, found.crashes) == (5, 0)
    assert "lease_expired" not in words
    assert "released" in words


async def test_a_key_that_is_revoked_stops_the_worker_with_one_line(tmp_path, caplog):
    with Serving(f"sqlite:///{tmp_path / 'runs.db'}", open=False) as server:
        made = server.run(server.app.create_key("worker", scopes=[Scope.WORK]))
        app = shop(server.url, key=made.secret)
        async with working(app, lease=LEASE_SECONDS) as worker:
            await asyncio.sleep(0.2)
            server.run(server.app.revoke_key(made.key.id))
            async with asyncio.timeout(20):
                await worker.refusal.event.wait()
            assert worker.draining
    lines = [one for one in caplog.messages if "refuses the API key" in one]
    assert len(lines) == 1
    assert "stops" in lines[0]


async def test_values_of_4_mib_and_records_that_need_pages_pass_and_one_item_above_16_mib_fails_its_run(app):
    @app.workflow("shop.large.v1")
    async def large(ctx):
        sizes = [len(await ctx.step(f"s{n}", lambda n=n: str(n) * 4_000_000)) for n in range(5)]
        await ctx.sleep(0.05)
        return sizes

    @app.workflow("shop.huge.v1")
    async def huge(ctx):
        def sends():
            for n in range(5):
                ctx.emit(f"topic {n}", "x" * 4_000_000)

        await ctx.step("sends", sends)

    async with working(app):
        passed, failed = await app.start(large), await app.start(huge)
        assert await passed.result(60) == [4_000_000] * 5
        (found,) = await ended(app, failed.id)
    assert found.status is Status.FAILED
    assert "over HTTP one commit of a run has at most" in found.error.message
