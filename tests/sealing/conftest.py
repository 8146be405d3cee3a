"""Sealed apps in virtual time, on every store that needs no server."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.sealing import Compress, Encrypt
from tests.engine.conftest import pytest_pyfunc_call, store, world

__all__ = ["pytest_pyfunc_call", "store", "world"]

OLD, NEW, OTHER = bytes(32), bytes(range(32)), bytes(range(32, 64))


@pytest.fixture
def opened(store, world):
    """Apps on the one store of the test, each with a codec of its own, or None."""

    def made(codec):
        return App(store, name="test", world=world, codec=codec)

    return made


@pytest.fixture
def app(opened):
    """An app that compresses and encrypts."""
    return opened([Compress(min_bytes=100), Encrypt({"new": NEW})])
