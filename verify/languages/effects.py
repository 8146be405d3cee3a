"""Effects of steps: each step sends its run, name and key here before it returns. This is the ledger."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

EFFECT_SECONDS = 0.02  # a kill may fall between the effect and the record


class Effect(NamedTuple):
    """One call of a step: its idempotency key, and microseconds since 1970 when it came."""

    key: str
    at: int


class Effects:
    """All effects so far, by run and key of the step."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.of: dict[tuple[str, str], list[Effect]] = defaultdict(list)
        self._lock = threading.Lock()

    def note(self, run: str, key: str) -> None:
        with self._lock:
            self.of[run, key.partition(":")[2]].append(Effect(key, time.time_ns() // 1000))

    @property
    def total(self) -> int:
        with self._lock:
            return sum(map(len, self.of.values()))

    @property
    def duplicates(self) -> int:
        return sum(len(effects) - 1 for effects in self.of.values())


@contextlib.contextmanager
def effects() -> Iterator[Effects]:
    """Serve the ledger on loopback, inside the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.note(call["run"], call["key"])
            time.sleep(EFFECT_SECONDS)
            with contextlib.suppress(OSError):  # the process that asked was killed
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                super().handle()

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 512

    server = Server(("127.0.0.1", 0), Handler)
    found = Effects(f"http://127.0.0.1:{server.server_address[1]}/")
    threading.Thread(target=server.serve_forever, name="verify-effects", daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
