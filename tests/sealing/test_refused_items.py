"""An item that cannot be sealed is not written, and neither is anything that depends on it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from holdfast import App
from holdfast.errors import CannotSeal
from holdfast.sealing.store import Sealed

SMALL = 16 * 1024  # in place of the real bound of one item


class Shy:
    """A codec that refuses to seal one value, once: its key service is away for a moment."""

    name, optional = "shy", True

    def __init__(self, field, name):
        self.refuse = field, name

    def seal(self, value, where):
        if self.refuse == (where.field, where.name):
            self.refuse = None
            raise CannotSeal("the key service is away")
        return "shy", value

    def open(self, _how, value, _where):
        return value

    def digests(self, digest, _where):
        return (digest,)


@pytest.fixture
def shy(store, world, monkeypatch):
    """An app whose codec refuses the output of this step, once; two steps are too much for one item."""
    monkeypatch.setattr("holdfast.engine.commit.journal.BATCH_BYTES", SMALL)

    def made(name):
        return App(store, name="test", world=world, codec=[Shy("output of step", name)])

    return made


def prices(app, checkpoint="segment"):
    """A workflow whose second step is made from its first, which answers differently each time."""
    quotes = itertools.count(100)

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        quote = await ctx.step("quote", lambda: [next(quotes), "x" * SMALL])
        paid = await ctx.step("pay", lambda: [quote[0], "y" * SMALL])
        return [quote[0], paid[0]]

    return order


@pytest.mark.spec("FLOW-12", "OPS-5")
async def test_of_a_segment_that_goes_in_parts_no_part_is_recorded_after_one_that_is_refused(shy):
    app = shy("quote")
    run = await app.start(prices(app))
    async with app.worker():
        quoted, paid = await run.result(600)
    assert quoted == paid == 101
    assert [step.key for step in await app.steps(run.id)] == ["quote", "pay"]


async def test_a_segment_that_is_given_back_records_no_part_after_one_that_is_refused(shy):
    """The worker stops, and the parts go with the release of the run."""
    app = shy("quote")
    quotes, reached = itertools.count(100), asyncio.Event()

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        quote = await ctx.step("quote", lambda: [next(quotes), "x" * SMALL])
        paid = await ctx.step("pay", lambda: [quote[0], "y" * SMALL])
        reached.set()
        await asyncio.sleep(60)
        return [quote[0], paid[0]]

    run = await app.start(order)
    async with app.worker():
        await reached.wait()
    assert await app.steps(run.id) == []
    async with app.worker():
        quoted, paid = await run.result(600)
    assert quoted == paid


@pytest.fixture
def late(monkeypatch):
    """The answer to each commit comes five seconds after it."""
    commit = Sealed.commit

    async def later(self, batch):
        verdicts = await commit(self, batch)
        await asyncio.sleep(5)
        return verdicts

    monkeypatch.setattr(Sealed, "commit", later)


@pytest.mark.usefixtures("late")
async def test_what_a_branch_has_written_behind_an_item_that_is_refused_is_not_recorded(shy):
    """All branches have used the time, which was to be recorded with the first step."""
    app = shy("first")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        now = ctx.now().isoformat()

        async def second():
            await asyncio.sleep(1)
            return now

        async def third():
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                return now  # told to stop, it still comes to a result
            return now

        found = await asyncio.gather(
            ctx.step("first", lambda: now), ctx.step("second", second), ctx.step("third", third)
        )
        return [now, *found]

    run = await app.start(order)
    async with app.worker():
        now, *found = await run.result(7200)
    assert found == [now] * 3


@pytest.mark.usefixtures("late")
async def test_a_run_does_not_succeed_while_what_it_said_before_is_refused(shy):
    """A step that nobody awaits any more brings an event along: its item is refused, and so is the end."""
    app = shy("slow")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.emit("began", 1)
        task = asyncio.ensure_future(ctx.step("slow", lambda: 1))
        await asyncio.sleep(2)
        task.cancel()
        return "done"

    run = await app.start(order)
    async with app.worker():
        assert await run.result(7200) == "done"
    assert "emit:began" in [step.key for step in await app.steps(run.id)]
