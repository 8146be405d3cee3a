"""Engine tests: async functions, played in virtual time, on every store that needs no server."""

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
    """An async test is played: its hours pass in no time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    play(lambda: pyfuncitem.obj(**given))
    return True


@pytest.fixture
def world():
    return VirtualWorld()


@pytest.fixture(params=sorted(MAKERS))
def store(request, world):
    return MAKERS[request.param](world.now)


@pytest.fixture
def app(store, world):
    """An app whose clock is virtual; `app.worker()` works in the test's own process."""
    return App(store, name="test", world=world)


@pytest.fixture
def deploy(store, world):
    """An app of its own, as one deploy has it."""

    def deployed():
        return App(store, name="test", world=world)

    return deployed
