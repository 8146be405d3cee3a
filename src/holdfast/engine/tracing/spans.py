"""Parts that all spans share: contexts of spans in other processes, links, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import attributes as named
from .carried import parsed

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

    from holdfast.records import Error, NewRun


def remote_context(text: str) -> Context:
    """Return the context of a span that is known by its traceparent; one without a span, if that is empty."""
    from opentelemetry import context, trace

    fields, empty = parsed(text), context.Context()
    if fields is None:
        return empty
    flags = trace.TraceFlags(fields.flags)
    span = trace.SpanContext(fields.trace_id, fields.span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(span), empty)


def links_of(text: str) -> tuple[Link, ...]:
    """Return a link to the span that is known by its traceparent; none, if that is empty."""
    from opentelemetry import trace

    return (trace.Link(trace.get_current_span(remote_context(text)).get_span_context()),) if text else ()


def starting(runs: list[NewRun], *, has_ids: bool = True) -> dict[str, Any]:
    """Return the kind and the attributes of the span that starts these runs. has_ids: their ids are final; a
    server may give them others.
    """
    from opentelemetry import trace

    first, types = runs[0], {new.type for new in runs}
    attributes = {named.TENANT: first.tenant, **named.messaging("start", "send", first.type)}
    if len(runs) == 1 and has_ids:
        attributes |= {named.RUN_ID: str(first.id), named.MESSAGE_ID: str(first.id)}
    elif len(runs) > 1:
        attributes[named.BATCH] = len(runs)
    if len(types) == 1:
        attributes |= named.of_type(first.type)
    else:
        del attributes[named.DESTINATION]
    if len({new.tenant for new in runs}) > 1:
        del attributes[named.TENANT]
    return {"kind": trace.SpanKind.PRODUCER, "attributes": attributes}


def fail(span: Span, error: Error) -> None:
    """Give a span the status of an error, by its kind and its type."""
    from opentelemetry import trace

    span.set_attributes(named.of_error(error))
    said = error.kind if not error.type or error.type == error.kind else f"{error.kind}: {error.type}"
    span.set_status(trace.StatusCode.ERROR, said)
