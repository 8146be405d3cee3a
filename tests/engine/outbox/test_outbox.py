"""Messages from workflows to sinks: sent with the commit, at least once, in order per key."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from holdfast import Delivery, Fatal, Message, MessageStatus, OutboxFilter, RetryAfter, Status, UsageError
from holdfast.engine.outbox.relay import Relay
from holdfast.records import ANY
from tests.engine.kit import keys, until


@pytest.fixture
def got(app):
    """Return the deliveries to the sink `mail`, in order."""
    taken = []

    @app.sink("mail")
    async def mail(delivery):
        taken.append(delivery)

    return taken


def payloads(got):
    return [one.payload for one in got]


async def settled(app, seconds=30):
    """Wait until every message is sent or dead, or the time is over."""
    async with asyncio.timeout(seconds):
        while await app.outbox(OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)):  # noqa: ASYNC110
            await asyncio.sleep(1)  # virtual: it costs nothing


@pytest.mark.spec("FLOW-18", "OUT-1", "OUT-2")
async def test_a_step_and_the_body_send_with_their_commit(app, got):
    """Each message is delivered once, with everything that a sink needs."""

    async def charge(ctx):
        ctx.send("mail", {"n": 1}, key="42")
        ctx.send(Message("mail", {"n": 2}, key="42"))
        return "charged"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        charged = await ctx.step("charge", charge, ctx)
        ctx.send(Message("mail", {"n": 3}), key="42")
        ctx.send("mail")
        await ctx.sleep(60)
        return charged

    async with app.worker():
        run = await app.start(order)
        assert await run.result(200) == "charged"
        await settled(app)
    assert [one.payload for one in got if one.key == "42"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [one.payload for one in got if one.key is None] == [None]
    first = got[0]
    assert isinstance(first, Delivery)
    assert (first.sink, first.key, first.run, first.tenant, first.attempt) == (
        "mail",
        "42",
        run.id,
        "default",
        1,
    )
    assert len({one.id for one in got}) == 4
    assert await keys(app, run) == ["charge", "send:mail", "send:mail#2", "sleep"]
    steps = [one.step for one in await app.outbox()]
    assert steps == ["charge", "charge", "send:mail", "send:mail#2"]


@pytest.mark.spec("FLOW-18")
async def test_a_try_that_fails_sends_nothing(app, got):
    """Only the try whose outcome is recorded sends."""
    tries = []

    async def flaky(ctx):
        tries.append(1)
        ctx.send("mail", len(tries))
        if len(tries) < 3:
            raise ValueError("not yet")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("flaky", flaky, ctx)

    async with app.worker():
        await (await app.start(order)).result(100)
        await settled(app)
    assert payloads(got) == [3]


@pytest.mark.spec("FLOW-18", "FLOW-12")
async def test_a_segment_sends_with_its_commit(app, got):
    """No message is sent before the commit, and all are sent after it."""
    seen = []

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        await ctx.step("a", lambda: ctx.send("mail", "a"))
        ctx.send("mail", "b")
        await ctx.step("look", look)
        return "done"

    async def look():
        await asyncio.sleep(5)
        seen.extend(await app.outbox())

    async with app.worker():
        assert await (await app.start(order)).result(100) == "done"
        await settled(app)
    assert seen == []
    assert sorted(payloads(got)) == ["a", "b"]


@pytest.mark.spec("FLOW-18")
async def test_a_sync_workflow_sends_too(app, got):
    def charge(ctx):
        ctx.send("mail", "from the step")

    @app.workflow("shop.order.v1")
    def order(ctx):
        ctx.step("charge", charge, ctx)
        ctx.send("mail", "from the body")

    async with app.worker():
        await (await app.start(order)).result(100)
        await settled(app)
    assert sorted(payloads(got)) == ["from the body", "from the step"]


@pytest.mark.spec("REW-3", "OUT-1")
async def test_a_rewound_step_that_sends_again_is_not_sent_again(app, got):
    """The id is the same: a message that was committed stays sent."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("post", lambda: ctx.send("mail", "once"))

    async with app.worker():
        run = await app.start(order)
        await run.result(100)
        await app.rewind(run.id, "post")
        await run.result(100)
        await settled(app)
    assert payloads(got) == ["once"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((7,), "give a Message, or a sink's name"),
        ((Message("mail", 1), 2), "has its payload in the message"),
        (("",), "sink ''"),
        (("mail", object()), "payload of a message to 'mail'"),
        ((Message("mail", key="\0"),), "message key"),
    ],
)
async def test_an_unsendable_message_is_refused_where_it_is_sent(app, args, said):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send(*args)

    async with app.worker():
        run = await until(app, await app.start(order), Status.FAILED)
    assert said in run.error.message


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
async def test_a_sink_that_is_down_for_an_hour_loses_nothing_and_gets_each_key_in_order(app):
    """The backoff makes few tries, and each key is delivered in the order of its commits."""
    came, tries, up = [], [], False

    @app.sink("carrier")
    async def carrier(delivery):
        tries.append(delivery.attempt)
        if not up:
            raise ConnectionError("the carrier is down")
        came.append((delivery.key, delivery.payload))

    @app.workflow("shop.parcels.v1")
    async def parcels(ctx):
        for number in range(5):
            for key in "abc":
                ctx.send("carrier", number, key=key)
        return "done"

    async with app.worker():
        await (await app.start(parcels)).result(100)
        await asyncio.sleep(3600)
        assert came == []
        assert max(tries) < 14
        up = True
        await settled(app, 3700)
    assert {key: [n for k, n in came if k == key] for key in "abc"} == {key: [0, 1, 2, 3, 4] for key in "abc"}


