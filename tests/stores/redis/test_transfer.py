"""Imported runs on Redis: the sets that lead to them agree with the runs, and no script is long."""

from __future__ import annotations

import pytest

from holdfast.records import TrailWrite
from holdfast.stores.redis.verbs import transfer
from holdfast.testing.contract.driver import done, sleep
from holdfast.testing.contract.lives import LIVES
from holdfast.testing.contract.transfers import carry, events, memory, plain, runs, without_import, write


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("life", LIVES)
def test_the_sets_agree_with_imported_runs(driver, life):
    source = memory(driver)
    LIVES[life](source)
    carry(source, driver)
    driver.tick()
    (finding,) = driver.run(driver.store.check_sets())
    assert (finding.level, finding.what) == ("ok", "the sets that lead to runs agree with all runs")


@pytest.fixture
def long_run(driver):
    """A store in memory with a run that has many rows."""
    source = memory(driver)
    claim = source.held()
    for number in range(5):
        notes = tuple(TrailWrite("log", f'{{"log_no":{2 * number + one}}}') for one in (1, 2))
        source.checkpoint(claim, done(f"s{number}"), trail=notes)
    source.park(claim, sleep())
    return source


@pytest.mark.spec("STORE-6", "STORE-3")
def test_a_run_with_very_many_rows_comes_in_several_scripts(driver, long_run, monkeypatch):
    monkeypatch.setattr(transfer, "ROWS", 3)
    saves, save = [], driver.store._save

    async def noted(snapshot):
        saves.append(sum(one[0] == "L" for group in snapshot.groups for one in group.operations))
        return await save(snapshot)

    driver.store._save = noted
    left = carry(long_run, driver)
    assert max(saves) <= 3 + 1  # and the row that says that it was imported
    assert plain(without_import(runs(driver))) == plain(left)
    (finding,) = driver.run(driver.store.check_sets())
    assert finding.level == "ok"
    (again,) = write(driver, runs(long_run))
    assert again.answer == "there"


@pytest.mark.spec("STORE-6")
def test_a_page_of_events_reads_no_others(driver, monkeypatch):
    for number in range(10):
        driver.emit("news", id=f"e{number}")
    store, asked, ask = driver.store, [], driver.store._connections.ask

    async def noted(commands):
        asked.extend(command[1] for command in commands if command[0] == "HGETALL")
        return await ask(commands)

    monkeypatch.setattr(transfer, "EVENTS", 2)
    store._connections.ask = noted
    found = driver.run(store.export_events(limit=2, after=4))
    assert [event.id for event in found] == ["e4", "e5"]
    assert len(asked) == 2
    assert [event.id for event in events(driver)] == [f"e{number}" for number in range(10)]
