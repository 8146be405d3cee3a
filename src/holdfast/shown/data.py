"""Records as JSON data for machines. Keys are stable, instants are ISO 8601 in UTC, values are as stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.engine.explain.explanation import Explanation
from holdfast.records import (
    COST_UNIT,
    ApprovalRequest,
    ChildCounts,
    Decided,
    Error,
    Instant,
    Json,
    OutboxMessage,
    Run,
    RunningStep,
    Schedule,
    Step,
    TrailEntry,
    moment,
)
from holdfast.records.unreadable import Unreadable, raw

_MESSAGE_FIELDS = (
    "seq", "id", "status", "sink", "key", "tenant", "run", "step", "attempts", "held_by", "next_at",
    "created_at", "tried_at", "sent_at",
)  # fmt: skip


def child_counts_data(counts: ChildCounts | None) -> dict[str, Any] | None:
    """The children of a run by status; None without children."""
    if counts is None:
        return None
    return {
        "total": counts.total, "ended": counts.ended, "by_status": counts.by_status, "more": counts.more
    }  # fmt: skip


def run_data(run: Run) -> dict[str, Any]:
    """A run without its values: one line of `ls`."""
    return {
        "id": run.id,
        "type": run.type,
        "status": run.status,
        "tenant": run.tenant,
        "key": run.key,
        "priority": run.priority,
        "run_at": run.run_at,
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "crashes": run.crashes,
        "cursor": run.cursor,
        "current_step_seq": run.current_step_seq,
        "current_step_name": run.current_step_name,
        "waiting_on": [wait_data(step) for step in run.waiting_on],
        "leased_by": run.leased_by,
        "lease_until": run.lease_until,
        "pause_asked_by": run.pause_asked_by,
        "last_error": run.last_error,
        "fingerprint": run.fingerprint,
        "progress": raw_value(run.progress_json),
        "cost": run.cost,
        "budget": run.budget,
        "shared_budget": _shared_budget(run),
        "limit_key": run.limit_key,
        "labels": raw_value(run.labels_json) or {},
        "chain": run.chain,
        "present": run.present,
        "parent": run.parent,
        "parent_step": run.parent_step,
        "origin": run.origin,
        "timeout_at": run.timeout_at,
        "ttl_seconds": run.ttl_seconds,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "expires_at": run.expires_at,
        "deleted_at": run.deleted_at,
    }


def _shared_budget(run: Run) -> dict[str, Any] | None:
    """The budget that covers the run and others: of which run, how much, and how much of it is spent."""
    if run.account_budget_units is None:
        return None
    cost, budget = (run.account_cost_units or 0) / COST_UNIT, run.account_budget_units / COST_UNIT
    return {"run": run.account, "budget": budget, "cost": cost}


def whole_run_data(run: Run, steps: list[Step], children: Sequence[Run]) -> dict[str, Any]:
    """A run with its values, its children and all its steps."""
    return {
        **run_data(run),
        "params": raw_value(run.params_json),
        **result_data(run),
        "running": [running_data(one) for one in run.running],
        "children": [{"id": one.id, "type": one.type, "status": one.status} for one in children],
        "steps": [step_data(step) for step in steps],
    }


def running_data(one: RunningStep) -> dict[str, Any]:
    """A step that is executed now, and is not recorded yet."""
    return {"step": one.step, "attempt": one.attempt, "started_at": one.started_at}


def result_data(run: Run) -> dict[str, Any]:
    """The result or the error of a run; both are null while it is open."""
    return {"result": raw_value(run.result_json), "error": error_data(run.error)}


def step_data(step: Step) -> dict[str, Any]:
    return {
        "seq": step.seq,
        "step": step.key,
        "kind": step.kind,
        "status": step.status,
        "attempts": step.attempts,
        "max_attempts": step.max_attempts,
        "output": raw_value(step.output),
        "error": error_data(step.error),
        "cost": step.cost / COST_UNIT,
        "topic": step.topic,
        "due_at": _at(step.due_at),
        "started_at": _at(step.started_at),
        "finished_at": _at(step.finished_at),
        "child": step.child,
        "ask": raw_value(step.ask),
        "digest": step.digest,
    }


def approval_data(gate: ApprovalRequest) -> dict[str, Any]:
    """An open gate: one line of `approvals`."""
    return {
        "run": gate.run,
        "step": gate.step,
        "type": gate.type,
        "tenant": gate.tenant,
        "ask": gate.ask,
        "data": gate.data,
        "digest": gate.digest,
        "opened_at": gate.opened_at,
        "due_at": gate.due_at,
    }


def decided_data(decided: Decided) -> dict[str, Any]:
    """The decision of a gate, and whether it was made before."""
    return {
        "run": decided.run.id,
        "step": decided.step,
        **msgspec.structs.asdict(decided.decision),
        "repeated": decided.repeated,
        "status": decided.run.status,
    }


def wait_data(step: Step) -> dict[str, Any]:
    return {
        "step": step.key,
        "kind": step.kind,
        "topic": step.topic,
        "child": step.child,
        "since": _at(step.started_at),
        "due_at": _at(step.due_at),
    }


def trail_data(entry: TrailEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "run": entry.run,
        "type": entry.type,
        "at": entry.at,
        "data": raw_value(entry.data_json),
    }


def message_data(message: OutboxMessage) -> dict[str, Any]:
    """A message of the outbox, with its payload and its last error."""
    plain = {name: getattr(message, name) for name in _MESSAGE_FIELDS}
    return plain | {"payload": raw_value(message.payload_json), "error": error_data(message.error)}


def explanation_data(run: Run, explanation: Explanation) -> dict[str, Any]:
    """Why a run is not moving."""
    return {
        "id": run.id,
        "status": run.status,
        "reason": explanation.reason,
        "text": explanation.text,
        "data": explanation.data,
    }


def schedule_data(one: Schedule, times: list[Instant], trouble: str | None) -> dict[str, Any]:
    """A schedule, and the next times at which it fires, or why they are unknown here."""
    return {
        "name": one.name,
        "tenant": one.tenant,
        "type": one.type,
        "params": raw_value(one.params_json),
        "cron": one.cron,
        "zone": one.zone if one.cron is not None else None,
        "every_seconds": None if one.every is None else one.every.total_seconds(),
        "jitter_seconds": one.jitter.total_seconds(),
        "overlap": one.overlap,
        "catch_up": one.catch_up,
        "priority": one.priority,
        "max_attempts": one.max_attempts,
        "timeout_seconds": one.timeout_seconds,
        "ttl_seconds": one.ttl_seconds,
        "budget": None if one.budget_units is None else one.budget_units / COST_UNIT,
        "limit_key": one.limit_key,
        "labels": one.labels,
        "paused": one.paused,
        "paused_by": one.paused_by,
        "next_at": one.next_at,
        "next_times": [moment(at) for at in times],
        "trouble": trouble,
        "waiting": one.waiting,
        "fired": one.fired,
        "skipped": one.skipped,
        "last_at": one.last_at,
        "last_run": one.last_run,
        "last_skipped_at": one.last_skipped_at,
        "last_missed_at": one.last_missed_at,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
    }


def error_data(error: Error | None) -> dict[str, Any] | None:
    """An error of a run, a step or a message: always the same fields."""
    if error is None:
        return None
    fields = msgspec.structs.asdict(error)
    return fields | {"since": _at(error.since), "args": raw_value(error.args)}


def raw_value(text: Json | None) -> Any:
    """A stored value; one that cannot be read is `{"holdfast.unreadable": reason}`."""
    found = None if text is None else raw(text)
    return found.data if isinstance(found, Unreadable) else found


def raw_text(text: Json) -> str:
    """A stored value for people, not yet cut or escaped."""
    found = raw(text)
    return str(found) if isinstance(found, Unreadable) else text


def _at(at: Instant | None) -> Any:
    return None if at is None else moment(at)
