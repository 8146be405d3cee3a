"""`client.sync`: the same verbs, blocking."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast as hf


@pytest.mark.spec("HTTP-8", "FLOW-15")
def test_a_script_starts_runs_and_waits_for_them(shared):
    client = shared.client()
    with client.sync as sync:
        handle = sync.start("shop.quick.v1", {"a": 1})
        assert handle.result(10) == {"a": 1}
        assert (sync.result(handle.id), handle.get().status) == ({"a": 1}, hf.Status.SUCCEEDED)
        assert [one.type for one in sync.follow(handle.id)][-1] == "succeeded"
        assert [type(one).__name__ for one in sync.start_many([("shop.quick.v1", 1), ("shop.no", 2)])] == [
            "SyncHandle",
            "UnknownWorkflow",
        ]
        assert sync.whoami().tenant == "default"
        assert sync.bulk.preview(hf.RunFilter(type="shop.broken%")).count == 0
        assert sync.of(hf.ANY).get(handle.id).id == handle.id
        assert sync.list(hf.RunFilter(type="shop.quick%"), 1)
        with ThreadPoolExecutor(8) as pool:
            many = list(pool.map(lambda n: sync.start("shop.quick.v1", n).result(20), range(30)))
        assert many == list(range(30))
        with pytest.raises(hf.UnknownRun):
            sync.cancel("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")
    assert sync.now()  # it opens again
    sync.close()


async def test_one_client_serves_async_and_blocking_callers(shared):
    async with shared.client() as client:
        assert await client.now()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(client.sync.now).result(10)
        assert await client.now()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(client.sync.close).result(10)


def test_a_forked_child_has_connections_of_its_own(shared):
    client = shared.client()
    assert client.sync.now()
    child = os.fork()
    if not child:
        try:
            client.sync.start("shop.quick.v1", "child").result(10)
            os._exit(0)
        finally:
            os._exit(1)
    assert client.sync.start("shop.quick.v1", "parent").result(10) == "parent"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.sync.close()
