"""Records as JSON for machines. Keys are stable, instants are ISO 8601 in UTC, values are as stored."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.records import COST_UNIT, ApprovalRequest, Decided, Instant, Json, Run, Step, TrailEntry, moment
from holdfast.records.reading import Unreadable, raw


def print_json(value: Any) -> None:
    """One document on one line, in UTF-8 whatever the terminal speaks."""
    click.echo(terminal_safe(msgspec.json.encode(value).decode()).encode())


def terminal_safe(text: Json) -> Json:
    """The same JSON, with characters that would steer a terminal written as escapes."""
    if text.isprintable():
        return text
    odd = "".join(char for char in set(text) if not char.isprintable() and unicodedata.category(char) != "Zs")
    return re.sub(f"[{re.escape(odd)}]", _escape, text) if odd else text


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(found[0])[1:-1]  # a pair of them


def run_data(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
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
        "progress": raw_value(run.progress_json),
        "cost": run.cost,
        "budget": run.budget,
        "limit_key": run.limit_key,
        "labels": raw_value(run.labels_json) or {},
        "chain": run.chain,
        "present": run.present,
        "parent": run.parent,
        "parent_step": run.parent_step,
        "timeout_at": run.timeout_at,
        "ttl_seconds": run.ttl_seconds,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "expires_at": run.expires_at,
        "deleted_at": run.deleted_at,
    }


def whole_run_data(run: Run, steps: list[Step], children: Sequence[Run]) -> dict[str, Any]:
    """A run with its values, its children and all its steps."""
    return {
        **run_data(run),
        "params": raw_value(run.params_json),
        **ending_data(run),
        "children": [{"id": one.id, "type": one.type, "status": one.status} for one in children],
        "steps": [step_data(step) for step in steps],
    }


def ending_data(run: Run) -> dict[str, Any]:
    """What came of it."""
    return {"result": raw_value(run.result_json), "error": raw_value(run.error_json)}


def step_data(step: Step) -> dict[str, Any]:
    return {
        "seq": step.seq,
        "step": step.key,
        "kind": step.kind,
        "status": step.status,
        "attempts": step.attempts,
        "max_attempts": step.max_attempts,
        "output": raw_value(step.output),
        "error": raw_value(step.error),
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
    """What stands at a gate, and whether it did before."""
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
