"""The span of one try of a step, around the call of its function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import Token
from typing import TYPE_CHECKING, Any

from . import attributes as named
from .provider import harmless
from .spans import fail

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from holdfast.records import Error


class StepSpan:
    """The span of one try of a step."""

    __slots__ = ("_open", "_span")

    def __init__(self, span: Span, open_: set[StepSpan]) -> None:
        self._span, self._open = span, open_
        open_.add(self)

    @harmless(None)
    def enter(self) -> Token[Any] | None:
        """Make the span the current one. Return a token for `leave`."""
        from opentelemetry import context, trace

        return context.attach(trace.set_span_in_context(self._span))

    @harmless(None)
    def leave(self, token: Token[Any] | None) -> None:
        """Make the span that was current before the current one again."""
        from opentelemetry import context

        if token is not None:
            context.detach(token)

    @harmless(None)
    def failed(self, error: Error) -> None:
        """End the span of a try that has failed."""
        if self in self._open:
            fail(self._span, error)
            self.end()

    @harmless(None)
    def end(self, outcome: str = "") -> None:
        """End the span, unless it has ended."""
        if self in self._open:
            self._open.discard(self)
            if outcome:
                self._span.set_attribute(named.OUTCOME, outcome)
            self._span.end()


def around(
    fn: Callable[..., Any], begun: Callable[[], StepSpan | None], open_: tuple[type, ...]
) -> Callable[..., Any]:
    """Return a function that calls `fn` inside a span, in the task or thread of the call.

    A try that fails leaves its span open, and so does one that returns a value of the types `open_`.
    """

    def called(*args: Any) -> Any:
        span = begun()
        if span is None:
            return fn(*args)
        token = span.enter()
        try:
            value = fn(*args)
        finally:
            span.leave(token)
        if inspect.isawaitable(value):
            return awaited(value, span)
        if not isinstance(value, open_):
            span.end()
        return value

    async def awaited(value: Awaitable[Any], span: StepSpan) -> Any:
        token = span.enter()
        try:
            result = await value
        finally:
            span.leave(token)
        if not isinstance(result, open_):
            span.end()
        return result

    return called
