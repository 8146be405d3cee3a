"""Events that come to the source after a file of runs that move was written: they go along with FILE.left."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.errors import UsageError
from holdfast.records import ANY, NewEvent, RunFilter
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import listen
from holdfast.testing.contract.transfers import emitted, events
from holdfast.transfer.moving import Mover
from tests.transfer.test_hazards import Hooked, exported
from tests.transfer.test_moving import fresh, loop  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def listening(driver, **fields):
    claim = driver.held(**fields)
    driver.park(claim, listen("wait", "parcel"))
    return claim.id


@pytest.fixture(params=["memory", "sqlite"])
def two_stores(request, fresh, clock, tmp_path):  # noqa: F811
    if request.param == "memory":
        return fresh(), fresh()
    return tuple(fresh(SqliteStore(str(tmp_path / f"{name}.db"), clock=clock)) for name in "ab")


def confirmed(source, path):
    return source.run(App(source.store).confirm_export(path))


def released(target, path):
    return target.run(App(target.store).release_import(path))


def test_an_event_that_comes_after_the_file_was_written_reaches_the_run(two_stores, tmp_path):
    source, target = two_stores
    run, path = listening(source), tmp_path / "a"
    before = emitted(source, "other")
    exported(source, path)
    late = emitted(source)
    source.deliver()
    target.run(App(target.store).import_(path))
    assert confirmed(source, path).events == 1
    assert released(target, path).events == 1
    target.deliver()
    assert late in target.take(run).steps[0].output
    assert [event.id for event in events(target)] == [before, late]
    assert released(target, path).runs == 1
    assert len(events(target)) == 2


def test_a_repeated_confirmation_takes_the_events_that_came_since(two_stores, tmp_path):
    source, target = two_stores
    run, path = listening(source), tmp_path / "a"
    exported(source, path)
    first = emitted(source, "other")
    target.run(App(target.store).import_(path))
    assert confirmed(source, path).events == 1
    assert released(target, path).runs == 1
    late = emitted(source)
    again = confirmed(source, path)
    assert (again.runs, again.events) == (1, 2)
    released(target, path)
    target.deliver()
    assert late in target.take(run).steps[0].output
    assert [event.id for event in events(target)] == [first, late]
    # An event that the source has purged since stays in the file.
    source.clock.turn(40 * 86400)
    source.purge()
    assert confirmed(source, path).events == 2


def test_events_of_runs_that_stay_do_not_go_along(two_stores, tmp_path):
    source, target = two_stores
    moves, stays = listening(source, key="moves"), listening(source)
    path = tmp_path / "a"
    source.run(App(source.store).export(path, RunFilter(tenant=ANY, key="moves"), move=True))
    emitted(source, "letter", run=stays)
    free = emitted(source, "free")
    target.run(App(target.store).import_(path))
    assert confirmed(source, path).events == 1
    released(target, path)
    assert [event.id for event in events(target)] == [free]
    assert target.status(moves) == "waiting"


def test_a_file_of_late_events_that_was_cut_is_refused(two_stores, tmp_path):
    source, target = two_stores
    run, path = listening(source), tmp_path / "a"
    exported(source, path)
    for _ in range(3):
        emitted(source, "other")
    target.run(App(target.store).import_(path))
    confirmed(source, path)
    whole = (tmp_path / "a.left").read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (lines[:-1], lines[:1], [lines[0], lines[1], lines[2][:-9] + b'"}}\n', lines[3]]):
        (tmp_path / "a.left").write_bytes(b"".join(cut))
        with pytest.raises(UsageError, match="is not whole"):
            released(target, path)
        assert target.status(run) == "cancelled"
    (tmp_path / "a.left").write_bytes(whole)
    assert released(target, path).runs == 1
    assert len(events(target)) == 3


def test_the_file_of_an_earlier_version_has_no_events(two_stores, tmp_path):
    source, target = two_stores
    run, path = listening(source), tmp_path / "a"
    exported(source, path)
    target.run(App(target.store).import_(path))
    confirmed(source, path)
    old = (tmp_path / "a.left").read_bytes().replace(b',"events":0', b"")
    (tmp_path / "a.left").write_bytes(old)
    assert released(target, path).runs == 1
    assert target.status(run) == "waiting"


def test_an_event_that_is_committed_late_reaches_a_run_that_has_moved(fresh):  # noqa: F811
    """Its transaction began before the move, and ended after the run had arrived."""
    source, target = fresh(), fresh()
    run, name = listening(source), "late"

    async def commit():
        await target.store.deliver()  # the run has looked for what came meanwhile
        source.clock.turn(-10)
        await source.store.emit(NewEvent(id=name, topic="parcel", payload='"late"'))
        source.clock.turn(10)
        await source.store.deliver()

    slow = Hooked(target.store, "arrive", after=commit)
    assert source.run(Mover(source.store, slow, to="there").run()).moved == 1
    target.deliver()
    assert name in target.take(run).steps[0].output


def test_late_events_are_undelivered_at_the_target(two_stores, tmp_path):
    """A run of the target itself that waits for them gets them too."""
    source, target = two_stores
    listening(source)
    path = tmp_path / "a"
    exported(source, path)
    target._ids = 9_000_000
    own = listening(target)
    source.run(source.store.emit(NewEvent(id="late", topic="parcel", payload='"late"')))
    source.deliver()
    target.run(App(target.store).import_(path))
    confirmed(source, path)
    released(target, path)
    target.deliver()
    assert target.status(own) == "pending"
