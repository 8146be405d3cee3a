"""Moves that were interrupted, and are made again: runs that have left arrive, with their events."""

from __future__ import annotations

import pytest

from holdfast.records import NewEvent
from holdfast.testing.contract.driver import listen
from holdfast.testing.contract.transfers import events, runs
from holdfast.transfer.moving import Mover
from tests.transfer.test_hazards import Hooked, _kill, two
from tests.transfer.test_moving import Killed, away, fresh, loop, move  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def test_a_run_that_has_left_arrives_beside_one_that_is_refused(fresh):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    with pytest.raises(Killed):
        source.run(Mover(source.store, Hooked(target.store, "arrive", before=_kill), to="there").run())
    assert away(target) == {one: True}
    other = source.start(key="k")
    target._ids = 9_000_000
    target.start(key="k")
    mover = Mover(source.store, target.store, to="there")
    source.run(mover._move([one, other]))
    assert (mover.report.refused_runs, mover.report.moved) == (1, 0)
    assert not away(target)[one]
    assert source.status(other) == "pending"


def test_an_event_that_a_run_has_taken_does_not_come_again_after_an_undo(fresh):  # noqa: F811
    source, target, _ = two(fresh, 0)
    claim = source.held()
    source.park(claim, listen())
    source.run(source.store.emit(NewEvent(id="e", topic="parcel", payload="1", run=claim.id)))
    source.deliver()
    killed = Mover(source.store, Hooked(target.store, "import_runs", after=_kill), to="there")
    with pytest.raises(Killed):
        source.run(killed.run())
    source.run(Mover(source.store, target.store, to="there").undo())
    assert move(source, target).moved == 1
    (run,), (event,) = runs(target), events(target)
    assert [step.took for step in run.steps] == [(event.seq,)]
