"""A worker without the key of a run harms nothing: it releases the run, which waits for another worker."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import App, Backoff, BadValue, HoldfastError, Status, StepFailed
from holdfast.lifecycle import StepStatus
from holdfast.records import ANY, Ask, Item, NewEvent, StepWrite
from holdfast.records.moves import RELEASE
from holdfast.sealing import Encrypt
from tests.engine.kit import until
from tests.sealing.conftest import NEW, OLD, OTHER

KEYED = {"new": NEW}
LACKING = {
    "no codec": None,
    "another key": Encrypt({"other": OTHER}),
    "other bytes": Encrypt({"new": OTHER}),
}


def define(app, ran=None):
    """The same workflow in each app; `ran` collects what is executed where."""

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, params=None):
        if ran is not None:
            ran.append(params)
        await ctx.step("make", lambda: "made")
        return (await ctx.await_event("paid")).payload

    return app


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("codec", LACKING.values(), ids=LACKING)
async def test_a_run_that_cannot_be_opened_goes_back_unharmed(codec, opened):
    """No attempt is used up, none of its code runs, and the reason is there to read; later it succeeds."""
    app, ran = define(opened(Encrypt(KEYED))), []
    lacking = define(opened(codec), ran)
    run = await app.start("shop.order.v1", {"n": 1}, max_attempts=1)
    async with lacking.worker() as worker:
        await asyncio.sleep(200)
        assert worker.busy == 0
        found = await lacking.store.get(run.id, ANY)
        assert (found.status, found.attempt, found.crashes) == (Status.PENDING, 0, 0)
        assert found.last_error.startswith("sealed: ")
        assert (found.error.kind, found.error.message) == (
            "sealed",
            found.last_error.removeprefix("sealed: "),
        )
    assert ran == []
    tries = await app.trail(run.id, types=("leased",))
    assert 3 <= len(tries) <= 5
    async with app.worker():
        await app.emit("paid", "yes")
        assert await app.result(run.id, 120) == "yes"


async def test_one_that_cannot_be_opened_does_not_hinder_the_others_of_its_claim(opened):
    ours, theirs = define(opened(Encrypt(KEYED))), define(opened(Encrypt({"old": OLD})))
    for app in (theirs, ours, theirs, ours):
        await app.start("shop.order.v1")
        await app.emit("paid", 1)
    async with ours.worker():
        await asyncio.sleep(30)
    assert [str(run.status) for run in await ours.list()] == ["succeeded", "pending"] * 2


@pytest.mark.parametrize("field", ["output", "error"])
async def test_a_run_with_one_step_that_cannot_be_opened_goes_back_too(field, opened):
    """Before any of its code runs: it might catch the error and go on as if the step had failed."""

    def make():
        if field == "error":
            raise ValueError("no")
        return "made"

    def described(app, ran):
        @app.workflow("shop.order.v1")
        async def order(ctx):
            ran.append(1)
            try:
                await ctx.step("make", make, retry=Backoff.none())
            except StepFailed:
                ran.append("caught")
            await ctx.await_event("paid")

        return app

    old = described(opened(Encrypt({"old": OLD})), [])
    both = described(opened(Encrypt({"old": OLD, "new": NEW}, newest="new")), [])
    ran = []
    run = await old.start("shop.order.v1")
    async with both.worker():
        await until(both, run, Status.WAITING)
    await old.emit("paid")
    async with described(opened(Encrypt({"old": OLD})), ran).worker():
        await asyncio.sleep(30)
    assert ran == []
    found = await both.get(run.id)
    assert "step 'make'" in found.last_error
    assert "key 'new'" in found.last_error


async def test_a_plain_run_that_has_become_sealed_is_not_replayed_where_it_cannot_be_opened(opened):
    """Encryption was turned on while it ran, and one worker has no codec: seals are no results."""
    plain, ran = define(opened(None), []), []
    run = await plain.start("shop.order.v1", {"n": 1})
    async with define(opened(Encrypt(KEYED, accept_plain=True))).worker():
        await until(plain, run, Status.WAITING)
    await plain.emit("paid")
    async with define(opened(None), ran).worker():
        await asyncio.sleep(30)
    assert ran == []
    assert "the output of step 'make'" in (await plain.get(run.id)).last_error


@pytest.mark.parametrize("codec", [LACKING["another key"], LACKING["other bytes"]], ids=repr)
@pytest.mark.parametrize("when", ["before", "while it works", "while it sleeps"])
async def test_an_event_that_cannot_be_opened_sends_its_run_back(codec, when, opened):
    """Whenever it comes: found by park, told by a renewal, brought by a claim. The code sees none of it."""
    emitter, app, seen = opened(Encrypt(KEYED)), opened(codec), []

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        async def paid():
            try:
                seen.append(await ctx.await_event("paid"))
            except HoldfastError as error:
                seen.append(error)

        async def work():
            await asyncio.sleep(60 if when == "while it works" else 0)

        await asyncio.gather(paid(), ctx.step("work", work))

    run = await app.start(order)
    async with app.worker() as worker:
        if when != "before":
            await asyncio.sleep(30)
        await emitter.emit("paid", {"by": "Ada"})
        await asyncio.sleep(20)
        found = await app.store.get(run.id, ANY)
        assert (found.status, found.attempt, found.crashes) == (Status.PENDING, 0, 0)
        assert found.last_error.startswith("sealed: the payload of")
        assert worker.busy == 0
    assert seen == []


async def test_an_event_of_another_place_does_not_open(opened, store):
    """A payload that was put under another id or topic in the database is refused."""
    app = define(opened(Encrypt(KEYED)))
    sealed = app.store._records.event(NewEvent(topic="paid", payload='"stolen"', id="theirs", tenant="acme"))
    await store.open()
    await store.emit(msgspec.structs.replace(sealed, tenant="default"))
    run = await app.start("shop.order.v1")
    await store.emit(msgspec.structs.replace(sealed, tenant="default", id="mine"))
    async with app.worker():
        await asyncio.sleep(30)
    found = await app.get(run.id)
    assert found.status is Status.PENDING
    assert "moved here from elsewhere" in found.last_error


@pytest.mark.parametrize("codec", [None, Encrypt(KEYED)], ids=repr)
async def test_nothing_that_looks_like_a_seal_can_be_given_or_returned(codec, opened):
    """Input from outside must not make a run look as if it could not be opened."""
    app, forged = opened(codec), {"holdfast.sealed": {"v": 1, "by": ["zlib"], "data": ""}}

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, _params=None):
        try:
            await ctx.step("fetch", lambda: forged)
        except StepFailed as error:
            return error.kind

    with pytest.raises(BadValue, match=r"begins with the key 'holdfast\.sealed'"):
        await app.start(order, forged)
    with pytest.raises(BadValue, match="which marks encrypted values"):
        await app.emit("paid", forged)
    async with app.worker():
        assert await (await app.start(order)).result(60) == "encoding"


async def test_a_payload_that_only_holds_the_reserved_key_is_no_seal(opened):
    app = define(opened(None))
    run = await app.start("shop.order.v1")
    await app.emit("paid", {"a": 1, "holdfast.sealed": 2})
    async with app.worker():
        assert await run.result(60) == {"a": 1, "holdfast.sealed": 2}


@pytest.mark.parametrize("field", ["output", "error"])
async def test_a_step_that_somebody_put_in_plain_is_not_replayed(field, opened, store):
    app, ran = define(opened(Encrypt(KEYED)), []), []
    run = await app.start("shop.order.v1")
    (claim,) = await app.store.claim(Ask(worker="w", types=("shop.order.v1",), limit=1))
    failed = {"status": StepStatus.FAILED} if field == "error" else {}
    forged = StepWrite(key="make", **{field: '{"kind":"fatal"}'}, **failed)
    item = Item(run=run.id, fence=claim.fence, number=1, move=RELEASE, steps=(forged,))
    await store.commit([item])
    async with define(opened(Encrypt(KEYED)), ran).worker():
        await asyncio.sleep(30)
    assert ran == []
    assert "step 'make' of run" in (await app.get(run.id)).last_error


class Spoilt:
    """A store with rows that were cut short."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def claim(self, ask):
        claims = await self._store.claim(ask)
        return [self._cut(one) if one.steps else one for one in claims]

    def _cut(self, claim):
        steps = [msgspec.structs.replace(one, output=(one.output or "")[:-9]) for one in claim.steps]
        return msgspec.structs.replace(claim, steps=tuple(steps))


