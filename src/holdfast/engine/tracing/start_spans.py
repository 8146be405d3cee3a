"""The span of a start, and the trace that its runs are stored with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.records import NewRun, Started

from . import attributes as named
from .provider import current_traceparent, harmless, text_of_span, tracer
from .spans import starting

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

A = TypeVar("A")

Send = Callable[[list[NewRun]], Awaitable[list[A]]]


async def started(runs: list[NewRun], send: Send[A]) -> list[A]:
    """Start runs under a span, whose context becomes their trace. Without a tracer: under the current span.

    A run that has a trace already keeps it, and has no span here.
    """
    found = None if runs and runs[0].trace else tracer()
    span = None if found is None or not runs else _begun(found, runs)
    if span is None:
        return await send(traced(runs, current_traceparent()))
    try:
        answers = await send(traced(runs, text_of_span(span)))
    except BaseException as error:
        _end(span, [error])
        raise
    _end(span, answers)
    return answers


def traced(runs: list[NewRun], trace: str) -> list[NewRun]:
    """Return the runs with this trace, unless they have one."""
    return [new if new.trace else replace(new, trace=trace) for new in runs] if trace else runs


@harmless(None)
def _begun(made_by: Tracer, runs: list[NewRun]) -> Span | None:
    return made_by.start_span("holdfast.start", **starting(runs))


@harmless(None)
def _end(span: Span, answers: Sequence[object]) -> None:
    from opentelemetry import trace

    wrong = [one for one in answers if isinstance(one, HoldfastError | BaseException)]
    if wrong:
        span.set_attribute(named.ERROR_TYPE, type(wrong[0]).__name__)
        span.set_status(trace.StatusCode.ERROR, type(wrong[0]).__name__)
    elif len(answers) == 1 and isinstance(answers[0], Started):  # a server may have made another id
        span.set_attributes({named.RUN_ID: str(answers[0].id), named.MESSAGE_ID: str(answers[0].id)})
    span.end()
