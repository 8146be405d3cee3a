"""Starts with an idempotency key when their values are sealed: a repeated start is still recognised."""

from __future__ import annotations

import apsw
import pytest

from holdfast import App, KeyReused, UnknownKey
from holdfast.codec import digest
from holdfast.errors import NotSealed
from holdfast.sealing import Compress, Encrypt
from holdfast.stores.sqlite import SqliteStore
from tests.sealing.conftest import NEW, OLD, OTHER

TYPE = "shop.order.v1"


async def started(app, params, **options):
    run = await app.start(TYPE, params, key="order:42", **options)
    return run.id, run.created


@pytest.mark.spec("START-4", "OPS-5")
async def test_the_same_start_gives_the_run_that_is_there(app):
    first, created = await started(app, {"n": 1})
    assert created
    assert await started(app, {"n": 1}) == (first, False)
    with pytest.raises(KeyReused):
        await started(app, {"n": 2})


@pytest.mark.spec("START-4", "OPS-5")
async def test_the_same_start_after_a_rotation_gives_the_run_that_is_there(opened):
    """Its digest is another one by then, which is known from the older key."""
    first, _ = await started(opened(Encrypt({"old": OLD})), {"n": 1})
    rotated = opened(Encrypt({"old": OLD, "new": NEW}, newest="new"))
    assert await started(rotated, {"n": 1}) == (first, False)
    with pytest.raises(KeyReused) as told:
        await started(rotated, {"n": 2})
    assert told.value.run_id == first
    with pytest.raises(KeyReused):
        await rotated.start("shop.other.v1", {"n": 1}, key="order:42")


@pytest.mark.spec("START-4", "OPS-5")
async def test_the_same_start_after_a_rotation_is_known_of_a_deleted_run(opened):
    """Its key is taken until the purge, and nobody can read it meanwhile."""
    old = opened(Encrypt({"old": OLD}))
    first, _ = await started(old, {"n": 1})
    await old.delete(first)
    rotated = opened(Encrypt({"old": OLD, "new": NEW}, newest="new"))
    assert await started(rotated, {"n": 1}) == (first, False)
    with pytest.raises(KeyReused):
        await started(rotated, {"n": 2})


@pytest.mark.spec("START-4", "OPS-5")
async def test_the_same_start_after_a_rotation_is_known_in_the_callers_transaction(tmp_path, world):
    """Before the app has opened the store, and before the first start is committed."""
    path, ended = str(tmp_path / "x.db"), []

    def app(codec):
        ended.append(App(SqliteStore(path, clock=world.now, inline=True), world=world, codec=codec))
        return ended[-1]

    old, both = Encrypt({"old": OLD}), Encrypt({"old": OLD, "new": NEW}, newest="new")
    first, _ = await started(app(old), {"n": 1})
    db = apsw.Connection(path)
    db.execute("begin immediate")
    assert await started(app(both), {"n": 1}, connection=db) == (first, False)
    with pytest.raises(KeyReused):
        await started(app(both), {"n": 2}, connection=db)
    second = await app(old).start(TYPE, {"n": 3}, key="order:43", connection=db)
    again = await app(both).start(TYPE, {"n": 3}, key="order:43", connection=db)
    assert (again.id, again.created) == (second.id, False)
    db.execute("rollback")
    db.close()
    for one in ended:
        await one.close()


async def test_the_same_start_in_one_call_is_one_run(opened):
    """Including a run from before the rotation. A conflict is the answer for its own run only."""
    await started(opened(Encrypt({"old": OLD})), {"n": 1})
    rotated = opened(Encrypt({"old": OLD, "new": NEW}, newest="new"))
    answers = await rotated.start_many(
        [
            (TYPE, {"n": 1}, {"key": "order:42"}),
            (TYPE, {"n": 2}, {"key": "order:42"}),
            (TYPE, {"n": 3}, {"key": "order:43"}),
            (TYPE, {"n": 3}, {"key": "order:43"}),
        ]
    )
    assert isinstance(answers[1], KeyReused)
    assert [answers[n].created for n in (0, 2, 3)] == [False, True, False]


async def test_when_the_old_key_is_gone_nobody_can_say_whether_it_is_the_same(opened):
    await started(opened(Encrypt({"old": OLD})), {"n": 1})
    with pytest.raises(UnknownKey, match="key 'old'"):
        await started(opened(Encrypt({"new": NEW})), {"n": 1})


async def test_encryption_turned_on_over_runs_that_are_there(opened):
    """With accept_plain the plain run is known as the same; without it, it is refused."""
    first, _ = await started(opened(None), {"n": 1})
    assert await started(opened(Encrypt({"new": NEW}, accept_plain=True)), {"n": 1}) == (first, False)
    with pytest.raises(NotSealed, match="accept_plain=True"):
        await started(opened(Encrypt({"new": NEW})), {"n": 1})


async def test_compression_turned_on_or_off_changes_no_digest(opened):
    first, _ = await started(opened(Compress(min_bytes=1)), {"n": "x" * 100})
    assert await started(opened(None), {"n": "x" * 100}) == (first, False)


class Spy:
    """A store that remembers what it was asked to start."""

    def __init__(self, store):
        self._store, self.seen = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def start(self, runs, connection=None):
        self.seen += runs
        return await self._store.start(runs)


async def test_what_is_stored_of_a_start_tells_nothing_of_its_params(store, world):
    """Not by its digest either, and two runs with equal params do not look alike."""
    spy = Spy(store)
    app = App(spy, world=world, codec=Encrypt({"k": OTHER}))
    for key in ("a", "b", None, None):
        await app.start(TYPE, {"card": "4111 1111"}, key=key)
    assert digest(TYPE, '{"card":"4111 1111"}') not in {new.digest for new in spy.seen}
    assert len({new.digest for new in spy.seen}) == len({new.params for new in spy.seen}) == 4
    assert not any("4111 1111" in new.params for new in spy.seen)
