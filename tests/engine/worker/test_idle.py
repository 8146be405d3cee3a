"""An idle worker: how little it asks, and how soon it works all the same."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

import holdfast as hf
from holdfast import App
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records.traits import HINTED_POLL_SECONDS
from tests.engine.kit import outcome, until

DAY = 86_400.0
NO_QUESTIONS = {"listen", "hears", "open", "close", "traits"}


class Hinting:
    """A store whose hints reach all processes, as on a server. It counts the calls of its verbs.

    `deaf`: hints do not come, and it says so. `vague`: like a file, it knows only that it was written to.
    `late`: seconds that each look takes.
    """

    def __init__(self, store, *, vague=False):
        self._store, self._vague = store, vague
        self.calls, self.looks, self.deaf, self.late = Counter(), [], False, 0.0
        self.hints = []
        self.traits = msgspec.structs.replace(store.traits, poll_seconds=HINTED_POLL_SECONDS)

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if callable(found) and name not in NO_QUESTIONS and not name.startswith("_"):
            self.calls[name] += 1
        return found

    async def due(self, *args, **fields):
        self.calls["due"] += 1
        self.looks.append(asyncio.get_running_loop().time())
        answer = await self._store.due(*args, **fields)
        await asyncio.sleep(self.late)
        return answer

    def listen(self, hint, holders=None, changed=None):
        heard = changed if self._vague and changed is not None else hint
        self.hints.append(heard)
        return self._store.listen(lambda: None if self.deaf else heard(), holders)

    def hears(self):
        return not self.deaf

    def tell(self):
        for hint in self.hints:
            hint()


@pytest.fixture(params=["hints", "vague hints"])
def hinting(request, store):
    return Hinting(store, vague=request.param == "vague hints")


@pytest.fixture
def shop(hinting, world):
    """An app with a workflow, a plan, a sink and a schedule."""
    app = App(hinting, name="shop", world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    @app.workflow("shop.nap.v1")
    async def nap(ctx, seconds: float):
        await ctx.sleep(seconds)

    plan = app.plan("shop.plan.v1", [hf.Task("A")])

    @plan.task("A")
    async def handler(task):
        return None

    @app.sink("mail")
    async def mail(message):
        return None

    return app


async def settled(app, naps=0):
    """Wait until a worker has nothing to do, and knows it."""
    await app.store.open()
    await app.schedule("far away", "shop.order.v1", every=DAY)
    for _ in range(naps):
        await until(app, await app.start("shop.nap.v1", DAY), Status.WAITING)
    await asyncio.sleep(150)
    app.store.calls.clear()
    app.store.looks.clear()


@pytest.mark.spec("OPS-7")
@pytest.mark.spec("LEASE-15")
@pytest.mark.parametrize("naps", [0, 20])
async def test_an_idle_worker_asks_at_most_six_times_a_minute(shop, hinting, naps):
    """However many runs sleep; and the only thing that it writes is its presence."""
    async with shop.worker():
        await settled(shop, naps)
        await asyncio.sleep(50 * 60)
    asked = {verb: count / 50 for verb, count in hinting.calls.items()}
    del asked["absent"]  # it has stopped
    assert sum(asked.values()) <= 6
    assert asked.keys() == {"due", "definitions", "present", "purge"}
    assert asked["present"] <= 101 / 50


@pytest.mark.spec("OPS-7")
async def test_a_start_wakes_an_idle_worker_at_once(shop, world):
    async with shop.worker():
        await settled(shop)
        await asyncio.sleep(7.7)
        begun = world.monotonic()
        assert await outcome(shop, await shop.start("shop.order.v1")) == ("succeeded", "done")
        assert world.monotonic() - begun < 0.1


@pytest.mark.spec("OPS-7")
@pytest.mark.spec("FLOW-4")
@pytest.mark.parametrize("seconds", [2.0, 37.0])
@pytest.mark.parametrize("how", ["sleep", "delay"])
async def test_what_comes_due_is_slept_for_exactly(shop, world, how, seconds):
    """A timer that is due in so many seconds, or a run that may start then, waits for no poll."""
    async with shop.worker():
        await settled(shop)
        begun = world.monotonic()
        if how == "sleep":
            run = await shop.start("shop.nap.v1", seconds)
        else:
            run = await shop.start("shop.order.v1", delay=seconds)
        await until(shop, run)
        assert seconds <= world.monotonic() - begun < seconds + 0.1


@pytest.mark.spec("OPS-7")
async def test_a_message_is_sent_at_once_and_its_retry_in_time(shop, hinting):
    """The relay of an idle worker looks at a hint, and sleeps for what it has put off."""
    clock, tries = asyncio.get_running_loop().time, []

    @shop.sink("pager")
    async def pager(message):
        tries.append(clock())
        if len(tries) == 1:
            raise hf.RetryAfter(37)

    @shop.workflow("shop.page.v1")
    async def page(ctx):
        ctx.send("pager", "wake up")

    async with shop.worker():
        await settled(shop)
        begun = clock()
        await shop.start("shop.page.v1")
        await asyncio.sleep(40)
    assert [round(at - begun, 1) for at in tries] == [0.0, 37.0]


@pytest.mark.spec("OPS-7")
async def test_a_schedule_that_comes_due_between_two_polls_fires_in_time(shop, world):
    async with shop.worker():
        await settled(shop)
        await shop.schedule("soon", "shop.order.v1", every=37)
        await asyncio.sleep(37.1)
        assert (await shop.store.stats()).by_status["succeeded"] == 1


@pytest.mark.spec("STORE-1")
@pytest.mark.spec("OPS-7")
async def test_a_worker_that_hints_do_not_reach_polls_fast_until_they_come_again(shop, hinting):
    """The store says so, and wakes it: it does not sleep on until its next poll."""
    clock = asyncio.get_running_loop().time
    async with shop.worker():
        await settled(shop)
        hinting.deaf = True
        hinting.tell()
        await asyncio.sleep(20)
        begun = clock()
        await until(shop, await shop.start("shop.order.v1"))
        assert clock() - begun < 1.1
        hinting.deaf = False
        hinting.tell()
        await asyncio.sleep(150)
        hinting.looks.clear()
        await asyncio.sleep(600)
        assert len(hinting.looks) <= 6 * 10


@pytest.mark.spec("OPS-7")
@pytest.mark.parametrize("late", [0.5, 5.0])
async def test_a_start_during_a_look_is_not_missed(shop, hinting, late):
    """The look may have read before it: another follows at once."""
    clock = asyncio.get_running_loop().time
    async with shop.worker():
        await settled(shop)
        hinting.late = late
        looks = len(hinting.looks)
        while len(hinting.looks) == looks:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await asyncio.sleep(late / 2)
        begun = clock()
        await until(shop, await shop.start("shop.order.v1"))
        assert clock() - begun < 2 * late + 0.1


@pytest.mark.spec("OPS-7")
async def test_the_loops_of_a_worker_share_the_look_of_a_poll(shop, hinting):
    """The claim loop, the keeper and the relay fall into step."""
    async with shop.worker():
        await settled(shop)
        await asyncio.sleep(600)
    gaps = [later - earlier for earlier, later in zip(hinting.looks, hinting.looks[1:], strict=False)]
    assert min(gaps) > HINTED_POLL_SECONDS / 2 - 5
    assert max(gaps) <= HINTED_POLL_SECONDS + 0.1


@pytest.mark.spec("OPS-7")
async def test_poll_is_the_longest_sleep(shop, hinting):
    """It holds for all loops; but a keeper looks once in each lease time."""
    async with shop.worker(poll=5):
        await settled(shop)
        await asyncio.sleep(100)
        assert 20 <= len(hinting.looks) <= 21
    async with shop.worker(poll=300, lease=100):
        await settled(shop)
        await asyncio.sleep(1100)
        assert 10 <= len(hinting.looks) <= 14


@pytest.mark.spec("LEASE-15")
async def test_a_worker_without_runs_does_not_renew(shop, hinting):
    """It looks for strays after a claim, because the reply of the store may have been lost."""
    async with shop.worker():
        await settled(shop)
        await until(shop, await shop.start("shop.order.v1"))
        hinting.calls.clear()
        await asyncio.sleep(60)
        assert hinting.calls["renew"] in {5, 6, 7}
        hinting.calls.clear()
        await asyncio.sleep(600)
        assert hinting.calls["renew"] == 0


@pytest.mark.spec("OPS-7")
async def test_a_look_that_fails_is_made_again_soon(shop, hinting, monkeypatch):
    async with shop.worker():
        await settled(shop)
        monkeypatch.setattr(hinting._store, "due", _away)
        await asyncio.sleep(60)
        monkeypatch.undo()
        await asyncio.sleep(1)
        hinting.deaf = True  # so that only a look finds it
        assert await outcome(shop, await shop.start("shop.order.v1")) == ("succeeded", "done")


async def _away(*_args, **_fields):
    raise Unavailable("not now")
