"""Fixtures: servers of the HTTP API, with two tenants that have one thing of each kind."""

from __future__ import annotations

import pytest

from tests.http.kit import Kit, store_of


@pytest.fixture
def kit():
    """A server on a memory store with nothing in it."""
    with Kit() as kit:
        yield kit


@pytest.fixture(scope="module")
def furnished_kit():
    """A server with things of two tenants; for tests that change nothing."""
    with Kit() as kit:
        yield kit.furnish()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def any_kit(request, tmp_path):
    """A server with things of two tenants, on each store."""
    with Kit(store=store_of(request.param, request, tmp_path)) as kit:
        yield kit.furnish()
