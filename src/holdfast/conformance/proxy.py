"""The server of the kit: the real HTTP API behind a layer that watches every request and injects faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from holdfast.engine.app.client import StoreClient
from holdfast.http.server import HttpApi, asgi
from holdfast.http.streams import ABORT

from .faults import Answer, Fault, Kind, extended, instead, no_lease, problem
from .ledger import LEDGER, Ledger
from .rules import Rules
from .traffic import CLAIM, HEARTBEAT, Exchange, Traffic

# The types of ASGI.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES = 32 * 2**20
GONE_SECONDS = 5.0
LAST_SECONDS = 0.05  # for a claim that is interrupted
_HIDDEN = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class FaultyApi(HttpApi):
    """The HTTP API of a store, with faults. Ledgers are served beside it, without any."""

    def __init__(self, client: StoreClient, rules: Rules) -> None:
        self._client, self.rules = client, rules
        self._served = asgi(client)
        super().__init__(self._served.api)
        self.traffic = Traffic()
        self.faults: list[Fault] = []
        self.beats = 0  # heartbeats of earlier cases
        self.ledgers: dict[str, Ledger] = {}
        self.changed = asyncio.Event()  # set at every request and answer
        self._gate, self._interrupted = asyncio.Event(), asyncio.Event()
        self._gate.set()
        self._claims: set[asyncio.Future[Answer]] = set()  # that the server has, and has not answered

    def begin(self, expected: frozenset[str] = frozenset()) -> None:
        """Begin a case: no faults, and nothing seen."""
        self.beats += len(self.traffic.of(HEARTBEAT))
        self.traffic = Traffic()
        self.ledgers.clear()
        self.rules.begin(expected)

    def end(self) -> None:
        """End the faults of a case."""
        for fault in self.faults:
            fault.end()
        self.faults.clear()
        for ledger in self.ledgers.values():
            ledger.let_go()
        self.let_claim()

    def add(self, fault: Fault) -> Fault:
        """Let a fault hit from now on; the first one that matches a request hits it."""
        self.faults.append(fault)
        return fault

    # Claims.

    async def keep_claims_back(self) -> None:
        """Answer open claims with no lease, and keep new ones back until `let_claim`."""
        self._gate.clear()
        self.end_claims()
        while self._claims:
            await asyncio.wait(self._claims)

    def let_claim(self) -> None:
        """Let claims through again."""
        self._gate.set()

    def end_claims(self) -> None:
        """Answer open claims with no lease."""
        self._interrupted.set()
        self._interrupted = asyncio.Event()

    # The server.

    async def stop_serving(self) -> None:
        """Stop the server gracefully: open claims are answered with `drain`."""
        await self._served.api.stop()

    async def serve_again(self) -> None:
        """Put a new server in the place of the old one, at the same store."""
        await self._served.close()
        self._served = asgi(self._client)

    async def close(self) -> None:
        """Stop the server for good."""
        await self._served.close()

    async def ask(self, path: str, body: Any, key: str) -> Answer:
        """Send a request of the kit itself, past all faults."""
        text = json.dumps(body).encode()
        headers = [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {key}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(text)).encode()),
        ]
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
        }
        return await self._forward(scope, _never, text)

    # Requests of the worker.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: of the ledger, or of the API with faults."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        text = await _body(receive)
        if text is None:
            return
        if scope["path"].startswith(LEDGER):
            await self._note_step(scope, text, receive, send)
        else:
            await self._exchange(scope, text, receive, send)

    async def _note_step(self, scope: Scope, text: bytes, receive: Receive, send: Send) -> None:
        ledger = self.ledgers.get(scope["path"].removeprefix(LEDGER))
        if ledger is None:  # of a case that is over
            await _abort(scope, receive)
            return
        noted = asyncio.create_task(ledger.called(_value(text), _now()))
        await asyncio.sleep(0)
        self.changed.set()
        status, said = await noted
        await _send(send, Answer(status, [(b"content-type", b"text/plain")], said.encode()))

    async def _exchange(self, scope: Scope, text: bytes, receive: Receive, send: Send) -> None:
        seen = self.traffic.exchanges
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(
            number=len(seen) + 1, path=scope["path"], headers=headers, body=_value(text), at=_now()
        )
        seen.append(exchange)
        self.rules.request(exchange)
        self.changed.set()
        fault = next((one for one in self.faults if one.takes(exchange)), None)
        answer = await self._answer(fault, exchange, scope, text, receive)
        kind = None if fault is None else fault.kind
        if answer is not None:
            exchange.status, exchange.answer = answer.status, answer.value
        exchange.reached = answer is not None and kind not in {Kind.LOSE, Kind.CUT}
        exchange.answered_at = _now()
        self.rules.answer(exchange)
        self.changed.set()
        if answer is not None and kind is not Kind.LOSE:
            await _send(send, answer, half=kind is Kind.CUT)
        if not exchange.reached:
            await _abort(scope, receive)

    async def _answer(
        self, fault: Fault | None, exchange: Exchange, scope: Scope, text: bytes, receive: Receive
    ) -> Answer | None:
        """Return the answer of the server, or that of the fault; None when the server never got it."""
        kind = None if fault is None else fault.kind
        if fault is not None and kind is Kind.AWAY:
            await asyncio.sleep(fault.seconds)
            return None
        if (given := instead(kind, exchange)) is not None:
            return given
        if fault is not None and kind is Kind.HOLD:
            await fault.released.wait()
        if exchange.path == CLAIM:
            answer = await self._claim(scope, receive, text)
        else:
            answer = await self._forward(scope, receive, text)
        if kind is Kind.DOUBLE:
            answer = await self._forward(scope, receive, text)
        if kind is Kind.INTERNAL:
            return problem(500, "internal", "something went wrong")
        if kind is Kind.EXTEND:
            return extended(answer)
        if fault is not None and fault.seconds:
            await asyncio.sleep(fault.seconds)
        return answer

    async def _claim(self, scope: Scope, receive: Receive, text: bytes) -> Answer:
        """Forward a claim; it ends without a lease when claims are interrupted or the worker goes."""
        await self._gate.wait()
        claim = asyncio.ensure_future(self._forward(scope, _never, text))
        self._claims.add(claim)
        claim.add_done_callback(self._claims.discard)
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait([claim, interrupted, gone], return_when=asyncio.FIRST_COMPLETED)
            if interrupted.done():  # a run that the server has just leased must not be lost
                await asyncio.wait([claim], timeout=LAST_SECONDS)
            return claim.result() if claim.done() else no_lease()
        finally:
            for one in (claim, interrupted, gone):
                one.cancel()

    async def _forward(self, scope: Scope, receive: Receive, text: bytes) -> Answer:
        """Send a request to the server; return its answer."""
        parts: list[Message] = []
        rest: list[Message] = [{"type": "http.request", "body": text, "more_body": False}]

        async def given() -> Message:
            return rest.pop() if rest else await receive()

        async def take(message: Message) -> None:
            parts.append(message)

        # Without the extensions of the connection: they would write to it at once.
        await self._served({**scope, "extensions": {}}, given, take)
        start = next((one for one in parts if one["type"] == "http.response.start"), None)
        if start is None:
            return problem(503, "shutting-down", "the server gave no answer")
        body = b"".join(one.get("body", b"") for one in parts if one["type"] == "http.response.body")
        return Answer(start["status"], list(start["headers"]), body)


async def _body(receive: Receive) -> bytes | None:
    """Read the body of a request; None when its sender has gone, or sends far too much."""
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


async def _send(send: Send, answer: Answer, *, half: bool = False) -> None:
    headers = [one for one in answer.headers if one[0].lower() not in _HIDDEN]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = answer.body[: len(answer.body) // 2] if half else answer.body
    await send({"type": "http.response.body", "body": body, "more_body": half})


async def _abort(scope: Scope, receive: Receive) -> None:
    """Break the connection."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort["call"]()
    with suppress(TimeoutError):
        async with asyncio.timeout(GONE_SECONDS):
            while (await receive())["type"] != "http.disconnect":
                pass


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def _value(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
