"""The span of one try to deliver a message, under the trace of the run that has sent it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.records import Parcel

from . import attributes as named
from .carried import carried
from .provider import harmless, text_of_span, tracer
from .spans import remote_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SendSpan:
    """The span of a try. `traceparent`: for the request of a webhook; of this span, or of the run's trace."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, parcel: Parcel) -> None:
        parent = carried(parcel.trace).parent
        self._span = _begun(parcel, parent)
        self.traceparent = parent if self._span is None else text_of_span(self._span)

    @harmless(None)
    def end(self, answer: str, error: Any = None) -> None:
        """End the span. An error is the recorded one: its kind and its type are shown."""
        if self._span is None:
            return
        from opentelemetry import trace

        self._span.set_attribute(named.OUTCOME, answer)
        if error is not None:
            self._span.set_attributes(named.of_error(error))
        if answer != "sent":
            self._span.set_status(trace.StatusCode.ERROR, error.kind if error is not None else answer)
        self._span.end()


@harmless(None)
def _begun(parcel: Parcel, parent: str) -> Span | None:
    """Begin the span and make it the current one in this task; None without a tracer."""
    found = tracer()
    if found is None:
        return None
    from opentelemetry import context, trace

    posts = parcel.webhook is not None
    span = found.start_span(
        f"send {parcel.sink}",
        context=remote_context(parent),
        kind=trace.SpanKind.CLIENT if posts else trace.SpanKind.PRODUCER,
        attributes={
            **named.messaging("send", "send", parcel.sink),
            named.MESSAGE_ID: parcel.id,
            named.SINK: parcel.sink,
            named.RUN_ID: str(parcel.run),
            named.TENANT: parcel.tenant,
            named.MESSAGE_ATTEMPT: parcel.attempt,
        },
    )
    context.attach(trace.set_span_in_context(span))
    return span
