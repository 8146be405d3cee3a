"""Operations of the HTTP API, called inside the process: with scopes, checks, redaction and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Message

from holdfast.arguments import NAME_MAX
from holdfast.errors import HoldfastError
from holdfast.http import parsing
from holdfast.http.access import Actor, check_scopes
from holdfast.http.call import Call
from holdfast.http.operation import Operation, all_operations
from holdfast.http.problems import Code, Refusal, refusal_of

if TYPE_CHECKING:
    from holdfast.http.server import Api

log = logging.getLogger("holdfast.http")


async def ask(
    api: Api,
    actor: Actor,
    id_: str,
    name: str,
    *,
    path: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Any:
    """Call the operation `name` for a caller; return its answer. Refusal: as the API would refuse it.

    Values may be texts of a form: they are converted to the types of the operation. id_: of the request.
    """
    operation = all_operations()[name]
    call = Call(api, operation, actor, _request(operation, _filled(path)), id_)
    try:
        check_scopes(actor, operation.scopes)
        answer = await operation.handler(call, **await _given(api, operation, path, query, body))
    except Refusal as refusal:
        await _note(call, refusal)
        raise
    except HoldfastError as error:
        known = refusal_of(error)
        if known.code is Code.INTERNAL:
            log.exception("request %s failed", id_)
        await _note(call, known)
        raise known from None
    if operation.audited:
        await api.audit.done(call)
    return answer


async def _given(
    api: Api,
    operation: Operation,
    path: Mapping[str, Any] | None,
    query: Mapping[str, Any] | None,
    body: Mapping[str, Any] | None,
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    takes = operation.takes
    if "path" in takes:
        given["path"] = parsing.parsed_path(_filled(path), takes["path"])
    if "query" in takes:
        given["query"] = parsing.converted(_filled(query), takes["query"], "query")
    if "headers" in takes:
        given["headers"] = takes["headers"]()
    if "body" in takes:
        text = msgspec.json.encode(_filled(body))
        parsed = partial(parsing.parsed_body, text, takes["body"], strict=False)
        given["body"] = await api.bodies.apart(len(text), parsed)
    return given


def _filled(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if value is not None}


def _request(operation: Operation, path: Mapping[str, Any]) -> parsing.Incoming:
    """Return a request without headers and body: nothing of a page's request reaches the operation. The audit
    log takes the run from the parameters of the path.
    """
    params = {name: str(value)[:NAME_MAX] for name, value in path.items()}
    scope = {
        "type": "http",
        "method": operation.method,
        "path": "/",
        "path_params": params,
        "headers": [],
        "query_string": b"",
    }
    return parsing.Incoming(scope, _nothing)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _note(call: Call, refusal: Refusal) -> None:
    if not call.actor.key_id or refusal.code is Code.STORE_UNAVAILABLE:
        return
    try:
        await call.api.audit.refused(call, refusal)
    except HoldfastError as error:
        log.warning("the audit log could not be written: %s", error)
