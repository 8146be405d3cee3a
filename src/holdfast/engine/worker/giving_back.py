"""The end of holding a run, code or plan: the run has ended, is given back, or was taken away."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from holdfast.engine import run_log
from holdfast.engine.failures import encoded
from holdfast.engine.outcome import Stopped, StopReason
from holdfast.escaping import safe_logger
from holdfast.lifecycle import FINAL, Status
from holdfast.records import Answer, Error, Verdict
from holdfast.records.moves import RELEASE, Release, Retry
from holdfast.sealing.envelope import OURS

from .held_run import HeldRun
from .loading import AGAIN_SECONDS

log = safe_logger("holdfast.run")

SHUT_SECONDS = 60.0  # delay before a run whose values could not be opened is claimed again


def ended(run: HeldRun, verdict: Verdict, error: Error | None = None, back: str = "") -> bool:
    """Note how the run ended, and call hooks. Return True when it is still leased: it could not be opened."""
    run.ended_as = str(verdict.status) if verdict.answer is Answer.APPLIED else verdict.answer
    if run.spans is not None and error is not None:
        run.spans.failed(error)
    if verdict.answer is Answer.SEALED:
        return True  # still leased: it has to be given back next
    if run.claim.parent is not None and verdict.status in FINAL:
        # the parent has to be told of the end; if this process dies now, a keeper does it
        run.worker.committer.deliver()
    if error is not None and verdict.answer is Answer.APPLIED and verdict.status is Status.FAILED:
        run_log.failed(run, error)
    if run.worker.hooks:
        run.worker.hook_notifier.ended(run, verdict, error, back)
    return False


async def stopped(run: HeldRun, end: Stopped) -> bool:
    """Do what is left to do with a run that was stopped from outside."""
    run.ended_as = str(end.why)
    if end.why is StopReason.RELEASED:
        return ended(run, await run.journal.give_back(RELEASE), back="run.released")
    if end.why is StopReason.SHORT:
        with suppress(asyncio.CancelledError):  # its step stopped it, in this task: that cancel is still due
            await asyncio.sleep(0)
        move = Release(before=end.reason, cost_max=end.cost_max)
        return ended(run, await run.journal.give_back(move), back="run.released")
    if end.why is StopReason.SEALED:
        return await _put_back(run, Error(kind=OURS, message=end.reason), SHUT_SECONDS)
    if end.why is StopReason.FULL:
        return await _put_back(run, Error(kind="full", message=end.reason), AGAIN_SECONDS)
    if run.worker.hooks and end.why is not StopReason.LOST:
        run.worker.hook_notifier.run(f"run.{end.why}", run, status=Status(end.why))
    return False


async def _put_back(run: HeldRun, error: Error, seconds: float) -> bool:
    """Give back a run that cannot be opened here, or is too large here: another worker may take it."""
    log.warning("run %s is released for %g s, %s: %s", run.claim.id, seconds, error.kind, error.message)
    said = f"{error.kind}: {error.message}"[:500]
    move = run.journal.give_back(
        Retry(error=encoded(error), last_error=said, delay_seconds=seconds, refund=True)
    )
    return ended(run, await move, error, "run.retried")
