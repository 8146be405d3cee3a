"""Records of the store as requests of a worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET, Raw

import holdfast
from holdfast.arguments import FOREVER_SECONDS
from holdfast.engine.definitions import RESERVED
from holdfast.engine.outbox.messages import event_id
from holdfast.engine.worker.presence import LANGUAGE, LIBRARY
from holdfast.errors import UsageError
from holdfast.records import (
    Ask,
    Definition,
    Instant,
    Item,
    Json,
    Lease,
    NewEvent,
    NewRun,
    Outbound,
    PlanStep,
    Presence,
    Running,
    RunningStep,
    StepWrite,
    instant,
    moment,
)
from holdfast.records.moves import (
    Advance,
    BeginPlan,
    Checkpoint,
    Complete,
    Fail,
    HolderMove,
    Park,
    Release,
    Retry,
)
from holdfast.wire.requests import (
    LACKING_MAX,
    TYPES_MAX,
    BatchItem,
    ChildData,
    ClaimRequest,
    ContinueData,
    DefinitionData,
    EventData,
    MessageData,
    PlanStepData,
    RegisterRequest,
    RenewedLease,
    RunningRun,
    RunningStepData,
    StepData,
)
from holdfast.wire.values import Value, cost_of, lease_time, milliseconds

from .book import Entry

_FOREVER_US = FOREVER_SECONDS * 1_000_000


def own_types(types: Sequence[str]) -> tuple[str, ...]:
    """Return the types without those of the engine itself, which the server executes."""
    return tuple([one for one in types if not one.startswith(RESERVED)])


def claim_request(ask: Ask, slots: int, wait_seconds: float) -> ClaimRequest:
    """Return the request for at most `slots` runs."""
    return ClaimRequest(
        worker=ask.worker,
        runtime=ask.runtime,
        types=ask.types,
        slots=slots,
        lease_ms=_ms(ask.lease_seconds),
        wait_ms=_ms(wait_seconds),
        crashed=ask.crashed,
        bytes=ask.bytes,
    )


def registration(presence: Presence, definitions: Sequence[Definition]) -> RegisterRequest:
    """Return the introduction of a worker, with the workflows that it publishes."""
    return RegisterRequest(
        worker=presence.worker,
        language=LANGUAGE,
        library=LIBRARY,
        version=holdfast.__version__,
        runtime=presence.runtime,
        types=own_types(presence.types),
        slots=presence.slots,
        patterns=presence.patterns,
        stragglers=presence.stragglers,
        lacking={type_: tasks[:LACKING_MAX] for type_, tasks in islice(presence.lacking.items(), TYPES_MAX)},
        definitions=tuple(map(_definition, definitions)),
    )


def _definition(one: Definition) -> DefinitionData:
    return DefinitionData(
        type=one.type,
        kind="plan" if one.kind == "plan" else "code",
        max_attempts=one.max_attempts,
        timeout_ms=milliseconds(one.timeout_seconds),
        description=one.description,
        steps=tuple(map(_plan_step, one.steps)),
        budget=cost_of(one.budget),
        covers_children=one.covers_children,
        params_schema=_value(one.params_schema),
        result_schema=_value(one.result_schema),
    )


def _plan_step(one: PlanStep) -> PlanStepData:
    return PlanStepData(
        name=one.name,
        kind=one.kind,
        max_attempts=one.max_attempts,
        topic=one.topic,
        timeout_ms=milliseconds(one.timeout_seconds),
        ask=_value(one.ask),
        on_timeout="approve" if one.on_timeout == "approve" else "reject",
    )


def renewed(lease: Lease, held: Entry) -> RenewedLease:
    """Return one lease of a heartbeat."""
    return RenewedLease(
        run=lease.run,
        fence=lease.fence,
        token=held.token,
        known=lease.known,
        started_ms=lease_time(lease.started_at, held.claimed_at),
        heartbeat=lease.heartbeat,
        survived=lease.survived,
        progress=_value(lease.progress),
    )


def running(row: Running, held: Entry) -> RunningRun:
    """Return the steps of one run that are executed now."""
    return RunningRun(
        run=row.run,
        fence=row.fence,
        token=held.token,
        started_ms=lease_time(row.started_at, held.claimed_at),
        steps=tuple([_running_step(one, held.claimed_at) for one in row.steps]),
    )


def _running_step(one: RunningStep, claimed_at: Instant) -> RunningStepData:
    ms = lease_time(instant(one.started_at), claimed_at) or 0.0
    return RunningStepData(step=one.step, attempt=max(1, one.attempt), started_ms=ms)


def batch_item(item: Item, held: Entry) -> BatchItem:
    """Return one write of a run. UsageError for what the protocol cannot say."""
    at = held.claimed_at
    return BatchItem(
        run=item.run,
        fence=item.fence,
        token=held.token,
        seq=item.number,
        steps=tuple([_step(one, at) for one in item.steps]),
        logs=tuple([Raw(one.data.encode()) for one in item.trail]),
        events=tuple([_event(one, held) for one in item.events]),
        messages=tuple(map(_message, item.outbox)),
        progress=_value(item.progress),
        known=item.known,
        started_ms=lease_time(item.started_at, at),
        lease_ms=_ms(item.lease_seconds),
        shares=item.shares,
        traceparent=item.trace,
        **_move(item.move),
    )


def _move(move: HolderMove) -> dict[str, Any]:
    """Return the fields of a move."""
    match move:
        case Checkpoint():
            return {"op": "checkpoint"}
        case Park():
            return {"op": "park"}
        case Complete() if move.starts:
            (new,) = move.starts
            data = ContinueData(params=Raw(new.params.encode()), traceparent=new.trace)
            return {"op": "complete", "continue_as": data}
        case Complete():
            return {"op": "complete", "result": Raw(move.result.encode())}
        case Fail():
            return {"op": "fail", "error": Raw(move.error.encode()), "last_error": move.last_error}
        case Retry():
            return {
                "op": "retry",
                "error": _value(move.error),
                "last_error": move.last_error,
                "delay_ms": _ms(move.delay_seconds),
                "in_place": move.in_place,
                "refund": move.refund,
            }
        case Release():
            return {"op": "release", "before": move.before, "cost_max": cost_of(move.cost_max)}
        case Advance():
            return {"op": "advance", "result": _value(move.result), "in_place": move.in_place}
        case BeginPlan():
            return {"op": "begin", "plan": tuple(map(_plan_step, move.plan))}


def _step(write: StepWrite, at: Instant) -> StepData:
    due_ms, until = None, None
    if write.due_at is not None:
        if abs(write.due_at - at) < _FOREVER_US:
            due_ms = lease_time(write.due_at, at)
        else:
            until = moment(write.due_at)
    return StepData(
        key=write.key,
        kind=write.kind,
        status=write.status,
        output=UNSET if write.child is not None else _value(write.output),
        error=_value(write.error),
        attempts=write.attempts,
        max_attempts=write.max_attempts,
        cost=cost_of(write.cost) or 0,
        topic=write.topic,
        delay_ms=milliseconds(write.delay_seconds) if write.due_at is None else None,
        due_ms=due_ms,
        until=until,
        since_now=write.since_now,
        started_ms=lease_time(write.started_at, at),
        ask=_value(write.ask),
        on_timeout="approve" if write.on_timeout == "approve" else "reject",
        child=None if write.child is None else _child(write.child),
    )


def _child(new: NewRun) -> ChildData:
    if new.ttl_seconds is not None and math.isinf(new.ttl_seconds):
        raise UsageError(f"child {new.type}: ttl is for ever: over HTTP give at most 1,000 years")
    return ChildData(
        type=new.type,
        params=Raw(new.params.encode()),
        priority=new.priority,
        delay_ms=milliseconds(new.delay_seconds),
        run_at=None if new.run_at is None else moment(new.run_at),
        timeout_ms=milliseconds(new.timeout_seconds),
        max_attempts=new.max_attempts,
        ttl_ms=milliseconds(new.ttl_seconds),
        budget=cost_of(new.budget),
        limit_key=new.limit_key,
        labels=None if new.labels is None else msgspec.json.decode(new.labels, type=dict[str, str]),
        covers_children=new.covers_children,
        traceparent=new.trace,
    )


def _event(event: NewEvent, held: Entry) -> EventData:
    """Return an event. The server makes its id from the run and the name."""
    start = event_id(held.run, held.created_at, "")
    return EventData(
        name=event.id.removeprefix(start), topic=event.topic, payload=Raw(event.payload.encode())
    )


def _message(message: Outbound) -> MessageData:
    return MessageData(
        sink=message.sink,
        payload=Raw(message.payload.encode()),
        key=message.key,
        step=message.step or "",
        number=message.number,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _value(text: Json | None) -> Value:
    return UNSET if text is None else Raw(text.encode())