async def relayed_for(app, seconds):
    """Run a relay only when something is due: a worker would look every second of these days."""
    relay, until_at = Relay(app.store, app.world, "r1", app.sinks), app.world.monotonic() + seconds
    while app.world.monotonic() < until_at:
        await relay.drain()
        at = await app.store.relay_at(tuple(app.sinks))
        await asyncio.sleep(seconds if at is None else max(0.0, (at - await app.store.now()) / 1_000_000))


@pytest.mark.spec("OUT-1")
async def test_the_backoff_doubles_from_a_second_to_an_hour_for_three_days(app):
    """Jitter only adds. After three days the message is a dead letter, which can be sent again."""
    loop = asyncio.get_running_loop()
    times, up = [], False

    @app.sink("mail")
    async def mail(delivery):
        times.append(loop.time())
        if not up:
            raise ValueError("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", "first", key="k")
        ctx.send("mail", "second", key="k")

    async with app.worker(relay=False):
        await (await app.start(order)).result(100)
    await relayed_for(app, 3.2 * 86400)
    first, second = await app.outbox()
    assert (first.status, second.status) == (MessageStatus.DEAD, MessageStatus.PENDING)
    assert (first.error.kind, first.error.type, first.error.message) == ("raised", "ValueError", "no")
    tried = times[: first.attempts]
    waits = [b - a for a, b in pairwise(tried)]
    for number, wait in enumerate(waits):
        least = min(2.0**number, 3600)
        assert least <= wait + 0.001
        assert wait <= least * 1.1 + 0.001
    assert 3 * 86400 <= tried[-1] - tried[0] <= 3 * 86400 + 2 * 3600
    up = True
    await app.resend(first.id)
    await app.resend(second.id)
    await relayed_for(app, 1)
    assert [(one.id, one.status) for one in await app.outbox()] == [(second.id, "sent"), (first.id, "sent")]


