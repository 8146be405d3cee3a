"""The requests of a worker, other than items of a batch, as records of the store."""

from __future__ import annotations

import msgspec

from holdfast.errors import UsageError
from holdfast.records import (
    Ask,
    Definition,
    Json,
    Lease,
    Presence,
    Running,
    RunningStep,
    moment,
)
from holdfast.records.written import library_of

from .items import Origin, plan_step, progress
from .requests import (
    ClaimRequest,
    DefinitionData,
    RegisterRequest,
    RenewedLease,
    RunningRun,
)
from .values import Value, instant_of, optional_seconds, seconds, text_of, units_of

PROGRESS_BYTES = 32 * 1024  # more than any progress that a run may record


def ask_of(wire: ClaimRequest, worker: str, tenants: tuple[str, ...] | None) -> Ask:
    """Return the request of a worker for runs. tenants: None for all."""
    return Ask(
        worker=worker,
        types=tuple(dict.fromkeys(wire.types)),
        limit=wire.slots,
        lease_seconds=seconds(wire.lease_ms),
        tenants=tenants,
        runtime=wire.runtime,
        crashed=wire.crashed,
        bytes=wire.bytes,
    )


def presence_of(wire: RegisterRequest, worker: str, tenants: tuple[str, ...] | None) -> Presence:
    """Return the presence of a worker."""
    return Presence(
        worker=worker,
        types=tuple(dict.fromkeys(wire.types)),
        patterns=wire.patterns,
        tenants=tenants,
        runtime=wire.runtime,
        slots=wire.slots,
        stragglers=wire.stragglers,
        lacking=wire.lacking,
        library=library_of(wire.library, wire.version, wire.language),
    )


def definition_of(wire: DefinitionData) -> Definition:
    """Return a workflow that is to be published."""
    return Definition(
        type=wire.type,
        kind=wire.kind,
        max_attempts=wire.max_attempts,
        timeout_seconds=optional_seconds(wire.timeout_ms),
        description=wire.description,
        steps=tuple(map(plan_step, wire.steps)),
        budget=None if wire.budget is None else units_of(wire.budget),
        covers_children=wire.covers_children,
        params_schema=text_of(wire.params_schema, "params_schema"),
        result_schema=text_of(wire.result_schema, "result_schema"),
    )


def renewed(wire: RenewedLease, origin: Origin) -> Lease:
    """Return one lease of a heartbeat."""
    return Lease(
        run=wire.run,
        tenant=origin.tenant,
        fence=wire.fence,
        known=wire.known,
        started_at=instant_of(wire.started_ms, origin.claimed_at),
        heartbeat=wire.heartbeat,
        survived=wire.survived,
        progress=_readable(wire.progress),
    )


def _readable(value: Value) -> Json | None:
    """Return a progress; None for one that is wrong: no lease may end because of it."""
    if isinstance(value, msgspec.Raw) and len(memoryview(value)) > PROGRESS_BYTES:
        return None
    try:
        return progress(value)
    except UsageError:
        return None


def running_of(wire: RunningRun, origin: Origin) -> Running:
    """Return the running steps of one run."""
    steps = [
        RunningStep(
            step=one.step,
            attempt=one.attempt,
            started_at=moment(instant_of(one.started_ms, origin.claimed_at) or 0),
        )
        for one in wire.steps
    ]
    return Running(
        run=wire.run,
        fence=wire.fence,
        started_at=instant_of(wire.started_ms, origin.claimed_at),
        steps=tuple(steps),
    )
