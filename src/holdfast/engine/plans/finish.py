"""The end of one execution of a plan's step: commit its outcome, and decide whether this worker goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.arguments import to_seconds
from holdfast.backoff import IN_PLACE_MAX_SECONDS
from holdfast.engine import outcome as ends
from holdfast.engine import run_log
from holdfast.engine.code.scope import add_cost
from holdfast.engine.failures import delay_after, encoded, error_of, failing, final_kind, line, stored, text
from holdfast.engine.outbox.messages import Message, check_sent, outbound
from holdfast.engine.worker.giving_back import ended, stopped
from holdfast.engine.worker.held_record import patiently, record_of
from holdfast.errors import HistoryFull, HoldfastError, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import SECOND, Answer, Error, Outbound, Step, StepWrite, Verdict, moves
from holdfast.records.sizes import payload_bytes

from .outcomes import Completed, Dead, Retry, Waiting

if TYPE_CHECKING:
    from .execution import PlanExecution

log = safe_logger("holdfast.run")

NO_HANDLER_SECONDS = 60.0  # delay of a run whose current step has no handler here
OTHERS_SECONDS = 3600.0  # the longest delay of a run of another version that is given back
# the outcome of a try, as it is measured
OUTCOMES = {
    StepStatus.SUCCEEDED: "succeeded",
    StepStatus.WAITING: "succeeded",
    StepStatus.READY: "retried",
    StepStatus.FAILED: "failed",
}
MESSAGES_MAX = 1_000_000  # message numbers reserved for one outcome, more than SENT_MAX


class NoRows(msgspec.Struct, frozen=True):
    """The run has no rows: it was started before its plan was published."""


class NoHandler(msgspec.Struct, frozen=True):
    """The current step has no handler here; or, in a run of another version, a later step has none.

    `why` is set when there is a handler that cannot read the values of that version.
    """

    step: str
    why: str = ""


End = Completed[Any] | Waiting | Retry | Dead | ends.Raised | ends.Stopped | NoRows | NoHandler


async def finish(run: PlanExecution, end: End) -> bool:
    """Commit the outcome; return True when this worker goes on with the row that is current then."""
    match end:
        case ends.Stopped():
            return await stopped(run, end)
        case NoRows():
            verdict = await run.journal.outcome(moves.BeginPlan(plan=run.plan.steps))
            return ended(run, verdict, back="run.released")
        case NoHandler():
            return await _give_back(run, end)
        case Retry():
            return await _retry_or_fail(run, end.error, end)
        case Dead():
            return await _fail(run, _recorded(run, end.error, "fatal"))
        case ends.Raised() if run.step is None:
            return await _fail_unread(run, end.error)
        case ends.Raised():
            return await _retry_or_fail(run, end.error)
        case Completed() | Waiting():
            return await _commit(run, end)


async def _commit(run: PlanExecution, end: Completed[Any] | Waiting) -> bool:
    try:
        return await (_complete(run, end) if isinstance(end, Completed) else _wait(run, end))
    except (
        UsageError,
        HistoryFull,
    ) as error:  # raised while encoding: nothing was sent yet
        if run.stopped:  # the run was told to stop: this is no failed try
            return await stopped(run, ends.Stopped(ends.StopReason.RELEASED))
        return await _retry_or_fail(run, error)


async def _complete(run: PlanExecution, end: Completed[Any]) -> bool:
    step = _current(run)
    output = run.codec.encode(end.output, f"the output of step {step.key!r}")
    add_cost(run.scope, end.cost)
    messages = _outgoing(run, end.outbound)
    run.record.count_bytes(output)
    _emit(run, messages)
    goes_on = run.goes_on
    if not goes_on:
        run.worker.ends(run)
    write = _write(run, StepStatus.SUCCEEDED, output=output)
    verdict = await _sent(run, moves.Advance(result=output, in_place=goes_on), write)
    if _leased(verdict):
        return await run.go_on(verdict, write)
    return ended(run, verdict, back="run.released")


async def _wait(run: PlanExecution, end: Waiting) -> bool:
    step, most = _current(run), run.plan.max_waits
    if step.waits >= most:
        said = f"task {step.key!r} has waited {step.waits} times: max_waits= of the plan allows no more"
        return await _fail(run, _recorded(run, said, "loop"))
    delay = None if end.timeout is None else to_seconds(end.timeout)
    _emit(run, _outgoing(run, end.outbound))
    write = _write(run, StepStatus.WAITING, topic=end.topic, delay_seconds=delay)
    verdict = await _sent(run, moves.PARK, write)
    if _leased(verdict):
        return await run.go_on(verdict)
    return ended(run, verdict)


async def _retry_or_fail(run: PlanExecution, error: BaseException | str, asked: Retry | None = None) -> bool:
    policy, failures = run.plan.retry, run.attempt - run.crashes
    kind = None if isinstance(error, str) or asked is not None else final_kind(error, policy)
    if kind is None and failures >= _tries(run)[1]:
        kind = "exhausted"
    recorded = _recorded(run, error, kind or "error")
    if kind is not None:
        return await _fail(run, recorded)
    try:
        delay = _delay(run, error, asked, failures)
    except UsageError as unusable:
        return await _retry_or_fail(run, unusable)
    return await _retry(run, recorded, delay)


def _delay(run: PlanExecution, error: BaseException | str, asked: Retry | None, failures: int) -> float:
    if asked is not None and asked.delay is not None:
        return to_seconds(asked.delay)
    raised = HoldfastError(error) if isinstance(error, str) else error
    return delay_after(raised, run.plan.retry, failures, run.world.chance())


async def _retry(run: PlanExecution, recorded: Error, delay: float) -> bool:
    in_place = delay <= IN_PLACE_MAX_SECONDS
    move = moves.Retry(
        error=encoded(recorded), last_error=line(recorded), delay_seconds=delay, in_place=in_place
    )
    verdict = await _sent(run, move, _write(run, StepStatus.READY))
    if verdict.answer is Answer.APPLIED:
        run_log.retried(run, recorded, delay)
    if not _leased(verdict):
        return ended(run, verdict, recorded, "run.retried")
    if run.worker.hooks:
        run.worker.hook_notifier.run(
            "run.retried", run, status=verdict.status, error=recorded, step=recorded.step
        )
    run.attempt += 1
    await asyncio.sleep(delay)
    return True


async def _fail(run: PlanExecution, recorded: Error) -> bool:
    run.worker.ends(run)
    move = failing(recorded)
    verdict = await _sent(run, move, _write(run, StepStatus.FAILED, error=move.error))
    return ended(run, verdict, recorded)


async def _fail_unread(run: PlanExecution, error: BaseException) -> bool:
    """Fail a run whose rows could not be read: no step is known that has failed."""
    kind = final_kind(error, run.plan.retry) or "too_large"
    recorded = error_of(error, kind)
    run.worker.ends(run)
    return ended(run, await run.journal.outcome(failing(recorded)), recorded)


async def _give_back(run: PlanExecution, end: NoHandler) -> bool:
    """Give back a run without a handler: another worker, or this one's next version, may have the handler."""
    step, now = end.step, run.now()
    found = await patiently(run, lambda: record_of(run))
    if found is None:  # deleted: the run no longer belongs to this worker
        return ended(run, Verdict(answer=Answer.LOST, status=Status.PENDING))
    before = None if found.error_json is None else stored(found.error_json)
    # An error of the run's own code is kept: it says more than the missing handler.
    kept = before if before is not None and run.plan.stands_in and before.kind != "no_handler" else None
    repeated = before is not None and (kept is not None or (before.kind, before.step) == ("no_handler", step))
    since = before.since if before is not None and repeated and before.since is not None else now
    said = end.why or (
        f"no worker here has a handler for step {step!r} of {run.claim.type}: "
        f"register one with @plan.task({step!r})"
    )
    recorded = Error(kind="no_handler", message=said, step=step, since=since)
    delay = _back_seconds(run, (now - since) / SECOND)
    if delay <= 0:
        run.attempt -= 1  # no handler was called: this execution counts as no try
        attempt, most = _tries(run)
        return await _fail(run, msgspec.structs.replace(recorded, attempt=attempt, max_attempts=most))
    log.warning("run %s is released for %.0f s: %s", run.claim.id, delay, said)
    move = moves.Retry(
        error=encoded(recorded if kept is None else msgspec.structs.replace(kept, since=since)),
        last_error=line(recorded) if kept is None else found.last_error,
        delay_seconds=delay,
        refund=True,
    )
    verdict = await run.journal.outcome(move)
    return ended(run, verdict, recorded, "run.retried")


