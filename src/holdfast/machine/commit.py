"""commit: one item of a holder on its way into the rows. The moves themselves are in moves.py.

A store offers each item of a batch to `answer`, in order, and saves the view once.
"""

from __future__ import annotations

import msgspec

from holdfast.clipped import clipped
from holdfast.errors import UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import Answer, Item, Verdict
from holdfast.store import BUDGET

from .claiming import begin
from .moves import MOVES, Writing
from .plans import strays
from .rows import holds
from .starting import follow, start
from .steps import record_steps
from .view import R, View

_APPLIED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)


def answer(view: View[R], run: R | None, item: Item) -> Verdict:
    """Apply the item if its holder holds the run, and answer it.

    A repeat, an item whose (fence, number) was applied before, is answered as the first time and changes
    nothing. Otherwise a holder that has lost the run changes nothing: `cancelled` when the run is cancelled,
    else `lost`.
    """
    refusal = refused(view, run, item)
    if refusal is not None:
        return refusal
    assert run is not None
    return write(view, run, item)


def refused(view: View[R], run: R | None, item: Item) -> Verdict | None:
    """The answer to an item that is not to be applied; None: it is."""
    lost = not_held(view, run, item)
    if lost is not None or run is None:
        return lost
    if run.commit_fence == item.fence and item.number <= run.commit_no:
        return _repeated(view, run, item)
    for step in item.steps:
        stands = view.step(run, step.key)
        if stands is not None and stands.fence == item.fence and stands.number >= item.number:
            return _repeated(view, run, item)
    current = view.at_work(run) if run.is_plan and item.steps else None
    if strays(item, None if current is None else current.key, is_plan=run.is_plan):
        return Verdict(answer=Answer.LOST, status=run.status)
    refuse_foreign(item, run.tenant)
    return None


def refuse_foreign(item: Item, tenant: str) -> None:
    """Refuse an item that starts a run or records an event for another tenant than its run's."""
    named = [event.tenant for event in item.events] + [new.tenant for new in item.starts]
    named += [write.child.tenant for write in item.steps if write.child is not None]
    for other in named:
        if other != tenant:
            raise UsageError(
                f"run {item.run} cannot start a run or send an event for tenant {clipped(other)}: "
                "only for its own tenant"
            )


def not_held(view: View[R], run: R | None, item: Item) -> Verdict | None:
    """The answer to a holder that has lost the run; None: it holds it.

    Until another holder has written, a repeat is answered as the first time.
    """
    if run is None:
        return Verdict(answer=Answer.LOST, status=Status.CANCELLED)
    if holds(run, item.fence, view.now):
        return None
    if not view.overtaken(run, item.fence):
        if run.commit_fence == item.fence and item.number <= run.commit_no:
            return _repeated(view, run, item)
        if run.commit_fence <= item.fence and view.wrote(run, item.fence, item.number):
            return _repeated(view, run, item)
    return Verdict(
        answer=Answer.CANCELLED if run.status is Status.CANCELLED else Answer.LOST, status=run.status
    )


def _repeated(view: View[R], run: R, item: Item) -> Verdict:
    """The first answer once more; `settled` is looked up anew. Of a number before the last recorded one
    only this much is sure: the holder went on after it.
    """
    last = run.commit_fence == item.fence and item.number == run.commit_no
    first = (view.answer(run) if last else None) or _APPLIED
    if item.known is None or first.answer is not Answer.APPLIED:
        return first
    settled, more = view.news(run, item.known)
    return msgspec.structs.replace(first, settled=settled, more=more, seq=view.highest(run))


def write(view: View[R], run: R, item: Item, *, marked: bool = False) -> Verdict:
    """Apply an item that is not refused, in the order of the contract, and answer it.

    `started` if it is due, trail rows, steps, a look if a wait was opened, events, starts, messages, the
    move. `marked`: the run's row remembers the item in any case.
    """
    writing = Writing(view, run, item)
    begin(view, run, item.started_at)
    for entry in item.trail:
        view.log(run, entry.type, entry.data)
    spent = run.cost
    recorded = writing.recorded = record_steps(view, run, item)
    if run.budget is not None and spent < run.budget <= run.cost and run.pause_asked_by is None:
        run.pause_asked_by = BUDGET
    if recorded.opened is not None and item.move is not Move.PARK:
        writing.look()
    for event in item.events:
        view.record(event)
    if item.starts:
        start(view, item.starts, run)
        follow(view, run, item.starts)
    if item.outbox:
        view.send(run, item.outbox)
    if item.progress is not None:
        run.progress = item.progress
    MOVES[item.move](writing)
    verdict = writing.verdict()
    # A plain checkpoint leaves the run's row alone: its steps tell who wrote them. An item of which no row
    # stands, or whose answer says more, must be known by the run's row, to be known when it is sent again.
    if (
        marked or recorded.silent or recorded.kept or item.move is not Move.CHECKPOINT
        or run.status is not Status.LEASED
    ):  # fmt: skip
        view.answered(run, item, verdict)
        run.commit_fence, run.commit_no, run.updated_at = item.fence, item.number, view.now
    return verdict
