"""Faults: what the proxy does to requests of the worker and to their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from .traffic import Exchange

RETRY_AFTER_MS = 200
_LISTS = ("leases", "items", "steps", "settled", "strays", "kept")
LATER = {"of_a_later_version": {"a": [1, None]}, "x": "new"}  # fields that no worker knows


class Kind(StrEnum):
    """The kinds of faults."""

    LOSE = "the answer was lost"
    CUT = "half of the answer was lost"
    DOUBLE = "the request came twice"
    REFUSE = "refused with 503, and not applied"
    INTERNAL = "applied, and answered with 500"
    PAGE = "not applied: a proxy answered with a page, 404"
    BUSY = "answered `run-busy`, and not applied"
    AWAY = "the connection broke before the server had the request"
    DELAY = "the answer came late"
    HOLD = "the request was held back"
    EXTEND = "the answer had unknown fields"


class Fault:
    """A fault that hits the requests that match, at most `times` of them. `hits`: those that it has hit."""

    def __init__(
        self, kind: Kind, matches: Callable[[Exchange], bool], times: int = 1, *, seconds: float = 0.0
    ) -> None:
        self.kind, self.seconds = kind, seconds
        self._matches, self._left = matches, times
        self.hits: list[Exchange] = []
        self.released = asyncio.Event()  # of HOLD

    def takes(self, exchange: Exchange) -> bool:
        """Return True when this fault hits the request; then one time less is left."""
        if self._left <= 0 or not self._matches(exchange):
            return False
        self._left -= 1
        self.hits.append(exchange)
        exchange.fault = self.kind
        return True

    def end(self) -> None:
        """Hit nothing more, and let go what is held."""
        self._left = 0
        self.released.set()


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as a value; None when it is no JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


def made(status: int, value: Any, kind: str = "application/json") -> Answer:
    """Return an answer that the server has not given."""
    headers = [(b"content-type", kind.encode()), (b"holdfast-protocol", b"1")]
    return Answer(status, headers, json.dumps(value).encode())


def problem(status: int, code: str, detail: str) -> Answer:
    """Return a refusal that asks for the same request again."""
    return made(status, _repeatable(status, code, detail), "application/problem+json")


def _repeatable(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return a problem that another try may cure."""
    return {
        "type": f"/docs/problems#{code}",
        "title": detail,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": True,
        "retry_after_ms": RETRY_AFTER_MS,
    }


def instead(kind: Kind | None, exchange: Exchange) -> Answer | None:
    """Return the answer of a fault by which the server never gets the request; None: it gets it."""
    match kind:
        case Kind.REFUSE:
            return problem(503, "store-unavailable", "the store does not answer")
        case Kind.PAGE:
            return Answer(404, [(b"content-type", b"text/html")], b"<html><title>Not Found</title></html>")
        case Kind.BUSY:
            return busy(exchange)
        case _:
            return None


def busy(exchange: Exchange) -> Answer:
    """Return the answer that the rows of all items are busy."""
    why = _repeatable(409, "run-busy", "another session has the run")
    items = [
        {"run": one.get("run"), "seq": one.get("seq"), "answer": "refused", "problem": why}
        for one in exchange.items
    ]
    return made(200, {"items": items, "drain": False})


def no_lease() -> Answer:
    """Return the answer to a claim that found nothing."""
    return made(200, {"leases": [], "waited_ms": 0, "drain": False})


def extended(answer: Answer) -> Answer:
    """Return the answer with more fields, as a later version of the server may give."""
    headers = [one for one in answer.headers if one[0].lower() != b"content-length"]
    return Answer(answer.status, headers, json.dumps(_with_fields(answer.value)).encode())


def _with_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_fields(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _with_fields(one) if name in _LISTS else one for name, one in value.items()} | LATER


def at(*paths: str) -> Callable[[Exchange], bool]:
    """Return a test for requests at these paths."""
    return lambda exchange: exchange.path in paths


def write(run: str, *ops: str, key: str | None = None) -> Callable[[Exchange], bool]:
    """Return a test for batches with an item of this run: of these operations, perhaps with this step."""

    def matches(exchange: Exchange) -> bool:
        return any(
            one.get("run") == run
            and (not ops or one.get("op") in ops)
            and (key is None or key in {step.get("key") for step in one.get("steps") or []})
            for one in exchange.items
        )

    return matches
