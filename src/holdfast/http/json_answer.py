"""A good answer as JSON, and the headers of all answers."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from . import parsing

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


class JsonAnswer(Response):
    """A good answer as JSON. Its headers are encoded once for all answers."""

    media_type = "application/json"
    _headers_of_all = tuple(
        one
        for one in Response(media_type=media_type, headers=HEADERS).raw_headers
        if one[0] != b"content-length"
    )

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code, self.body, self.background = status, body, None
        self.raw_headers = [*self._headers_of_all, (b"content-length", b"%d" % len(body))]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, with one write if the server can do that."""
        at_once = scope.get("extensions", {}).get(parsing.AT_ONCE)
        if at_once is None or not at_once["call"](send, self.status_code, self.raw_headers, self.body):
            await super().__call__(scope, receive, send)
