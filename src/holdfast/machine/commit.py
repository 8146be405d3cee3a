"""commit: check and apply one item of a leaseholder. The moves themselves are in moves.py.

A store calls `answer` for each item of a batch, in order, and saves the view once.
"""

from __future__ import annotations

import msgspec

from holdfast.clipped import clipped
from holdfast.contract import BUDGET
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import Answer, Item, Verdict
from holdfast.records.moves import Checkpoint, Park, starts_of

from . import budgets
from .claiming import begin
from .moves import HOLDER_FUNCTIONS, Writing
from .plans import strays
from .rows import holds
from .starting import follow, start
from .steps import record_steps
from .view import R, View

_APPLIED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)


def answer(view: View[R], run: R | None, item: Item) -> Verdict:
    """Apply the item if its holder holds the run, and answer it.

    Repeats: an item whose (fence, number) was applied before gets the same answer as the first time and
    changes nothing. It was applied when its number is not above that of the row's last recorded item under
    the same fence, or when its steps are recorded under the same pair. This also holds after the run has
    moved on, until another holder has written. For a repeat `settled` is looked up again.

    A run is held when: status leased, fence equal, lease_until >= now. A holder that has lost the run changes
    nothing: `cancelled` when the run is cancelled, else `lost`, also for a run that is unknown.

    An item of a plan with the wrong step is `lost` (`plans.strays`). An item that starts a run or records an
    event for another tenant than its run's is refused with UsageError.
    """
    refusal = refused(view, run, item)
    if refusal is None:
        assert run is not None
        refusal = write(view, run, item)
    return with_left(view, run, item, refusal)


def with_left(view: View[R], run: R | None, item: Item, verdict: Verdict) -> Verdict:
    """Return the answer with what is left of the budget that the run shares, if its holder wants to know."""
    if not item.shares or run is None or run.account is None or verdict.answer is not Answer.APPLIED:
        return verdict
    return msgspec.structs.replace(verdict, left=budgets.left(view, run))


def refused(view: View[R], run: R | None, item: Item) -> Verdict | None:
    """Return the answer to an item that must not be applied. None: apply it."""
    lost = not_held(view, run, item)
    if lost is not None or run is None:
        return lost
    if run.commit_fence == item.fence and item.number <= run.commit_no:
        return _repeated(view, run, item)
    for step in item.steps:
        row = view.step(run, step.key)
        if row is not None and row.fence == item.fence and row.number >= item.number:
            return _repeated(view, run, item)
    current = view.at_work(run) if run.is_plan and item.steps else None
    if strays(item, None if current is None else current.key, is_plan=run.is_plan):
        return Verdict(answer=Answer.LOST, status=run.status)
    refuse_foreign(item, run.tenant)
    return None


def refuse_foreign(item: Item, tenant: str) -> None:
    """Refuse an item that starts a run or records an event for another tenant."""
    named = [event.tenant for event in item.events] + [new.tenant for new in starts_of(item)]
    named += [write.child.tenant for write in item.steps if write.child is not None]
    for other in named:
        if other != tenant:
            raise UsageError(
                f"run {item.run} cannot start a run or send an event for tenant {clipped(other)}: "
                "only for its own tenant"
            )


def not_held(view: View[R], run: R | None, item: Item) -> Verdict | None:
    """Return the answer to a holder that has lost the run. None: it still holds the run.

    Until another holder has written, a repeat gets the same answer as the first time.
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
    """Return the first answer again, with `settled` looked up again. For a number before the last recorded
    one only one thing is certain: it was applied, and the holder went on.
    """
    last = run.commit_fence == item.fence and item.number == run.commit_no
    first = (view.answer(run) if last else None) or _APPLIED
    if item.known is None or first.answer is not Answer.APPLIED:
        return first
    settled, more = view.news(run, item.known)
    return msgspec.structs.replace(first, settled=settled, more=more, seq=view.highest(run))


def write(view: View[R], run: R, item: Item, *, marked: bool = False) -> Verdict:
    """Apply an item that is not refused, and answer it. Its parts are applied in this order.

    1. `started` goes into the trail, if started_at is given and no renewal has written it for this fence.
    2. The item's own trail rows.
    3. The steps (`record_steps`). If their costs bring the run from below its budget to it or above, a pause
       is requested by BUDGET, unless one is requested already. A budget that covers the run is charged.
    4. An item that opens a wait looks at once, like park: every open wait is settled that can be, up to
       BATCH_BYTES of values in one commit; the rest is owed.
    5. Events go into the inbox. A known id changes nothing.
    6. Starts. A known id or key changes nothing. The same holds for a start whose parent is refused as in
       `start`, unless it is this run's own parent. A start with a parent_step takes this run's place in that
       step, if the step names this run.
    7. Messages go into the outbox. A known id changes nothing. Progress is stored.
    8. The move (`HOLDER_FUNCTIONS`), and the answer (`Writing.verdict`).

    The row of the run changes only where something differs: the step rows of a simple checkpoint already name
    the item that wrote them. `marked`: the row of the run records the item in any case.
    """
    writing = Writing(view, run, item)
    begin(view, run, item.started_at)
    for entry in item.trail:
        view.log(run, entry.type, entry.data)
    spent = run.cost
    effects = writing.effects = record_steps(view, run, item)
    if run.account is not None:
        budgets.charge(view, run, run.cost - spent)
    if run.budget is not None and spent < run.budget <= run.cost and run.pause_asked_by is None:
        run.pause_asked_by = BUDGET
    if effects.opened is not None and not isinstance(item.move, Park):
        writing.look()
    for event in item.events:
        view.record(event)
    if starts := starts_of(item):
        start(view, starts, run)
        follow(view, run, starts)
    if item.outbox:
        view.send(run, item.outbox)
    if item.progress is not None:
        run.progress = item.progress
    HOLDER_FUNCTIONS[type(item.move)](writing, item.move)
    verdict = writing.verdict()
    # An item without a step row, or with a richer answer, must be recorded in the row of the run. Else a
    # repeat of the item would not be recognised.
    if (
        marked or effects.silent or effects.kept or not isinstance(item.move, Checkpoint)
        or run.status is not Status.LEASED
    ):  # fmt: skip
        view.answered(run, verdict)
        run.commit_fence, run.commit_no, run.updated_at = item.fence, item.number, view.now
    return verdict
