"""Waits of one execution: they are answered from the record, held open, or given up. Backoffs of steps,
too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine import outcome as ends
from holdfast.lifecycle import StepStatus
from holdfast.records import SECOND, Instant, Step, StepWrite

from .record import OUTCOMES, Recorded

if TYPE_CHECKING:
    from .execution import Execution
    from .stage import Stage


async def wait(run: Execution, stage: Stage, write: StepWrite) -> Recorded:
    """Return the settled step of a wait: from the record, or after parking."""
    stage.promised.pop(write.key, None)
    if stage.closed:
        await stage.refuse(write.key)
    stage.enter(write.key)
    found = run.record.find(write.key, write.kind)
    try:
        if found is not None and found.status in OUTCOMES:
            await stage.replayed(write.key, None)
        else:
            found = await _settled_wait(run, stage, write, found)
        run.measure_wait(found)
        if run.spans is not None:
            run.spans.waited(found)
        return found
    except asyncio.CancelledError:
        # An event that this wait received and code never saw is given back to the chain before it continues.
        if not stage.closed or stage.going_on:
            _give_up(run, write)
        raise


async def _settled_wait(run: Execution, stage: Stage, write: StepWrite, found: Recorded | None) -> Step:
    # A wait that is open in the store is registered at once: its outcome may come with the very next commit,
    # and stands before what is committed after that.
    if not stage.alone and (found is None or found.status is not StepStatus.WAITING):
        await stage.live()
    run.check_time()
    if found is None:
        run.check_room()
        run.record.count_bytes(write.ask)
        run.unopened[write.key] = write
    elif found.status is StepStatus.CANCELLED:
        await _given_up_again(run, stage, found)
        run.unopened[write.key] = write  # the code waits again after it gave up
    return await stage.wait(write.key)  # type: ignore[no-any-return]  # settle() gives a Step


def _give_up(run: Execution, write: StepWrite) -> None:
    """Close a wait whose branch the code cancelled: left open, it would take the event of a later wait."""
    key = write.key
    if run.unopened.pop(key, None) is not None:
        run.record.uncount_bytes(write.ask)
        return
    found = run.record.steps.get(key)
    if run.journal.carries(key) or (found is not None and found.status is not StepStatus.CANCELLED):
        given_up = msgspec.structs.replace(
            write,
            status=StepStatus.CANCELLED,
            delay_seconds=None,
            due_at=None,
            started_at=run.clock_at_claim,  # no timer of user code is older: see below
            child=None,
        )
        run.given_up[key] = _as_opened(write, found)
        run.journal.keep(given_up)
        run.record.committed(given_up)


async def _given_up_again(run: Execution, stage: Stage, found: Recorded) -> None:
    """Let the code give up a recorded wait again, for as long as it took before: its own timers begin
    anew.
    """
    until = (found.finished_at if isinstance(found, Step) else None) or run.now()
    took = max(0, until - (found.started_at or until))
    stage.running += 1  # otherwise the run would park, and its own timer would never fire
    try:
        await asyncio.sleep(took / SECOND + 1)
    finally:
        stage.running -= 1
        stage.arm()


def reopen(run: Execution) -> None:
    """Reopen the waits that a failed attempt gave up: the next attempt may wait for them."""
    for write in run.given_up.values():
        run.journal.keep(write)
    run.given_up = {}


async def back_off(
    run: Execution, key: str, due_at: Instant, write: StepWrite | None = None, said: str = ""
) -> None:
    """Hold a step until its next try. When nothing else is left to do, the run goes back to the queue."""
    run.backoffs[key] = ends.StepRetry(due_at, write, said)
    future = run.stage.wait(key)
    delay = max(0.0, (due_at - run.now()) / SECOND)
    timer = asyncio.get_running_loop().call_later(delay, run.stage.settle, key, None)
    try:
        await future
    finally:
        timer.cancel()
        run.backoffs.pop(key, None)
    if write is not None:
        committed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        run.journal.write(write, committed, (0.0, said))
        await committed


def _as_opened(write: StepWrite, found: Recorded | None) -> StepWrite:
    """Return the wait with its first due time: a wait that is opened again must not count from zero."""
    due_at = found.due_at if found is not None else None
    if due_at is None and write.delay_seconds is not None and write.started_at is not None:
        due_at = write.started_at + int(write.delay_seconds * SECOND)
    # A child continues, and is not started again.
    return msgspec.structs.replace(write, due_at=write.due_at if due_at is None else due_at, child=None)
