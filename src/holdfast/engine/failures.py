"""Errors in their recorded form: kind, type, message, traceback. Making the record never raises."""

from __future__ import annotations

import traceback

import msgspec
from msgspec.structs import replace

from holdfast.arguments import check_duration
from holdfast.backoff import Backoff
from holdfast.errors import (
    BadValue,
    ChildFailed,
    Drift,
    EventTimeout,
    Fatal,
    HistoryFull,
    RecordUnreadable,
    RetryAfter,
    RunOverdue,
    StepFailed,
    UsageError,
    named,
)
from holdfast.records import Error, Json
from holdfast.records.moves import Fail
from holdfast.records.unreadable import UNREADABLE, read_error

from .tracebacks import STEP_BEFORE, TRACEBACK_MAX, bounded

MESSAGE_MAX = 4_000


def text(value: object, limit: int = MESSAGE_MAX) -> str:
    """Return any object as text that every store can keep."""
    try:
        said = str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ of user code must not hide its error
        said = f"<{type(value).__qualname__} that cannot be printed>"
    return said.encode("utf-8", "replace").decode().replace("\0", "\\0")[:limit]


def error_of(error: BaseException, kind: str, step: str | None = None, args: Json | None = None) -> Error:
    """Return the record of an exception."""
    trace = text(bounded("".join(_traceback(error)).replace("\0", "\\0")), TRACEBACK_MAX)
    type_, message = type(error).__qualname__, _message(error)
    return Error(kind=kind, type=type_, message=message, traceback=trace, step=step, args=args)


def _traceback(error: BaseException) -> list[str]:
    """Return the traceback. If a step failed, the recorded traceback of the step's function comes first."""
    found = _step_error(error)
    before = found.traceback if isinstance(found, StepFailed) else ""
    return [*([before, STEP_BEFORE] if before else []), *traceback.format_exception(error)]


def _message(error: BaseException) -> str:
    """Return the message of an exception. An exception group itself tells only a number: its parts are
    added.
    """
    if not isinstance(error, BaseExceptionGroup):
        return text(error) + _await_hint(error)
    inside = [f"{type(one).__qualname__}: {_message(one)}" for one in error.exceptions[:10]]
    return text(f"{error.message}: {'; '.join(inside)}")


def _await_hint(error: BaseException) -> str:
    """Return a hint when an exception looks like a missing or superfluous `await`."""
    if not isinstance(error, TypeError | AttributeError):
        return ""
    said = text(error)
    if "NoneType" in said and "await" in said:
        return ": ctx.send, emit, log, progress and cost are not awaited"
    return ": is an `await` missing, as in `await ctx.approval(…)`?" if "'coroutine'" in said else ""


def encoded(error: Error) -> Json:
    """Return an error as JSON text."""
    return msgspec.json.encode(error).decode()


def stored(error: Json | bytes | None) -> Error:
    """Read an error from a store. Anyone may have written it: an unreadable one gives an error that says
    so.
    """
    found = read_error(error or "")
    if found.kind != UNREADABLE:
        return found
    return Error(kind="encoding", message=f"its error cannot be read: {found.message}")


def failing(error: Error) -> Fail:
    """Return the move of a run that fails with this error."""
    return Fail(
        error=encoded(error), last_error=line(error), kind=error.kind,
        attempt=error.attempt, max_attempts=error.max_attempts,
    )  # fmt: skip


def line(error: Error) -> str:
    """Return an error in one line, for people."""
    what = named(error)
    return f"{error.kind}: {what}".replace("\n", " ")[:500]


# The order matters: BadValue is a UsageError.
_FINAL: tuple[tuple[type[BaseException], str], ...] = (
    (EventTimeout, "timeout"),
    (RunOverdue, "timeout"),
    (ChildFailed, "child_failed"),
    (Drift, "drift"),
    (HistoryFull, "history"),
    (RecordUnreadable, "too_large"),
    (BadValue, "encoding"),
    (UsageError, "usage"),
    (Fatal, "fatal"),
)

# Kinds with which a run fails at the first try, always: its number of tries would mislead.
AT_ONCE = frozenset({"child_failed", "drift", "history", "too_large", "encoding", "usage"})


def final_kind(error: BaseException, policy: Backoff) -> str | None:
    """Return the kind with which this exception fails a run at once; None when the run may be retried."""
    return _decided(error, policy)[0]


def _decided(error: BaseException, policy: Backoff) -> tuple[str | None, StepFailed | None]:
    """Return the kind with which the exception fails a run, and the StepFailed that decides it, if one does.
    In an exception group the first exception that fails the run decides.
    """
    failed = error if isinstance(error, StepFailed) else error.__cause__
    if isinstance(failed, StepFailed) and (failed is error or _rebuilt(error, failed)):
        return failed.kind, failed
    if isinstance(error, BaseExceptionGroup):
        each = (_decided(one, policy) for one in error.exceptions)
        return next((one for one in each if one[0]), (None, None))
    kind = next((kind for type_, kind in _FINAL if isinstance(error, type_)), None)
    return kind or ("fatal" if policy.fatal and isinstance(error, policy.fatal) else None), None


def _rebuilt(error: BaseException, cause: StepFailed) -> bool:
    """Return True when the step raised this exception itself: another one of its class may have the same
    cause.
    """
    return cause.type == type(error).__qualname__ and cause.raised_with is error.args


def blamed(recorded: Error, error: BaseException, policy: Backoff) -> Error:
    """Add to the error the step whose recorded failure caused the exception, if there is one; and the tries
    of that step, if the run fails because of them.
    """
    by = _decided(error, policy)[1]
    if by is not None:
        return replace(recorded, step=by.step, attempt=by.attempt, max_attempts=by.max_attempts)
    found = _step_error(error)
    return recorded if found is None else replace(recorded, step=found.step)


StepError = StepFailed | EventTimeout | ChildFailed


def _step_error(error: BaseException | None) -> StepError | None:
    for _ in range(20):
        if error is None:
            break
        if isinstance(error, StepError):
            return error
        if isinstance(error, BaseExceptionGroup):
            found = (_step_error(one) for one in error.exceptions)
            return next((one for one in found if one is not None), None)
        error = error.__cause__ or error.__context__
    return None


def delay_after(error: BaseException, policy: Backoff, n: int, chance: float) -> float:
    """Return the seconds before the next try, by the error itself or the policy; UsageError when that is no
    duration.
    """
    name = type(error).__qualname__
    try:
        if isinstance(error, RetryAfter):
            return check_duration("its delay", error.delay, "; raise Fatal to give up")
        return check_duration("the delay of its policy", policy.delay(n, chance), "; raise Fatal to give up")
    except Exception as broken:  # noqa: BLE001 - the policy may be a user's function
        why = (
            text(broken, 500)
            if isinstance(broken, UsageError)
            else f"{type(broken).__name__}: {text(broken, 500)}"
        )
        raise UsageError(f"the delay after {name} cannot be worked out: {why}") from error
