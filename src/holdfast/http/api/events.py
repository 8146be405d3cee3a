"""Events: send one, and read what happened to all runs of a tenant."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta

from holdfast.bounds import VALUE_BYTES
from holdfast.http.call import Call
from holdfast.http.operation import Body, operation
from holdfast.records import Scope
from holdfast.shown.shapes import Shape

from .fields import Name, OneTenant, Seconds, Topic, Value, value_of

TAG = "Events"


class Emit(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event. id: the same id twice has one effect. run: only this run gets it. keep: for how long."""

    topic: Topic
    payload: Value = UNSET
    id: Name | None = None
    run: UUID | None = None
    keep: Seconds | None = None


class EmittedData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs the event woke, and whether it had been there before."""

    topic: str
    woken: Annotated[int, Meta(ge=0)] | None
    duplicate: bool


@operation("POST", "/events", tag=TAG, scope=Scope.RUNS_WRITE, body_bytes=VALUE_BYTES + 64 * 1024)
async def emit(call: Call, query: OneTenant, body: Emit) -> EmittedData:
    """Send an event to every run of the tenant that waits for its topic, or to one run.

    Give it an `id`: then the request can be repeated, and the event counts once.
    """
    client = call.client(query.tenant, one=True)
    call.target = body.topic
    call.is_repeatable = body.id is not None
    payload = await value_of(call, body.payload, "payload")
    emitted = await client.emit(body.topic, payload, body.id, body.run, keep=body.keep)
    return EmittedData(topic=body.topic, woken=emitted.woken, duplicate=emitted.duplicate)
