"""A collector of traces: it takes OTLP over HTTP, and decodes the protobuf."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Handler(BaseHTTPRequestHandler):
    """A request handler that keeps the spans of each request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        found = [one for part in request.resource_spans for scope in part.scope_spans for one in scope.spans]
        self.server.spans += map(Collected, found)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


class Collected:
    """One span as it came over the wire."""

    def __init__(self, span):
        self.name, self.kind = span.name, Span.SpanKind.Name(span.kind)
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.links = [one.span_id.hex() for one in span.links]
        self.attributes = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
        self.raw = span.SerializeToString()

    def __repr__(self):
        return f"{self.name} {self.id} < {self.parent} ~ {self.links}"


class Collector(ThreadingHTTPServer):
    """The server, on a free port."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def named(self, name):
        return [one for one in self.spans if one.name == name]

    def above(self):
        """Return what each span hangs on, by its id: its parent, or, when that never came, a span that it
        links to; None for neither.
        """
        known = {one.id: one for one in self.spans}
        hangs = {
            one.id: [known[id_] for id_ in (one.parent, *one.links) if id_ in known] for one in self.spans
        }
        return {id_: found[0] if found else None for id_, found in hangs.items()}


@contextmanager
def collecting():
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
