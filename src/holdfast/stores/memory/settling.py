"""The one way in which a wait is settled, and how a plan goes on from row to row.

A wait is settled once, whoever notices first: the park that looks, the keeper that finds it due, the
event that comes, the child that ends, the person who decides. What that does to the run is said here too.
"""

from __future__ import annotations

from math import inf

import msgspec

from holdfast.bounds import BATCH_BYTES, NEWS_BYTES, text_bytes
from holdfast.lifecycle import FINAL, WAIT_MOVES, WAITS, Status, StepKind, StepStatus, WaitMove
from holdfast.records import Error, Instant, Json, Step
from holdfast.stores.durations import micros
from holdfast.stores.gates import said, why_rejected

from .rows import EventRow, RunRow, State, StepRow, TrailRow, check

LAPSES = next(rule.settles for rule in WAIT_MOVES if rule.move is WaitMove.LAPSE)
LISTENS = frozenset({StepKind.EVENT, StepKind.TASK})
COME = (StepStatus.SUCCEEDED, StepStatus.FAILED)


def open_waits(row: RunRow) -> list[StepRow]:
    """What the run waits for, first due first; nothing once it has ended."""
    waits = [step for step in row.steps.values() if step.status is StepStatus.WAITING]
    return sorted(waits, key=lambda wait: (inf if wait.due_at is None else wait.due_at, wait.seq))


def lapses(row: RunRow, wait: StepRow, *, wait_timeouts: bool) -> bool:
    """Whether a keeper settles it when its time comes: some leave the deadlines of plans' waits alone."""
    return wait.kind in LAPSES and (wait_timeouts or not row.is_plan or wait.kind not in LISTENS)


def settled_since(row: RunRow, known: int | None) -> tuple[Step, ...]:
    """The waits that were settled behind the holder's back, oldest first."""
    if known is None:
        return ()
    news = [s for s in row.steps.values() if _has_waited(s) and s.status in COME and s.seq > known]
    return tuple(step.shown() for step in sorted(news, key=lambda step: step.seq))


def news_since(row: RunRow, known: int | None) -> tuple[tuple[Step, ...], bool]:
    """The same for an answer; nothing, and True, where they are too large for it."""
    settled = settled_since(row, known)
    large = sum(text_bytes(step.output) + text_bytes(step.error) for step in settled) > NEWS_BYTES
    return ((), True) if large else (settled, False)


def _has_waited(step: StepRow) -> bool:
    return step.kind in WAITS and (step.kind is not StepKind.CHILD or step.waits > 0)


def is_reached(row: RunRow) -> bool:
    """Whether news for the run get it going: paused or deleted, it only finds them there later."""
    return row.status is not Status.PAUSED and row.deleted_at is None


def settle(state: State, row: RunRow, wait: StepRow, now: Instant) -> EventRow | bool:
    """Settle the wait if what it waits for has come: the event, or True; else False."""
    event = available(state, row, wait) if wait.kind in LISTENS else None
    entry = look(state, row, wait, now, event)
    if entry is not None:
        go_on(state, row, wait, entry, now)
    return event or entry is not None


def look_at_all(state: State, row: RunRow, now: Instant) -> tuple[int, bool]:
    """Look at every open wait, or at some when values are large.

    Answers how many got what they wait for, and whether some were not looked at.
    """
    came = size = 0
    for wait in open_waits(row):
        if size >= BATCH_BYTES:
            return came, True
        reached, found = is_reached(row), settle(state, row, wait, now)
        if isinstance(found, EventRow):
            size += text_bytes(found.payload)
        elif found:
            size += text_bytes(wait.output) + text_bytes(wait.error)
        came += reached and (isinstance(found, EventRow) or (found and wait.kind is StepKind.CHILD))
    return came, False


def available(state: State, row: RunRow, wait: StepRow) -> EventRow | None:
    """The oldest event that this wait may take, stored at or before its deadline."""
    if wait.topic is None:
        return None
    for event in state.topics.get((row.tenant, wait.topic), ()):
        mine = event.run == row.id or (event.run is None and event.seq > row.mark)
        in_time = wait.due_at is None or event.at <= wait.due_at
        if mine and in_time and event.seq > wait.mark and event.seq not in row.receipts:
            return event
    return None


