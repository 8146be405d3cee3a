"""Move: from store to store, killed at any call, and nothing runs at both ends or is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count, pairwise

import apsw
import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.errors import UsageError
from holdfast.machine.carrying import BEING_PURGED
from holdfast.records import ANY, NewEvent, RunFilter
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import StoreDriver, done, listen
from holdfast.testing.contract.transfers import plain, runs
from holdfast.transfer import moving
from holdfast.transfer.moving import STILL_THERE, Mover
from holdfast.transfer.places import is_away
from servers.redis_store import make as redis
from servers.reused_store import make as postgres
from tests.transfer.journey import furnish, held
from tests.transfer.test_all_stores import ended

pytestmark = pytest.mark.spec("STORE-6")
NOTES = {"imported", "leaving", "left", "went_on", "returned", "arrived"}


class Together(StoreDriver):
    """A driver of a store on the event loop of another driver: a move uses both stores."""

    def __init__(self, store, clock, loop):
        self.store, self.clock, self._loop = store, clock, loop
        self._ids, self._numbers = 5_000_000, Counter()
        self.run(store.open())

    def close(self):
        self.run(self.store.close())


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def fresh(clock, loop):
    """Function that makes a driver of a new store, on one event loop."""
    drivers = []

    def make(store=None):
        drivers.append(Together(store or MemoryStore(clock=clock), clock, loop))
        return drivers[-1]

    yield make
    for one in drivers:
        one.close()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def kept(request, fresh, clock, tmp_path):
    """Function that makes a driver of a new store of each kind."""
    makers = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SqliteStore(str(tmp_path / "kept.db"), clock=clock),
        "postgres": lambda: postgres(clock, tmp_path),
        "redis": lambda: redis(clock, tmp_path),
    }
    return lambda: fresh(makers[request.param]())


def move(source, target, where=None, **fields):
    """Move runs from one store to another; return the report."""
    return source.run(Mover(source.store, target.store, where, to="there", **fields).run())


def as_before(parts):
    found = plain(parts)
    for part in found:
        part.notes = tuple(note for note in part.notes if note.type not in NOTES)
        part.messages = tuple(replace(one, fence=0) for one in part.messages)
    return found


def test_runs_move_through_all_stores_and_end_like_their_twins(fresh, clock, tmp_path):
    stores = [
        fresh(SqliteStore(str(tmp_path / "a.db"), clock=clock)),
        fresh(postgres(clock, tmp_path)),
        fresh(redis(clock, tmp_path)),
        fresh(SqliteStore(str(tmp_path / "b.db"), clock=clock)),
    ]
    twin = fresh()
    for driver in (twin, stores[0]):
        driver.ids = furnish(driver)
    for source, target in pairwise(stores):
        before = as_before(runs(source))
        report = move(source, target)
        assert (report.refused, report.moved, report.verified) == ([], len(before), len(before))
        assert as_before(runs(target)) == before
        assert target.recount() == source.recount() == []
        assert source.claim(100) == []
        assert move(source, target).moved == 0
        (schedule,) = target.run(target.store.schedules(ANY))
        assert not schedule.paused
    assert ended(stores[-1], twin.ids) == ended(twin, twin.ids)


def test_a_run_that_comes_back_too_early_is_refused_with_the_way_to_mend_it(fresh):
    source, target = fresh(), fresh()
    source.start()
    move(source, target)
    (refused,) = move(target, source).refused
    assert refused.reason == STILL_THERE
    assert target.take(refused.run)


class Killed(Exception):
    """The end of the mover, at one call."""


class Through:
    """A store that can be called some times, and then no more."""

    def __init__(self, store, left):
        self._store, self._left = store, left

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if name in {"traits", "now"}:
            return method

        async def called(*args, **kwargs):
            if self._left[0] <= 0:
                raise Killed
            answer = await method(*args, **kwargs)
            self._left[0] -= 1
            if self._left[0] <= 0:
                raise Killed  # after the commit: the answer is lost
            return answer

        return called


def away(driver):
    listed = driver.run(driver.store.list(RunFilter(tenant=ANY, deleted=True), 1000))
    return {run.id: is_away(run) for run in listed}


@pytest.fixture
def few(monkeypatch):
    """Let groups have few runs, so that there are several of them."""
    monkeypatch.setattr(moving, "TOGETHER", 4)


def test_a_move_that_is_killed_after_any_call_goes_on_and_no_run_is_at_both_ends(fresh, few):
    for calls in count(1):
        source, target = fresh(), fresh()
        ids = furnish(source)
        before = as_before(runs(source))
        left = [calls]
        mover = Mover(Through(source.store, left), Through(target.store, left), to="there")
        try:
            source.run(mover.run())
        except Killed:
            is_killed = True
        else:
            is_killed = False
        here, there = away(source), away(target)
        assert set(here) == set(ids.values())
        for run in ids.values():
            assert here[run] or run not in there or there[run], f"run {run} goes on at both, after {calls}"
        if not is_killed:
            break
        source.run(Mover(source.store, target.store, to="there").run())
        assert not any(away(target).values())
        assert all(away(source).values())
        assert as_before(runs(target)) == before
    assert calls > 20


def test_a_killed_move_can_be_undone_until_the_source_has_recorded_it(fresh, few):
    for calls in range(3, 46, 3):
        source, target = fresh(), fresh()
        ids = furnish(source)
        before = as_before(runs(source))
        left = [calls]
        mover = Mover(Through(source.store, left), Through(target.store, left), to="there")
        with pytest.raises(Killed):
            source.run(mover.run())
        source.run(Mover(source.store, target.store, to="there").undo())
        here, there = away(source), away(target)
        assert not any(there[run] for run in there if not here[run] and run in there and _alive(target, run))
        found = {part.id: part for part in as_before(runs(source))}
        for part in before:
            if not here[part.id]:
                assert found[part.id] == part
        source.run(Mover(source.store, target.store, to="there").run())
        assert as_before(runs(target)) == before
        assert set(away(target)) == set(ids.values())


def _alive(driver, run):
    found = driver.get(run)
    return found is not None and not is_away(found)


def test_a_filter_takes_whole_families_and_leaves_the_others(fresh):
    source, target = fresh(), fresh()
    ids = furnish(source)
    report = move(source, target, RunFilter(type="shop.kid.v1", tenant=ANY))
    assert report.moved == 2
    assert {name for name, run in ids.items() if target.get(run) is not None} == {"parent", "kid"}
    assert source.status(ids["pending"]) == "pending"
    assert not source.run(source.store.schedules(ANY))[0].paused
    target.complete(target.take(ids["kid"], types=("shop.kid.v1",)), result='"k"')
    target.deliver()
    assert '"k"' in target.take(ids["parent"], types=("shop.family.v1",)).steps[0].output


def test_a_run_that_the_target_refuses_goes_on_at_the_source(fresh):
    source, target = fresh(), fresh()
    target._ids = 9_000_000
    ids = furnish(source)
    taken = target.start(key="order:1")
    report = move(source, target, RunFilter(key="order:1", tenant=ANY))
    assert (report.moved, report.refused_runs) == (0, 1)
    assert report.refused[0].reason == f"its key 'order:1' belongs to run {taken}"
    assert source.status(ids["pending"]) == "pending"


def test_an_event_that_comes_to_the_source_while_the_run_moves_reaches_it(fresh):
    source, target = fresh(), fresh()
    claim = held(source, "listening")
    source.park(claim, listen())
    source.run(source.store.leave([claim.id], "there"))
    source.run(source.store.emit(NewEvent(id="late", topic="parcel", payload='"late"')))
    assert move(source, target).moved == 1
    again = target.take(claim.id, types=("shop.listening.v1",))
    assert '"late"' in again.steps[0].output
    target.complete(again, done("end"))


def test_an_event_that_comes_to_the_source_after_the_run_has_moved_reaches_it_by_the_next_move(fresh):
    source, target = fresh(), fresh()
    claim = held(source, "listening")
    source.park(claim, listen())
    assert move(source, target).moved == 1
    source.clock.turn(1)
    source.run(source.store.emit(NewEvent(id="late", topic="parcel", payload='"late"')))
    source.deliver()
    assert move(source, target).moved == 0
    assert '"late"' in target.take(claim.id, types=("shop.listening.v1",)).steps[0].output


def test_an_event_that_is_carried_at_the_begin_and_at_the_end_counts_once(fresh):
    source, target = fresh(), fresh()
    source.run(source.store.emit(NewEvent(id="one", topic="parcel", payload="1")))
    assert move(source, target).events == 1


def test_a_preview_changes_nothing_and_counts(fresh):
    source, target = fresh(), fresh()
    furnish(source)
    before = plain(runs(source))
    mover = Mover(source.store, target.store, to="there")
    preview = source.run(mover.preview())
    assert (preview.runs, preview.on_the_way) == (len(before), 0)
    assert plain(runs(source)) == before
    assert runs(target) == []


def by_file(source, target, path, where=None, **fields):
    """Move runs by a file, in its four steps; return the numbers of the last two."""
    here, there = App(source.store), App(target.store)
    source.run(here.export(path, where, move=True, **fields))
    report = target.run(there.import_(path))
    assert (report.waits, report.complete) == (True, True)
    assert target.claim(100) == source.claim(100) == []
    return source.run(here.confirm_export(path)), target.run(there.release_import(path))


def test_runs_move_by_a_file_and_are_as_they_were(fresh, tmp_path):
    source, target = fresh(), fresh()
    furnish(source)
    before = as_before(runs(source))
    for step in by_file(source, target, tmp_path / "runs"):
        assert (step.runs, step.back) == (len(before), 0)
    assert as_before(runs(target)) == before
    assert all(away(source).values())
    assert source.run(App(source.store).undo_export(tmp_path / "runs")) == []


def test_what_the_target_of_a_file_refuses_goes_on_at_the_source(fresh, tmp_path):
    source, target = fresh(), fresh()
    ids = furnish(source)
    target._ids = 9_000_000
    target.start(key="order:1", type="shop.other.v1")
    confirmed, released = by_file(source, target, tmp_path / "runs")
    assert (confirmed.back, confirmed.runs, released.runs) == (1, len(ids) - 1, len(ids) - 1)
    assert source.status(ids["pending"]) == "pending"


def test_a_file_can_be_undone_until_it_is_confirmed_and_steps_keep_their_order(fresh, tmp_path):
    source, target, path = fresh(), fresh(), tmp_path / "runs"
    furnish(source)
    before = as_before(runs(source))
    here, there = App(source.store), App(target.store)
    source.run(here.export(path, move=True))
    for step in (here.confirm_export, there.release_import):
        with pytest.raises(UsageError, match="is missing"):
            source.run(step(path))
    assert len(source.run(here.undo_export(path))) == len(before)
    assert as_before(runs(source)) == before
    assert not source.run(source.store.schedules(ANY))[0].paused
    target.run(there.import_(path))
    assert source.run(here.confirm_export(path)).runs == 0
    assert target.run(there.release_import(path)).runs == 0
    assert not [run for run in runs(target) if run.row.deleted_at is None]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_an_export_that_moves_goes_on_where_it_was_cut_off(fresh, tmp_path, share):
    source, target, path = fresh(), fresh(), tmp_path / "runs"
    furnish(source)
    before = as_before(runs(source))
    source.run(App(source.store).export(path, move=True))
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * share)])
    by_file(source, target, path, resume=True)
    assert as_before(runs(target)) == before


def test_a_run_that_a_purge_removes_at_this_moment_is_refused_with_a_reason(fresh, clock, tmp_path):
    source, target = fresh(), fresh(SqliteStore(str(tmp_path / "a.db"), clock=clock))
    run = source.start(key="k")
    assert target.start() == run
    file = apsw.Connection(str(tmp_path / "a.db"))
    file.execute("update workflow_run set deleted_at = -1")
    file.close()
    report = move(source, target)
    assert (report.moved, report.refused_runs) == (0, 1)
    assert report.refused[0].reason == BEING_PURGED
    assert source.status(run) == "pending"
