"""Tests of workers over HTTP run in real time, each on an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.remote.kit import Serving, shop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def server(tmp_path):
    """A server of a store in a file, without keys: everyone on this machine is an operator."""
    with Serving(f"sqlite:///{tmp_path / 'runs.db'}") as one:
        yield one


@pytest.fixture
def app(server):
    """An app that works over HTTP."""
    return shop(server.url)