def look(
    state: State, row: RunRow, wait: StepRow, now: Instant, event: EventRow | None = None
) -> TrailRow | None:
    """Give the step its outcome if there is one; what it means for the run is not said yet."""
    if event is None and wait.kind in LISTENS:
        event = available(state, row, wait)
    if event is not None:
        row.receipts[event.seq] = wait.key
        event.woken += is_reached(row)
        _come(row, wait, now, event)
        return state.note(row, "woken", now, step=wait.key, event=event.id)
    if wait.kind is StepKind.CHILD:
        return _child_ended(state, row, wait, now)
    if wait.kind in LAPSES and wait.due_at is not None and wait.due_at <= now:
        return lapse(state, row, wait, now)
    return None


def _come(row: RunRow, wait: StepRow, now: Instant, event: EventRow) -> None:
    """An event has come. Whoever takes it shares one text: a large one is not copied for each."""
    if event.output is None:
        event.output = _output(event)
    if wait.kind is not StepKind.TASK:
        outcome(row, wait, StepStatus.SUCCEEDED, now, event.output)
        return
    if event.wake is None:
        event.wake = '{"reason":"event","event":' + event.output + "}"
    _call_again(wait, event.wake)


def _call_again(wait: StepRow, why: Json) -> None:
    """A plan's task that has waited is told why."""
    wait.status, wait.wake, wait.due_at = StepStatus.PENDING, why, None


def outcome(row: RunRow, wait: StepRow, status: StepStatus, now: Instant, output: Json | None) -> None:
    """Number it by when it became known; a plan's rows keep their number."""
    wait.status, wait.output, wait.finished_at = status, output, now
    if not row.is_plan:
        wait.seq = row.next_seq()


def _child_ended(state: State, row: RunRow, wait: StepRow, now: Instant) -> TrailRow | None:
    child = None if wait.child is None else state.runs.get(wait.child)
    if child is not None and child.status not in FINAL:
        return None
    end: dict[str, object] = {"run": wait.child, "status": child.status if child is not None else "gone"}
    if child is not None and child.status is Status.SUCCEEDED:
        end["result"] = msgspec.Raw((child.result or "null").encode())
        outcome(row, wait, StepStatus.SUCCEEDED, now, msgspec.json.encode(end).decode())
    else:
        end["error"] = msgspec.Raw(((child and child.error) or "null").encode())
        outcome(row, wait, StepStatus.FAILED, now, msgspec.json.encode(end).decode())
        _blame(wait, "child_failed", f"child run {wait.child} is {end['status']}")
    why = {} if wait.error is None else {"error": msgspec.Raw(wait.error.encode())}
    return state.note(row, "woken", now, step=wait.key, child=str(wait.child), **why)


def _blame(wait: StepRow, kind: str, message: str) -> None:
    wait.error = msgspec.json.encode(Error(kind=kind, message=message, step=wait.key)).decode()


def lapse(state: State, row: RunRow, wait: StepRow, now: Instant) -> TrailRow:
    """Its time has come."""
    if wait.kind is StepKind.SLEEP:
        outcome(row, wait, StepStatus.SUCCEEDED, now, "null")
        return state.note(row, "woken", now, step=wait.key)
    if wait.kind is StepKind.APPROVAL:
        approved = wait.on_timeout == "approve"
        decided(row, wait, now, approved=approved, timed_out=True)
        return state.note(row, "timed_out", now, step=wait.key, approved=approved)
    if wait.kind is StepKind.TASK:
        _call_again(wait, '{"reason":"timeout"}')
    else:
        outcome(row, wait, StepStatus.FAILED, now, None)
        _blame(wait, "timeout", f"no event on {wait.topic} before the deadline")
    return state.note(row, "timed_out", now, step=wait.key)


