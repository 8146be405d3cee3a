"""New runs on SQLite: the view finds a key, whether it was looked up with others or not."""

from __future__ import annotations

import pytest

from holdfast.errors import DuplicateRun
from holdfast.records import Definition, NewRun
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.view.view import SqliteView
from holdfast.testing.contract.driver import TYPE, Clock, StoreDriver


@pytest.fixture
def driver():
    clock = Clock()
    driver = StoreDriver(SqliteStore(":memory:", clock=clock, inline=True), clock)
    yield driver
    driver.close()


def new(driver, key):
    return NewRun(id=driver.id(), type=TYPE, key=key, digest=key)


def test_a_key_that_was_not_looked_up_with_the_others_is_found(driver):
    runs = [new(driver, key) for key in ("a", "b")]
    driver.run(driver.store.start(runs))
    view = SqliteView(driver.store._reader, 0)
    view.prefetch_starts([new(driver, "a"), new(driver, "free")])
    found = [view.by_key("default", key) for key in ("a", "b", "free", "other")]
    assert found == [(runs[0].id, "a"), (runs[1].id, "b"), None, None]


def test_a_group_of_starts_takes_five_statements_however_many_runs(driver):
    """The beginning and the end of the transaction, one read, one insert, and one for the trail."""
    said = []
    for runs in (1, 16):
        driver.store._reader.connection.exec_trace = lambda _, sql, __: said.append(sql) or True
        answers = driver.run(driver.store.start([new(driver, f"{runs} {n}") for n in range(runs)]))
        driver.store._reader.connection.exec_trace = None
        assert all(answer.created for answer in answers)
        assert len(said) == 5, said
        said.clear()


def test_a_lone_start_finds_its_definition_key_id_and_fence_in_one_read(driver):
    """A second start under the key is the first run, a second run under the id is refused."""
    driver.run(driver.store.publish([Definition(type=TYPE, kind="code", max_attempts=7)]))
    first = new(driver, "a")
    (started,) = driver.run(driver.store.start([first]))
    (again,) = driver.run(driver.store.start([new(driver, "a")]))
    assert (started.created, again.created, again.id) == (True, False, first.id)
    (refused,) = driver.run(driver.store.start([NewRun(id=first.id, type=TYPE)]))
    assert isinstance(refused, DuplicateRun)
    run = driver.run(driver.store.get(first.id, "default"))
    assert run.max_attempts == 7
    (row,) = driver.store._reader.all("select max(seq) from sqlite_sequence where name = 'workflow_event'")
    driver.run(driver.store.start([second := new(driver, "b")]))
    assert driver.run(driver.store.get(second.id, "default")).fence == row[0] > 0
