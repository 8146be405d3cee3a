"""Problems: every refusal of the HTTP API, as `application/problem+json` with a stable code.

`CAUSES` is the one table of codes. The docs page of problems, the OpenAPI document and the tests are made
from it. A code never changes its meaning; `detail` is a sentence for people and may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast import errors
from holdfast.escaping import escaped
from holdfast.world import World

PROBLEMS_PAGE = "/docs/problems"
DETAIL_MAX = 2_000  # characters of a sentence, whatever the values in it are


class Code(StrEnum):
    """The stable codes of problems."""

    BAD_JSON = "bad-json"
    UNAUTHENTICATED = "unauthenticated"
    SCOPE_MISSING = "scope-missing"
    HOST_REFUSED = "host-refused"
    ORIGIN_REFUSED = "origin-refused"
    NOT_FOUND = "not-found"
    RUN_NOT_FOUND = "run-not-found"
    STEP_NOT_FOUND = "step-not-found"
    SCHEDULE_NOT_FOUND = "schedule-not-found"
    MESSAGE_NOT_FOUND = "message-not-found"
    KEY_NOT_FOUND = "key-not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    BODY_TOO_SLOW = "body-too-slow"
    CONFLICT = "conflict"
    ILLEGAL_MOVE = "illegal-move"
    KEY_REUSED = "key-reused"
    LEASE_LOST = "lease-lost"
    RUN_BUSY = "run-busy"
    TOO_LARGE = "too-large"
    NOT_JSON = "not-json"
    HEAD_TOO_LARGE = "head-too-large"
    BAD_VALUE = "bad-value"
    BAD_CURSOR = "bad-cursor"
    WORKFLOW_NOT_FOUND = "workflow-not-found"
    UNREADABLE = "unreadable"
    UNKNOWN_OPERATION = "unknown-operation"
    PROTOCOL_VERSION = "protocol-version"
    RATE_LIMIT = "rate-limit"
    OPEN_RUNS_LIMIT = "open-runs-limit"
    STREAMS_LIMIT = "streams-limit"
    INTERNAL = "internal"
    STORE_UNAVAILABLE = "store-unavailable"
    SHUTTING_DOWN = "shutting-down"
    SERVER_FULL = "server-full"


class Cause(NamedTuple):
    """The status and the words of a code. retryable: the same request may succeed later."""

    status: int
    title: str
    meaning: str
    retryable: bool = False


CAUSES: Mapping[Code, Cause] = {
    Code.BAD_JSON: Cause(
        400,
        "The body is not valid JSON",
        "The body has a syntax error, is not UTF-8, is nested too deep, or has a key twice in one object.",
    ),
    Code.UNAUTHENTICATED: Cause(
        401,
        "A valid API key is needed",
        "There is no `Authorization: Bearer hf_…` header, or its key is unknown, expired or revoked.",
    ),
    Code.SCOPE_MISSING: Cause(
        403,
        "The API key lacks a scope",
        "`detail` names the scope. An administrator can create another key with it.",
    ),
    Code.HOST_REFUSED: Cause(
        403,
        "The Host header is not a loopback name",
        "A server without API keys answers only requests to localhost, 127.0.0.1 or [::1], and none that a "
        "proxy has passed on.",
    ),
    Code.ORIGIN_REFUSED: Cause(
        403,
        "The request comes from a page of another site",
        "A server without API keys refuses requests whose Origin is not the server itself.",
    ),
    Code.NOT_FOUND: Cause(404, "There is nothing at this address", "See /openapi.json for all addresses."),
    Code.RUN_NOT_FOUND: Cause(
        404,
        "There is no such run",
        "The run does not exist, was deleted, or belongs to another tenant; the answers are the same.",
    ),
    Code.STEP_NOT_FOUND: Cause(404, "The run has no such step", "`detail` names the steps that it has."),
    Code.SCHEDULE_NOT_FOUND: Cause(404, "There is no such schedule", "See `GET /schedules`."),
    Code.MESSAGE_NOT_FOUND: Cause(404, "There is no such message in the outbox", "See `GET /outbox`."),
    Code.KEY_NOT_FOUND: Cause(404, "There is no such API key", "See `GET /keys`."),
    Code.METHOD_NOT_ALLOWED: Cause(
        405, "The address does not take this method", "The Allow header names the methods."
    ),
    Code.BODY_TOO_SLOW: Cause(
        408, "The body did not arrive in time", "Send the request again.", retryable=True
    ),
    Code.CONFLICT: Cause(
        409, "The present state does not allow it", "Nothing was changed; `detail` says what is in the way."
    ),
    Code.ILLEGAL_MOVE: Cause(
        409,
        "The run's status does not allow it",
        "Nothing was changed; `run_status` is the true status of the run.",
    ),
    Code.KEY_REUSED: Cause(
        409,
        "The idempotency key belongs to another start",
        "A run with this key exists, and has another type or other params; `run` is its id.",
    ),
    Code.LEASE_LOST: Cause(
        409,
        "The worker does not hold the run",
        "Nothing was changed: the lease has ended, the run was taken over or cancelled (`run_status`), or "
        "the token is not that of this run and fence. The worker stops the run and sends nothing more for "
        "it.",
    ),
    Code.RUN_BUSY: Cause(
        409,
        "Another session holds the run's row",
        "Nothing was changed. The worker sends the same item again.",
        retryable=True,
    ),
    Code.TOO_LARGE: Cause(413, "The body or a value in it is too large", "`detail` names the limit."),
    Code.NOT_JSON: Cause(
        415, "The body must be application/json", "Content-Encoding is not supported either."
    ),
    Code.BAD_VALUE: Cause(
        422,
        "A value is wrong",
        "`detail` says which and why; `errors` has the path of the field, if it is known.",
    ),
    Code.BAD_CURSOR: Cause(
        422,
        "The cursor is not one of this list",
        "A cursor is valid for the same list with the same filter and tenant. Begin again without it.",
    ),
    Code.WORKFLOW_NOT_FOUND: Cause(
        422, "No such workflow is published", "`detail` names the nearest ones; see `GET /definitions`."
    ),
    Code.UNREADABLE: Cause(
        422, "A stored value cannot be decrypted here", "The server lacks the key of the app that wrote it."
    ),
    Code.UNKNOWN_OPERATION: Cause(
        422, "The server does not know this operation of a batch", "`detail` names the operations."
    ),
    Code.PROTOCOL_VERSION: Cause(
        422,
        "The server does not speak this version of the worker protocol",
        "The header Holdfast-Protocol has another version than `detail` says.",
    ),
    Code.RATE_LIMIT: Cause(
        429, "The API key makes too many requests", "Wait for `Retry-After` seconds.", retryable=True
    ),
    Code.OPEN_RUNS_LIMIT: Cause(
        429,
        "The API key has too many open runs",
        "Nothing was started. Wait until some of its runs have ended.",
        retryable=True,
    ),
    Code.STREAMS_LIMIT: Cause(
        429,
        "There are too many open streams or long polls",
        "Close some, or wait.",
        retryable=True,
    ),
    Code.HEAD_TOO_LARGE: Cause(
        431, "The address and the headers are too large", "Together they may have 32 KiB."
    ),
    Code.INTERNAL: Cause(
        500,
        "The server made a mistake",
        "Its log has an entry with the same request id. `retryable` is false for a start without a key.",
        retryable=True,
    ),
    Code.STORE_UNAVAILABLE: Cause(
        503,
        "The store cannot be reached now",
        "A retry is safe for reads, and for requests with a key or an id; `retryable` is false for a start, "
        "an event or a bulk operation without one, which may have been recorded.",
        retryable=True,
    ),
    Code.SHUTTING_DOWN: Cause(
        503, "The server is stopping", "Send the request to another server.", retryable=True
    ),
    Code.SERVER_FULL: Cause(
        503,
        "The server has too many connections, or too many large bodies",
        "Nothing was done. Send the request again later, or to another server.",
        retryable=True,
    ),
}


_UNKNOWN = frozenset({Code.INTERNAL, Code.STORE_UNAVAILABLE})  # the request may have been carried out


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One wrong field: its path in the request, and what is wrong with it."""

    path: str
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: Code
    request: str
    retryable: bool
    retry_after_ms: int | None = None
    run: UUID | None = None
    run_status: str | None = None
    errors: tuple[FieldError, ...] = ()


