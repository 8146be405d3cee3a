"""Gates and children with a codec: the store sees neither questions nor answers, and the app reads them
all."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import ChildFailed, Conflict, Fatal, RunFilter, Status
from holdfast.codec import digest, untyped
from holdfast.records import ANY
from holdfast.sealing import Encrypt
from tests.engine.kit import until
from tests.sealing.conftest import OTHER

SECRET = "the-cat-is-called-Mia"


def family(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx, what: str) -> str:
        if what == "bad":
            raise Fatal(f"no {SECRET}")
        return f"{what} for {SECRET}"

    @app.workflow("shop.order.v1")
    async def order(ctx) -> list:
        await ctx.start(ship, f"loose {SECRET}", key="loose")
        good = await ctx.call(ship, f"a parcel for {SECRET}", key="good")
        try:
            await ctx.call(ship, "bad", key="bad")
        except ChildFailed as error:
            gate = await ctx.approval("gate", ask=f"Tell {SECRET}?", data={"about": SECRET})
            return [good, error.error.message, gate.by]

    return order


async def stored(store):
    """Return everything that the store itself shows of all runs."""
    runs = await store.list(RunFilter(tenant=ANY), 1000)
    steps = [await store.steps(run.id, ANY) for run in runs]
    return msgspec.json.encode(
        [runs, steps, await store.trail(None, ANY, limit=10_000), await store.approvals("default")]
    ).decode()


@pytest.mark.spec("OPS-5", "FLOW-6", "FLOW-7")
async def test_a_family_is_sealed_on_its_way_in_and_opened_on_its_way_out(app):
    order = family(app)
    async with app.worker():
        run = await app.start(order)
        while not await app.approvals():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert SECRET not in await stored(app.store.inner)
        (gate,) = await app.approvals()
        assert (gate.ask, gate.data) == (f"Tell {SECRET}?", {"about": SECRET})
        steps = {step.key: step for step in await app.steps(run.id)}
        assert SECRET in steps["gate"].ask
        assert SECRET in steps["good"].output
        assert f"Tell {SECRET}?" in (await app.explain(run.id)).text
        await app.approve(run.id, by="ada", digest=gate.digest)
        good, bad, by = await run.result(60)
        assert (good, bad, by) == (f"a parcel for {SECRET} for {SECRET}", f"no {SECRET}", "ada")
    assert SECRET not in await stored(app.store.inner)


@pytest.mark.spec("OPS-5", "APPR-6")
async def test_a_digest_does_not_tell_what_was_asked(app):
    """In plain, whoever reads the store could try questions until one fits."""
    order = family(app)
    async with app.worker():
        run = await app.start(order)
        while not await app.approvals():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (gate,) = await app.approvals()
        guessed = digest("approval", untyped.encode({"ask": gate.ask, "data": gate.data}, "it"))
        assert gate.digest != guessed
        with pytest.raises(Conflict, match="digest"):
            await app.approve(run.id, digest=guessed)


@pytest.mark.spec("OPS-5")
async def test_who_lacks_the_key_of_a_childs_result_gives_the_parent_back(opened, app):
    """The parent is not failed for it: another worker may have the key."""
    order = family(app)
    async with app.worker():
        run = await app.start(order)
        while not await app.approvals():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    other = opened(Encrypt({"other": OTHER}))
    family(other)
    await app.approve(run.id)
    async with other.worker():
        await asyncio.sleep(5)
        found = await app.get(run.id)
        assert found.status is Status.PENDING
        assert (await app.explain(run.id)).reason == "sealed"
    async with app.worker():
        assert (await until(app, run)).status is Status.SUCCEEDED
