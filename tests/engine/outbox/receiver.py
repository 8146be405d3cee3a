"""A receiver of webhooks: a real HTTP server in a thread, on a free port."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace


class Handler(BaseHTTPRequestHandler):
    """A request handler that notes each request and sends the answer of its receiver."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        got = SimpleNamespace(path=self.path, headers=dict(self.headers), body=body)
        answer = server.answer(got) if callable(server.answer) else server.answer
        server.got.append(got)
        status, headers, text = answer if isinstance(answer, tuple) else (answer, {}, b"")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


class Receiver(ThreadingHTTPServer):
    """The server. `answer` is a status, (status, headers, body), or a function of the request."""

    daemon_threads = True

    def __init__(self, address=("127.0.0.1", 0)):
        super().__init__(address, Handler)
        self.answer, self.got = 200, []

    def handle_error(self, request, client_address):
        """Ignore clients that close the connection early."""

    @property
    def port(self):
        return self.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/in"

    @property
    def payloads(self):
        return [json.loads(one.body) for one in self.got]


@contextmanager
def receiving(tls=None, port=0):
    """Run a receiver for the time of the block."""
    server = Receiver(("127.0.0.1", port))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
