"""Plans: their rows, and the one way in which a run goes on from row to row.

All rows are there from the start. The current one is the first that has not succeeded; a task waits for a
worker, everything else is opened here, and looked at at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.errors import Conflict, IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.machine.durations import bounded, micros
from holdfast.records import Error, Instant, Json, PlanStep, Step

from .database import Database, text
from .rows import STEP_COLUMNS, step
from .settling import Way
from .sql import statements
from .trail import TRAIL, raw

_SQL = {name: sql.replace("$step_columns", STEP_COLUMNS) for name, sql in statements("plans").items()}


def plan_text(steps: Sequence[PlanStep]) -> Json | None:
    """The steps of a plan as a definition keeps them, and as rows are made from them."""
    if not steps:
        return None
    return text(
        [msgspec.structs.replace(one, timeout_seconds=_bounded(one.timeout_seconds)) for one in steps]
    )


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else bounded(seconds)


def insert(db: Database, run: str, plan: Json, tenant: str, max_attempts: int) -> None:
    db.run(_SQL["insert"], (run, max_attempts, tenant, plan))


def become_plan(way: Way, steps: Sequence[PlanStep]) -> None:
    """Rows for a run that was started before its plan was published; one that has rows is left alone."""
    plan = plan_text(steps)
    if plan is None or way.db.one(_SQL["has_steps"], (way.run,)) is not None:
        return
    row = way.db.one(_SQL["become_plan"], (way.run,))
    assert row is not None
    insert(way.db, way.run, plan, *row)
    way.whose = way.whose._replace(kind="plan")
    for one in steps:
        way.note("step_added", step=one.name)


def current(db: Database, run: str) -> Step | None:
    """The first step that has not succeeded."""
    row = db.one(_SQL["current"], (run,))
    return None if row is None else step(row)


def at_work(db: Database, run: str) -> Step | None:
    """The same while the run is held: nothing of it has failed then."""
    row = db.one(_SQL["at_work"], (run,))
    return None if row is None else step(row)


def following(way: Way, done: Step | None) -> Step | None:
    """The row behind one that is done; of a plan that begins or goes on, its current one."""
    if done is None:
        return current(way.db, way.run)
    row = way.db.one(_SQL["following"], (way.run, done.seq))
    return None if row is None else step(row)


def come_to(way: Way, done: Step | None = None) -> Step | None:
    """Make the next row current, opening gates and waits on the way until one holds the run up.

    A task that is to be called, a wait that is open, one that has failed or is not as it should be; or
    none: all are done.
    """
    while done is None or done.status is not StepStatus.FAILED:
        found = following(way, done)
        if found is None or found.status is not StepStatus.PENDING or found.kind is StepKind.TASK:
            return found
        word = "approval_opened" if found.kind is StepKind.APPROVAL else "waiting"
        opened = way.note(word, step=found.key, kind=found.kind)
        due_at = None if found.timeout_seconds is None else way.now + micros(found.timeout_seconds)
        way.db.run(_SQL["open"], (way.now, way.whose.fence, due_at, way.run, found.key))
        found = msgspec.structs.replace(found, status=StepStatus.WAITING, due_at=due_at)
        if way.look(found) is None:
            opened["status"] = Status.WAITING
            return found
        done = named(way.db, way.run, found.key)
    return done


def named(db: Database, run: str, key: str) -> Step:
    """A step that is there."""
    row = db.one(_SQL["step"], (run, key))
    assert row is not None
    return step(row)


def apply(way: Way, found: Step | None, *, run_at: Instant = 0, counts_stay: bool = False) -> Status:
    """What the current row makes of a run that nobody holds. Counts begin anew, unless they are to stay."""
    if found is not None and found.status in {StepStatus.WAITING, StepStatus.PENDING}:
        waits = found.status is StepStatus.WAITING
        people = (found.kind.value, found.topic, found.due_at) if waits else (None, None, None)
        status = Status.WAITING if waits else Status.PENDING
        way.db.run(_SQL["become"], (status.value, run_at, *people, counts_stay, way.now, way.run))
        return status
    status, error = (Status.SUCCEEDED, None) if found is None else (Status.FAILED, why_failed(found))
    told = None if error is None else text(error)
    end_steps(way, status, told, 0)
    line = None if error is None else f"{error.kind}: {error.message}"
    way.db.run(_SQL["end"], (status.value, run_at, told, line, counts_stay, way.now, way.run))
    way.note(status.value, **({} if error is None else {"kind": error.kind, "message": line}))
    return status


def why_failed(found: Step) -> Error:
    """A row that has failed fails its run; any other that is not pending is none of our doing."""
    if found.status is StepStatus.FAILED and found.error is not None:
        return msgspec.json.decode(found.error, type=Error)
    message = f"step {found.key!r} is {found.status}, though it has not begun"
    return Error(kind="drift", message=message, step=found.key)


def end_steps(way: Way, status: Status, error: Json | None, attempt: int) -> None:
    """What is open ends with its run; of a plan the current step too: failed with it, or cancelled."""
    if way.is_plan and status is not Status.SUCCEEDED:
        failed = status is Status.FAILED
        to = StepStatus.FAILED if failed else StepStatus.CANCELLED
        ended = way.db.one(_SQL["end_current"], (to.value, failed, error, attempt, way.now, way.run))
        if failed and ended is not None:
            way.note("step_failed", step=ended[0], error=raw(error))
    way.db.run(_SQL["cancel_steps"], (way.now, way.run))


def append_step(
    db: Database, now: Instant, run: UUID, name: str, max_attempts: int | None, tenant: str | None
) -> Step:
    row = db.one(_SQL["row"], (str(run), tenant))
    if row is None:
        raise UnknownRun(run)
    if (status := Status(row[0])) in FINAL:
        raise IllegalMove(run, "append_step", status)
    if row[1] != "plan":
        raise Conflict(f"run {run} is no plan: its steps are what its code asks for")
    added = db.one(_SQL["append"], (str(run), name, max_attempts))
    if added is not None:
        db.run(TRAIL, (str(run), "step_added", text({"step": name}), now))
    else:
        added = db.one(_SQL["added"], (str(run), name, max_attempts))
    if added is None:
        raise Conflict(f"run {run} has a step {name!r} already: give the new one another name")
    seq, attempts = added
    return Step(
        seq=seq, key=name, kind=StepKind.TASK, status=StepStatus.PENDING, max_attempts=attempts
    )  # fmt: skip
