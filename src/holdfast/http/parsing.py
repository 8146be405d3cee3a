"""Parsing of requests: path, query, headers and body become the records of an operation, or a refusal.

A body is checked before it is parsed: its size while it arrives, its encoding, its depth, and keys that occur
twice. Nothing of a request is trusted, and no request causes an exception other than `Refusal`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from holdfast.bounds import DEPTH_MAX
from holdfast.clipped import clipped
from holdfast.codec import parse, written
from holdfast.errors import HoldfastError
from holdfast.escaping import escaped
from holdfast.roundtrip import deeper, repeated_key
from holdfast.threads.collector import paused
from holdfast.wire import nulls
from holdfast.world import World

from .operation import Body, Operation, Query
from .problems import Code, FieldError, Refusal

T = TypeVar("T")

BODY_SECONDS = 30.0  # a body must have arrived within this time
REST_SECONDS, REST_BYTES = 1.0, 8 * 2**20  # a body that is not wanted is thrown away, up to here
LARGE_BYTES = 64 * 1024
PARSED_AT_ONCE = 2  # bodies above LARGE_BYTES, and their values, are read in a thread: so many at once
URGENT_AT_ONCE = 1  # the same, for heartbeats: they never wait for batches
QUERY_FIELDS = 100
ENVELOPE_LEVELS = 4  # levels of a body around a value
# Extensions of ASGI, of our own server.
WHOLE = "holdfast.whole"  # the whole body has come
AT_ONCE = "holdfast.at_once"  # sends a whole answer with one write
_PATH = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")
_TOO_DEEP = f"the body is nested deeper than {DEPTH_MAX} levels"


class HeaderTable(Headers):
    """The headers of a request in a dict. Starlette goes through the whole list for each of them.

    `first`: the first value of each header, as bytes. `has_repeated`: some header is there twice.
    """

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        listed = list(raw)  # ASGI permits any iterable, which may be read once only
        super().__init__(raw=listed)
        self.first = dict(listed)  # names are in lower case, as ASGI says
        self.has_repeated = len(self.first) < len(listed)
        if self.has_repeated:
            self.first = dict(reversed(listed))

    def __contains__(self, name: Any) -> bool:
        return name.lower().encode("latin-1") in self.first

    def get(self, name: str, default: Any = None) -> Any:
        """Return the first value of a header."""
        found = self.first.get(name.lower().encode("latin-1"))
        return default if found is None else found.decode("latin-1")

    def getlist(self, name: str) -> list[str]:
        """Return all values of a header."""
        if self.has_repeated:
            return super().getlist(name)
        found = self.first.get(name.lower().encode("latin-1"))
        return [] if found is None else [found.decode("latin-1")]


class Incoming(Request):
    """A request as it arrives; it knows whether all of its body has come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.table = HeaderTable(scope["headers"])
        self.size, self.tenant = 0, ""  # bytes of the body that have been read; of the visitor of a page
        first = self.table.first
        self.is_complete = b"transfer-encoding" not in first and first.get(b"content-length", b"0") == b"0"

    @property
    def headers(self) -> HeaderTable:
        """The headers."""
        return self.table

    @property
    def has_come(self) -> bool:
        """True when our own server has the whole body already."""
        return WHOLE in self.scope.get("extensions", ())

    @property
    def receive(self) -> Receive:
        """The function that returns the next message."""
        return self._next  # not kept in the request: a cycle of references would be left to the collector

    async def _next(self) -> Message:
        message = await self._receive()
        self.is_complete = self.is_complete or not message.get("more_body", False)
        return message

    async def rest(self) -> bool:
        """Throw away what nobody has read; return False if that is too long, or takes too long.

        A client that still sends while the connection is closed may never see the answer.
        """
        size, is_asked_for = 0, "expect" in self.table  # the client sends the body only when it is read
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self.is_complete and not is_asked_for and size <= REST_BYTES:
                    size += len((await self._next()).get("body", b""))
        return self.is_complete


