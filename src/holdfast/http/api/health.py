"""Health, the OpenAPI document and the docs pages: the operations that need no key."""

from __future__ import annotations

import logging

from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.http import docs, openapi
from holdfast.http.call import Call
from holdfast.http.operation import WORKER, operation
from holdfast.http.problems import Code, Refusal
from holdfast.shown.shapes import Shape

log = logging.getLogger("holdfast.http")
TAG = "Health"


class Health(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The state of this server."""

    status: str


@operation("GET", "/healthz", tag=TAG, scope=())
async def healthz(call: Call) -> Health:  # noqa: ARG001 - every handler takes it
    """Say that the process is alive. The store is not asked."""
    return Health(status="ok")


@operation("GET", "/readyz", tag=TAG, scope=())
async def readyz(call: Call) -> Health:
    """Say whether this server can serve requests: the store answers, and the server is not stopping."""
    if call.api.stopping:
        raise Refusal(Code.SHUTTING_DOWN, retry_after_seconds=1)
    try:
        await call.api.ready()
    except HoldfastError as error:
        log.warning("the store is not ready: %s", error)
        raise Refusal(Code.STORE_UNAVAILABLE, retry_after_seconds=1) from None
    return Health(status="ok")


@operation("GET", "/openapi.json", tag=TAG, scope=(), hidden=True)
async def openapi_json(call: Call) -> Response:
    """Return the OpenAPI document of this API."""
    return Response(
        openapi.document_bytes(call.request.scope.get("root_path", "")), media_type="application/json"
    )


@operation("GET", "/worker-openapi.json", tag=TAG, scope=(), hidden=True)
async def worker_openapi_json(call: Call) -> Response:
    """Return the OpenAPI document of the worker protocol."""
    return Response(
        openapi.document_bytes(call.request.scope.get("root_path", ""), WORKER), media_type="application/json"
    )


@operation("GET", "/docs", tag=TAG, scope=(), hidden=True)
async def docs_page(call: Call) -> Response:
    """Return the operations as a page."""
    return docs.answer(docs.operations_page(call.request.scope.get("root_path", "")))


@operation("GET", "/docs/problems", tag=TAG, scope=(), hidden=True)
async def problems_page(call: Call) -> Response:
    """Return the codes of problems as a page."""
    return docs.answer(docs.problems_page(call.request.scope.get("root_path", "")))
