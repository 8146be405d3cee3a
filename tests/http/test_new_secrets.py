"""A server that remembers a key accepts the new secret of that key at once, and reads the store seldom."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from starlette.requests import Request

from holdfast import api_keys
from holdfast.engine.app.app import App
from holdfast.http.access import AGAIN_SECONDS, LOOKUPS, REMEMBER_SECONDS, Access
from holdfast.http.problems import Refusal
from holdfast.records import SECOND, moment


class Clock:
    """A world whose monotonic clock is moved by the test."""

    def __init__(self, world):
        self.seconds, self.now = 0.0, world.now

    def monotonic(self):
        return self.seconds


class Counting:
    """A store that counts the reads of keys."""

    def __init__(self, store):
        self.store, self.reads = store, 0

    async def find_key(self, id_):
        self.reads += 1
        return await self.store.find_key(id_)


def _request(secret):
    return Request({"type": "http", "headers": [(b"authorization", f"Bearer {secret}".encode())]})


async def _made():
    app = App("memory://")
    key = await app.create_key("shop", scopes=["runs.read"])
    clock, store = Clock(app.world), Counting(app.store)
    return app, key, clock, store, Access(store, clock, is_open=False)


@pytest.mark.spec("TEN-1")
def test_a_new_secret_is_accepted_although_the_key_is_remembered():
    async def played():
        app, key, clock, _, access = await _made()
        await access.actor(_request(key.secret))
        rotated = await app.rotate_key(key.key.id, overlap=60)
        clock.seconds += 2 * AGAIN_SECONDS
        assert (await access.actor(_request(rotated.secret))).name == "shop"
        assert (await access.actor(_request(key.secret))).name == "shop"

    asyncio.run(played())


@pytest.mark.spec("TEN-1")
def test_wrong_secrets_read_the_store_at_most_ten_times_a_second():
    async def played():
        _, key, clock, store, access = await _made()
        wrong = api_keys.composed(key.key.id, api_keys.make_secret())
        while clock.seconds < 1:
            with pytest.raises(Refusal):
                await access.actor(_request(wrong))
            clock.seconds += 0.001
        assert store.reads <= 1 / AGAIN_SECONDS + 1
        assert access.refused == pytest.approx(1000, abs=1)

    asyncio.run(played())


@pytest.mark.spec("TEN-1")
def test_a_key_is_remembered_for_two_seconds():
    async def played():
        _, key, clock, store, access = await _made()
        while clock.seconds < 3 * REMEMBER_SECONDS:
            await access.actor(_request(key.secret))
            clock.seconds += 0.01
        assert store.reads == 3

    asyncio.run(played())


@pytest.mark.spec("TEN-1")
def test_a_known_header_counts_no_longer_than_what_was_read_of_its_key():
    """It is refused as soon as the key was read again, for whatever request, and after two seconds anyway."""

    async def played(seconds, other):
        app, key, clock, store, access = await _made()
        for _ in range(3):
            assert (await access.actor(_request(key.secret))).name == "shop"
        assert store.reads == 1
        await app.revoke_key(key.key.id)
        clock.seconds += seconds
        if other:
            wrong = api_keys.composed(key.key.id, api_keys.make_secret())
            with pytest.raises(Refusal):
                await access.actor(_request(wrong))
        with pytest.raises(Refusal):
            await access.actor(_request(key.secret))

    asyncio.run(played(REMEMBER_SECONDS + 0.1, other=False))
    asyncio.run(played(2 * AGAIN_SECONDS, other=True))


@pytest.mark.spec("TEN-1")
def test_a_known_header_ends_with_the_time_of_its_key():
    async def played():
        app, _, clock, _, access = await _made()
        now = app.world.now()
        key = await app.create_key("short", scopes=["runs.read"], expires_at=moment(now) + timedelta(hours=1))
        for _ in range(2):
            assert (await access.actor(_request(key.secret))).name == "short"
        clock.now = lambda: now + 3601 * SECOND
        with pytest.raises(Refusal):
            await access.actor(_request(key.secret))

    asyncio.run(played())


@pytest.mark.spec("TEN-3")
def test_a_stream_of_the_old_secret_ends_after_a_rotation():
    async def scenario():
        app, key, clock, _, access = await _made()
        old = await access.actor(_request(key.secret))
        assert await access.is_live(old)
        new = await app.rotate_key(key.key.id, overlap=0)
        clock.seconds = REMEMBER_SECONDS + 1
        fresh = await access.actor(_request(new.secret))
        assert [await access.is_live(old), await access.is_live(fresh)] == [False, True]
        await app.rotate_key(key.key.id, overlap=3600)
        clock.seconds += REMEMBER_SECONDS + 1
        assert await access.is_live(fresh)  # in the overlap
        await app.close()

    asyncio.run(scenario())


@pytest.mark.spec("TEN-3")
def test_guessed_keys_push_no_real_key_out_and_are_read_few_at_once(monkeypatch):
    monkeypatch.setattr("holdfast.http.access.REMEMBERED", 5)
    monkeypatch.setattr("holdfast.http.access.UNKNOWN", 5)

    async def scenario():
        app, key, _, store, access = await _made()
        await access.actor(_request(key.secret))
        under_way, most, find = 0, 0, store.find_key

        async def slow(id_):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return await find(id_)

        store.find_key = slow
        guesses = [api_keys.composed(api_keys.make_id(), api_keys.make_secret()) for _ in range(50)]
        asked = (access.actor(_request(one)) for one in guesses)
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, Refusal) for one in found)
        assert most <= LOOKUPS
        reads = store.reads
        await access.actor(_request(key.secret))
        assert (store.reads, len(access._unknown)) == (reads, 5)
        await app.close()

    asyncio.run(scenario())
