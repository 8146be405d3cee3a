"""Starts: record a run, or many."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta

from holdfast.bounds import BATCH_BYTES, VALUE_BYTES
from holdfast.engine.app.handle import Handle
from holdfast.errors import HoldfastError
from holdfast.http.call import Call
from holdfast.http.operation import Body, Headers, operation
from holdfast.http.parsing import unquoted
from holdfast.http.problems import Code, Problem, Refusal, refusal_of
from holdfast.records import Scope
from holdfast.records.units import SAME
from holdfast.shown.shapes import RerunData, Shape, StartedData

from .fields import (
    Attempts,
    Cost,
    Labels,
    Name,
    OneTenant,
    Priority,
    RunPath,
    Seconds,
    Value,
    value_of,
    values_of,
)

START_BYTES = VALUE_BYTES + 64 * 1024
BATCH_MAX = 500
TAG = "Start"
OPTIONS = (
    "priority", "run_at", "delay", "timeout", "max_attempts", "ttl", "budget", "limit_key", "parent",
    "labels",
)  # fmt: skip


class Start(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to be started. `type` without a version means the newest that is published."""

    type: Name
    params: Value = UNSET
    key: Name | None = None
    priority: Priority = 100
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    delay: Seconds | None = None
    timeout: Seconds | None = None
    max_attempts: Attempts | None = None
    ttl: Seconds | None = None
    budget: Cost | None = None
    limit_key: Name | None = None
    parent: UUID | None = None
    labels: Labels | None = None


class IdempotencyKey(Headers, frozen=True, kw_only=True):
    """The key of the run: the same key gives the same run."""

    idempotency_key: Annotated[str, Meta(min_length=1, max_length=257)] | None = None


class Starts(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many runs to be started, in order."""

    starts: Annotated[tuple[Start, ...], Meta(max_length=BATCH_MAX)]


class StartAnswer(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one start of many: the run, or the problem."""

    run: StartedData | None = None
    problem: Problem | None = None


class StartAnswers(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The answers to many starts, in their order."""

    items: tuple[StartAnswer, ...]


class Rerun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other params than those of the first run, and a key for the new run."""

    params: Value = UNSET
    key: Name | None = None


@operation(
    "POST",
    "/runs",
    tag=TAG,
    scope=Scope.RUNS_WRITE,
    statuses=(201, 200),
    audited=False,
    body_bytes=START_BYTES,
)
async def start(call: Call, query: OneTenant, headers: IdempotencyKey, body: Start) -> StartedData:
    """Start a run.

    The answer comes when the run is durable. `Idempotency-Key` (or `key`) makes it safe to repeat: the same
    key with the same type and params gives the first run, with status 200 and `created: false`; with others
    it is refused with `key-reused`. The key stays taken as long as the run is kept. The header `traceparent`
    becomes the trace of the run, when it is valid.
    """
    client = call.client(query.tenant, one=True)
    params = await value_of(call, body.params, "params")
    options = _options(body, headers)
    call.is_repeatable = options["key"] is not None
    handle = await client.start(body.type, params, **options)
    call.status = 201 if handle.created else 200
    return StartedData(id=handle.id, type=handle.type, created=handle.created)


@operation(
    "POST", "/runs/batch", tag=TAG, scope=Scope.RUNS_WRITE, audited=False, body_bytes=BATCH_BYTES + 64 * 1024
)
async def start_many(call: Call, query: OneTenant, body: Starts) -> StartAnswers:
    """Start many runs, at most 500.

    Each item is answered on its own, in order; a bad item does not stop the others. Give each item a `key`:
    then the whole request can be repeated.
    """
    client = call.client(query.tenant, one=True)
    items: list[tuple[str, Any, Any] | Refusal] = []
    given = await values_of(call, [one.params for one in body.starts], "params")
    for one, params in zip(body.starts, given, strict=True):
        if isinstance(params, HoldfastError):
            items.append(refusal_of(params))
            continue
        try:
            items.append((one.type, params, _options(one, None)))
        except HoldfastError as error:
            items.append(refusal_of(error))
    call.is_repeatable = all(one.key is not None for one in body.starts)
    made = iter(await client.start_many([one for one in items if isinstance(one, tuple)]))
    answers = [next(made) if isinstance(one, tuple) else one for one in items]
    keyed = [one.key is not None for one in body.starts]
    return StartAnswers(items=tuple(map(partial(_answer, call), answers, keyed)))


@operation(
    "POST", "/runs/{run}/rerun", tag=TAG, scope=Scope.RUNS_WRITE, statuses=(201, 200), body_bytes=START_BYTES
)
async def rerun(
    call: Call, path: RunPath, query: OneTenant, headers: IdempotencyKey, body: Rerun
) -> RerunData:
    """Start a new run that repeats another: with its type, params, priority, labels and limits."""
    key = _key(body.key, headers)
    call.is_repeatable = key is not None
    params = SAME if body.params is UNSET else await value_of(call, body.params, "params")
    handle = await call.client(query.tenant).rerun(path.run, params, key=key)
    call.status = 201 if handle.created else 200
    return RerunData(id=handle.id, type=handle.type, created=handle.created, origin=path.run)


def _options(one: Start, headers: IdempotencyKey | None) -> Any:
    options = {name: value for name in OPTIONS if (value := getattr(one, name)) is not None}
    options["key"] = _key(one.key, headers)
    return options


def _key(key: str | None, headers: IdempotencyKey | None) -> str | None:
    """Return the key of the header or of the body; refuse two different ones."""
    said = None if headers is None else headers.idempotency_key
    said = None if said is None else unquoted(said)
    if said is not None and key is not None and said != key:
        raise Refusal(
            Code.BAD_VALUE, "the header Idempotency-Key and the field `key` differ: give one of them"
        )
    return key if said is None else said


def _answer(call: Call, answer: Handle[Any] | HoldfastError | Refusal, keyed: bool) -> StartAnswer:  # noqa: FBT001 - one of two
    if isinstance(answer, Handle):
        return StartAnswer(run=StartedData(id=answer.id, type=answer.type, created=answer.created))
    refusal = refusal_of(answer) if isinstance(answer, HoldfastError) else answer
    refusal.is_repeatable = keyed
    return StartAnswer(problem=refusal.problem(call.id, call.api.problems_page(call.request)))
