"""Fixtures: a source with runs of all kinds, and drivers of new stores."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract.driver import Clock, StoreDriver
from tests.transfer.journey import furnish


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def fresh(clock):
    """Function that makes a driver of a new store in memory."""
    drivers = []

    def make(store=None):
        drivers.append(StoreDriver(store or MemoryStore(clock=clock), clock))
        return drivers[-1]

    yield make
    for one in drivers:
        one.close()


@pytest.fixture
def source(fresh):
    driver = fresh()
    driver.ids = furnish(driver)
    return driver


@pytest.fixture
def exported(tmp_path):
    """Function that exports a store into a file, and returns its path."""

    def export(driver, name="runs.jsonl", where=None, **fields):
        driver.run(App(driver.store).export(tmp_path / name, where, **fields))
        return tmp_path / name

    return export


@pytest.fixture
def imported():
    """Function that imports a file into a store, and returns the report."""

    def read(driver, path, **fields):
        return driver.run(App(driver.store).import_(path, **fields))

    return read
