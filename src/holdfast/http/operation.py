"""Operations: the one table of what the HTTP API can do.

Each operation is a function with the decorator `operation`. Routes, the OpenAPI document, the client and the
tests of authorisation are made from the table. The id of an operation is the name of its function, which is
the verb of the library. Its arguments say what a request has: `path`, `query` and `body` are records that are
parsed and checked before the function is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec

from holdfast.records import Scope

Handler = Callable[..., Awaitable[Any]]
H = TypeVar("H", bound=Handler)


class Operation(NamedTuple):
    """One operation.

    scopes: a key needs one of them; none: no key is needed. audited: it is noted in the audit log (a start is
    not: the trail of its run names the key). statuses: of a good answer.
    """

    id: str
    method: str
    path: str
    tag: str
    scopes: tuple[Scope, ...]
    handler: Handler
    # The types of path, query, headers and body, as far as it has them.
    takes: dict[str, type[msgspec.Struct]]
    answer: Any  # the type of the answer; None: no content
    statuses: tuple[int, ...]
    summary: str
    description: str
    audited: bool
    body_bytes: int
    streams: bool  # it can answer with text/event-stream
    text: str  # the media type of an answer that is no JSON; empty: it is JSON
    hidden: bool  # not in the OpenAPI document
    part: str  # one of PARTS: the document that describes it
    urgent: bool  # a large body of it does not wait for large bodies of others


API, WORKER = PARTS = ("api", "worker")  # the API for people and programs, and the protocol of workers
BODY_BYTES = 64 * 1024  # the largest body of an operation that takes no value of a user
OPERATIONS: dict[str, Operation] = {}
# The order of the docs pages, and what each part is about. A new tag is added here.
TAGS = {
    "Start": "Start one run or many, once for each key.",
    "Runs": "Read runs with their steps, trails, results and explanations.",
    "Events": "Send events to runs that wait for them.",
    "Moves": "Cancel, pause, resume, rewind, retry, delete and restore a run.",
    "Approvals": "Read and decide the gates that wait for a person.",
    "Bulk": "Move every run that a filter matches, at a pace.",
    "Schedules": "Start runs at times: by cron or in intervals.",
    "Outbox": "Messages on their way to sinks, and those that could not be delivered.",
    "Metrics": "Counts, rates and the scaling signal.",
    "Keys": "API keys and the audit log.",
    "Operators": "Registry, limits, webhooks and workers of the whole store.",
    "Workers": "The protocol of workers in any language.",
    "Health": "Whether the process and its store answer.",
}
HEADER_NAMES = {
    "idempotency_key": "Idempotency-Key",
    "last_event_id": "Last-Event-ID",
    "holdfast_protocol": "Holdfast-Protocol",
}
METHODS = ("GET", "POST", "PUT", "DELETE")


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The base of path parameters."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of query parameters."""


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """The base of headers that an operation reads."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of bodies. Unknown fields are refused."""


def operation(
    method: str,
    path: str,
    *,
    tag: str,
    scope: Scope | tuple[Scope, ...],
    statuses: tuple[int, ...] = (200,),
    audited: bool | None = None,
    body_bytes: int = BODY_BYTES,
    streams: bool = False,
    text: str = "",
    hidden: bool = False,
    part: str = API,
    urgent: bool = False,
) -> Callable[[H], H]:
    """Add a function to the table. audited: by default every method but GET."""

    def added(handler: H) -> H:
        types = get_type_hints(handler)
        summary, _, more = (handler.__doc__ or "").strip().partition("\n\n")
        name = handler.__name__.strip("_")
        assert name not in OPERATIONS, name
        OPERATIONS[name] = Operation(
            id=name,
            method=method,
            path=path,
            tag=tag,
            scopes=(scope,) if isinstance(scope, Scope) else scope,
            handler=handler,
            takes={one: types[one] for one in ("path", "query", "headers", "body") if one in types},
            answer=None if types["return"] is type(None) or text else types["return"],
            statuses=statuses,
            summary=" ".join(summary.split()),
            description="\n".join(line.strip() for line in more.splitlines()),
            audited=method != "GET" if audited is None else audited,
            body_bytes=body_bytes,
            streams=streams,
            text=text,
            hidden=hidden,
            part=part,
            urgent=urgent,
        )
        return handler

    return added


def all_operations() -> dict[str, Operation]:
    """Return the whole table, by id."""
    from . import api  # noqa: PLC0415, F401 - the functions are added when their modules are imported

    return OPERATIONS


def scope_words(one: Operation, mark: str) -> str:
    """Return the scopes that an operation needs in words. mark: a text with `{}` for a scope."""
    if not one.scopes:
        return "no key needed"
    if set(one.scopes) == set(Scope):
        return "any key"
    return " or ".join(mark.format(scope) for scope in one.scopes)


def operations_by_tag() -> dict[str, list[Operation]]:
    """Return the operations that people read about, by tag: the most common tags first, then reads first."""
    shown = [one for one in all_operations().values() if not one.hidden]
    shown.sort(key=lambda one: (one.path, METHODS.index(one.method)))
    return {tag: [one for one in shown if one.tag == tag] for tag in TAGS}
