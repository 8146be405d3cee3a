"""Servers for the tests of the client."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.client.kit import Serving


@pytest.fixture
def server():
    """A server without keys, with a worker."""
    with Serving(worker=True) as one:
        yield one


@pytest.fixture(scope="module")
def shared():
    """A server without keys, with a worker, for tests that change nothing of each other."""
    with Serving(worker=True) as one:
        yield one


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
