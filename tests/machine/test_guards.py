"""Guards of moves: the guard of holders, and the table of moves for all others."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.errors import IllegalMove
from holdfast.lifecycle import FINAL, RULES, Move, Status, StepKind, StepStatus
from holdfast.machine import people, waking
from holdfast.machine.rows import Owes, StepRow, holds
from holdfast.stores.memory.rows import RunRow, State
from holdfast.stores.memory.view import MemoryView

NOW, RUN = 1000, UUID(int=1)
PEOPLE = {
    Move.CANCEL: lambda view: people.cancel(view, RUN, None, "ann", children=True),
    Move.PAUSE: lambda view: people.pause(view, RUN, None, "ann"),
    Move.RESUME: lambda view: people.resume(view, RUN, None, "ann"),
    Move.REWIND: lambda view: people.rewind(view, RUN, "a", None, "ann", children=True),
    Move.RETRY_RUN: lambda view: people.retry_run(view, RUN, None, "ann"),
    Move.DELETE: lambda view: people.delete(view, RUN, None, "ann"),
    Move.RESTORE: lambda view: people.restore(view, RUN, None, "ann"),
}


def in_status(status, **fields):
    """Return a view of one run in this status, with the given fields."""
    held = {"leased_by": "w", "lease_until": NOW, "pause_asked_by": "bob"} if status is Status.LEASED else {}
    ended = {"finished_at": 1} if status in FINAL else {}
    resumes = {"resume_to": Status.PENDING} if status is Status.PAUSED else {}
    given = {"status": status, "fence": 7, "run_at": 0} | held | ended | resumes | fields
    run = RunRow(
        id=RUN, tenant="default", params="null", digest="", key=None, priority=0, limit_key=None,
        labels=None, created_at=0, steps={"a": StepRow(1, "a", StepKind.TASK, StepStatus.SUCCEEDED)}, **given,
    )  # fmt: skip
    state = State(runs={RUN: run})
    return MemoryView(state, NOW), run, state


@pytest.mark.spec("LEASE-4", "LEASE-5")
@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("fence", [6, 7, 8])
@pytest.mark.parametrize("until", [NOW - 1, NOW, NOW + 1])
def test_what_a_holder_writes_asks_for_lease_fence_and_time(status, fence, until):
    """Status leased, the same fence, and a lease that has not expired: for commits and renewals."""
    _, run, _ = in_status(status, lease_until=until)
    assert holds(run, fence, NOW) == (status is Status.LEASED and fence == 7 and until >= NOW)


@pytest.mark.spec("MOVE-1")
@pytest.mark.parametrize("move", sorted(PEOPLE))
@pytest.mark.parametrize("status", Status)
def test_people_may_make_exactly_the_moves_that_the_table_names(move, status):
    """From any other status: IllegalMove, and neither the row nor the trail has changed."""
    hidden = {"deleted_at": 5} if move is Move.RESTORE else {}
    view, run, state = in_status(status, **hidden)
    before = str(run)
    if status in RULES[move].sources or (move is Move.RESTORE and status is Status.LEASED):
        PEOPLE[move](view)
        return
    with pytest.raises(IllegalMove):
        PEOPLE[move](view)
    assert (str(run), state.trail) == (before, [])


@pytest.mark.parametrize("status", sorted(set(Status) - FINAL))
def test_a_settled_wait_wakes_its_run_by_what_the_run_is(status):
    """A waiting run is pending, one that backs off is hastened, a paused one resumes to pending; a leased one
    is left alone."""
    view, run, _ = in_status(status, run_at=NOW + 50)
    entry = view.note(run, "woken", step="a")
    waking.go_on(view, run, run.steps["a"], entry)
    becomes = {Status.WAITING: Status.PENDING}.get(status, status)
    assert (run.status, run.run_at) == (becomes, NOW + 50 if status is Status.LEASED else NOW)
    assert (entry.get("status"), run.resume_to) == (
        Status.PENDING if status is Status.WAITING else None,
        Status.PENDING if status is Status.PAUSED else None,
    )


@pytest.mark.spec("CANC-5", "REW-3")
def test_a_rewound_run_no_longer_owes_the_cancels_of_all_its_children():
    """Its next execution has children of its own; what else it owes stays."""
    view, run, _ = in_status(Status.CANCELLED, owes=Owes.CHILDREN | Owes.END | Owes.CHAIN)
    people.rewind(view, RUN, None, None, "ann", children=True)
    assert run.owes == Owes.END | Owes.CHAIN
