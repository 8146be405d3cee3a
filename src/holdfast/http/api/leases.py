"""Leases of workers in any language: claim runs, keep them, and read what a claim left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from holdfast.http.access import unauthenticated
from holdfast.http.call import Call
from holdfast.http.operation import operation
from holdfast.http.problems import Code, Refusal
from holdfast.http.streams import until_done
from holdfast.http.work.claims import Found
from holdfast.http.work.work import tenants_of
from holdfast.lifecycle import Status
from holdfast.records import Answer, Ask, Lease, LeaseState, Scope
from holdfast.wire import requests
from holdfast.wire.answers import Claimed, Heartbeat, LoadedPage, Shown, States
from holdfast.wire.items import Origin
from holdfast.wire.reading import ask_of, renewed, running_of
from holdfast.wire.requests import HeldLease
from holdfast.wire.values import seconds
from holdfast.wire.writing import lease_news, page, state_news

from .fields import OneTenant
from .workers import TAG, Protocol, begin, check_types

T = TypeVar("T")

CLAIM_BYTES = 512 * 1024
LEASES_BYTES = 16 * 1024 * 1024


@operation(
    "POST", "/leases/claim", tag=TAG, scope=Scope.WORK, audited=False, body_bytes=CLAIM_BYTES, part="worker"
)
async def claim(call: Call, query: OneTenant, headers: Protocol, body: requests.ClaimRequest) -> Claimed:
    """Get runs to execute, at most `slots`; wait up to `wait_ms` for the first one.

    Each lease has the params and the recorded steps of its run, and the fence and the token that go with
    every write. No lease after `wait_ms` is no error. `drain` says that this server is stopping.
    """
    worker = begin(call, query, headers, body.worker)
    check_types(call.actor, body.types)
    call.api.work.keeping.begin()
    ask = ask_of(body, worker, tenants_of(call.scope))
    clock = call.api.world.monotonic
    arrived_at = clock()
    found = Found([], arrived_at) if call.api.stopping else await _claimed(call, ask, seconds(body.wait_ms))
    leases = await call.api.work.leases(found.claims, ask.lease_seconds)
    waited_ms = round(1000 * max(0.0, found.asked_at - arrived_at), 3)
    return Claimed(leases=leases, waited_ms=waited_ms, drain=call.api.stopping)


async def _claimed(call: Call, ask: Ask, wait_seconds: float) -> Found:
    claims = call.api.work.claims
    if not wait_seconds:
        return await claims.claim(ask, 0.0)
    return await _polled(call, lambda: claims.claim(ask, wait_seconds))


async def _polled(call: Call, wait: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait for the answer of a long poll. It ends when the worker leaves, and when its key is revoked."""
    streams, actor = call.api.streams, call.actor
    with streams.one(actor):
        waiting = asyncio.ensure_future(wait())
        release = streams.stopped(actor, waiting)
        try:
            await until_done(call, waiting)
        finally:
            release()
            waiting.cancel()
    if waiting.cancelled():
        raise unauthenticated()
    return waiting.result()


@operation("POST", "/leases/load", tag=TAG, scope=Scope.WORK, audited=False, part="worker")
async def load(call: Call, query: OneTenant, headers: Protocol, body: requests.LoadRequest) -> LoadedPage:
    """Read params and recorded steps of a run that is held: one page, behind the step `after`."""
    begin(call, query, headers)
    origin = await origin_of(call, body)
    if origin is None:
        raise lost()
    lease = Lease(run=body.run, tenant=origin.tenant, fence=body.fence)
    found = await call.api.store.load(lease, body.after, body.bytes)
    if found.answer is Answer.SEALED:
        raise Refusal(Code.UNREADABLE, found.reason)
    if found.answer is not Answer.APPLIED:
        raise lost(is_cancelled=found.answer is Answer.CANCELLED)
    record = await call.api.store.get(body.run, origin.tenant) if body.record else None
    return page(found, record, origin.claimed_at)


