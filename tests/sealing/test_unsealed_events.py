"""An event without encryption in an encrypted store: runs that took it are released and named, and can be
repaired."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from holdfast import App, Encrypt, Status
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import until
from tests.sealing.conftest import NEW

# The statement of docs/guide/encryption.md.
DROP = """delete from workflow_inbox where topic = 'paid' and payload not like '{"holdfast.sealed"%'"""


def define(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.await_event("paid")).payload

    return app


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.db")


@pytest.fixture
def app(path, world):
    return define(
        App(SqliteStore(path, clock=world.now, inline=True), world=world, codec=Encrypt({"new": NEW}))
    )


async def stuck(app):
    """A run that was given an event by an app that does not encrypt."""
    run = await app.start("shop.order.v1")
    async with app.worker():
        await until(app, run, Status.WAITING)
        await App(app.store.inner, world=app.world).emit("paid", "in plain")
        await asyncio.sleep(5)
    return run


@pytest.mark.spec("OPS-5", "MOVE-7")
async def test_the_check_up_names_runs_that_go_back_because_they_do_not_open(app):
    run = await stuck(app)
    (told,) = [one for one in (await app.doctor()).findings if one.level == "error"]
    assert told.what.startswith("1 run released by workers that cannot decrypt or encrypt a value")
    assert ": the payload of event" in told.what
    assert told.runs == (run.id,)
    await app.close()


async def test_a_plain_event_that_is_dropped_and_rewound_makes_room_for_the_next(app, path):
    """Rewound alone the run would take it again, for it is the oldest."""
    run = await stuck(app)
    await app.emit("paid", "sealed")
    db = apsw.Connection(path)
    db.execute(DROP)
    db.close()
    await app.rewind(run.id, "event:paid")
    async with app.worker():
        assert await app.result(run.id, 120) == "sealed"
    await app.close()


async def test_a_plain_event_is_taken_by_a_worker_that_accepts_it(app, world):
    run = await stuck(app)
    lenient = Encrypt({"new": NEW}, accept_plain=True)
    async with define(App(app.store.inner, world=world, codec=lenient)).worker():
        assert await app.result(run.id, 120) == "in plain"
    await app.close()