@pytest.mark.spec("OUT-2")
async def test_a_sink_may_say_never_or_later(app):
    """Fatal makes a dead letter at once; RetryAfter gives the delay."""
    loop = asyncio.get_running_loop()
    times = []

    @app.sink("mail")
    async def mail(delivery):
        times.append(loop.time())
        if delivery.payload == "never":
            raise Fatal("no such address")
        if delivery.attempt == 1:
            raise RetryAfter(90)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", "never", key="k")
        ctx.send("mail", "later", key="k")

    async with app.worker():
        await (await app.start(order)).result(100)
        await settled(app, 200)
    assert [one.status for one in await app.outbox()] == [MessageStatus.DEAD, MessageStatus.SENT]
    assert 90 <= times[2] - times[1] < 92


@pytest.mark.slow
@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_sink_that_hangs_fails_in_time_and_holds_up_no_other(app, got, kind):
    """Its slot is kept until it has ended; another sink goes on."""
    over = asyncio.Event()

    async def slow(_):
        await over.wait()

    def stuck(_):
        if not over.is_set():
            raise TimeoutError("sync code has its own limits")

    app.sink("slow", timeout=5)(slow if kind == "async" else stuck)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for _ in range(100):
            ctx.send("slow")
        ctx.send("mail", "through")

    async with app.worker():
        await (await app.start(order)).result(100)
        await asyncio.sleep(3)
        assert payloads(got) == ["through"]
        await asyncio.sleep(60)
        failed = [one for one in await app.outbox(OutboxFilter(sink="slow")) if one.error]
        assert {one.error.kind for one in failed} == {"timeout" if kind == "async" else "raised"}
        over.set()
        await settled(app, 1000)


@pytest.mark.spec("OUT-1", "OUT-2")
async def test_a_message_to_a_sink_that_nobody_has_waits_for_one(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("nowhere", 1)

    async with app.worker():
        await (await app.start(order)).result(100)
        await asyncio.sleep(600)
    (found,) = await app.outbox()
    assert (found.status, found.attempts) == (MessageStatus.PENDING, 0)
    came = []
    app.sink("nowhere")(lambda delivery: came.append(delivery.payload))
    async with app.worker():
        await settled(app)
    assert came == [1]


@pytest.mark.spec("OUT-1")
async def test_a_worker_that_stops_waits_for_its_messages_and_gives_back_the_rest(app):
    """It waits for the time of its grace. Messages that do not end in time are free for others at once."""
    began, ended = [], []

    @app.sink("mail")
    async def mail(delivery):
        began.append(delivery.payload)
        await asyncio.sleep(delivery.payload)
        ended.append(delivery.payload)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", 5)
        ctx.send("mail", 25)

    async with app.worker(grace=10):
        await (await app.start(order)).result(100)
        while len(began) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert ended == [5]
    quick, slow = await app.outbox()
    assert (quick.status, slow.status, slow.attempts, slow.held_by) == ("sent", "pending", 0, None)
    async with app.worker():
        await settled(app, 40)
    assert ended == [5, 25]


async def test_a_worker_without_a_keeper_relays_to_its_functions_and_one_without_a_relay_to_none(app, got):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", 1)

    async with app.worker(relay=False):
        await (await app.start(order)).result(100)
        await asyncio.sleep(60)
        assert got == []
        assert [one.sinks for one in (await app.store.stats()).workers] == [()]
    async with app.worker(keeper=False):
        assert [one.sinks for one in (await app.store.stats()).workers] == [("mail",)]
        await settled(app)
    assert payloads(got) == [1]


def test_a_sink_is_named_once_and_takes_one_argument(app):
    with pytest.raises(UsageError, match=r'write @app.sink\("mail"\)'):
        app.sink(print)
    with pytest.raises(UsageError, match="takes one argument"):
        app.sink("mail")(lambda: None)
    with pytest.raises(UsageError, match="more than 0"):
        app.sink("mail", timeout=0)(print)
    app.sink("mail")(print)
    with pytest.raises(UsageError, match="defined twice"):
        app.sink("mail")(print)
