"""Fixtures: a server without code of its own, on each store, and a worker that works through it."""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.http.kit import store_of
from tests.http.work.kit import Worker, server
from tests.laws.effort import LONG

OTHERS = ("sqlite", "postgres", "redis")


def pytest_generate_tests(metafunc):
    """A test runs on memory and on one other store; with `every_store`, and in the long form, on all.

    The contract of a store is tested elsewhere. Which other store a test gets depends on its name.
    """
    if "kit" not in metafunc.fixturenames:
        return
    name = metafunc.function.__name__
    other = OTHERS[crc32(name.encode()) % len(OTHERS)]
    everywhere = LONG or metafunc.definition.get_closest_marker("every_store")
    metafunc.parametrize("kit", ["memory", *(OTHERS if everywhere else (other,))], indirect=True)


@pytest.fixture
def kit(request, tmp_path):
    """A server on a store."""
    with server(store_of(request.param, request, tmp_path)) as kit:
        yield kit


@pytest.fixture
def worker(kit):
    """A worker of the default tenant."""
    return Worker(kit)
