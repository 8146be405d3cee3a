"""Parsing of requests: path, query, headers and body become the records of an operation, or a refusal.

A body is checked before it is parsed: its size while it arrives, its encoding, its depth, and keys that occur
twice. Nothing of a request is trusted, and no request causes an exception other than `Refusal`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

from holdfast.bounds import DEPTH_MAX
from holdfast.clipped import clipped
from holdfast.codec import parse, written
from holdfast.errors import HoldfastError
from holdfast.escaping import escaped
from holdfast.roundtrip import deeper, repeated_key
from holdfast.threads.collector import paused
from holdfast.world import World

from .operation import Body, Operation, Query
from .problems import Code, FieldError, Refusal

BODY_SECONDS = 30.0  # a body must have arrived within this time
REST_SECONDS, REST_BYTES = 1.0, 8 * 2**20  # a body that is not wanted is thrown away, up to here
LARGE_BYTES = 64 * 1024
PARSED_AT_ONCE = 2  # bodies above LARGE_BYTES, and their values, are read in a thread: so many at once
QUERY_FIELDS = 100
ENVELOPE_LEVELS = 4  # levels of a body around a value
_ABOUT_BODY = frozenset({b"transfer-encoding", b"content-length", b"expect"})
_PATH = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")
_TOO_DEEP = f"the body is nested deeper than {DEPTH_MAX} levels"


class Incoming:
    """The body of a request as it arrives; it knows whether all of it has come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = {name: value for name, value in scope["headers"] if name in _ABOUT_BODY}
        self.is_complete = b"transfer-encoding" not in names and names.get(b"content-length", b"0") == b"0"
        self._is_asked_for = b"expect" in names  # the client sends the body only when it is read
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message of the request."""
        message = await self._receive()
        self.is_complete = self.is_complete or not message.get("more_body", False)
        return message

    async def rest(self) -> bool:
        """Throw away what nobody has read; return False if that is too long, or takes too long.

        A client that still sends while the connection is closed may never see the answer.
        """
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self.is_complete and not self._is_asked_for and size <= REST_BYTES:
                    size += len((await self()).get("body", b""))
        return self.is_complete


class Bodies:
    """Reads bodies. A large one is parsed in a thread, few at once, so that other requests do not wait."""

    def __init__(self, world: World) -> None:
        self._world, self._at_once = world, asyncio.Semaphore(PARSED_AT_ONCE)

    async def read(self, request: Request, operation: Operation) -> Any:
        """Read and parse the body. An operation whose body has only optional fields takes a request without
        one.
        """
        wanted = operation.takes.get("body", NoBody)
        if "content-type" in request.headers:
            _check_type(request)
        text = await _read(request, operation)
        if text:
            _check_type(request)
        if len(text) <= LARGE_BYTES:
            return parsed_body(text or b"{}", wanted)
        async with self._at_once:
            return await self._world.thread(parsed_body, text, wanted, separate=True)

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


async def _read(request: Request, operation: Operation) -> bytes:
    """Read the body, at most as many bytes as the operation takes."""
    most = operation.body_bytes
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said[:19]) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        detail = f"the body has not arrived within {BODY_SECONDS:g} s"
        raise Refusal(Code.BODY_TOO_SLOW, detail, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(Code.BODY_TOO_SLOW, "the client has closed the connection") from None
    return b"".join(parts)


def _check_type(request: Request) -> None:
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


def parsed_body(text: bytes, wanted: type) -> Any:
    """Return the record of a body."""
    if deeper(text, DEPTH_MAX + ENVELOPE_LEVELS):
        raise Refusal(Code.BAD_JSON, _TOO_DEEP)
    try:
        found: Any = msgspec.json.decode(text, type=wanted)
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
    found = _converted(fields, wanted, "query")
    if not raw:
        _WITHOUT_QUERY[wanted] = found
    return found


def parsed_path(params: Mapping[str, Any], wanted: type) -> Any:
    """Return the record of the path parameters."""
    return _converted(params, wanted, "path")


def parsed_headers(request: Request, wanted: type) -> Any:
    """Return the record of headers; `idempotency_key` is the header Idempotency-Key."""
    fields: dict[str, str] = {}
    for name in wanted.__struct_fields__:  # type: ignore[attr-defined]
        said = request.headers.getlist(name.replace("_", "-"))
        if len(said) > 1:
            raise _field(name.replace("_", "-"), "the header is given twice")
        if said:
            fields[name] = _text(name, said[0])
    return _converted(fields, wanted, "header")


def _text(name: str, value: str) -> str:
    """Return a header as text. ASGI gives headers as Latin-1; clients send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise _field(name.replace("_", "-"), "the header is not UTF-8") from None


def _converted(fields: Mapping[str, Any], wanted: type, where: str) -> Any:
    try:
        found: Any = msgspec.convert(fields, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _bad_value(error, where) from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise Refusal(Code.BAD_VALUE, f"the {where} cannot be read: {_said(error)}") from None
    for name in fields:
        if getattr(found, name, "") is None:  # the text `null` was taken for no value: a filter would be lost
            raise _field(f"{where}.{name}", "null is not a value: leave the field out")
        if isinstance(getattr(found, name, None), datetime) and "T" not in str(fields[name]).upper():
            raise _field(f"{where}.{name}", "write a time as in 2026-01-31T12:00:00Z")  # not 0.5
    return found


_REPEATED: dict[type, dict[str, bool]] = {}
_WITHOUT_QUERY: dict[type, Any] = {}  # the record of an empty query; records cannot be changed


def _types(wanted: type) -> dict[str, bool]:
    """Return the fields of a record, and whether each may be repeated."""
    if wanted not in _REPEATED:
        hints = get_type_hints(wanted)
        _REPEATED[wanted] = {name: _is_list(hint) for name, hint in hints.items()}
    return _REPEATED[wanted]


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in {tuple, list} or any(_is_list(one) for one in get_args(hint))


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
