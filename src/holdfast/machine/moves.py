"""The moves of a leaseholder, one function each. commit.py has applied all other parts of the item before.

A requested pause (pause_asked_by is set) takes effect at every boundary: a move that stays or leaves then
ends in `paused`, with the answer `paused` (trail: the move's own row if it has one, then `paused`). Complete
and fail win over a pause. Attempts never go below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import Answer, Item, Step, Verdict
from holdfast.records.moves import Advance, BeginPlan, Checkpoint, Complete, Fail, Park, Release, Retry

from . import budgets, ending, plans
from .durations import micros
from .rows import Owes, StepRow, raw
from .settling import look_at_all
from .steps import StepEffects
from .view import Data, R, View


class Writing(Generic[R]):
    """One item while it is applied. `news`: the current row of a plan, if the holder goes on with it."""

    def __init__(self, view: View[R], run: R, item: Item) -> None:
        self.view, self.run, self.item = view, run, item
        # A park without `known`: the holder knows all steps that were recorded before this item.
        self.known = item.known
        if self.known is None and isinstance(item.move, Park):
            self.known = view.highest(run)
        self.effects = StepEffects()
        self.news: StepRow | None = None
        self.reason: Data = {}  # why the run pauses, for the trail

    def look(self) -> None:
        """Settle all open waits that can be settled, so that nothing that has already come is missed."""
        if look_at_all(self.view, self.run):
            self.run.owes |= Owes.LOOK

    def stay(self, more: int = 0) -> None:
        """Stay leased; the lease is renewed when less than two thirds of it are left."""
        self.count(more)
        run, lease, now = self.run, micros(self.item.lease_seconds), self.view.now
        assert run.lease_until is not None
        if (run.lease_until - now) * 3 < lease * 2:
            run.lease_until = now + lease

    def leave(self, to: Status, refund: int, wait: StepRow | None = None) -> None:
        """End the lease: go to the status `to`, or into the requested pause. Trail: paused [by].

        The item's trace, if it has one, replaces that of the run. An item that stays leased, or that ends the
        run, leaves the trace as it is.
        """
        run, by = self.run, self.run.pause_asked_by
        if self.item.trace is not None:
            self.view.keep_trace(run, self.item.trace)
        self.count(-refund)
        run.show_wait(wait)
        if by is None:
            run.let_go()
            run.status = to
        else:
            run.pause(to, by)
            self.view.note(run, "paused", by=by, **self.reason)

    def count(self, by: int = 0) -> None:
        """Count attempts and crashes. Progress sets attempt 1 and crashes 0; then the move adds or takes back
        its own. Progress is a step settled by this item: SUCCEEDED or FAILED, and not kept.
        """
        run = self.run
        if self.effects.progress:
            run.attempt, run.crashes, run.survived = 1, 0, 0
        if by:
            run.attempt = max(0, run.attempt + by)

    def verdict(self) -> Verdict:
        """Return the answer. If `known` is given, an applied answer lists in `settled` the waits of the run
        that were settled with seq > known, by seq, and `seq` is the highest of the run.

        Above NEWS_BYTES `settled` is empty and `more` is true: the holder calls `load`. For a plan, `settled`
        holds the current row; a row that is too large is left out, and the holder reads it with `steps`.
        """
        run, item, view = self.run, self.item, self.view
        settled, more = self._settled()
        return Verdict(
            answer=Answer.PAUSED if run.status is Status.PAUSED else Answer.APPLIED,
            status=run.status,
            kept=tuple(self.effects.kept),
            settled=settled,
            more=more,
            seq=view.highest(run) if item.known is not None else 0,
        )

    def _settled(self) -> tuple[tuple[Step, ...], bool]:
        if not self.run.is_plan:
            return ((), False) if self.known is None else self.view.news(self.run, self.known)
        current = None if self.news is None else self.view.shown(self.run, self.news)
        return () if current is None else (current,), False


def checkpoint(w: Writing[Any], _: Checkpoint) -> None:
    """checkpoint: the run stays leased; the item brings at least one step. The lease is renewed when less
    than two thirds of lease_seconds are left. Paused: attempt - 1.
    """
    if w.run.pause_asked_by is None:
        w.stay()
    else:
        w.leave(Status.PENDING, refund=1)


def advance(w: Writing[Any], move: Advance) -> None:
    """advance: the current step of a plan has succeeded, and the next row becomes current.

    The item brings exactly one step, SUCCEEDED, which must be the current one: the first that has not
    succeeded; else `lost`, and nothing changes. The step keeps its seq. Then the next row decides:

    - A task leaves the run leased when in_place (attempt 1, lease as in checkpoint, and the row is in
      `settled`), else pending now (attempt 0, status in step_succeeded).
    - A gate, an awaited event or a sleep is opened, with due_at by its timeout, and looked at at once, like
      in park. If it can be settled, the row after it becomes current; else the run is waiting, lease cleared,
      attempt 0.
    - No further row: like complete. `result` is stored if this step is the last row, but not if later rows
      were settled here, the same as when they are settled later.
    - A next row that is not pending: like fail, kind `drift`.
    - A requested pause: paused, and the next row is handled at resume; success and failure win.
    """
    view, run = w.view, w.run
    done = view.step(run, w.item.steps[0].key)
    step = plans.following(view, run, done)
    if step is None:
        w.count()
        run.result = move.result
        ending.succeed(view, run)
        return
    if step.status is not StepStatus.PENDING:
        w.count()
        plans.fail(view, run, step)
    elif run.pause_asked_by is not None:
        run.run_at = view.now
        w.leave(Status.PENDING, refund=1)
    else:
        _go_on(w, plans.come_to(view, run, done), in_place=move.in_place)


def _go_on(w: Writing[Any], step: StepRow | None, *, in_place: bool) -> None:
    """Go on by the next row: a task executed in place, an open wait, or the end of the run."""
    run = w.run
    if step is None:
        w.count()
        run.result = None  # the plan does not end with the holder's task
        ending.succeed(w.view, run)
    elif step.status is StepStatus.WAITING:
        w.leave(Status.WAITING, refund=1, wait=step)
    elif step.status is not StepStatus.PENDING:
        w.count()
        plans.fail(w.view, run, step)
    elif in_place:
        w.stay()
        w.news = step
    else:
        assert w.effects.done is not None
        w.effects.done["status"], run.run_at = Status.PENDING, w.view.now
        w.leave(Status.PENDING, refund=1)


def begin_plan(w: Writing[Any], move: BeginPlan) -> None:
    """Turn a run that was started before its plan was published into a run of the plan.

    If the run has no rows they are inserted as at start, and its kind becomes `plan`. The first row becomes
    current, never in place: pending now, attempt - 1. Trail: step_added for each, released. If the run has
    rows, nothing is inserted.
    """
    view, run = w.view, w.run
    if not view.outline(run):
        plans.insert(view, run, move.plan)
        for added in move.plan:
            view.note(run, "step_added", step=added.name)
    _give_back(w)
    if run.status is Status.PENDING and run.is_plan:
        step = plans.come_to(view, run)
        # No step has succeeded yet: a task begins with the attempts that the run has.
        plans.become(view, run, step, counts_stay=step is not None and step.status is StepStatus.PENDING)


def park(w: Writing[Any], _: Park) -> None:
    """park: first every open wait of the run is settled if it can be, as in `deliver` and `tick`. If a wait
    was settled with seq > known, before or just now, the run stays leased, applied, and `settled` holds the
    wait. Otherwise waiting, lease cleared, attempt - 1; waiting_on, wait_topic and deadline_at show the first
    due open wait. Paused: resumes to waiting, or to pending when a wait was settled.

    For a plan: exactly one step, the current task, WAITING with a topic, due_at or both. `waits` of its row
    grows by one, its `wake` is cleared. The event or deadline that settles it puts it back to pending with
    its `wake`; settled at once, the run stays leased with the row in `settled`, and that is progress. The
    last trail row of an opened wait says that the run waits; if there is none, one more row says it.
    """
    view, run = w.view, w.run
    w.look()
    waits = view.open_waits(run)
    if run.is_plan:
        news = w.effects.progress = not waits
        w.news = view.step(run, w.item.steps[0].key) if news else None
    else:
        assert w.known is not None
        # Without an open wait nothing could ever wake the run: its waits are settled already, see `kept`.
        news = not waits or view.has_news(run, w.known)
    if run.pause_asked_by is not None:
        run.run_at = view.now if news else run.run_at
        w.leave(Status.PENDING if news else Status.WAITING, refund=1, wait=None if news else waits[0])
    elif news:
        w.count()
    else:
        first, entry = waits[0], w.effects.opened
        w.leave(Status.WAITING, refund=1, wait=first)
        if entry is None:
            entry = view.note(run, plans.opening(first.kind), step=first.key, kind=first.kind)
        entry["status"] = Status.WAITING


def complete(w: Writing[Any], move: Complete) -> None:
    """complete: succeeded, with the result; the error is cleared, and the run ends (`ending.end`).
    Trail: succeeded.
    """
    w.count()
    w.run.result = move.result
    ending.succeed(w.view, w.run)


def fail(w: Writing[Any], move: Fail) -> None:
    """fail: failed, with error and last_error; otherwise like complete. Trail: failed.

    A run that failed by a step shows the attempts of that step (plus crashes), and its max_attempts.
    """
    run = w.run
    w.count()
    if move.attempt is not None:
        run.attempt, run.tried_of = move.attempt + run.crashes, move.max_attempts
    run.result, run.error, run.last_error = None, move.error, move.last_error
    ending.fail(w.view, run, move.kind, move.last_error)


def retry(w: Writing[Any], move: Retry) -> None:
    """retry: error and last_error are set. in_place: the run stays leased, attempt + 1 unless refund, lease
    as in checkpoint. Else pending at now + delay (now, if a wait was settled with seq > known), lease
    cleared, attempt - 1 if refund. Trail: retried [attempt max_attempts delay error], one for each step that
    is READY, with its own attempts; only a retry may write such steps.

    For a plan: the current task, if any; of its row only the cost changes.
    """
    view, run, item = w.view, w.run, w.item
    stays, delay = move.in_place and run.pause_asked_by is None, move.delay_seconds
    run.error, run.last_error = move.error, move.last_error
    data: dict[str, object] = {"delay": delay, "error": raw(move.error)}
    to = {} if stays or run.pause_asked_by is not None else {"status": Status.PENDING}
    for step in w.effects.ready:
        tries = {"attempt": step.attempts, "max_attempts": step.max_attempts or run.max_attempts}
        view.note(run, "retried", **tries, **data, step=step.key, **to)
    if not w.effects.ready:
        view.note(run, "retried", **ending.tries(run, given_back=move.refund), **data, **to)
    if stays:
        w.stay(more=0 if move.refund else 1)
        return
    news = item.known is not None and view.has_news(run, item.known)
    run.run_at = view.now if news else view.now + micros(delay)
    w.leave(Status.PENDING, refund=1 if move.refund else 0)


def release(w: Writing[Any], move: Release) -> None:
    """release: pending, run_at now, lease cleared, attempt - 1. Trail: released.

    With `before`: paused, if what is spent and what the step may cost are together above the budget of the
    run, or above the one that covers it, as they are now (`budgets.shortage`). Trail: released,
    paused [by step cost_max cost budget].
    """
    if w.run.pause_asked_by is None:
        w.run.pause_asked_by, w.reason = budgets.shortage(w.view, w.run, move)
    _give_back(w)


def _give_back(w: Writing[Any]) -> None:
    w.view.note(w.run, "released")
    w.run.run_at = w.view.now
    w.leave(Status.PENDING, refund=1)


HOLDER_FUNCTIONS: Mapping[type, Callable[[Writing[Any], Any], None]] = {
    Checkpoint: checkpoint,
    Advance: advance,
    BeginPlan: begin_plan,
    Park: park,
    Complete: complete,
    Fail: fail,
    Retry: retry,
    Release: release,
}