def _back_seconds(run: PlanExecution, waited: float) -> float:
    """Return the delay of a run that has waited so long for a handler; 0 or less: it fails now.

    The delay of a run of another version is half of the time that it has waited, so that runs which only a
    worker that is gone could execute cost less and less.
    """
    if run.plan.stands_in:
        return min(max(NO_HANDLER_SECONDS, waited / 2), OTHERS_SECONDS)
    limit = run.plan.no_handler_seconds
    return NO_HANDLER_SECONDS if limit is None else min(limit - waited, NO_HANDLER_SECONDS)


def _current(run: PlanExecution) -> Step:
    assert run.step is not None
    return run.step


def _leased(verdict: Verdict) -> bool:
    return verdict.answer is Answer.APPLIED and verdict.status is Status.LEASED


def _recorded(run: PlanExecution, error: BaseException | str, kind: str) -> Error:
    step, (attempt, most) = _current(run).key, _tries(run)
    if isinstance(error, BaseException):
        recorded = error_of(error, kind, step)
    else:
        recorded = Error(kind=kind, message=text(error), step=step)
    recorded = msgspec.structs.replace(recorded, attempt=attempt, max_attempts=most)
    if run.scope.span is not None:
        run.scope.span.failed(recorded)
    return recorded


def _tries(run: PlanExecution) -> tuple[int, int]:
    """Return the number of tries of the current task, and its limit. Crashes do not count as tries."""
    return run.attempt - run.crashes, _current(run).max_attempts or run.claim.max_attempts