@pytest.mark.parametrize("codec", [None, Encrypt(KEYED)], ids=repr)
async def test_a_spoilt_row_hinders_no_other_run_of_its_claim(codec, opened, store, world):
    app = define(opened(Encrypt(KEYED)))
    spoilt = await app.start("shop.order.v1")
    async with app.worker():
        await until(app, spoilt, Status.WAITING)
    await app.emit("paid", 1)
    lame, ran = define(App(Spoilt(store), world=world, codec=codec)), []

    @lame.workflow("shop.other.v1")
    async def other(ctx):
        ran.append(1)

    await lame.start(other)
    async with lame.worker():
        await asyncio.sleep(30)
    assert ran == [1]
    assert (await store.get(spoilt.id, ANY)).last_error.startswith("sealed: ")


async def test_a_plain_value_that_somebody_put_in_is_not_executed(opened):
    """By default; with accept_plain it is."""
    run = await opened(None).start("shop.order.v1", {"n": 1})
    ran = []
    async with define(opened(Encrypt(KEYED)), ran).worker():
        await asyncio.sleep(30)
    assert ran == []
    assert "accept_plain=True" in (await opened(None).get(run.id)).last_error
    async with define(opened(Encrypt(KEYED, accept_plain=True)), ran).worker():
        await asyncio.sleep(90)
    assert ran[0] == {"n": 1}


async def test_a_sealed_run_that_is_cancelled_or_released_is_so(opened):
    """A worker can release a run that it cannot open, and anyone can cancel the run."""
    app, lacking = define(opened(Encrypt(KEYED))), define(opened(None))
    run = await app.start("shop.order.v1")
    async with lacking.worker():
        await asyncio.sleep(5)
        await lacking.cancel(run.id)
        await asyncio.sleep(120)
    assert (await app.get(run.id)).status is Status.CANCELLED
