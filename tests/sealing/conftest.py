"""Sealed apps in virtual time, on the stores themselves: over HTTP it is the server that seals."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.sealing import Compress, Encrypt
from tests.engine.conftest import KINDS, made, pytest_pyfunc_call, redis_sessions, virtual_redis, world
from tests.laws.effort import longer

__all__ = ["pytest_pyfunc_call", "redis_sessions", "virtual_redis", "world"]

OLD, NEW, OTHER = bytes(32), bytes(range(32)), bytes(range(32, 64))


@pytest.fixture(params=[*KINDS, *longer("redis")])
def store(request, world):
    return made(request, world)


@pytest.fixture
def opened(store, world):
    """Apps on the one store of the test, each with a codec of its own, or None."""

    def opened(codec):
        return App(store, name="test", world=world, codec=codec)

    return opened


@pytest.fixture
def app(opened):
    """An app that compresses and encrypts."""
    return opened([Compress(min_bytes=100), Encrypt({"new": NEW})])