def _write(run: PlanExecution, status: StepStatus, **fields: Any) -> StepWrite:
    attempt, most = _tries(run)
    if run.journal.spending is not None:
        key = _current(run).key
        run.journal.spending.warn(key, run.plan.costs.get(key, 0), run.scope.cost)
    failed = status in (StepStatus.READY, StepStatus.FAILED)
    run.tried(OUTCOMES[status], run.begun_at)
    return StepWrite(
        key=_current(run).key,
        status=status,
        attempts=attempt if failed else run.attempt,
        max_attempts=most if failed else None,
        cost=run.scope.cost,
        started_at=run.now() if status is StepStatus.WAITING else run.begun_at,
        **fields,
    )


async def _sent(run: PlanExecution, move: moves.HolderMove, write: StepWrite) -> Verdict:
    run.journal.keep(write)
    return await run.journal.outcome(move)


def _outgoing(run: PlanExecution, messages: Sequence[Message]) -> list[Outbound]:
    """Return the rows of the step's messages. Their numbers grow with its waits, and are the same at every
    try.
    """
    step, claim = _current(run), run.claim
    where = f"task {step.key!r}"
    check_sent(len(messages), 0, where)
    first = step.waits * MESSAGES_MAX + 1
    rows = [
        outbound(one, claim.id, claim.created_at, step.key, number)
        for number, one in enumerate(messages, first)
    ]
    check_sent(len(rows), sum(map(payload_bytes, rows)), where)
    return rows


def _emit(run: PlanExecution, messages: Sequence[Outbound]) -> None:
    """Buffer messages for the step's commit. Nothing may be refused after this."""
    for one in messages:
        run.journal.emit(one)
