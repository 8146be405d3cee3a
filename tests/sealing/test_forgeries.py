"""Forgery: someone can write the database and has no key. Inserted or removed values are detected."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from holdfast import App, Backoff, NotSealed, Status, StepFailed
from holdfast.sealing import Encrypt
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import until
from tests.sealing.conftest import NEW


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.db")


@pytest.fixture
def app(path, world):
    store = SqliteStore(path, clock=world.now, inline=True)
    return App(store, world=world, codec=Encrypt({"new": NEW}))


@pytest.fixture
def forge(path):
    def forged(sql, *values):
        db = apsw.Connection(path)
        db.execute(sql, values)
        db.close()

    return forged


NULLED = {
    "output of a step": "update workflow_step set output = null where key = 'risk'",
    "error of a step": "update workflow_step set error = null where key = 'break'",
    "outcome of a step": "update workflow_step set output = null, status = 'failed' where key = 'risk'",
    "payload of an event": "update workflow_step set output = null where key = 'event:paid'",
}


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("sql", NULLED.values(), ids=NULLED)
async def test_what_was_removed_is_not_replayed_as_none(sql, app, forge):
    """The run goes back before its code runs: it might take nothing for an answer, or for a failure."""
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            risk = await ctx.step("risk", lambda: {"blocked": True}, retry=Backoff.none())
            await ctx.step("break", lambda: 1 / 0, retry=Backoff.none())
        except StepFailed as error:
            risk = error
        await ctx.await_event("paid")
        seen.append(risk)
        await ctx.await_event("go")
        seen.append(risk)

    run = await app.start(order)
    await app.emit("paid")
    async with app.worker():
        await until(app, run, Status.WAITING)
        assert len(seen) == 1
        forge(sql)
        await app.emit("go")
        await asyncio.sleep(30)
        assert len(seen) == 1
        found = await app.get(run.id)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        assert "is not there, although this app has sealed it" in found.last_error
        assert len(await app.steps(run.id)) == 4
    await app.close()


async def test_a_result_that_was_removed_is_not_taken_for_none(app, forge):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == 1
    forge("update workflow_run set result = null")
    with pytest.raises(NotSealed, match=r"the result of run .* is not there"):
        await app.result(run.id, 1)
    await app.close()


MOVE = """update workflow_step set status = 'succeeded', finished_at = 1, output = (
    select json_set(output, '$.topic', ?) from workflow_step where run_id = ? and topic = 'chat'
) where run_id = ? and topic = 'approved'"""


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("said", ["chat", "approved"])
async def test_an_event_does_not_open_under_a_wait_for_another_topic(said, app, forge):
    """Whichever topic the forged row itself says that it has."""
    got = []

    @app.workflow("shop.order.v1")
    async def order(ctx, topic):
        got.append((await ctx.await_event(topic)).topic)
        await ctx.await_event("never")

    victim, chatter = await app.start(order, "approved"), await app.start(order, "chat")
    async with app.worker():
        await until(app, victim, Status.WAITING)
        await app.emit("chat", {"ok": True})
        await asyncio.sleep(5)
        forge(MOVE, said, str(chatter.id), str(victim.id))
        forge("update workflow_run set status = 'pending' where id = ?", str(victim.id))
        await asyncio.sleep(30)
    assert got == ["chat"]
    assert "moved here from elsewhere" in (await app.get(victim.id)).last_error
    await app.close()


@pytest.mark.parametrize("data", ["[1,2]", "7", '{"error":[1]}', '{"error":1,"step":2}', "no JSON at all"])
@pytest.mark.parametrize("type_", ["told", "log", "step_failed", "retried"])
async def test_a_row_of_somebody_elses_hides_no_other_of_the_trail(type_, data, app, forge):
    """It is shown unchanged."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.log("hello")

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    forge(
        "insert into workflow_event (workflow_id, event_type, data, created_at) values (?, ?, ?, 5)",
        str(run.id),
        type_,
        data,
    )
    *_, logged, _ended, foreign = await app.trail(run.id)
    assert (logged.data["message"], foreign.data_json) == ("hello", data)
    await app.close()
