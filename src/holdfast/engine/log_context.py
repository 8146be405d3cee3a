"""The run, step and attempt of log lines: a filter for handlers, and the variables that it reads."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from uuid import UUID

from holdfast.escaping import LOGGED, escaped

from .code.scope import SCOPE
from .tracing.provider import log_ids

FIELDS = ("run", "type", "step", "attempt", "tenant", "worker")
TRACE_FIELDS = ("trace_id", "span_id")


class LogPlace:
    """The run that executes in a context. It has no values of the run: background tasks may keep it long."""

    __slots__ = ("attempt", "run", "tenant", "type", "worker")

    def __init__(self, run: UUID, type_: str, tenant: str, worker: str, attempt: int) -> None:
        self.run, self.type, self.tenant, self.worker, self.attempt = run, type_, tenant, worker, attempt


PLACE: ContextVar[LogPlace | None] = ContextVar("holdfast_run", default=None)


class LogContext(logging.Filter):
    """A filter that adds the attributes `run`, `type`, `step`, `attempt`, `tenant` and `worker` to records.

    Add it to a handler: `handler.addFilter(holdfast.LogContext())`. The attributes belong to the run whose
    code logs, in async and sync code alike. `attempt` is the try of the step, and outside of steps that of
    the run. They are empty outside of a run, and `step` in the body of a workflow. Where a span of
    OpenTelemetry is the current one, `trace_id` and `span_id` are added. Control characters are escaped. An
    attribute that a record already has, as by `extra=`, stays. No record is held back.
    """

    def __init__(self) -> None:
        super().__init__()

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; always True."""
        known, place = record.__dict__, PLACE.get()
        apart = place is not None and _ours(record.name) and known.get("run") != str(place.run)
        if apart:
            place = None  # a line about the worker: it may be written in the context of any run
        for name, value in zip(FIELDS, _fields(place), strict=True):
            known.setdefault(name, value)
        ids = None if apart else log_ids()
        if ids is not None:
            for name, value in zip(TRACE_FIELDS, ids, strict=True):
                known.setdefault(name, value)
        return True


def _ours(logger: str) -> bool:
    return logger == "holdfast" or logger.startswith("holdfast.")


def _fields(place: LogPlace | None) -> tuple[str | int, ...]:
    if place is None:
        return ("",) * len(FIELDS)
    scope = SCOPE.get()
    step, attempt = ("", place.attempt) if scope is None else (scope.key, scope.tries)
    run, tenant, worker = str(place.run), escaped(place.tenant), escaped(place.worker)
    return run, escaped(place.type), escaped(step, LOGGED), attempt, tenant, worker
