"""start, publish: intents become runs, each once."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import DuplicateRun, HoldfastError, KeyReused
from holdfast.records import MAX_ATTEMPTS, MAX_CRASHES, Definition, Instant, NewRun, Started
from holdfast.stores.durations import bounded, micros

from .rows import RunRow, State, check


def start(state: State, runs: Sequence[NewRun], now: Instant) -> list[Started | HoldfastError]:
    for new in runs:
        _refuse_bad(new)
    fence = state.trail_seq  # greater than all there were, for each growth of a fence is a row of the trail
    return [_start_one(state, new, fence, now) for new in runs]


def _refuse_bad(new: NewRun) -> None:
    """Find bad content before the first write: all of them are one commit."""
    for seconds in (new.delay_seconds, new.timeout_seconds, new.ttl_seconds):
        micros(seconds or 0.0)


def _start_one(state: State, new: NewRun, fence: int, now: Instant) -> Started | HoldfastError:
    if new.key is not None and (taken := state.keys.get((new.tenant, new.key))) is not None:
        same = state.runs[taken].digest == new.digest
        return Started(taken, created=False) if same else KeyReused(new.key, taken)
    if new.id in state.runs:
        return DuplicateRun(new.id)
    row = _row(state, new, fence, now)
    check(row)
    state.runs[row.id] = row
    if row.key is not None:
        state.keys[row.tenant, row.key] = row.id
    state.note(row, "created", now, type=row.type)
    return Started(row.id, created=True)


def _row(state: State, new: NewRun, fence: int, now: Instant) -> RunRow:
    known = state.definitions.get(new.type, Definition(type=new.type))
    timeout = known.timeout_seconds if new.timeout_seconds is None else new.timeout_seconds
    run_at = new.run_at if new.run_at is not None else now + micros(new.delay_seconds or 0)
    return RunRow(
        id=new.id, tenant=new.tenant, type=new.type, params=new.params, digest=new.digest, key=new.key,
        priority=new.priority, run_at=run_at,
        max_attempts=_attempts(new, known), max_crashes=MAX_CRASHES,
        timeout_seconds=None if timeout is None else bounded(timeout),
        timeout_at=None if timeout is None else now + micros(timeout),
        ttl_seconds=None if new.ttl_seconds is None else bounded(new.ttl_seconds),
        budget=new.budget, limit_key=new.limit_key, parent=new.parent,
        labels=new.labels, created_at=now, updated_at=now, mark=state.event_seq, fence=fence,
    )  # fmt: skip


def _attempts(new: NewRun, known: Definition) -> int:
    return new.max_attempts if new.max_attempts is not None else known.max_attempts or MAX_ATTEMPTS


def publish(state: State, definitions: Sequence[Definition]) -> None:
    for definition in definitions:
        state.definitions[definition.type] = definition