def decided(
    row: RunRow,
    gate: StepRow,
    now: Instant,
    *,
    approved: bool,
    by: str = "",
    comment: str = "",
    timed_out: bool = False,
) -> None:
    """A gate has its decision. In a plan a rejected one has failed; code is told, and goes on."""
    output = said(approved=approved, by=by, comment=comment, at=now, timed_out=timed_out)
    status = StepStatus.SUCCEEDED if approved or not row.is_plan else StepStatus.FAILED
    outcome(row, gate, status, now, output)
    if status is StepStatus.FAILED:
        _blame(gate, "rejected", why_rejected(by=by, comment=comment, timed_out=timed_out))


# What it means for the run.


def go_on(state: State, row: RunRow, wait: StepRow, entry: TrailRow, now: Instant) -> None:
    """Let the run learn of it: at once, at its next boundary, or when it is resumed."""
    match row.status:
        case Status.WAITING if row.is_plan and wait.kind is not StepKind.TASK:
            row.run_at = max(row.run_at, now)
            apply(state, row, come_to(state, row, wait, now), now)
        case Status.WAITING:
            row.status, row.run_at, row.attempt, row.crashes = Status.PENDING, now, 0, 0
        case Status.PENDING:
            row.run_at = min(row.run_at, now)
            return
        case Status.PAUSED:
            row.resume_to, row.run_at = Status.PENDING, max(row.run_at, now) if row.is_plan else now
            if row.is_plan:
                row.attempt = row.crashes = 0
            return
        case _:
            return
    if row.status is Status.PENDING:
        assert isinstance(entry.data, dict)
        entry.data["status"] = Status.PENDING
    check(row, steps=False)


def following(row: RunRow, done: StepRow | None) -> StepRow | None:
    """The row behind one that is done; of a plan that begins or goes on, its current one."""
    if done is None:
        return row.current()
    return next((step for step in row.in_order() if step.seq > done.seq), None)


def come_to(state: State, row: RunRow, done: StepRow | None, now: Instant) -> StepRow | None:
    """Make the next row current, opening gates and waits on the way until one holds the run up.

    A task that is to be called, a wait that is open, one that has failed or is not as it should be; or
    none: all are done.
    """
    while done is None or done.status is not StepStatus.FAILED:
        step = following(row, done)
        if step is None or step.status is not StepStatus.PENDING or step.kind is StepKind.TASK:
            return step
        opened = _open(state, row, step, now)
        if look(state, row, step, now) is None:
            assert isinstance(opened.data, dict)
            opened.data["status"] = Status.WAITING
            return step
        done = step
    return done


def _open(state: State, row: RunRow, step: StepRow, now: Instant) -> TrailRow:
    step.status, step.started_at, step.fence = StepStatus.WAITING, now, row.fence
    step.due_at = None if step.timeout_seconds is None else now + micros(step.timeout_seconds)
    state.listen(row, step)
    opened = "approval_opened" if step.kind is StepKind.APPROVAL else "waiting"
    return state.note(row, opened, now, step=step.key, kind=step.kind)


def apply(state: State, row: RunRow, step: StepRow | None, now: Instant) -> None:
    """What the current row makes of a run that nobody holds. Counts begin anew."""
    row.attempt = row.crashes = 0
    if step is None:
        row.error = row.last_error = None
        state.end(row, Status.SUCCEEDED, now)
        state.note(row, "succeeded", now)
    elif step.status is StepStatus.WAITING:
        row.status = Status.WAITING
    elif step.status is StepStatus.PENDING:
        row.status = Status.PENDING
    else:
        fail(state, row, step, now)


def fail(state: State, row: RunRow, step: StepRow, now: Instant) -> None:
    """A row that has failed fails its run; any other that is not pending is none of our doing."""
    if step.status is StepStatus.FAILED and step.error is not None:
        error = msgspec.json.decode(step.error, type=Error)
    else:
        message = f"step {step.key!r} is {step.status}, though it has not begun"
        error = Error(kind="drift", message=message, step=step.key)
    row.error = msgspec.json.encode(error).decode()
    row.last_error = f"{error.kind}: {error.message}"
    state.end(row, Status.FAILED, now)
    state.note(row, "failed", now, kind=error.kind, message=row.last_error)


def _output(event: EventRow) -> Json:
    payload = msgspec.Raw(event.payload.encode())
    return msgspec.json.encode(
        {"id": event.id, "topic": event.topic, "at": event.at, "payload": payload}
    ).decode()
