"""Relays in trouble: sinks that hang, messages that nobody can open, a store that is unreachable."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, Encrypt, MessageStatus, OutboxFilter, RetryAfter
from holdfast.engine.outbox import relay_slots
from holdfast.engine.outbox.relay import Relay
from holdfast.engine.outbox.relay_slots import SinkSlots
from holdfast.errors import Unavailable
from holdfast.records import ANY

PENDING = OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)
OLD, NEW = Encrypt({"old": bytes(32)}), Encrypt({"new": bytes(range(32))})


async def until_true(what, within):
    async with asyncio.timeout(within):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # virtual: it costs nothing


def sending(app):
    """Define a workflow that sends `count` messages to each of some sinks."""

    @app.workflow("shop.order.v1")
    async def order(ctx, wanted: tuple[list[str], int]):
        sinks, count = wanted
        await ctx.step("post", lambda: [ctx.send(sink, n) for n in range(count) for sink in sinks])

    return order


# SinkSlots.


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(("hung", "count"), [(8, 60), (50, 6), (100, 3)])
async def test_sinks_that_hang_do_not_hold_up_another_however_much_waits_for_them(app, hung, count):
    """This holds when they have just begun to hang, later, and with an old backlog."""
    came, loop = [], asyncio.get_running_loop()

    for number in range(hung):

        @app.sink(f"hung{number}")
        async def hangs(delivery):
            await asyncio.sleep(1e9)

    @app.sink("mail")
    async def mail(delivery):
        came.append(loop.time())

    order = sending(app)
    async with app.worker():
        await (await app.start(order, ([f"hung{n}" for n in range(hung)], count))).result(100)
        for wait in (0.5, 20, 200):
            await asyncio.sleep(wait)
            sent_at, expected = loop.time(), len(came) + 3
            await (await app.start(order, (["mail"], 3))).result(100)
            await until_true(lambda expected=expected: len(came) == expected, 10)
            assert came[-1] - sent_at < 2


async def test_a_sink_gets_more_slots_as_it_accepts_messages_and_one_after_it_was_slow(app):
    """The slots come back at once when the sink recovers."""
    most, under_way, seconds = [0], [0], [0.1]

    @app.sink("mail", timeout=5)
    async def mail(delivery):
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        try:
            await asyncio.sleep(seconds[0])
        finally:
            under_way[0] -= 1

    order = sending(app)
    async with app.worker():
        await (await app.start(order, (["mail"], 100))).result(100)
        await until_true(lambda: most[0] == relay_slots.EACH, 10)
        seconds[0] = 9
        await (await app.start(order, (["mail"], 50))).result(100)
        await asyncio.sleep(10)
        most[0] = under_way[0]
        await asyncio.sleep(60)
        assert most[0] == 1
        seconds[0] = 0.1
        await asyncio.sleep(60)
        assert most[0] > 8


def test_the_slots_of_a_relay_are_limited():
    """The limit holds for all sinks together, although each has one slot that no other can take."""
    kept = SinkSlots()
    for number in range(relay_slots.SINKS_MAX):
        assert kept.quota(0.0).limit > 0
        kept.enter(f"s{number}")
    for _ in range(relay_slots.SHARED):
        assert kept.quota(0.0).each == relay_slots.START
        kept.enter("s0")
    assert kept.quota(0.0).limit == 0
    kept.leave("s7")
    quota = kept.quota(0.0)
    assert (quota.limit, quota.each, quota.taken["s0"], "s7" in quota.taken) == (
        1,
        1,
        relay_slots.SHARED + 1,
        False,
    )


async def test_a_single_round_does_not_wait_for_a_hanging_sink(app):
    """`holdfast tick` makes the first tries and then leaves that sink alone."""
    loop, tried = asyncio.get_running_loop(), []

    @app.sink("hung", timeout=20)
    async def hung(delivery):
        tried.append(delivery.payload)
        await asyncio.sleep(1e9)

    app.sink("mail")(lambda _: None)
    order = sending(app)
    async with app.worker(relay=False):
        await (await app.start(order, (["hung", "mail"], 50))).result(100)
    began = loop.time()
    await Relay(app.store, app.world, "r1", app.sinks).drain()
    assert loop.time() - began < 30
    assert len(tried) == relay_slots.START
    assert {one.sink for one in await app.outbox(PENDING)} == {"hung"}


# Messages that cannot be opened.


@pytest.fixture
def shops(store, world):
    """Apps on one store, by codec, and the messages that the sinks of each have received."""
    got = []

    def made(codec, *sinks):
        app = App(store, name="shop", world=world, codec=codec)
        for name in sinks:

            @app.sink(name)
            async def sink(delivery):
                got.append((delivery.sink, delivery.payload, world.now() / 1e6))

        sending(app)
        return app

    return made, got


@pytest.mark.slow
@pytest.mark.spec("OUT-2", "OPS-5")
async def test_a_message_that_nobody_can_open_holds_up_no_other_and_is_named(shops, world):
    """It delays neither its own sink nor others, uses up no attempt, and is delivered once the key is
    there.
    """
    made, got = shops
    old = made(OLD)
    async with old.worker():
        await (await old.start("shop.order.v1", (["mail"], 1))).result(100)
    app = made(NEW, "mail", "other")
    async with app.worker():
        for _ in range(30):
            sent_at = world.now() / 1e6
            await (await app.start("shop.order.v1", (["mail", "other"], 1))).result(100)
            await asyncio.sleep(7)
            assert max(at for *_, at in got) - sent_at < 1
        assert len(got) == 60
        (left,) = await app.outbox(PENDING)
        assert (left.attempts, left.error.kind) == (0, "sealed")
        assert "key 'old'" in left.error.message
        assert 0 < (left.next_at.timestamp() - world.now() / 1e6) <= 60
        said = [one for one in (await app.doctor()).findings if left.id in one.what]
        assert [(one.level, one.runs) for one in said] == [("error", (left.run,))]
        assert "key 'old'" in said[0].what
    async with made(OLD, "mail").worker():
        await asyncio.sleep(61)
    assert await app.outbox(PENDING) == []


@pytest.mark.spec("OUT-2")
async def test_a_relay_without_a_codec_leaves_a_sealed_webhook_to_others_and_does_not_spin(shops, world):
    """It is given back at once, for a relay that has the key, and not read again for a minute."""
    made, _ = shops
    app = made(NEW)
    await app.webhook("carrier", "https://example.com/in")
    async with app.worker(relay=False):
        await (await app.start("shop.order.v1", (["carrier"], 20))).result(100)
    keyless = made(None)
    told = counted(keyless.store, "relayed")
    async with keyless.worker():
        await asyncio.sleep(59)
        assert 0 < len(told) <= relay_slots.START
        assert {one.next_at.timestamp() <= world.now() / 1e6 for one in await app.outbox(PENDING)} == {True}


def counted(store, verb):
    calls, real = [], getattr(store, verb)

    async def counting(*args):
        calls.append(args)
        return await real(*args)

    setattr(store, verb, counting)
    return calls


# Answers.


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("how", ["sent", "failed", "timeout"])
async def test_a_relay_that_ends_while_it_records_an_answer_records_that_answer(app, how):
    """The store was unreachable: a sent message is not given back as if nobody had tried."""
    down, said, got, real = [False], [], [], app.store.relayed

    async def relayed(answers):
        said.extend(one.answer for one in answers)
        if down[0]:
            raise Unavailable("the disk is full")
        return await real(answers)

    app.store.relayed = relayed

    @app.sink("mail", timeout=1)
    async def mail(delivery):
        got.append(delivery.payload)
        down[0] = True
        asyncio.get_running_loop().call_later(7, down.__setitem__, 0, False)
        if how == "failed":
            raise RetryAfter(1000)
        if how == "timeout":
            await asyncio.sleep(1e9)

    order = sending(app)
    async with app.worker(grace=5):
        await (await app.start(order, (["mail"], 1))).result(100)
        await until_true(lambda: said, 10)
    (left,) = await app.outbox()
    assert (left.status, left.attempts) == ("sent" if how == "sent" else "pending", 1)
    assert set(said) == {"sent" if how == "sent" else "failed"}
    assert got == [0]


@pytest.mark.spec("OUT-2")
async def test_messages_in_flight_are_bounded_in_bytes_and_more_follow_when_some_have_ended(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.outbox.relay.CARRIED_BYTES", 10_000)
    under_way, most, came = [0], [0], []

    for name in "abcdef":

        @app.sink(name)
        async def slow(delivery):
            under_way[0] += len(delivery.payload)
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(5)
            under_way[0] -= len(delivery.payload)
            came.append(delivery.sink)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("post", lambda: [ctx.send(sink, "x" * 4_000) for sink in "abcdef"])

    async with app.worker():
        await (await app.start(order)).result(100)
        await until_true(lambda: len(came) == 6, 60)
    assert sorted(came) == list("abcdef")
    assert most[0] <= 12_000
