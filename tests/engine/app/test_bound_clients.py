"""The client of one tenant shares what its app has made."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.engine.app.client import StoreClient
from holdfast.engine.app.tenants import bound_client
from holdfast.records import ANY
from holdfast.stores.memory import MemoryStore

OF_THE_APP = {"_published"}  # a bound client asks its app to publish


def test_a_bound_client_has_what_every_client_has():
    """It does not call the initialiser of its class, because one is made for each request."""
    app = App("memory://")
    bound = bound_client(app, ANY)
    made = set(vars(StoreClient(MemoryStore(), app.world)))
    assert {"store", "world", "workflows"} <= made
    assert {name for name in made if not hasattr(bound, name)} == OF_THE_APP
    shared = ("store", "world", "workflows", "_starts")
    assert all(getattr(bound, name) is getattr(app, name) for name in shared)


def test_a_bound_client_follows_the_store_of_its_app_and_takes_none():
    app = App("memory://")
    bound = bound_client(app, ANY)
    app.store = other = MemoryStore()
    assert bound.store is other
    with pytest.raises(AttributeError):
        bound.store = other
