"""Fixtures of engine tests: async tests run in virtual time, on the default store.

Some of them run over HTTP too, behind a server. The long form has memory and Redis too, and nearly all of
them over HTTP. The engine is the same there; that the stores are, the contract suite shows.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest

from holdfast import App
from holdfast.records import Traits
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualWorld, play
from tests.laws.effort import longer
from tests.remote.selected import is_selected

MAKERS = {
    "memory": lambda clock: MemoryStore(clock=clock),
    "sqlite": lambda clock: SqliteStore(":memory:", clock=clock, inline=True),
}
KINDS = ["sqlite", *longer("memory")]
HTTP = "http"  # workers reach a store in SQLite through a server


def pytest_collection_modifyitems(items):
    """Keep those tests over HTTP that are selected."""
    items[:] = [one for one in items if not _is_over_http(one) or is_selected(one.nodeid)]


def _is_over_http(item):
    found = getattr(item, "callspec", None)
    return found is not None and "tests/engine/" in item.nodeid and found.params.get("store") == HTTP


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


@pytest.fixture(scope="session")
def redis_sessions():
    """The thread in which Redis answers while virtual time stands still."""
    from verify.crashpoints.virtual_redis import Sessions

    sessions = Sessions()
    yield sessions
    sessions.close()


@pytest.fixture
def virtual_redis(redis_url, redis_sessions, world):
    from verify.crashpoints.virtual_redis import VirtualRedisStore

    store = VirtualRedisStore(redis_url, redis_sessions, world.now)
    store.traits = Traits()  # as the other stores: tests count calls, and know how many are under way
    asyncio.run(store.open())  # likewise: to open it takes no turns of the loop
    yield store
    store.end()


@pytest.fixture(scope="session")
def remote_sessions():
    """The thread in which a server answers while virtual time stands still."""
    from tests.remote.virtual import Sessions

    sessions = Sessions()
    yield sessions
    sessions.close()


def made(request, world):
    """Return a store of the kind that the test is given."""
    if request.param == "redis":
        return request.getfixturevalue("virtual_redis")
    if request.param == HTTP:
        from tests.remote.virtual import BehindServer

        return BehindServer(world, request.getfixturevalue("remote_sessions"))
    return MAKERS[request.param](world.now)


@pytest.fixture(params=[*KINDS, HTTP, *longer("redis")])
def store(request, world):
    return made(request, world)


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