class Bodies:
    """Reads bodies. A large one is parsed in a thread, few at once, so that other requests do not wait."""

    def __init__(self, world: World) -> None:
        self._world, self._at_once = world, asyncio.Semaphore(PARSED_AT_ONCE)
        self._urgent = asyncio.Semaphore(URGENT_AT_ONCE)

    async def read(self, request: Incoming, operation: Operation) -> Any:
        """Read and parse the body. An operation whose body has only optional fields takes a request without
        one.
        """
        wanted = operation.takes.get("body", NoBody)
        is_checked = b"content-type" in request.table.first
        if is_checked:
            _check_type(request)
        text = await read_bytes(request, operation.body_bytes)
        request.size = len(text)
        if text and not is_checked:
            _check_type(request)
        if len(text) <= LARGE_BYTES:
            return parsed_body(text or b"{}", wanted)
        return await self.apart(len(text), parsed_body, text, wanted, urgent=operation.urgent)

    async def apart(self, size: int, work: Callable[..., T], *args: Any, urgent: bool = False) -> T:
        """Call a function that reads so many bytes: in a thread, if they are many. urgent: a heartbeat."""
        if size <= LARGE_BYTES:
            return work(*args)
        async with self._urgent if urgent else self._at_once:
            return await self._world.thread(work, *args, separate=True)

    async def value(self, given: bytes, what: str) -> Any:
        """Return one large value of a caller, as `values` does, or raise its error."""
        (found,) = await self.values([given], what)
        if isinstance(found, HoldfastError):
            raise found
        return found

    async def values(self, given: Sequence[bytes], what: str) -> list[Any | HoldfastError]:
        """Return values of callers, or the error of each. Many bytes are checked in a thread; a large value
        stays text.

        Keys that occur twice were looked for in the whole body already.
        """
        if sum(map(len, given)) <= LARGE_BYTES:
            return [_value(one, what) for one in given]
        async with self._at_once:
            return await self._world.thread(_checked_values, given, what, separate=True)


def _value(text: bytes, what: str) -> Any | HoldfastError:
    try:
        return parse(text, what, repeated=False)
    except HoldfastError as error:
        return error


def _checked_values(given: Sequence[bytes], what: str) -> list[Any | HoldfastError]:
    return [_value(one, what) if len(one) <= LARGE_BYTES else _kept_text(one, what) for one in given]


def _kept_text(value: bytes, what: str) -> Any | HoldfastError:
    try:
        with paused():
            return written(value, what, repeated=False)
    except HoldfastError as error:
        return error


def _repeated(text: bytes) -> str | None:
    """Return the key that occurs twice in one object of a body."""
    if len(text) <= LARGE_BYTES:
        return repeated_key(text)
    with paused():
        return repeated_key(text)


async def read_bytes(request: Incoming, most: int) -> bytes:
    """Read the body, at most so many bytes."""
    said = request.table.first.get(b"content-length", b"")
    if said.isdigit() and int(said[:19]) > most:
        raise _too_large(most)
    if request.has_come:
        return await _parts(request, most)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _parts(request, most)
    except TimeoutError:
        detail = f"the body has not arrived within {BODY_SECONDS:g} s"
        raise Refusal(Code.BODY_TOO_SLOW, detail, headers={"connection": "close"}) from None


async def _parts(request: Incoming, most: int) -> bytes:
    parts, size, more = list[bytes](), 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(Code.BODY_TOO_SLOW, "the client has closed the connection")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_type(request: Incoming) -> None:
    first = request.table.first
    if first.get(b"content-type") == b"application/json" and b"content-encoding" not in first:
        return
    said = request.headers.get("content-type", "")
    media, _, rest = said.partition(";")
    if media.strip().lower() != "application/json":
        raise Refusal(Code.NOT_JSON, f"Content-Type is {clipped(said)}: send application/json")
    if "charset" in rest.lower() and "utf-8" not in rest.lower().replace("utf8", "utf-8"):
        raise Refusal(Code.NOT_JSON, f"Content-Type is {clipped(said)}: send UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(Code.NOT_JSON, "Content-Encoding is not supported: send the body as it is")


def _too_large(most: int) -> Refusal:
    # The rest of the body is not read, so the connection cannot be used again.
    return Refusal(
        Code.TOO_LARGE, f"the limit of this body is {most:,} bytes", headers={"connection": "close"}
    )


def parsed_body(text: bytes, wanted: type, *, strict: bool = True) -> Any:
    """Return the record of a body. strict: False takes texts for numbers too, as forms send them."""
    if deeper(text, DEPTH_MAX + getattr(wanted, "levels", ENVELOPE_LEVELS)):
        raise Refusal(Code.BAD_JSON, _TOO_DEEP)
    try:
        takes_null = getattr(wanted, "takes_null", False)
        found: Any = nulls.read(text, wanted) if takes_null else _decoder(wanted, strict).decode(text)
    except msgspec.ValidationError as error:
        raise _bad_value(error, "body") from None
    except msgspec.DecodeError as error:
        raise Refusal(Code.BAD_JSON, f"the body is not JSON: {_said(error)}") from None
    except UnicodeError:
        raise Refusal(Code.BAD_JSON, "the body is not UTF-8") from None
    except RecursionError:
        raise Refusal(Code.BAD_JSON, _TOO_DEEP) from None
    except (ValueError, OverflowError) as error:
        raise Refusal(Code.BAD_JSON, f"the body cannot be read: {_said(error)}") from None
    if (key := _repeated(text)) is not None:
        raise Refusal(Code.BAD_JSON, f"the body has the key {clipped(key)} twice in one object")
    return found


@cache
def _decoder(wanted: type, strict: bool) -> msgspec.json.Decoder[Any]:  # noqa: FBT001 - for the cache
    """Return the decoder of a body: to make one costs as much as to decode a small body."""
    return msgspec.json.Decoder(wanted, strict=strict)


def parsed_query(request: Request, wanted: type) -> Any:
    """Return the record of the query string. A field that is a tuple may be repeated."""
    raw: bytes = request.scope.get("query_string", b"")
    if not raw and wanted in _WITHOUT_QUERY:
        return _WITHOUT_QUERY[wanted]
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS
        )
    except UnicodeError:
        raise Refusal(Code.BAD_VALUE, "the query string is not UTF-8, percent-encoded") from None
    except ValueError:
        raise Refusal(Code.BAD_VALUE, f"the query has more than {QUERY_FIELDS} fields") from None
    fields: dict[str, Any] = {}
    types = _types(wanted)
    for name, value in pairs:
        if types.get(name):
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise _field(name, "it is given twice")
        else:
            fields[name] = value
    found = converted(fields, wanted, "query")
    if not raw:
        _WITHOUT_QUERY[wanted] = found
    return found