class Refusal(Exception):
    """A refusal of the HTTP API itself."""

    def __init__(
        self,
        code: Code,
        detail: str = "",
        *,
        retry_after_seconds: float | None = None,
        run: UUID | None = None,
        run_status: str | None = None,
        field_errors: tuple[FieldError, ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.retry_after_seconds, self.run, self.run_status = retry_after_seconds, run, run_status
        self.field_errors, self.headers = field_errors, headers or {}
        self.is_repeatable = True  # False: the request has no key, and a second one may do it all again

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may be sent again: not, if the first one may have been carried out and a
        second one would not be recognised.
        """
        return CAUSES[self.code].retryable and (self.is_repeatable or self.code not in _UNKNOWN)

    def problem(self, request: str, docs: str) -> Problem:
        """Return the body of the answer. docs: the address of the page that explains the codes."""
        cause, after = CAUSES[self.code], self.retry_after_seconds
        return Problem(
            type=f"{docs}#{self.code}",
            title=cause.title,
            status=cause.status,
            detail=escaped(self.detail, DETAIL_MAX) or cause.meaning,
            code=self.code,
            request=request,
            retryable=self.is_retryable,
            retry_after_ms=None if after is None or not self.is_retryable else max(1, round(after * 1000)),
            run=self.run,
            run_status=self.run_status,
            errors=self.field_errors,
        )


# The first class that matches counts: subclasses come before their base.
_CODES: tuple[tuple[type[errors.HoldfastError], Code], ...] = (
    (errors.UnknownRun, Code.RUN_NOT_FOUND),
    (errors.UnknownSchedule, Code.SCHEDULE_NOT_FOUND),
    (errors.UnknownMessage, Code.MESSAGE_NOT_FOUND),
    (errors.UnknownApiKey, Code.KEY_NOT_FOUND),
    (errors.UnknownWorkflow, Code.WORKFLOW_NOT_FOUND),
    (errors.UnknownStep, Code.STEP_NOT_FOUND),
    (errors.TooLarge, Code.TOO_LARGE),
    (errors.UsageError, Code.BAD_VALUE),
    (errors.IllegalMove, Code.ILLEGAL_MOVE),
    (errors.KeyReused, Code.KEY_REUSED),
    (errors.TooManyRuns, Code.OPEN_RUNS_LIMIT),
    (errors.Conflict, Code.CONFLICT),
    (errors.TooManySubscribers, Code.STREAMS_LIMIT),
    (errors.CannotOpen, Code.UNREADABLE),
    (errors.CannotSeal, Code.UNREADABLE),
    (errors.Unavailable, Code.STORE_UNAVAILABLE),
    (errors.StoreError, Code.STORE_UNAVAILABLE),
)
# The messages of the library name commands of the command line; callers of the API have others.
_DETAILS: Mapping[Code, Callable[[Any], str]] = {
    Code.RUN_NOT_FOUND: lambda error: f"there is no run {error.run_id}",
    Code.SCHEDULE_NOT_FOUND: lambda error: f"there is no schedule {error.name!r}",
    Code.MESSAGE_NOT_FOUND: lambda error: f"there is no message {error.message_id}",
    Code.KEY_NOT_FOUND: lambda _: "there is no such API key",
    # The message of the driver may name hosts and users of the database: it is logged, not sent.
    Code.STORE_UNAVAILABLE: lambda _: "",
    Code.OPEN_RUNS_LIMIT: lambda error: f"this API key has {error.limit:,} open runs, as many as it may have",
}
_RETRY_SECONDS: Mapping[Code, float] = {
    Code.STORE_UNAVAILABLE: 1.0,
    Code.OPEN_RUNS_LIMIT: 5.0,
    Code.STREAMS_LIMIT: 5.0,
}


def refusal_of(error: errors.HoldfastError) -> Refusal:
    """Return the refusal for an error of the library."""
    code = next((code for class_, code in _CODES if isinstance(error, class_)), Code.INTERNAL)
    if code is Code.INTERNAL:
        return Refusal(code)
    detail = _DETAILS[code](error) if code in _DETAILS else str(error)
    return Refusal(
        code,
        detail,
        retry_after_seconds=_RETRY_SECONDS.get(code),
        run=error.run_id if isinstance(error, errors.IllegalMove | errors.KeyReused) else None,
        run_status=error.status if isinstance(error, errors.IllegalMove) else None,
    )


def encoded(problem: Problem) -> bytes:
    """Return the problem as JSON."""
    return msgspec.json.encode(problem)


def extras(refusal: Refusal) -> dict[str, Any]:
    """Return the headers of a refusal."""
    after = refusal.retry_after_seconds if refusal.is_retryable else None
    more = {} if after is None else {"retry-after": str(max(1, -(-int(after * 1000) // 1000)))}
    return {**refusal.headers, **more}


def request_id(world: World) -> str:
    """Make the id of a request, for logs and the audit log. It need not be hard to guess."""
    return f"{world.now():016x}{int(world.chance() * 2**64):016x}"
