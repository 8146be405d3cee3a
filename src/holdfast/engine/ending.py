"""How a held run is let go of, whatever its kind: it has ended, it is given back, it was taken away."""

from __future__ import annotations

from holdfast.escaping import safe_logger
from holdfast.lifecycle import FINAL, Status
from holdfast.records import Answer, Error, Verdict
from holdfast.records.moves import RELEASE, Retry
from holdfast.sealing.envelope import OURS

from .failures import encoded
from .held import HeldRun
from .loading import AGAIN_SECONDS
from .outcome import Stopped, Why

log = safe_logger("holdfast.run")

SHUT_SECONDS = 60.0  # before a run is tried again that could not be opened


def ended(run: HeldRun, verdict: Verdict, error: Error | None = None, back: str = "") -> bool:
    """Note how it ended, and tell; True when it is held still, since it could not be opened."""
    run.ended_as = str(verdict.status) if verdict.answer is Answer.APPLIED else verdict.answer
    if verdict.answer is Answer.SEALED:
        return True  # it is held still: the next thing to do is to put it back
    if run.claim.parent is not None and verdict.status in FINAL:
        run.worker.committer.deliver()  # the commit owes its parent the news; if we die now, a keeper tells
    if run.worker.hooks:
        run.worker.teller.ended(run, verdict, error, back)
    return False


async def stopped(run: HeldRun, end: Stopped) -> bool:
    """Someone else decided: what is left to do with the run."""
    run.ended_as = str(end.why)
    if end.why is Why.RELEASED:
        return ended(run, await run.journal.give_back(RELEASE), back="run.released")
    if end.why is Why.SEALED:
        return await _put_back(run, Error(kind=OURS, message=end.reason), SHUT_SECONDS)
    if end.why is Why.FULL:
        return await _put_back(run, Error(kind="full", message=end.reason), AGAIN_SECONDS)
    if run.worker.hooks and end.why is not Why.LOST:
        run.worker.teller.run(f"run.{end.why}", run, status=Status(end.why))
    return False


async def _put_back(run: HeldRun, error: Error, seconds: float) -> bool:
    """It cannot be opened, or there is no room for it, here: it waits for a worker that can take it."""
    log.warning("run %s goes back for %g s, %s: %s", run.claim.id, seconds, error.kind, error.message)
    said = f"{error.kind}: {error.message}"[:500]
    move = run.journal.give_back(
        Retry(error=encoded(error), last_error=said, delay_seconds=seconds, refund=True)
    )
    return ended(run, await move, error, "run.retried")
