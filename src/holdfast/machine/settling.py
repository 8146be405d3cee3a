"""Settling: a wait gets its outcome when an event comes, a child ends, a person decides, or its deadline
passes.

A wait is settled once, by the first that notices. waking.py has the effect on the run.
"""

from __future__ import annotations

import msgspec

from holdfast import bounds
from holdfast.bounds import text_bytes
from holdfast.lifecycle import FINAL, WAIT_MOVES, WAITS, Status, StepKind, StepStatus, WaitMove
from holdfast.records import Error, Json

from .gates import decision_json, why_rejected
from .rows import RunRow, StepRow, raw
from .view import Data, Event, R, View

LAPSES = next(rule.settles for rule in WAIT_MOVES if rule.move is WaitMove.LAPSE)
LISTENS = frozenset({StepKind.EVENT, StepKind.TASK})
COME = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


def lapses(run: RunRow, wait: StepRow, *, wait_timeouts: bool) -> bool:
    """Return True when a keeper settles the wait at its deadline. Some keepers skip deadlines of plans'
    waits."""
    return wait.kind in LAPSES and (wait_timeouts or not run.is_plan or wait.kind not in LISTENS)


def has_waited(step: StepRow) -> bool:
    """Return True when the step is a wait. A child that was only started is none."""
    return step.kind in WAITS and (step.kind is not StepKind.CHILD or step.waits > 0)


def has_come(entry: Data) -> bool:
    """Return True when the trail row says that the wait got its event or child, not that its deadline
    passed."""
    return "event" in entry or "child" in entry


def look(view: View[R], run: R, wait: StepRow) -> Data | None:
    """Settle the wait if its outcome has come. Return its row in the trail. None: not yet.

    A wait takes the oldest event available to it, also one that came before it, up to its deadline. Without
    an event, a wait whose deadline has passed lapses.

    Settling: the step takes the next seq, succeeded with output {"id", "topic", "at" (µs), "payload"} (a
    sleep: null) or failed with its error; a receipt (run, event, step key) is written. The event's count of
    woken runs grows unless the run is paused or deleted. Trail: woken or timed_out. In a plan a settled step
    keeps its seq, and a task is pending again with wake {"reason": "event", "event": the output above}; any
    other succeeds.
    """
    if wait.kind in LISTENS and wait.topic is not None:
        event = view.available(run, wait)
        if event is not None:
            return _take(view, run, wait, event)
    if wait.kind is StepKind.CHILD:
        return _child_ended(view, run, wait)
    if wait.kind in LAPSES and wait.due_at is not None and wait.due_at <= view.now:
        return _lapse(view, run, wait)
    return None


def look_at_all(view: View[R], run: R) -> bool:
    """Look at every open wait of a leased run. Return True when some are left, because values were large."""
    begun = view.copied
    for wait in view.to_look_at(run):
        if view.copied - begun >= bounds.BATCH_BYTES:
            return True
        look(view, run, wait)
    return False


def _take(view: View[R], run: R, wait: StepRow, event: Event) -> Data:
    """deliver: an event has come. Trail: woken [step event]."""
    view.copied += event.size
    view.take(run, event, wait.key, counts=run.is_reached)
    if wait.kind is StepKind.TASK:
        _call_again(wait, event.wake)
    else:
        _outcome(view, run, wait, StepStatus.SUCCEEDED, event.output)
    return view.note(run, "woken", step=wait.key, event=event.id)


def _call_again(wait: StepRow, why: Json) -> None:
    """Make a plan's task that has waited pending again, with the reason `why`."""
    wait.status, wait.wake, wait.due_at = StepStatus.PENDING, why, None


def _outcome(view: View[R], run: R, wait: StepRow, status: StepStatus, output: Json | None) -> None:
    """Set the outcome. The wait gets the next number, in the order of outcomes; rows of a plan keep
    theirs."""
    wait.status, wait.output, wait.finished_at = status, output, view.now
    if not run.is_plan:
        wait.seq = view.next_seq(run)


def _child_ended(view: View[R], run: R, wait: StepRow) -> Data | None:
    """deliver: the child has ended, or is gone. Trail: woken [step child error?]."""
    child = None if wait.child is None else view.end_of(wait.child)
    if child is not None and child.status not in FINAL:
        return None
    status = "gone" if child is None else child.status
    result, error = (None, None) if child is None else (child.result, child.error)
    view.copied += text_bytes(result) + text_bytes(error)
    end: dict[str, object] = {"run": wait.child, "status": status}
    if status == Status.SUCCEEDED:
        output = end | {"result": raw(result or "null")}
        _outcome(view, run, wait, StepStatus.SUCCEEDED, msgspec.json.encode(output).decode())
        return view.note(run, "woken", step=wait.key, child=str(wait.child))
    output = end | {"error": raw(error or "null")}
    _outcome(view, run, wait, StepStatus.FAILED, msgspec.json.encode(output).decode())
    _blame(wait, "child_failed", f"child run {wait.child} is {status}")
    return view.note(run, "woken", step=wait.key, child=str(wait.child), error=raw(wait.error))


def _lapse(view: View[R], run: R, wait: StepRow) -> Data:
    """lapse: the deadline has passed. A sleep succeeds (woken); a gate is decided by its on_timeout; a plan's
    task is called again; an awaited event fails, kind timeout (timed_out)."""
    match wait.kind:
        case StepKind.SLEEP:
            _outcome(view, run, wait, StepStatus.SUCCEEDED, "null")
            return view.note(run, "woken", step=wait.key)
        case StepKind.APPROVAL:
            approved = wait.on_timeout == "approve"
            decided(view, run, wait, approved=approved, timed_out=True)
            return view.note(run, "timed_out", step=wait.key, approved=approved)
        case StepKind.TASK:
            _call_again(wait, '{"reason":"timeout"}')
        case _:
            _outcome(view, run, wait, StepStatus.FAILED, None)
            _blame(wait, "timeout", f"no event on {wait.topic} before the deadline")
    return view.note(run, "timed_out", step=wait.key)


def decided(
    view: View[R],
    run: R,
    gate: StepRow,
    *,
    approved: bool,
    by: str = "",
    comment: str = "",
    timed_out: bool = False,
) -> None:
    """decide: record the decision of a gate. In a plan a rejected gate fails; code gets the decision and
    goes on."""
    output = decision_json(approved=approved, by=by, comment=comment, at=view.now, timed_out=timed_out)
    status = StepStatus.SUCCEEDED if approved or not run.is_plan else StepStatus.FAILED
    _outcome(view, run, gate, status, output)
    if status is StepStatus.FAILED:
        _blame(gate, "rejected", why_rejected(by=by, comment=comment, timed_out=timed_out))


def _blame(wait: StepRow, kind: str, message: str) -> None:
    wait.error = msgspec.json.encode(Error(kind=kind, message=message, step=wait.key)).decode()
