"""Spans that a test reads: a provider of the real SDK, and the tree that its spans make."""

from __future__ import annotations

from collections import Counter

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """A provider with an exporter in memory."""

    def __init__(self, **options):
        self.provider = TracerProvider(**options)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def tracer(self):
        """The tracer of the user's own code."""
        return self.provider.get_tracer("shop")

    @property
    def all(self):
        return sorted(self.exporter.get_finished_spans(), key=lambda one: one.start_time)

    @property
    def names(self):
        """How many spans there are, by name."""
        return dict(Counter(one.name for one in self.all))

    def named(self, name):
        """Return the spans of this name, by their beginning."""
        return [one for one in self.all if one.name == name]

    def one(self, name):
        (found,) = self.named(name)
        return found

    def parent(self, span):
        """Return the name of a span's parent; None for a root, and an error when it is not there."""
        if span.parent is None:
            return None
        (found,) = [one for one in self.all if one.context.span_id == span.parent.span_id]
        return found.name

    def links(self, span):
        """Return the spans that a span links to."""
        wanted = {one.context.span_id for one in span.links}
        return [one for one in self.all if one.context.span_id in wanted]

    @property
    def tree(self):
        """Return (name, name of the parent) of all spans, sorted."""
        return sorted((one.name, self.parent(one) or "") for one in self.all)

    @property
    def traces(self):
        """Return the ids of all traces."""
        return {one.context.trace_id for one in self.all}


def text(span):
    """Return a span's context as a traceparent."""
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
