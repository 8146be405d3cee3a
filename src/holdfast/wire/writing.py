"""Records of the store as answers to a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from msgspec import UNSET, Raw

from holdfast.engine.tracing.carried import carried
from holdfast.lifecycle import SETTLED, WAITS
from holdfast.machine.durations import micros
from holdfast.records import (
    Answer,
    Claim,
    Held,
    Instant,
    Item,
    Json,
    LeaseState,
    Loaded,
    Run,
    Step,
    Verdict,
)
from holdfast.records.unreadable import MARK

from .answers import (
    APPLIED,
    CANCELLED,
    HELD,
    LOST,
    PAUSED,
    UNREADABLE,
    Kept,
    Leased,
    LeaseNews,
    LoadedPage,
    RecordedStep,
    RunRecord,
    StateNews,
)
from .items import Origin
from .values import NULL, cost_of, lease_time, milliseconds, object_of, value_of

_UNREADABLE = b'{"' + MARK.encode() + b'"'
STATES: Mapping[Answer, str] = {
    Answer.APPLIED: HELD,
    Answer.PAUSED: LOST,
    Answer.CANCELLED: CANCELLED,
    Answer.LOST: LOST,
    Answer.SEALED: UNREADABLE,
}


def origin_of(claim: Claim, lease_seconds: float) -> Origin:
    """Return the facts of a new lease that its token carries."""
    at = claim.lease_until - micros(lease_seconds)
    return Origin(claim.tenant, at, claim.created_at, claim.parent is not None)


def leased(claim: Claim, origin: Origin, token: str, lease_ms: float) -> Leased:
    """Return a claimed run as its holder gets it."""
    at = origin.claimed_at
    return Leased(
        run=claim.id,
        type=claim.type,
        kind=claim.kind,
        tenant=claim.tenant,
        fence=claim.fence,
        token=token,
        lease_ms=lease_ms,
        attempt=claim.attempt,
        max_attempts=claim.max_attempts,
        crashes=claim.crashes,
        claimed_at=at,
        created_ms=(claim.created_at - at) / 1000,
        due_ms=(claim.run_at - at) / 1000,
        timeout_ms=lease_time(claim.timeout_at, at),
        params=_given(None if claim.unread else claim.params),
        labels=object_of(claim.labels_json),
        steps=steps(claim.steps, at),
        unread=claim.unread,
        woken_by=tuple([one.key for one in claim.steps if _woke(one, claim.run_at)]),
        logs=claim.logs,
        parent=claim.parent,
        traceparent=carried(claim.trace).parent,
        trace=claim.trace,
        cost=cost_of(claim.cost) or 0.0,
        budget=cost_of(claim.budget),
        left=cost_of(claim.left),
        account=claim.account,
    )


def unreadable_in(lease: Leased) -> str | None:
    """Return why a value of a lease cannot be read; None: all of them can."""
    parts = [("its params", lease.params), ("its labels", lease.labels)]
    for one in lease.steps:
        for name, value in (
            ("output", one.output),
            ("error", one.error),
            ("ask", one.ask),
            ("wake", one.wake),
        ):
            if value is not UNSET:
                parts.append((f"the {name} of step {one.key!r}", value))
    for what, value in parts:
        if bytes(value).startswith(_UNREADABLE):
            return f"{what} cannot be read: it is no JSON"
    return None


def _woke(step: Step, run_at: Instant) -> bool:
    """Return True when the outcome of this wait put the run into the queue: both have one time."""
    return step.kind in WAITS and step.status in SETTLED and step.finished_at == run_at


def _given(text: Json | None) -> Raw:
    found = value_of(text)
    return NULL if found is UNSET else found


def steps(found: Iterable[Step], claimed_at: Instant) -> tuple[RecordedStep, ...]:
    """Return recorded steps as they are sent, with times of the lease."""
    return tuple([_step(one, claimed_at) for one in found])


def _step(step: Step, at: Instant) -> RecordedStep:
    return RecordedStep(
        seq=step.seq,
        key=step.key,
        kind=step.kind,
        status=step.status,
        attempts=step.attempts,
        output=value_of(step.output),
        error=value_of(step.error_json),
        cost=cost_of(step.cost) or 0,
        topic=step.topic,
        due_ms=lease_time(step.due_at, at),
        started_ms=lease_time(step.started_at, at),
        finished_ms=lease_time(step.finished_at, at),
        fence=step.fence,
        max_attempts=step.max_attempts,
        timeout_ms=milliseconds(step.timeout_seconds),
        ask=value_of(step.ask),
        digest=step.digest,
        child=step.child,
        wake=value_of(step.wake),
        waits=step.waits,
    )


def page(loaded: Loaded, record: Run | None, claimed_at: Instant) -> LoadedPage:
    """Return one page of a large run."""
    return LoadedPage(
        params=_given(loaded.params),
        labels=object_of(loaded.labels_json),
        steps=steps(loaded.steps, claimed_at),
        more=loaded.more,
        record=None if record is None else _record(record),
    )


def _record(run: Run) -> RunRecord:
    return RunRecord(
        priority=run.priority,
        limit_key=run.limit_key,
        timeout_ms=milliseconds(run.timeout_seconds),
        ttl_ms=milliseconds(run.ttl_seconds),
        budget=run.budget,
        parent_step=run.parent_step,
        error=_given(run.error_json),
        last_error=run.last_error,
    )


def lease_news(run: UUID, held: Held | None, claimed_at: Instant) -> LeaseNews:
    """Return the news of a heartbeat about one lease; None: the worker does not hold it."""
    if held is None:
        return LeaseNews(run=run, state=LOST)
    return LeaseNews(
        run=run,
        state=STATES[held.answer],
        reason=held.reason,
        renewed=held.renewed,
        pause=held.pause_asked,
        settled=steps(held.settled, claimed_at),
        more=held.more,
    )


def state_news(run: UUID, state: LeaseState | None) -> StateNews:
    """Return the state of one lease; None: the worker does not hold it."""
    if state is None:
        return StateNews(run=run, state=LOST, pause=False)
    return StateNews(run=run, state=STATES[state.answer], pause=state.pause_asked)


def applied(item: Item, verdict: Verdict, claimed_at: Instant) -> dict[str, Any]:
    """Return the fields of the answer to an item that was applied."""
    kept = {key for key, _ in verdict.kept}
    children = {one.key: one.child.id for one in item.steps if one.child is not None and one.key not in kept}
    starts = getattr(item.move, "starts", ())
    return {
        "run": item.run,
        "seq": item.number,
        "answer": PAUSED if verdict.answer is Answer.PAUSED else APPLIED,
        "status": verdict.status,
        "kept": tuple([Kept(key=key, output=_given(output)) for key, output in verdict.kept]),
        "settled": steps(verdict.settled, claimed_at),
        "known": verdict.seq,
        "more": verdict.more,
        "children": children,
        "next": starts[0].id if starts else None,
        "left": cost_of(verdict.left),
    }