def parsed_path(params: Mapping[str, Any], wanted: type) -> Any:
    """Return the record of the path parameters."""
    return converted(params, wanted, "path")


def parsed_headers(request: Incoming, wanted: type) -> Any:
    """Return the record of headers; `idempotency_key` is the header Idempotency-Key."""
    fields: dict[str, str] = {}
    table = request.table
    for field, header in _header_names(wanted):
        if table.has_repeated and len(table.getlist(header)) > 1:
            raise _field(header, "the header is given twice")
        if (said := table.first.get(header.encode())) is not None:
            fields[field] = _text(header, said)
    return converted(fields, wanted, "header")


@cache
def _header_names(wanted: type) -> list[tuple[str, str]]:
    """Return the fields of a record, each with the name of its header."""
    names: Sequence[str] = wanted.__struct_fields__  # type: ignore[attr-defined]
    return [(name, name.replace("_", "-")) for name in names]


def _text(header: str, value: bytes) -> str:
    """Return the value of a header as text: clients send UTF-8."""
    try:
        return value.decode()
    except UnicodeError:
        raise _field(header, "the header is not UTF-8") from None


def converted(fields: Mapping[str, Any], wanted: type, where: str) -> Any:
    """Return the record of texts."""
    try:
        found: Any = msgspec.convert(fields, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _bad_value(error, where) from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise Refusal(Code.BAD_VALUE, f"the {where} cannot be read: {_said(error)}") from None
    for name in fields:
        value = getattr(found, name, "")
        if value is None:  # the text `null` was taken for no value: a filter would be lost
            raise _field(f"{where}.{name}", "null is not a value: leave the field out")
        if isinstance(value, datetime) and "T" not in str(fields[name]).upper():
            raise _field(f"{where}.{name}", "write a time as in 2026-01-31T12:00:00Z")  # not 0.5
    return found


_REPEATED: dict[type, dict[str, bool]] = {}
_WITHOUT_QUERY: dict[type, Any] = {}  # the record of an empty query; records cannot be changed


def _types(wanted: type) -> dict[str, bool]:
    """Return the fields of a record, and whether each may be repeated."""
    if wanted not in _REPEATED:
        hints = get_type_hints(wanted)
        _REPEATED[wanted] = {name: is_list(hint) for name, hint in hints.items()}
    return _REPEATED[wanted]


def is_list(hint: Any) -> bool:
    """Return True for a type that holds a list."""
    return get_origin(hint) in {tuple, list} or any(is_list(one) for one in get_args(hint))


def _bad_value(error: msgspec.ValidationError, where: str) -> Refusal:
    said = str(error)
    found = _PATH.search(said)
    path = found["path"] if found else ""
    detail = said[: found.start()] if found else said
    return _field(f"{where}.{path}" if path else where, detail[:1].lower() + detail[1:])


def _field(path: str, detail: str) -> Refusal:
    path, detail = escaped(path, 300), escaped(detail, 500)
    return Refusal(Code.BAD_VALUE, f"{path}: {detail}", field_errors=(FieldError(path=path, detail=detail),))


def _said(error: BaseException) -> str:
    return escaped(str(error), 300)


def unquoted(key: str) -> str:
    """Return an idempotency key without the quotes that RFC drafts ask for."""
    return key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key


class NoBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an operation that takes none."""


class NoQuery(Query, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of an operation that takes none."""
