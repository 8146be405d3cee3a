"""The end of an execution: the outcome becomes a move of the store, in one commit."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.backoff import IN_PLACE_MAX_SECONDS
from holdfast.codec import digest
from holdfast.engine import outcome as ends
from holdfast.engine import run_log
from holdfast.engine.failures import blamed, delay_after, encoded, error_of, failing, final_kind, line
from holdfast.engine.hooks import decoded
from holdfast.engine.worker.giving_back import ended, stopped
from holdfast.engine.worker.held_record import patiently, record_of
from holdfast.errors import BadValue, UsageError
from holdfast.lifecycle import Status
from holdfast.records import SECOND, Answer, Error, NewRun, Verdict
from holdfast.records.moves import PARK, Complete, Retry

from .waits import reopen

if TYPE_CHECKING:
    from .execution import Execution


async def finish(run: Execution, outcome: ends.Outcome) -> bool:
    """Commit the outcome. Return True when the function is to be executed again under the same lease."""
    match outcome:
        case ends.Completed():
            run.worker.ends(run)
            return ended(run, await run.journal.outcome(Complete(result=outcome.result)))
        case ends.ContinuedAs():
            return await _continue(run, outcome.params)
        case ends.Waits():
            return await _park(run, outcome)
        case ends.Raised():
            return await _retry_or_fail(run, outcome.error)
        case ends.Stopped():
            return await stopped(run, outcome)


async def _continue(run: Execution, params: Any) -> bool:
    try:
        text = run.workflow.params.encode(params, "params of continue_as")
    except BadValue as error:
        return await _retry_or_fail(run, error)
    claim = run.claim
    record = await patiently(run, partial(record_of, run))
    if record is None:  # deleted: the run was taken from this worker
        return ended(run, Verdict(answer=Answer.LOST, status=Status.PENDING))
    following = NewRun(
        id=run.world.uuid7(),
        type=claim.type,
        params=text,
        digest=digest(claim.type, text),
        tenant=claim.tenant,
        priority=record.priority,
        max_attempts=claim.max_attempts,
        timeout_seconds=record.timeout_seconds,  # its timeout was moved, if it was rewound or retried
        ttl_seconds=record.ttl_seconds,
        budget=record.budget_units,
        limit_key=record.limit_key,
        parent=claim.parent,
        parent_step=record.parent_step,  # callers that wait for this run wait for the next one
        labels=msgspec.json.encode({**claim.labels, "continued_from": str(claim.id)}).decode(),
        trace=claim.trace if run.spans is None else run.spans.successor(),
        follows=claim.id,
    )
    result = msgspec.json.encode({"continued_as": str(following.id)}).decode()
    return ended(run, await run.journal.outcome(Complete(result=result, starts=(following,))))


async def _park(run: Execution, outcome: ends.Waits) -> bool:
    for write in (*outcome.opened, *(one.write for one in outcome.backoffs)):
        if write is not None:
            run.journal.keep(write)
    failed: Error | None = None
    if outcome.backoffs:
        # A step that waits for its next try keeps the run in the queue, due at that time, beside other waits.
        first = min(outcome.backoffs, key=lambda one: one.due_at)
        delay = max(0.0, (first.due_at - run.now()) / SECOND)
        error = first.write.error if first.write else None
        failed = decoded(error) if run.worker.hooks else None
        verdict = await run.journal.outcome(
            Retry(error=error, last_error=first.said, delay_seconds=delay, refund=True)
        )
    else:
        verdict = await run.journal.outcome(PARK)
    if verdict.answer is Answer.APPLIED and verdict.status is Status.LEASED:
        return True
    return ended(run, verdict, failed, "run.retried" if failed else "")


async def _retry_or_fail(run: Execution, error: BaseException) -> bool:
    policy = run.workflow.retry
    kind = final_kind(error, policy)
    failures = run.attempt - run.crashes
    if kind is None and failures >= run.claim.max_attempts:
        kind = "exhausted"
    recorded = blamed(error_of(error, kind or "error"), error, policy)
    said = line(recorded)
    if kind is not None:
        run.worker.ends(run)
        return ended(run, await run.journal.outcome(failing(recorded)), recorded)
    try:
        delay = delay_after(error, policy, failures, run.world.chance())
    except UsageError as unusable:
        return await _retry_or_fail(run, unusable)
    in_place = delay <= IN_PLACE_MAX_SECONDS
    reopen(run)
    verdict = await run.journal.outcome(
        Retry(error=encoded(recorded), last_error=said, delay_seconds=delay, in_place=in_place)
    )
    if verdict.answer is Answer.APPLIED:
        run_log.retried(run, recorded, delay)
    if verdict.answer is not Answer.APPLIED or verdict.status is not Status.LEASED:
        return ended(run, verdict, recorded, "run.retried")
    if run.worker.hooks:
        run.worker.hook_notifier.run(
            "run.retried", run, status=verdict.status, error=recorded, step=recorded.step
        )
    run.attempt += 1
    await asyncio.sleep(delay)
    return True
