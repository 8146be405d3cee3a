"""A ledger for scripts: steps of a conformance worker tell it what they do, and it answers as a test wants.

`book.refuse("charge", 500, "no money")` makes the next try of a step fail. `hold = book.hold("pack")` lets a
step wait until `hold.set()`. `book.script({"step": "charge"}, {"step": "pack"})` are the params of a run of
the type `book.type`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD_SECONDS = 60.0


class Ledger:
    """The calls of steps, in their order: dicts with run, step and key."""

    type = "conformance.script.v1"

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[dict[str, str]] = []
        self._refusals: dict[str, list[tuple[int, str]]] = {}
        self._holds: dict[str, threading.Event] = {}

    def script(self, *do: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a run that does this."""
        return {"ledger": self.url, "do": list(do)}

    def refuse(self, step: str, status: int, text: str, times: int = 1) -> None:
        """Answer the next calls of a step with an error."""
        self._refusals.setdefault(step, []).extend([(status, text)] * times)

    def hold(self, step: str) -> threading.Event:
        """Let calls of this step wait until the event is set."""
        return self._holds.setdefault(step, threading.Event())

    def step_keys(self) -> list[str]:
        """Return the keys of all calls, without the ids of their runs."""
        return [one["key"].partition(":")[2] for one in self.calls]

    def answer(self, call: dict[str, str]) -> tuple[int, str]:
        self.calls.append(call)
        if hold := self._holds.get(call["step"]):
            hold.wait(HOLD_SECONDS)
        refusals = self._refusals.get(call["step"])
        return refusals.pop(0) if refusals else (200, "")


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
    """Serve a ledger on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = book.answer(call)
            with contextlib.suppress(OSError):  # a step that was interrupted does not wait for its answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    book = Ledger(f"http://127.0.0.1:{server.server_address[1]}/")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield book
    finally:
        for hold in book._holds.values():
            hold.set()
        server.shutdown()
        server.server_close()
