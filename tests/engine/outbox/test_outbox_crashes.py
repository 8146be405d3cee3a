"""Crashes before or after any store call: each message is delivered, in order per key, and none is
invented.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from holdfast import MessageStatus, OutboxFilter
from holdfast.testing.faulty import Faulty, break_down, die_after, die_before, fail_before, lose_reply
from tests.engine.kit import process

LEASE = 6
CALLS = {"commit": 5, "relay": 4, "relayed": 9}  # calls that one worker makes, at least
WANTED = {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], None: ["alone"]}


class Post:
    """A workflow that sends, a sink that receives, and the received messages by key, each once."""

    def __init__(self, app):
        self.app, self.took, self.calls = app, defaultdict(list), 0
        self.out = set()  # keys with a message that the sink is working on

        @app.sink("mail", timeout=5)
        async def mail(delivery):
            self.calls += 1
            assert delivery.key is None or delivery.key not in self.out, "two of one key at once"
            self.out.add(delivery.key)
            await asyncio.sleep(0.3)
            if delivery.payload not in self.took[delivery.key]:
                self.took[delivery.key].append(delivery.payload)
            self.out.discard(delivery.key)

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("one", self.flaky, ctx)
            for key in "ab":
                ctx.send("mail", 2, key=key)
            await ctx.sleep(2)
            await ctx.step("three", lambda: [ctx.send("mail", 3, key=key) for key in "ab"] and None)
            ctx.send("mail", "alone")
            for key in "ab":
                ctx.send("mail", 4, key=key)
            return "done"

        self.order = order

    async def flaky(self, ctx):
        """Fail once. The failed try sends nothing."""
        for key in "ab":
            ctx.send("mail", 1, key=key)
        tries = getattr(self, "tried", 0)
        self.tried = tries + 1
        if tries == 0:
            ctx.send("mail", "never", key="a")
            raise ValueError("not yet")

    async def delivered(self, seconds=400):
        pending = OutboxFilter(statuses=(MessageStatus.PENDING,))
        async with asyncio.timeout(seconds):
            while await self.app.outbox(pending):  # noqa: ASYNC110
                await asyncio.sleep(1)


async def died_and_replaced(app, verb, number, fault):
    """Return the outcome when the first worker dies and another one takes over; None when it survives."""
    post, store = Post(app), Faulty(app.store)
    run = await app.start(post.order)
    doomed = await process(app, 1, store, lease=LEASE, sinks=app.sinks)
    store.plan(verb, number, fault(doomed.world))
    for _ in range(30):
        await asyncio.sleep(1)
        if doomed.world.frozen:
            break
    else:
        return None
    post.out.clear()
    heir = await process(app, 2, lease=LEASE, sinks=app.sinks)
    assert await run.result(200) == "done"
    await post.delivered()
    heir.kill()
    return dict(post.took)


@pytest.mark.spec("OUT-1", "MOVE-2", "FLOW-18")
@pytest.mark.parametrize("fault", [die_before, die_after])
@pytest.mark.parametrize(
    ("verb", "number"), [(verb, n) for verb, calls in CALLS.items() for n in range(1, calls + 1)]
)
async def test_a_worker_that_dies_at_any_call_loses_and_invents_no_message(app, verb, number, fault):
    """Each message is delivered once or more, each key in order, and none without its commit."""
    assert await died_and_replaced(app, verb, number, fault) == WANTED


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("fault", [fail_before, lose_reply, break_down], ids=lambda one: one.__name__)
@pytest.mark.parametrize("verb", ["relay", "relayed", "relay_at"])
async def test_a_store_that_fails_now_and_then_changes_nothing_but_the_time_it_takes(app, verb, fault):
    post, store = Post(app), Faulty(app.store)
    run = await app.start(post.order)
    worker = await process(app, 1, store, lease=LEASE, sinks=app.sinks)
    for number in range(1, 30, 2):
        store.plan(verb, number, fault)
    assert await run.result(200) == "done"
    await post.delivered(2000)
    worker.kill()
    assert dict(post.took) == WANTED


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("at", [0.1, 0.25, 1.0, 3.5])
async def test_a_relay_that_was_suspended_changes_nothing_with_its_late_answer(app, at):
    """It is suspended with messages in flight, and resumes when others have sent them."""
    post = Post(app)
    run = await app.start(post.order)
    zombie = await process(app, 1, lease=LEASE, sinks=app.sinks)
    await asyncio.sleep(at)
    zombie.stop()
    post.out.clear()
    heir = await process(app, 2, lease=LEASE, sinks=app.sinks)
    await asyncio.sleep(150)
    post.out.clear()
    zombie.go_on()
    assert await run.result(200) == "done"
    await post.delivered()
    await asyncio.sleep(60)
    assert dict(post.took) == WANTED
    assert {one.status for one in await app.outbox()} == {MessageStatus.SENT}
    heir.kill()
    zombie.kill()


@pytest.mark.spec("OUT-1")
async def test_relays_of_many_workers_never_send_two_of_one_key_at_once(app):
    """Three workers have the sink, which asserts that no other message of the key is in flight."""
    post = Post(app)
    runs = [await app.start(post.order) for _ in range(6)]
    workers = [await process(app, seed, lease=LEASE, sinks=app.sinks) for seed in range(1, 4)]
    for run in runs:
        assert await run.result(200) == "done"
    await post.delivered()
    assert post.calls == 6 * 9
    assert {one.attempts for one in await app.outbox()} == {1}
    for worker in workers:
        worker.kill()
