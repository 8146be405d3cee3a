"""The tracer of the program, if it has one; the current span; and the guard around calls of OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.escaping import safe_logger

from .carried import traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

log = safe_logger("holdfast.tracing")

SCOPE_NAME = "holdfast"
API = "opentelemetry.trace"

_tracer: tuple[Any, Tracer] | None = None  # of the provider that was seen last
_told: set[str] = set()  # functions whose failure was logged: one line for each


def harmless(default: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """Make a function that returns `default` when it fails: samplers and span processors are code of others,
    and a run must not end because of them.
    """

    def guarded(function: Callable[P, T]) -> Callable[P, T | D]:
        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return function(*args, **kwargs)
            except Exception:
                if function.__qualname__ not in _told:
                    _told.add(function.__qualname__)
                    log.warning("tracing failed; further failures are not logged", exc_info=True)
                return default

        return called

    return guarded


def tracer() -> Tracer | None:
    """Return the tracer of the provider that the program has set up; None without one."""
    return None if API not in sys.modules else _of_provider()


@harmless(None)
def _of_provider() -> Tracer | None:
    global _tracer  # noqa: PLW0603 - making a tracer takes longer than a span
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None  # no SDK is set up
    if _tracer is None or _tracer[0] is not provider:
        _tracer = provider, provider.get_tracer(SCOPE_NAME)
    return _tracer[1]


def current() -> SpanContext | None:
    """Return the context of the current span; None when there is none."""
    return None if API not in sys.modules else _current()


@harmless(None)
def _current() -> SpanContext | None:
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return context if context.is_valid else None


def current_traceparent() -> str:
    """Return the current span as a W3C traceparent; empty when there is none."""
    if API not in sys.modules:
        return ""
    context = _current()
    return "" if context is None else text_of(context)


def text_of(context: SpanContext) -> str:
    """Return a span's context as a W3C traceparent."""
    return traceparent(context.trace_id, context.span_id, context.trace_flags)


@harmless("")
def text_of_span(span: Span) -> str:
    """Return a span as a W3C traceparent; empty when the span cannot tell."""
    return text_of(span.get_span_context())


def log_ids() -> tuple[str, str] | None:
    """Return the trace id and the span id of the current span, for log lines."""
    context = current()
    return None if context is None else (f"{context.trace_id:032x}", f"{context.span_id:016x}")


def leave() -> None:
    """Make no span the current one: this task works for others than the run that started it."""
    if API in sys.modules:
        _leave()


@harmless(None)
def _leave() -> None:
    from opentelemetry import context

    context.attach(context.Context())
