"""Round trips of verbs: where no run owes anything, nothing is looked for."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.records import ANY
from tests.stores.postgres.kit import make
from tests.stores.sqlite.files import new_run


async def calls_of(store, work):
    """The functions that are called meanwhile, in order."""
    called, call = [], store._call

    async def counted(verb, *args):
        called.append(verb)
        return await call(verb, *args)

    store._call = counted
    await work
    store._call = call
    return called


async def cancelled(store, *, with_child):
    parent = new_run()
    await store.start([parent, *([new_run(parent=parent.id)] if with_child else [])])
    return await calls_of(store, store.cancel(parent.id, ANY))


@pytest.mark.parametrize("with_child", [False, True])
def test_a_cancel_looks_for_what_is_owed_only_if_something_is(with_child):
    store = make(None)

    async def story():
        await store.open()
        try:
            return await cancelled(store, with_child=with_child)
        finally:
            await store.close()

    called = asyncio.run(story())
    assert called[0] == "cancel"
    assert ("deliver" in called) == with_child
