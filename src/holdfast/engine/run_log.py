"""Log lines about runs: a failed run is one error, a retry is one warning. No line contains a payload."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.contract import Store
from holdfast.errors import StoreError, named
from holdfast.escaping import LOGGED, escaped, safe_logger
from holdfast.lifecycle import Status
from holdfast.records import ANY, SECOND, Error, Instant, Run, moment
from holdfast.records.fingerprints import cause

from .failures import AT_ONCE, line
from .tracebacks import user_frame

if TYPE_CHECKING:
    from .worker.held_run import HeldRun

log = safe_logger("holdfast.run")


def failed(run: HeldRun, error: Error) -> None:
    """Log that a run has failed for good."""
    _failed(run.place.type, run.place.run, error, _of_held(run, error))


def left(run: HeldRun, log: logging.Logger, lease_seconds: float) -> None:
    """Log how a run has left its worker; a warning when its budget has paused it."""
    claim, spending = run.claim, run.journal.spending
    if run.ended_as == Status.PAUSED and spending is not None and spending.pause_words:
        log.warning(
            "%s %s paused: %s", claim.type, claim.id, spending.pause_words, extra={"run": str(claim.id)}
        )
    elif log.isEnabledFor(logging.INFO):
        took = (run.now() - claim.lease_until) / SECOND + lease_seconds
        log.info("%s %s %s after %.2f s", claim.type, claim.id, run.ended_as or "abandoned", took)


async def failed_by_keeper(store: Store, runs: Sequence[UUID], worker: str = "") -> AsyncIterator[Run]:
    """Read the runs that a keeper has failed (crashed too often, timed out), log each one, and yield it."""
    for id_ in runs:
        try:
            run = await store.get(id_, ANY)
        except StoreError as why:
            log.warning("run %s has failed, but its error cannot be read: %s", id_, why)
            continue
        if run is None or run.status is not Status.FAILED:
            continue
        error, fields = run.error or Error(kind="failed"), {"run": str(run.id), "type": run.type}
        fields |= {"tenant": run.tenant, "worker": worker, "step": escaped(error.step or "", LOGGED)}
        tries = {"attempt": error.attempt or run.attempt, "max_attempts": error.max_attempts}
        _failed(run.type, run.id, error, fields | tries)
        yield run


def refused(run: UUID, error: Error) -> None:
    """Log that a run has failed because the store does not take what it wrote."""
    _failed("run", run, error, {"run": str(run)})


def retried(run: HeldRun, error: Error, delay: float) -> None:
    """Log that a step, or the body of a run, has failed and will be retried."""
    if run.spans is not None:
        run.spans.retried(error, delay)
    if not log.isEnabledFor(logging.WARNING):
        return
    at = run.now() + int(delay * SECOND)
    fields = _of_held(run, error) | {"retry_at": _time(at)}
    what = f"retries step {escaped(error.step)}" if error.step else "retries"
    what += f" at {_time(at)} (in {_seconds(delay)} s){_tries(fields)} failed"
    said = named(error) if error.kind == "error" else line(error)
    _say(logging.WARNING, run.place.type, run.place.run, what, said, error, fields)


def _failed(type_: str, run: object, error: Error, fields: dict[str, Any]) -> None:
    if log.isEnabledFor(logging.ERROR):
        what = f"failed in step {escaped(error.step)}" if error.step else "failed"
        what += "" if error.kind in AT_ONCE else _tries(fields)
        _say(logging.ERROR, type_, run, what, line(error), error, fields)


def _say(
    level: int, type_: str, run: object, what: str, said: str, error: Error, fields: dict[str, Any]
) -> None:
    frame = user_frame(error)
    at = "" if frame is None else escaped(frame)
    if error.step:  # the line names the step before
        said = said.replace(f"step {error.step!r} failed: ", "", 1)
    fields |= {
        "error_kind": error.kind,
        "error_type": escaped(cause(error.type, error.message)[0]),  # the same in retries and at the end
        "error_message": escaped(error.message, LOGGED),
        "error_at": at,
    }
    log.log(level, "%s %s %s: %s%s", type_, run, what, said, f" ({at})" if at else "", extra=fields)


def _of_held(run: HeldRun, error: Error) -> dict[str, Any]:
    place, attempt, most = run.place, error.attempt, error.max_attempts
    if attempt is None:  # no step's
        attempt, most = run.attempt - run.crashes, run.claim.max_attempts
    return {
        "run": str(place.run),
        "type": place.type,
        "step": escaped(error.step or "", LOGGED),
        "attempt": attempt,
        "max_attempts": most,
        "tenant": place.tenant,
        "worker": place.worker,
    }


def _tries(fields: dict[str, Any]) -> str:
    return f", try {fields['attempt']} of {fields['max_attempts']}" if fields.get("max_attempts") else ""


def _seconds(delay: float) -> str:
    return f"{delay:,.3f}".rstrip("0").rstrip(".")


def _time(at: Instant) -> str:
    return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
