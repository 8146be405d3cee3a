"""Refusals of the server as the errors of the library: the code of a problem says which class it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.http.problems import Code
from holdfast.lifecycle import Status

E = TypeVar("E", bound=HoldfastError)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refusal. A newer server may send codes and fields that this client does not know."""

    code: str
    status: int = 0
    title: str = ""
    detail: str = ""
    request: str = ""
    retry_after_ms: int | None = None
    run: UUID | None = None
    run_status: str | None = None

    @property
    def retry_after_seconds(self) -> float | None:
        """How long to wait before a retry."""
        return None if self.retry_after_ms is None else self.retry_after_ms / 1000


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request that was refused. name: of the run, schedule, message or API key that it is about."""

    operation: str
    name: str = ""
    key: str = ""  # the idempotency key


_PLAIN: Mapping[str, type[HoldfastError]] = {
    Code.BAD_JSON: errors.UsageError,
    Code.NOT_JSON: errors.UsageError,
    Code.BAD_VALUE: errors.UsageError,
    Code.BAD_CURSOR: errors.UsageError,
    Code.TOO_LARGE: errors.TooLarge,
    Code.HEAD_TOO_LARGE: errors.TooLarge,
    Code.WORKFLOW_NOT_FOUND: errors.UnknownWorkflow,
    Code.STEP_NOT_FOUND: errors.UnknownStep,
    Code.CONFLICT: errors.Conflict,
    Code.LEASE_LOST: errors.Conflict,
    Code.RUN_BUSY: errors.Conflict,
    Code.UNKNOWN_OPERATION: errors.UsageError,
    Code.PROTOCOL_VERSION: errors.UsageError,
    Code.UNREADABLE: errors.CannotOpen,
    Code.UNAUTHENTICATED: errors.NotAllowed,
    Code.SCOPE_MISSING: errors.NotAllowed,
    Code.HOST_REFUSED: errors.NotAllowed,
    Code.ORIGIN_REFUSED: errors.NotAllowed,
    Code.STORE_UNAVAILABLE: errors.Unavailable,
    Code.SHUTTING_DOWN: errors.Unavailable,
    Code.SERVER_FULL: errors.Unavailable,
    Code.BODY_TOO_SLOW: errors.Unavailable,
}
_NAMED: Mapping[str, Callable[[str], HoldfastError]] = {
    Code.RUN_NOT_FOUND: errors.UnknownRun,
    Code.SCHEDULE_NOT_FOUND: errors.UnknownSchedule,
    Code.MESSAGE_NOT_FOUND: errors.UnknownMessage,
    Code.KEY_NOT_FOUND: errors.UnknownApiKey,
}


def error_of(problem: Problem, asked: Asked) -> HoldfastError:
    """Return the error for a refusal."""
    said = problem.detail or problem.title or problem.code
    match problem.code:
        case Code.ILLEGAL_MOVE:
            status = Status(problem.run_status) if problem.run_status in set(Status) else None
            return _made(errors.IllegalMove, said, run_id=problem.run, move=asked.operation, status=status)
        case Code.KEY_REUSED:
            return _made(errors.KeyReused, said, key=asked.key, run_id=problem.run)
        case Code.RATE_LIMIT:
            return errors.RateLimited(said, problem.retry_after_seconds)
        case Code.OPEN_RUNS_LIMIT:
            return _made(errors.TooManyRuns, said, key_id="", limit=0)
        case Code.STREAMS_LIMIT:
            return _made(errors.TooManySubscribers, said, limit=0)
        case code if code in _NAMED:
            return _NAMED[code](asked.name) if asked.name else _made(errors.UnknownRun, said, run_id="")
        case code if code in _PLAIN:
            return _PLAIN[code](said)
        case _:
            pass
    number = f"; its log has request {problem.request}" if problem.request else ""
    return errors.StoreError(f"the server refused {asked.operation}: {said}{number}")


def _made(class_: type[E], message: str, **attributes: Any) -> E:
    """Make an error with the server's sentence; its own constructor would write another one."""
    error = class_.__new__(class_, message)
    error.args = (message,)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error
