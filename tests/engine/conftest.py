"""Fixtures of engine tests: async tests run in virtual time, on every store that needs no server."""

from __future__ import annotations

import inspect

import pytest

from holdfast import App
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualWorld, play

MAKERS = {
    "memory": lambda clock: MemoryStore(clock=clock),
    "sqlite": lambda clock: SqliteStore(":memory:", clock=clock, inline=True),
}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run an async test in virtual time: hours pass at once."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    play(lambda: pyfuncitem.obj(**fixtures))
    return True


@pytest.fixture
def world():
    return VirtualWorld()


@pytest.fixture(params=sorted(MAKERS))
def store(request, world):
    return MAKERS[request.param](world.now)


@pytest.fixture
def app(store, world):
    """An app with a virtual clock. `app.worker()` works in the test's own process."""
    return App(store, name="test", world=world)


@pytest.fixture
def deploy(store, world):
    """A function that makes another app on the same store, as a new deployment does."""

    def new_app():
        return App(store, name="test", world=world)

    return new_app
