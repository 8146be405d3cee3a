"""Search on SQLite: it runs beside the event loop and the other reads, and reads no more than it has to."""

from __future__ import annotations

import asyncio
import threading
from uuid import UUID

import apsw
import pytest

from holdfast.records import NewRun, RunFilter
from holdfast.stores.sqlite import SqliteStore, listing, migrate, search
from holdfast.stores.sqlite.connection.database import Database, text
from holdfast.testing.contract.driver import TYPE


@pytest.mark.spec("READ-2")
def test_a_search_keeps_neither_the_event_loop_nor_other_reads(tmp_path, monkeypatch):
    """It runs on the thread for large reads, with a connection of its own."""
    store, begun, go_on = SqliteStore(str(tmp_path / "a.db")), threading.Event(), threading.Event()
    looked = search._look

    def slowly(*args):
        begun.set()
        assert go_on.wait(30)
        return looked(*args)

    monkeypatch.setattr(search, "_look", slowly)

    async def main():
        await store.open()
        searching = asyncio.create_task(store.search("blue", RunFilter()))
        assert await asyncio.to_thread(begun.wait, 30)
        run = NewRun(id=UUID(int=7), type=TYPE, params='"blue"')
        (answer,) = await store.start([run])
        listed = await store.list(RunFilter())
        go_on.set()
        found = await searching
        again = await store.search("blue", RunFilter())
        await store.close()
        return answer.id, [one.id for one in listed], found.runs, [one.id for one in again.runs]

    run, listed, found, again = asyncio.run(main())
    assert listed == again == [run]
    assert found == ()  # it sees the state at its begin


@pytest.mark.spec("READ-2")
def test_runs_are_looked_at_one_by_one_in_the_order_of_their_ids():
    """No sort: the statement would have looked at all of them before it gives the first."""
    db = Database(lambda: apsw.Connection(":memory:"))
    migrate.migrate(db, ":memory:")
    asked = {"ids": text(["b", "a"]), "text": "x", "form": "x", "ascii": "x", "same": True}
    plan = [row[3] for row in db.all(f"explain query plan {search._LOOK}", asked)]
    db.close()
    assert any("json_each" in line for line in plan), plan
    assert any(line.startswith("SEARCH workflow_run") and line.endswith("id=?)") for line in plan), plan
    assert not any("TEMP B-TREE" in line for line in plan), plan


@pytest.mark.spec("TEN-2")
def test_the_place_of_a_search_is_made_from_ids_of_the_own_tenant(tmp_path, monkeypatch):
    """The slices walk runs of others, by a label that all runs have."""
    monkeypatch.setattr(listing, "SLICE", 20)
    monkeypatch.setattr(listing, "CANDIDATES", 5)
    store = SqliteStore(str(tmp_path / "a.db"))
    own, others = range(1, 200, 20), range(2, 400, 2)
    runs = [
        NewRun(id=UUID(int=n), type=TYPE, tenant="acme" if n in own else "bolt", labels='{"env":"prod"}')
        for n in sorted({*own, *others})
    ]

    async def main():
        await store.open()
        await store.start(runs)
        looked_at, places, after = 0, [], None
        while True:
            found = await store.search("zebra", RunFilter(tenant="acme", labels={"env": "prod"}), 10, after)
            looked_at, after = looked_at + found.looked_at, found.after
            if after is None:
                break
            places.append(after.int)
        listed = await store.list(RunFilter(tenant="acme"))
        await store.close()
        return looked_at, places, [one.id.int for one in listed]

    looked_at, places, listed = asyncio.run(main())
    assert looked_at == len(own)
    assert places
    assert all(place in own or place - 1 in own for place in places), places
    assert listed == sorted(own, reverse=True)
