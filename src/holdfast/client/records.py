"""Records of the library from the JSON of the server: the inverse of `holdfast.shown.data`.

Values of users keep their JSON text as it came, so that nothing is lost in them. Fields that are only for
workers are not in the JSON: they have their defaults. A value that the server does not show to the API key is
`unreadable`: reading it raises BadValue, which says why.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.engine.explain.explanation import Explanation
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import (
    ApiKey,
    ApprovalRequest,
    CatchUp,
    ChildCounts,
    Decided,
    Decision,
    Definition,
    Json,
    OutboxMessage,
    Overlap,
    Presence,
    Run,
    RunningStep,
    Schedule,
    Stats,
    Step,
    instant,
)
from holdfast.records.unreadable import REDACTED
from holdfast.shown.records import (
    error_text,
    instant_of,
    optional_text,
    units,
)
from holdfast.shown.shapes import (
    ApprovalData,
    ChildCountsData,
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
    RunValuesData,
    ScheduleData,
    SharedBudgetData,
    StatsData,
    WaitData,
)

_SAME_FIELDS = (
    "id", "type", "kind", "status", "tenant", "key", "priority", "run_at", "attempt", "max_attempts",
    "crashes", "fence", "cursor", "current_step_seq", "current_step_name", "leased_by", "lease_until",
    "pause_asked_by", "last_error", "limit_key", "chain", "present", "parent", "parent_step", "origin",
    "timeout_at", "timeout_seconds", "ttl_seconds", "created_at", "updated_at", "started_at", "finished_at",
    "expires_at", "deleted_at",
)  # fmt: skip
_SCHEDULE_FIELDS = (
    "id", "name", "tenant", "type", "cron", "anchor_at", "priority", "max_attempts", "timeout_seconds",
    "ttl_seconds", "limit_key", "paused", "paused_by", "next_at", "waiting", "fired", "skipped", "last_at",
    "last_run", "last_skipped_at", "last_missed_at", "rev", "created_at", "updated_at",
)  # fmt: skip
_MESSAGE_FIELDS = (
    "seq", "id", "status", "sink", "key", "tenant", "run", "step", "attempts", "held_by", "next_at",
    "created_at", "tried_at", "sent_at",
)  # fmt: skip


def run_of(data: RunData) -> Run:
    """A run. Without values in the JSON it is as `RunFilter(values=False)` lists it."""
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: ErrorData | None = None
    running: tuple[RunningStep, ...] = ()
    if isinstance(data, RunValuesData | ListedRunData):
        params, result, error = data.params, data.result, data.error
    if isinstance(data, RunValuesData):
        running = tuple(
            RunningStep(step=one.step, attempt=one.attempt, started_at=one.started_at) for one in data.running
        )
    ended = data.status is Status.SUCCEEDED
    account, account_cost, account_budget = _account(data.shared_budget)
    return Run(
        **{name: getattr(data, name) for name in _SAME_FIELDS},
        params_json=_hidden(params, redacted=data.redacted) or "null",
        result_json=_hidden(result, redacted=data.redacted) if ended and result is not UNSET else None,
        error_json=error_text(error, data.fingerprint),
        waiting_on=tuple(map(_wait, data.waiting_on)),
        labels_json=_labels(data.labels),
        cost_units=units(data.cost),
        budget_units=None if data.budget is None else units(data.budget),
        progress_json=optional_text(data.progress),
        running=running,
        account=account,
        account_cost_units=account_cost,
        account_budget_units=account_budget,
    )


def _account(shared: SharedBudgetData | None) -> tuple[UUID | None, int | None, int | None]:
    if shared is None:
        return None, None, None
    return shared.run, units(shared.cost), units(shared.budget)


def _wait(data: WaitData) -> Step:
    return Step(
        seq=0,
        key=data.step,
        kind=data.kind,
        status=StepStatus.WAITING,
        topic=data.topic,
        child=data.child,
        started_at=instant_of(data.since),
        due_at=instant_of(data.due_at),
    )


def child_counts_of(run: UUID, data: ChildCountsData) -> ChildCounts:
    """The children of a run by status."""
    return ChildCounts(run=run, by_status=data.by_status, more=data.more)


def approval_of(data: ApprovalData) -> ApprovalRequest:
    """An open gate."""
    asked = msgspec.json.encode({"ask": data.ask, "data": data.data})
    return ApprovalRequest(
        run=data.run,
        step=data.step,
        type=data.type,
        tenant=data.tenant,
        ask_json=REDACTED if data.redacted else asked.decode(),
        digest=data.digest,
        opened_at=data.opened_at,
        due_at=data.due_at,
    )


def decided_of(data: DecidedData, run: RunData) -> Decided:
    """The decision of a gate."""
    decision = Decision(
        approved=data.approved, by=data.by, comment=data.comment, at=data.at, timed_out=data.timed_out
    )
    return Decided(step=data.step, decision=decision, repeated=data.repeated, run=run_of(run))


def message_of(data: MessageData) -> OutboxMessage:
    """A message of the outbox."""
    return OutboxMessage(
        **{name: getattr(data, name) for name in _MESSAGE_FIELDS},
        payload_json=_hidden(data.payload, redacted=data.redacted) or "null",
        error_json=error_text(data.error),
    )


def explanation_of(data: ExplanationData) -> Explanation:
    """Why a run does not move. Times in its data are texts. Without the scope `payloads.read` there is only
    the reason.
    """
    return Explanation(data.reason, data.text or data.reason, data.data)


def schedule_of(data: ScheduleData) -> Schedule:
    """A schedule."""
    return Schedule(
        **{name: getattr(data, name) for name in _SCHEDULE_FIELDS},
        params_json=_hidden(data.params, redacted=data.redacted) or "null",
        zone=data.zone or "UTC",
        every_us=None if data.every_seconds is None else _micros(data.every_seconds),
        jitter_us=_micros(data.jitter_seconds),
        overlap=Overlap(data.overlap),
        catch_up=CatchUp(data.catch_up),
        budget_units=None if data.budget is None else units(data.budget),
        labels_json=_labels(data.labels),
    )


def definition_of(data: DefinitionData) -> Definition:
    """A published workflow."""
    return Definition(
        type=data.type,
        kind=data.kind,
        max_attempts=data.max_attempts,
        timeout_seconds=data.timeout_seconds,
        description=data.description,
        steps=data.steps,
        budget=None if data.budget is None else units(data.budget),
        covers_children=data.covers_children,
        params_schema=optional_text(data.params_schema),
        result_schema=optional_text(data.result_schema),
    )


def key_of(data: KeyData) -> ApiKey:
    """An API key, without its hashes."""
    return ApiKey(**msgspec.structs.asdict(data))


def presence_of(data: PresenceData) -> Presence:
    """A live worker."""
    return Presence(**msgspec.structs.asdict(data) | {"seen_at": instant(data.seen_at)})


def stats_of(data: StatsData, workers: tuple[Presence, ...]) -> Stats:
    """An overview of the store."""
    return Stats(
        now=instant(data.now),
        by_status=data.by_status,
        workers=workers,
        oldest_due_at=instant_of(data.oldest_due_at),
        unclaimable=data.unclaimable,
        undelivered=data.undelivered,
        extra=data.extra,
    )


def result_text_of(data: ResultData) -> Json:
    """The result of a run that has succeeded."""
    return _hidden(data.result, redacted=data.redacted)


def _text(raw: Raw) -> Json:
    return bytes(raw).decode()


def _hidden(raw: Raw | UnsetType, *, redacted: bool) -> Json:
    """The text of a value, if the API key may see it; null, if it was not asked for."""
    if raw is UNSET:
        return "null"
    return REDACTED if redacted else _text(raw)


def _labels(raw: Raw) -> Json | None:
    text = _text(raw)
    return None if text == "{}" else text


def _micros(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
