"""Retries: a call whose answer is lost is sent again when that is safe, and has one effect."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast as hf
from holdfast.client import transport
from holdfast.client.operations import OPERATIONS
from tests.client.kit import Serving

UNAVAILABLE = (
    503,
    [(b"content-type", b"application/problem+json"), (b"retry-after", b"1")],
    b'{"code":"store-unavailable","status":503,"retry_after_ms":50}',
)
TOO_MANY = (
    429,
    [(b"retry-after", b"1")],
    b'{"code":"rate-limit","status":429,"detail":"slow down","retry_after_ms":50}',
)


def post(path):
    return lambda method, asked: method == "POST" and asked == path


@pytest.fixture
def lossy():
    with Serving() as server:
        yield server


@pytest.mark.spec("HTTP-9")
async def test_a_start_whose_answer_is_lost_starts_one_run(lossy):
    async with lossy.client() as client:
        lossy.faults.lose = [post("/runs"), post("/runs")]
        handle = await client.start("shop.quick.v1", 1)
        assert [one[2] for one in lossy.faults.seen if one[0] == "POST"] == ["lost", "lost", 200]
        assert [run.id for run in await client.list()] == [handle.id]
        assert not handle.created  # the first try has created it
        assert (await handle.get()).key.startswith("client:")
        lossy.faults.lose = [post("/runs")]
        keyed = await client.start("shop.quick.v1", 2, key="mine")
        assert (await keyed.get()).key == "mine"
        lossy.faults.lose = [post("/runs/batch")]
        await client.start_many([("shop.quick.v1", n) for n in range(3)])
        lossy.faults.lose = [post(f"/runs/{handle.id}/rerun")]
        await client.rerun(handle.id)
        assert len(await client.list()) == 6


@pytest.mark.spec("HTTP-9")
async def test_an_event_and_a_bulk_operation_count_once(lossy):
    async with lossy.client() as client:
        lossy.faults.lose = [post("/events")]
        assert (await client.emit("topic", 1)).duplicate  # the first try was recorded
        lossy.faults.lose = [post("/bulk")]
        await client.bulk.retry(hf.RunFilter())
        assert len(await client.list(hf.RunFilter(type="holdfast.bulk.v1"))) == 1


@pytest.mark.spec("HTTP-9")
async def test_what_is_not_safe_is_not_sent_again(lossy):
    async with lossy.client() as client:
        handle = await client.start("shop.quick.v1", 1)
        await client.schedule("n", "shop.report.v1", every=3600)
        for path, call in (
            (f"/runs/{handle.id}/rewind", lambda: client.rewind(handle.id, hf.BEGINNING)),
            ("/schedules/n/fire", lambda: client.fire_schedule("n")),
            (f"/runs/{handle.id}/pause", lambda: client.pause(handle.id)),
        ):
            lossy.faults.seen.clear()
            lossy.faults.lose = [post(path)]
            with pytest.raises(hf.Unavailable, match="cannot be reached"):
                await call()
            assert lossy.faults.seen == [("POST", path, "lost")]
            lossy.faults.refuse = [UNAVAILABLE]
            with pytest.raises(hf.Unavailable):
                await call()
    changes = {name for name, one in OPERATIONS.items() if not one.repeatable}
    assert changes == {
        "pause", "resume", "rewind", "retry", "append_step", "resend", "webhook", "fire_schedule",
        "create_key", "rotate_key",
    }  # fmt: skip


@pytest.mark.spec("HTTP-9")
async def test_a_refusal_before_any_work_is_always_retried(lossy):
    async with lossy.client() as client:
        handle = await client.start("shop.quick.v1", 1)
        lossy.faults.refuse = [TOO_MANY, TOO_MANY]
        assert (await client.pause(handle.id)).status is hf.Status.PAUSED
        lossy.faults.refuse = [UNAVAILABLE, (502, [], b"<html>"), (504, [], b"")]
        assert await client.known(handle.id)
        assert lossy.faults.refuse == []


@pytest.mark.spec("HTTP-9")
async def test_retries_end_with_the_timeout_of_the_call(lossy):
    async with lossy.client(timeout=1.5) as client:
        await client.now()
        for refusal, class_ in ((TOO_MANY, hf.RateLimited), (UNAVAILABLE, hf.Unavailable)):
            lossy.faults.refuse, began = [refusal] * 1000, time.monotonic()
            with pytest.raises(class_) as error:
                await client.list()
            assert time.monotonic() - began < 6
            lossy.faults.refuse = []
        assert isinstance(error.value, hf.StoreError)
        lossy.faults.refuse = [(429, [], b'{"code":"rate-limit","status":429,"retry_after_ms":60000}')]
        with pytest.raises(hf.RateLimited) as limited:
            await client.list()
        assert limited.value.retry_after == 60


@pytest.mark.spec("TEN-3")
async def test_the_rate_of_a_key_slows_a_client_down():
    with Serving(open=False) as server:
        key = server.key(rate=5)
        async with server.client(key=key, timeout=10) as client:
            began = time.monotonic()
            for _ in range(8):
                await client.now()
            assert time.monotonic() - began > 0.3


@pytest.mark.spec("HTTP-9")
@pytest.mark.slow
async def test_a_server_that_is_restarted_is_waited_for(server):
    async with server.client(timeout=20) as client:
        handle = await client.start("shop.order.v1", {"id": 1})
        waiting = asyncio.ensure_future(client.result(handle.id, timeout=30))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.stop)
        server.begin_later(0.5)
        assert (await client.known(handle.id)).id == handle.id
        await client.emit("paid:1")
        assert await waiting == "receipt 1"


@pytest.mark.spec("HTTP-9")
async def test_a_result_that_does_not_come_in_time(server):
    async with server.client() as client:
        handle = await client.start("shop.order.v1", {"id": 1})
        with pytest.raises(hf.ResultTimeout, match=r"within 0\.2 s"):
            await handle.result(0.2)
        with pytest.raises(hf.ResultTimeout):
            await handle.result(0)


@pytest.mark.spec("HTTP-9", "TEN-3")
async def test_a_result_is_one_request_and_needs_one_scope():
    with Serving(open=False, worker=True) as server:
        key = server.key("runs.write", "payloads.read")
        async with server.client(key=key) as client:
            handle = await client.start("shop.quick.v1", {"n": 2**70, "x": 0.1})
            server.faults.seen.clear()
            assert await handle.result(10) == {"n": 2**70, "x": 0.1}
            assert server.faults.seen == [("GET", f"/runs/{handle.id}/result", 200)]
            assert await client.result(handle.id, 10) == {"n": 2**70, "x": 0.1}
            chain = await client.start("shop.chain.v1", 2)
            assert await chain.result(10) == "done"
            broken = await client.start("shop.broken.v1")
            with pytest.raises(hf.RunFailed, match="4111 was declined") as failed:
                await broken.result(10)
            assert failed.value.error == server.run(server.app.known(broken.id)).error
            with pytest.raises(hf.NotAllowed, match=r"runs\.read"):
                await client.final(handle.id, 10)  # it returns the whole run


@pytest.mark.spec("HTTP-9")
@pytest.mark.parametrize("verb", ["unschedule", "remove_webhook", "unregister", "unlimit", "resume_key"])
async def test_what_is_removed_by_a_lost_try_is_gone_and_the_docstring_says_what_false_means(lossy, verb):
    async with lossy.client() as client:
        await client.schedule("n", "shop.report.v1", every=3600)
        await client.webhook("n", "https://example.com/hook")
        await client.register("n.v1", enabled=True)
        await client.limit(key="n", concurrency=1)
        await client.pause_key("n", 100)
        named = {"unlimit": {"key": "n"}, "unregister": {"type": "n.v1"}, "resume_key": {"key": "n"}}
        call = getattr(client, verb)
        lossy.faults.lose = [lambda method, _: method in {"DELETE", "POST"}]
        assert await call(**named.get(verb, {"name": "n"})) is False
        assert [one[2] for one in lossy.faults.seen[-2:]] == ["lost", 200]
        assert await call(**named.get(verb, {"name": "n"})) is False
        assert "False may also mean" in call.__doc__


@pytest.mark.spec("HTTP-9")
async def test_answers_of_proxies_have_their_classes(lossy):
    async with lossy.client(timeout=1.5) as client:
        await client.now()
        for status, body, class_ in (
            (413, b"<html>", hf.TooLarge),
            (431, b"", hf.TooLarge),
            (429, b"slow down", hf.RateLimited),
            (503, b'{"code":"no_healthy_upstream"}', hf.Unavailable),
            (418, b"<html>", hf.StoreError),
        ):
            lossy.faults.refuse = [(status, [], body)] * 100
            with pytest.raises(class_, match=f"answers {status}"):
                await client.start("shop.quick.v1", 1)
        lossy.faults.refuse = [(429, [], b"slow down"), (503, [], b'{"code":"no_healthy_upstream"}')]
        assert await client.start("shop.quick.v1", 1)


async def test_too_few_answers_to_many_starts_are_an_error_of_ours(lossy):
    async with lossy.client() as client:
        lossy.faults.refuse = [(200, [], b'{"items":[]}')]
        with pytest.raises(hf.StoreError, match="0 of 2 starts"):
            await client.start_many([("shop.quick.v1", 1), ("shop.quick.v1", 2)])


@pytest.mark.spec("HTTP-9")
async def test_waiting_calls_leave_connections_to_all_others(lossy, monkeypatch):
    monkeypatch.setattr(transport, "CONNECTIONS", 2)
    async with lossy.client(timeout=5) as client:
        handles = [await client.start("shop.order.v1", {"id": n}) for n in range(6)]
        waiting = [asyncio.create_task(one.result(30)) for one in handles[:5]]
        follower = asyncio.create_task(anext(client.follow(handles[5].id, after=99)))
        while lossy.api.api.streams.count < 6:  # noqa: ASYNC110 - a server in another thread
            await asyncio.sleep(0.01)
        began = time.monotonic()
        last = await client.start("shop.quick.v1", 1)
        assert (await client.cancel(last.id)).status == "cancelled"
        assert time.monotonic() - began < 4
        for one in handles:
            await client.cancel(one.id)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {hf.RunCancelled}
        follower.cancel()
        await asyncio.wait([follower])


@pytest.mark.spec("HTTP-9")
async def test_a_call_that_gets_no_connection_was_not_sent(lossy, monkeypatch):
    monkeypatch.setattr(transport, "LONG_CONNECTIONS", 1)
    async with lossy.client(timeout=0.5) as client:
        handle = await client.start("shop.order.v1", {"id": 1})
        waiting = asyncio.create_task(handle.result(30))
        while not lossy.api.api.streams.count:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        pool = client._transport
        request = pool.request("result", path={"run": handle.id}, query=[("wait", "9")])
        with pytest.raises(transport.Lost, match="all 1 connections of this client are in use") as lost:
            await pool.sent(request, pool.world.monotonic() + 0.5, long=True)
        assert not lost.value.sent
        waiting.cancel()
        await asyncio.wait([waiting])
