"""Sealed values in the caller's transaction, and in a transaction that a step shares with its function."""

from __future__ import annotations

import json

import apsw
import msgspec
import pytest

from holdfast.records import ANY, Ask, Item, NewEvent, NewRun, StepWrite, TrailWrite
from holdfast.records.moves import CHECKPOINT
from holdfast.sealing import Encrypt, Sealed
from holdfast.stores.sqlite import SqliteStore
from tests.sealing.conftest import NEW

TYPE, SECRET = "shop.order.v1", "the-cat-is-called-Mia"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


@pytest.fixture
def sealed(path, world):
    return Sealed(SqliteStore(str(path), clock=world.now, inline=True), Encrypt({"new": NEW}))


def left(path):
    return [one.name for one in path.parent.iterdir() if SECRET.encode() in one.read_bytes()]


@pytest.mark.spec("OPS-5")
async def test_what_a_transaction_completes_is_sealed_as_any_other_step(sealed, path, world):
    """Its step, its events and its log rows; what the function itself writes is its own affair."""
    await sealed.open()
    run = world.uuid7()
    await sealed.start([NewRun(id=run, type=TYPE, params=f'"{SECRET}"')])
    (claim,) = await sealed.claim(Ask(worker="w", types=(TYPE,), limit=1))
    item = Item(run=run, tenant=claim.tenant, fence=claim.fence, number=1, move=CHECKPOINT)

    def work(connection):
        return msgspec.structs.replace(
            item,
            steps=(StepWrite(key="charge", output=f'"{SECRET}"'),),
            events=(NewEvent(topic="paid", payload=f'"{SECRET}"', id="e1"),),
            trail=(TrailWrite("log", json.dumps({"message": SECRET})),),
        )

    assert (await sealed.transact(item, work)).answer == "applied"
    (step,) = await sealed.steps(run, ANY)
    (told,) = await sealed.trail(run, ANY, types=("log",))
    assert (step.output, told.data["message"]) == (f'"{SECRET}"', SECRET)
    assert left(path) == []
    await sealed.close()


@pytest.mark.spec("OPS-5")
async def test_a_start_and_an_event_of_the_callers_transaction_are_sealed(sealed, path, world):
    """They are there with it, and open like any other."""
    await sealed.open()
    run = world.uuid7()
    db = apsw.Connection(str(path))
    db.execute("begin immediate")
    await sealed.start([NewRun(id=run, type=TYPE, params=f'"{SECRET}"')], db)
    await sealed.emit(NewEvent(topic="paid", payload=f'"{SECRET}"', id="e1"), db)
    db.execute("commit")
    db.close()
    assert (await sealed.get(run, ANY)).params == SECRET
    assert left(path) == []
    await sealed.close()
