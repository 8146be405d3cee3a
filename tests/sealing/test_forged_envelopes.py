"""Forged envelopes: without a codec they are values, with a codec they are refused."""

from __future__ import annotations

import asyncio
import logging
import zlib
from base64 import b64encode
from uuid import uuid4

import msgspec
import pytest

from holdfast import CannotOpen, Status, UnknownKey, Waiting
from holdfast.codec import MARK
from holdfast.records import NewEvent, NewRun
from holdfast.sealing import Compress, Encrypt
from holdfast.sealing.chain import Chain
from holdfast.sealing.hooks import Where
from tests.engine.kit import until
from tests.engine.plans.plan_helpers import Calls, ship
from tests.sealing.conftest import NEW

EVIL = "x\x1b[2J\n2026-01-01 ERROR forged line \u202e" + "k" * 10_000
HERE = Where(tenant="default", field="params")


def sealed(**fields):
    return msgspec.json.encode({"holdfast.sealed": {"v": 1, **fields}}).decode()


FORGED = {
    "as ours": sealed(by=["aes256gcm:2026-11"], data="AAAA"),
    "compressed": sealed(by=["zlib"], data="AAAA"),
    "with a reason": sealed(why="WrongKey", said=EVIL, key=EVIL),
    "damaged": '{"holdfast.sealed": 7}',
    "of a later form": sealed(by=[], data="").replace('"v":1', '"v":99'),
}


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("when", ["before", "while it works", "while it sleeps"])
async def test_where_there_is_no_codec_an_envelope_in_an_event_is_a_value(payload, when, opened):
    """It sent every waiter back, once a minute."""
    app = opened(None)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def work():
            await asyncio.sleep(60 if when == "while it works" else 0)

        event, _ = await asyncio.gather(ctx.await_event("paid"), ctx.step("work", work))
        await ctx.sleep(1)  # and once more when the run is executed again
        return list(event.payload)

    run = await app.start(order)
    async with app.worker():
        if when != "before":
            await asyncio.sleep(30)
        await app.store.emit(NewEvent(topic="paid", payload=payload, id="x"))
        assert await run.result(120) == ["holdfast.sealed"]
    assert len(await app.trail(run.id, types=("leased",))) <= 3


@pytest.mark.spec("OPS-5")
async def test_where_there_is_no_codec_an_envelope_that_calls_a_task_is_a_value(opened):
    app, calls = opened(None), Calls(Waiting("carrier"))
    run = await app.start(ship(app, calls))
    async with app.worker():
        await until(app, run, Status.WAITING)
        await app.store.emit(NewEvent(topic="carrier", payload=FORGED["as ours"], id="x"))
        assert await run.result(120) == "done"
    assert calls.seen[1][1] == msgspec.json.decode(FORGED["as ours"])


@pytest.mark.spec("OPS-5")
async def test_a_task_that_is_called_with_what_does_not_open_goes_back(opened):
    """With a codec: what came is not what this app has sealed."""
    app = opened(Encrypt({"new": NEW}))
    calls = Calls(Waiting("carrier"))
    run = await app.start(ship(app, calls, "NEXT"))
    async with app.worker():
        await until(app, run, Status.WAITING)
        await app.store.inner.emit(NewEvent(topic="carrier", payload=FORGED["as ours"], id="x"))
        await asyncio.sleep(30)
        assert (await app.get(run.id)).last_error.startswith("sealed: the payload of event")
    assert len(calls.seen) == 1


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("codec", [None, Compress(), Encrypt({"new": NEW}, accept_plain=True)], ids=repr)
@pytest.mark.parametrize(
    "params",
    [sealed(by=[EVIL], data=""), sealed(by=[f"aes256gcm:{EVIL}"], data="AAAA"), FORGED["with a reason"]],
)
async def test_a_forged_envelope_writes_no_line_of_its_own_into_a_log(codec, params, opened, caplog):
    app = opened(codec)

    @app.workflow("shop.order.v1")
    async def order(ctx, params=None):
        return 1

    inner = getattr(app.store, "inner", app.store)
    await inner.open()
    run = NewRun(id=uuid4(), type="shop.order.v1", params=params)
    await inner.start([run])
    with caplog.at_level(logging.DEBUG):
        async with app.worker():
            await asyncio.sleep(5)
    found = await app.get(run.id)
    assert found.status is Status.PENDING
    assert found.last_error.isprintable()
    assert len(found.error.message) < 1000
    lines = [record.getMessage() for record in caplog.records]
    assert any("is released for 60 s" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_the_name_of_a_key_that_a_stranger_wrote_is_cut_and_escaped():
    chain = Chain([Encrypt({"new": NEW})])
    with pytest.raises(UnknownKey) as refused:
        chain.open(sealed(by=[f"aes256gcm:{EVIL}"], data="AAAA"), HERE)
    assert refused.value.key.isprintable()
    assert len(refused.value.key) < 100
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("by", [[], ["zlib"] * 1000, ["zlib:1", "zlib:2"]], ids=["none", "1000", "two"])
def test_an_envelope_is_opened_once_by_each_hook(by):
    with pytest.raises(CannotOpen, match="names no hook, or one of them twice"):
        Chain([Compress()]).open(sealed(by=by, data=b64encode(zlib.compress(b"1")).decode()), HERE)


async def test_what_an_envelope_holds_cannot_leave_its_place_in_the_record(opened):
    """Opened, it would have closed the object around it and gone on with fields of its own."""
    app = opened(Compress())

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.await_event("paid")).id

    run = await app.start(order)
    break_out = b64encode(zlib.compress(b'1,"id":"another"')).decode()
    async with app.worker():
        await until(app, run, Status.WAITING)
        await app.store.inner.emit(
            NewEvent(topic="paid", payload=sealed(by=["zlib"], data=break_out), id="x")
        )
        await asyncio.sleep(5)
    assert (await app.get(run.id)).last_error.startswith("sealed: a stored value is damaged")


def test_a_deep_envelope_is_damaged_and_nothing_else():
    for text in (MARK + ":" + "[" * 100_000, MARK):
        with pytest.raises(CannotOpen, match="damaged"):
            Chain([Compress()]).open(text, HERE)
