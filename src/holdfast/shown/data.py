"""Records as JSON data for machines: each function makes the shape of one record. See shapes.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.engine.explain.explanation import Explanation
from holdfast.records import (
    COST_UNIT,
    ApiKey,
    ApprovalRequest,
    ChildCounts,
    Decided,
    Definition,
    Error,
    Instant,
    Json,
    OutboxMessage,
    Presence,
    Run,
    RunningStep,
    Schedule,
    Stats,
    Step,
    TrailEntry,
    moment,
)
from holdfast.records.unreadable import Unreadable, raw, read

from .shapes import (
    NULL,
    ApprovalData,
    ChildCountsData,
    ChildData,
    DecidedData,
    DefinitionData,
    ErrorData,
    ExplanationData,
    KeyData,
    ListedRunData,
    MessageData,
    PresenceData,
    ResultData,
    RunData,
    RunningData,
    RunValuesData,
    ScheduleData,
    SharedBudgetData,
    StatsData,
    StepData,
    TrailEntryData,
    Value,
    WaitData,
    WholeRunData,
)

_MESSAGE_FIELDS = (
    "seq", "id", "status", "sink", "key", "tenant", "run", "step", "attempts", "held_by", "next_at",
    "created_at", "tried_at", "sent_at",
)  # fmt: skip
_SAME_FIELDS = (
    "id", "type", "kind", "status", "tenant", "key", "priority", "run_at", "attempt", "max_attempts",
    "crashes", "fence", "cursor", "current_step_seq", "current_step_name", "leased_by", "lease_until",
    "pause_asked_by", "last_error", "fingerprint", "cost", "budget", "limit_key", "chain", "present",
    "parent", "parent_step", "origin", "timeout_at", "timeout_seconds", "ttl_seconds", "created_at",
    "updated_at", "started_at", "finished_at", "expires_at", "deleted_at",
)  # fmt: skip
_same_fields = attrgetter(*_SAME_FIELDS)
_EMPTY = msgspec.Raw(b"{}")


def child_counts_data(counts: ChildCounts | None) -> ChildCountsData | None:
    """The children of a run by status; None without children."""
    if counts is None:
        return None
    return ChildCountsData(
        total=counts.total, ended=counts.ended, by_status=counts.by_status, more=counts.more
    )


def run_data(run: Run) -> RunData:
    """A run without its values: one line of `ls`."""
    return RunData(**_run_fields(run))


def listed_run_data(run: Run, counts: ChildCounts | None) -> ListedRunData:
    """A run without its values, with its children counted."""
    error = None if run.error is None else msgspec.structs.replace(run.error, traceback="", args=None)
    return ListedRunData(**_run_fields(run), error=error_data(error), child_counts=child_counts_data(counts))


def listed_values_data(run: Run, counts: ChildCounts | None) -> ListedRunData:
    """A run of a list, with its values."""
    return ListedRunData(
        **_run_fields(run),
        error=error_data(run.error),
        child_counts=child_counts_data(counts),
        params=raw_value(run.params_json),
        result=raw_value(run.result_json),
    )


def run_values_data(run: Run) -> RunValuesData:
    """A run with its values and the steps that are executed now."""
    return RunValuesData(**_run_fields(run), **_value_fields(run))


def whole_run_data(
    run: Run, steps: Sequence[Step], children: Sequence[Run], counts: ChildCounts | None
) -> WholeRunData:
    """A run with its values, its children and all its steps."""
    return WholeRunData(
        **_run_fields(run),
        **_value_fields(run),
        children=tuple(ChildData(id=one.id, type=one.type, status=one.status) for one in children),
        steps=tuple(step_data(step) for step in steps),
        child_counts=child_counts_data(counts),
    )


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        **dict(zip(_SAME_FIELDS, _same_fields(run), strict=True)),
        "waiting_on": tuple(wait_data(step) for step in run.waiting_on),
        "progress": raw_value(run.progress_json),
        "shared_budget": _shared_budget(run),
        "labels": _labels(run.labels_json),
    }


def _value_fields(run: Run) -> dict[str, Any]:
    return {
        "params": raw_value(run.params_json),
        "result": raw_value(run.result_json),
        "error": error_data(run.error),
        "running": tuple(running_data(one) for one in run.running),
    }


def _shared_budget(run: Run) -> SharedBudgetData | None:
    if run.account_budget_units is None:
        return None
    cost, budget = (run.account_cost_units or 0) / COST_UNIT, run.account_budget_units / COST_UNIT
    return SharedBudgetData(run=run.account, budget=budget, cost=cost)


def running_data(one: RunningStep) -> RunningData:
    """A step that is executed now, and is not recorded yet."""
    return RunningData(step=one.step, attempt=one.attempt, started_at=one.started_at)


def result_fields(run: Run) -> dict[str, Any]:
    """The fields of `ResultData`; result and error are None while the run is open."""
    return {
        "id": run.id,
        "type": run.type,
        "status": run.status,
        "result": raw_value(run.result_json),
        "error": error_data(run.error),
    }


def result_data(run: Run) -> ResultData:
    """The result or the error of a run."""
    return ResultData(**result_fields(run))


def step_data(step: Step) -> StepData:
    return StepData(
        seq=step.seq,
        step=step.key,
        kind=step.kind,
        status=step.status,
        attempts=step.attempts,
        max_attempts=step.max_attempts,
        output=raw_value(step.output),
        error=error_data(step.error),
        cost=step.cost / COST_UNIT,
        topic=step.topic,
        due_at=_at(step.due_at),
        started_at=_at(step.started_at),
        finished_at=_at(step.finished_at),
        child=step.child,
        ask=raw_value(step.ask),
        digest=step.digest,
        left_out=step.left_out,
    )


def approval_data(gate: ApprovalRequest) -> ApprovalData:
    """An open gate: one line of `approvals`."""
    return ApprovalData(
        run=gate.run,
        step=gate.step,
        type=gate.type,
        tenant=gate.tenant,
        ask=gate.ask,
        data=_asked_data(gate.ask_json),
        digest=gate.digest,
        opened_at=gate.opened_at,
        due_at=gate.due_at,
    )


def _asked_data(text: Json | None) -> Value:
    """The data of a question, exactly as it is stored."""
    found = read(text or "{}", dict[str, msgspec.Raw])
    if isinstance(found, Unreadable):
        return msgspec.Raw(msgspec.json.encode(found.data))
    data = found.get("data")
    return NULL if data is None else raw_value(bytes(data).decode())


def decided_data(decided: Decided) -> DecidedData:
    """The decision of a gate, and whether it was made before."""
    return DecidedData(
        run=decided.run.id,
        step=decided.step,
        **msgspec.structs.asdict(decided.decision),
        repeated=decided.repeated,
        status=decided.run.status,
    )


def wait_data(step: Step) -> WaitData:
    return WaitData(
        step=step.key,
        kind=step.kind,
        topic=step.topic,
        child=step.child,
        since=_at(step.started_at),
        due_at=_at(step.due_at),
    )


def trail_data(entry: TrailEntry) -> TrailEntryData:
    data = raw_value(entry.data_json)
    return TrailEntryData(
        seq=entry.seq, run=entry.run, type=entry.type, at=entry.at, data=data, told=entry.told
    )


def message_data(message: OutboxMessage) -> MessageData:
    """A message of the outbox, with its payload and its last error."""
    plain = {name: getattr(message, name) for name in _MESSAGE_FIELDS}
    return MessageData(**plain, payload=raw_value(message.payload_json), error=error_data(message.error))


def explanation_data(run: Run, explanation: Explanation) -> ExplanationData:
    """Why a run is not moving."""
    return ExplanationData(
        id=run.id,
        status=run.status,
        reason=explanation.reason,
        text=explanation.text,
        data=explanation.data,
    )


def schedule_data(one: Schedule, times: list[Instant], trouble: str | None) -> ScheduleData:
    """A schedule, and the next times at which it fires, or why they are unknown here."""
    return ScheduleData(
        id=one.id,
        name=one.name,
        tenant=one.tenant,
        type=one.type,
        params=raw_value(one.params_json),
        cron=one.cron,
        zone=one.zone if one.cron is not None else None,
        every_seconds=None if one.every is None else one.every.total_seconds(),
        anchor_at=one.anchor_at,
        jitter_seconds=one.jitter.total_seconds(),
        overlap=one.overlap,
        catch_up=one.catch_up,
        priority=one.priority,
        max_attempts=one.max_attempts,
        timeout_seconds=one.timeout_seconds,
        ttl_seconds=one.ttl_seconds,
        budget=None if one.budget_units is None else one.budget_units / COST_UNIT,
        limit_key=one.limit_key,
        labels=_labels(one.labels_json),
        paused=one.paused,
        paused_by=one.paused_by,
        next_at=one.next_at,
        next_times=tuple(moment(at) for at in times),
        trouble=trouble,
        waiting=one.waiting,
        fired=one.fired,
        skipped=one.skipped,
        last_at=one.last_at,
        last_run=one.last_run,
        last_skipped_at=one.last_skipped_at,
        last_missed_at=one.last_missed_at,
        rev=one.rev,
        created_at=one.created_at,
        updated_at=one.updated_at,
    )


def definition_data(one: Definition) -> DefinitionData:
    """A published workflow, with its schemas."""
    return DefinitionData(
        type=one.type,
        kind=one.kind,
        max_attempts=one.max_attempts,
        timeout_seconds=one.timeout_seconds,
        description=one.description,
        steps=one.steps,
        budget=None if one.budget is None else one.budget / COST_UNIT,
        covers_children=one.covers_children,
        params_schema=_schema(one.params_schema),
        result_schema=_schema(one.result_schema),
    )


def _schema(text: str | None) -> Value:
    """The schema as JSON; text that is no JSON is shown as it is: any program may have published it."""
    if text is None:
        return NULL
    found = raw(text)
    return msgspec.Raw(msgspec.json.encode(text)) if isinstance(found, Unreadable) else found


def key_data(key: ApiKey) -> KeyData:
    """An API key, without its secret and its hashes."""
    return KeyData(**{name: getattr(key, name) for name in KeyData.__struct_fields__})


def presence_data(one: Presence) -> PresenceData:
    """A live worker."""
    return PresenceData(**msgspec.structs.asdict(one) | {"seen_at": moment(one.seen_at)})


def stats_data(stats: Stats) -> StatsData:
    """An overview of the store."""
    return StatsData(
        now=moment(stats.now),
        by_status=stats.by_status,
        workers=len(stats.workers),
        oldest_due_at=_at(stats.oldest_due_at),
        unclaimable=stats.unclaimable,
        undelivered=stats.undelivered,
        extra=stats.extra,
    )


def error_data(error: Error | None) -> ErrorData | None:
    """An error of a run, a step or a message: always the same fields."""
    if error is None:
        return None
    fields = msgspec.structs.asdict(error)
    return ErrorData(**fields | {"since": _at(error.since), "args": raw_value(error.args)})


def raw_value(text: Json | None) -> Value:
    """A stored value; one that cannot be read is `{"holdfast.unreadable": reason}`."""
    if text is None:
        return NULL
    found = raw(text)
    return msgspec.Raw(msgspec.json.encode(found.data)) if isinstance(found, Unreadable) else found


def _labels(text: Json | None) -> Value:
    return _EMPTY if text is None else raw_value(text)


def raw_text(text: Json) -> str:
    """A stored value for people, not yet cut or escaped."""
    found = raw(text)
    return str(found) if isinstance(found, Unreadable) else text


def _at(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)
