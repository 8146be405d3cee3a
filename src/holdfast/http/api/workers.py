"""Workers of any language: they register, and say when they leave."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from holdfast.arguments import LEASE_MAX_SECONDS, LEASE_MIN_SECONDS, check_patterns
from holdfast.bounds import DEPTH_MAX, VALUE_BYTES
from holdfast.engine.definitions import RESERVED
from holdfast.engine.worker.presence import PRESENCE_SECONDS
from holdfast.escaping import safe_logger
from holdfast.http.access import Actor
from holdfast.http.call import Call
from holdfast.http.operation import Headers, operation
from holdfast.http.problems import Code, Refusal
from holdfast.http.work.work import may_claim, tenants_of
from holdfast.records import DEFAULT_TENANT, Scope
from holdfast.step_keys import KEY_MAX
from holdfast.wire import requests
from holdfast.wire.answers import PROTOCOL, Limits, Registered, Span
from holdfast.wire.reading import definition_of, presence_of

from .fields import OneTenant

log = safe_logger("holdfast.http")

TAG = "Workers"
REGISTER_BYTES = 4 * 1024 * 1024


class Protocol(Headers, frozen=True, kw_only=True):
    """The version of the worker protocol."""

    holdfast_protocol: Annotated[str, Meta(max_length=20)] | None = None


@operation(
    "POST",
    "/workers/register",
    tag=TAG,
    scope=Scope.WORK,
    audited=False,
    body_bytes=REGISTER_BYTES,
    part="worker",
)
async def register_worker(
    call: Call, query: OneTenant, headers: Protocol, body: requests.RegisterRequest
) -> Registered:
    """Say who a worker is and what it can execute; learn the limits of the server.

    It shows people that the worker is there, and is repeated every `present_ms`. `definitions` are published
    if the key has the scope `operator`: types are shared by all tenants.
    """
    worker = begin(call, query, headers, body.worker)
    check_types(call.actor, body.types)
    check_patterns(body.patterns)
    presence = presence_of(body, worker, tenants_of(call.scope))
    await call.api.work.presences.present(call.actor.tenant, presence)
    is_published = bool(body.definitions) and call.actor.has(Scope.OPERATOR)
    if is_published:
        await call.api.store.publish([definition_of(one) for one in body.definitions])
    log.debug("worker %s is here: %s, %s %s", worker, body.language, body.library, body.version)
    return Registered(
        protocol=PROTOCOL,
        worker=worker,
        tenant=call.tenant,
        published=is_published,
        present_ms=PRESENCE_SECONDS * 1000,
        lease_ms=Span(min=LEASE_MIN_SECONDS * 1000, max=LEASE_MAX_SECONDS * 1000, default=requests.LEASE_MS),
        wait_ms_max=requests.WAIT_MS_MAX,
        limits=Limits(
            value_bytes=VALUE_BYTES,
            value_levels=DEPTH_MAX,
            batch_bytes=requests.BODY_BYTES,
            batch_items=requests.ITEMS_MAX,
            claim_slots=requests.CLAIM_MAX,
            leases=requests.LEASES_MAX,
            types=requests.TYPES_MAX,
            key_chars=KEY_MAX,
        ),
    )


@operation("POST", "/workers/leave", tag=TAG, scope=Scope.WORK, audited=False, statuses=(204,), part="worker")
async def leave_worker(call: Call, query: OneTenant, headers: Protocol, body: requests.LeaveRequest) -> None:
    """Say that a worker has gone. Its leases are not touched."""
    worker = begin(call, query, headers, body.worker)
    await call.api.work.presences.absent(call.actor.tenant, worker)


def begin(call: Call, query: OneTenant, headers: Protocol, worker: str = "") -> str:
    """Begin a request of a worker: check the version, and find the tenant. Return the worker's own name.

    People see the names of all workers, and runs are leased to names: so a name of another tenant than the
    default one has that tenant behind it.
    """
    if headers.holdfast_protocol not in {None, str(PROTOCOL)}:
        detail = f"this server speaks version {PROTOCOL} of the worker protocol"
        raise Refusal(Code.PROTOCOL_VERSION, detail)
    call.client(query.tenant)  # finds the tenant of the request
    if call.actor.tenant == DEFAULT_TENANT or call.actor.has(Scope.OPERATOR):
        return worker
    return f"{worker}@{call.actor.tenant}"


def check_types(actor: Actor, types: tuple[str, ...]) -> None:
    """Refuse types that the patterns of the key do not allow, and those of the engine itself."""
    if own := [one for one in types if one.startswith(RESERVED)]:
        raise Refusal(Code.BAD_VALUE, f"types that begin with {RESERVED!r} belong to the engine: {own[0]!r}")
    if refused := [one for one in types if not may_claim(actor, one)]:
        detail = f"this key may execute {', '.join(actor.patterns)}, and not {refused[0]}"
        raise Refusal(Code.SCOPE_MISSING, detail)