@operation(
    "POST",
    "/leases/heartbeat",
    tag=TAG,
    scope=Scope.WORK,
    audited=False,
    body_bytes=LEASES_BYTES,
    part="worker",
    urgent=True,
)
async def heartbeat(
    call: Call, query: OneTenant, headers: Protocol, body: requests.HeartbeatRequest
) -> Heartbeat:
    """Extend leases, and learn of cancels, pauses and settled waits. Nothing else is changed.

    `strays` are runs that are leased to this worker and that it did not name: the answer to a claim was lost.
    """
    worker = begin(call, query, headers, body.worker)
    origins = [await origin_of(call, one) for one in body.leases]
    held = [(one, origin) for one, origin in zip(body.leases, origins, strict=True) if origin is not None]
    leases = await call.api.bodies.apart(call.request.size, _renewals, held, urgent=True)
    work = call.api.work
    renewal = await work.renew(worker, leases, seconds(body.lease_ms))
    answers = iter(renewal.held)
    news = [
        lease_news(
            one.run, None if origin is None else next(answers), 0 if origin is None else origin.claimed_at
        )
        for one, origin in zip(body.leases, origins, strict=True)
    ]
    strays = await work.strays(renewal.strays, call.scope, call.actor)
    return Heartbeat(leases=tuple(news), strays=strays, drain=call.api.stopping)


@operation(
    "POST", "/leases/states", tag=TAG, scope=Scope.WORK, audited=False, body_bytes=LEASES_BYTES, part="worker"
)
async def states(call: Call, query: OneTenant, headers: Protocol, body: requests.StatesRequest) -> States:
    """Ask whether leases still hold, and whether a pause is wanted; extend nothing.

    With `wait_ms` the answer comes as soon as one of them has changed, else after that time.
    """
    begin(call, query, headers)
    origins = [await origin_of(call, one) for one in body.leases]
    known = [one for one, origin in zip(body.leases, origins, strict=True) if origin is not None]
    # A lease that is lost already is news.
    wait = seconds(body.wait_ms) if len(known) == len(origins) and not call.api.stopping else 0.0
    found = iter(await _states(call, known, wait))
    news = [
        state_news(one.run, None if origin is None else next(found))
        for one, origin in zip(body.leases, origins, strict=True)
    ]
    return States(leases=tuple(news), drain=call.api.stopping)


async def _states(call: Call, leases: Sequence[requests.StateOf], wait_seconds: float) -> list[LeaseState]:
    pairs, paused = [(one.run, one.fence) for one in leases], [one.pause for one in leases]
    reading = partial(call.api.work.moved.states, pairs, paused, wait_seconds)
    return await (_polled(call, reading) if wait_seconds else reading())


@operation(
    "POST",
    "/leases/running",
    tag=TAG,
    scope=Scope.WORK,
    audited=False,
    body_bytes=LEASES_BYTES,
    part="worker",
)
async def running(call: Call, query: OneTenant, headers: Protocol, body: requests.RunningRequest) -> Shown:
    """Show people the steps that are executed now."""
    worker = begin(call, query, headers, body.worker)
    origins = [await origin_of(call, one) for one in body.runs]
    rows = [
        running_of(one, origin) for one, origin in zip(body.runs, origins, strict=True) if origin is not None
    ]
    written = iter(await call.api.store.show_running(worker, rows) if rows else ())
    return Shown(written=tuple([origin is not None and next(written) for origin in origins]))


def _renewals(held: Sequence[tuple[requests.RenewedLease, Origin]]) -> list[Lease]:
    return [renewed(one, origin) for one, origin in held]


async def origin_of(call: Call, lease: HeldLease) -> Origin | None:
    """Return the facts of a lease; None when its token is wrong, or it is another tenant's.

    The store is not asked about the run.
    """
    found = await call.api.signing.lease(lease.token, lease.run, lease.fence)
    return found if found is not None and call.reaches(found.tenant) else None


def lost(*, is_cancelled: bool = False) -> Refusal:
    """Return the refusal of a worker that does not hold the run."""
    return Refusal(Code.LEASE_LOST, run_status=Status.CANCELLED if is_cancelled else None)
