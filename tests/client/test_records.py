"""Every shape can be read back: JSON of the server makes a record that makes the same JSON."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from holdfast.client import records as back
from holdfast.client.moves import DecidedRunData
from holdfast.engine.explain.explanation import Explanation
from holdfast.errors import BadValue
from holdfast.http.redaction import redacted
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import (
    ApiKey,
    ApprovalRequest,
    CatchUp,
    ChildCounts,
    Decided,
    Decision,
    Definition,
    Error,
    MessageStatus,
    OutboxMessage,
    Overlap,
    PlanStep,
    Presence,
    Run,
    RunningStep,
    Schedule,
    Scope,
    Stats,
    Step,
    TrailEntry,
    instant,
)
from holdfast.shown import data, shapes
from holdfast.shown import records as shown_back

AT = datetime(2030, 1, 2, 3, 4, 5, 678901, UTC)
ID, OTHER = UUID(int=7), UUID(int=8)
ODD = (
    '{"big":123456789012345678901234567890,"whole":1.0,'
    '"minus":-0.0,"exp":1e16,"text":"\u2028é\\n👍","no":null}'
)
ERROR = msgspec.json.encode(
    Error(kind="exhausted", type="ValueError", message="no card", traceback="tb", step="charge", attempt=3,
          max_attempts=3, since=instant(AT), args='["no card"]')
).decode()  # fmt: skip
STEP = Step(
    seq=1, key="charge", kind=StepKind.TASK, status=StepStatus.SUCCEEDED, attempts=2, output=ODD,
    cost=1_500_000,
    topic="t", due_at=instant(AT), started_at=instant(AT), finished_at=instant(AT), max_attempts=3,
    ask='{"ask":"Pay?","data":1.0}', digest="d", child=OTHER, error_json=ERROR,
)  # fmt: skip
WAIT = Step(
    seq=0, key="wait", kind=StepKind.EVENT, status=StepStatus.WAITING, topic="paid", started_at=instant(AT),
    due_at=instant(AT), child=None,
)  # fmt: skip
RUN = Run(
    id=ID, tenant="acme", type="shop.order.v1", kind="code", status=Status.SUCCEEDED, params_json=ODD,
    result_json=ODD, error_json=None, last_error=None, priority=7, run_at=AT, key="k", attempt=1,
    max_attempts=3,
    crashes=0, fence=2**53 + 1, leased_by=None, lease_until=None, waiting_on=(WAIT,), pause_asked_by="ada",
    cursor="charge", current_step_seq=1, current_step_name="SHIP", chain=ID, present=OTHER, parent=OTHER,
    parent_step="call", limit_key="api", labels_json='{"a":"b"}', cost_units=1_234_567,
    budget_units=5_000_001,
    progress_json='{"done":1,"total":2}', timeout_at=AT, timeout_seconds=1.5, ttl_seconds=60.0, expires_at=AT,
    created_at=AT, updated_at=AT, started_at=AT, finished_at=AT, deleted_at=None,
    running=(RunningStep(step="charge", attempt=2, started_at=AT),), origin=OTHER, account=OTHER,
    account_cost_units=3, account_budget_units=4_000_000,
)  # fmt: skip
FAILED = msgspec.structs.replace(
    RUN, status=Status.FAILED, result_json=None, error_json=ERROR, last_error="x"
)
OPEN = msgspec.structs.replace(
    RUN, status=Status.WAITING, params_json="null", result_json=None, labels_json=None, progress_json=None,
    account=None, account_cost_units=None, account_budget_units=None, budget_units=None, running=(),
)  # fmt: skip
NULL = msgspec.structs.replace(RUN, result_json="null")
SCHEDULE = Schedule(
    id=ID, name="n", tenant="acme", type="shop.report", params_json=ODD, cron="0 3 * * *",
    zone="Europe/Berlin",
    every_us=None, anchor_at=AT, jitter_us=1_500_000, overlap=Overlap.QUEUE, catch_up=CatchUp.ALL, priority=1,
    max_attempts=2, timeout_seconds=3.0, ttl_seconds=4.0, budget_units=5, limit_key="l",
    labels_json='{"a":"b"}',
    paused=True, paused_by="ada", next_at=AT, waiting=(AT,), fired=1, skipped=2, last_at=AT, last_run=OTHER,
    last_skipped_at=AT, last_missed_at=AT, rev=9, created_at=AT, updated_at=AT,
)  # fmt: skip
EVERY = msgspec.structs.replace(SCHEDULE, cron=None, zone="UTC", every_us=90_000_001)
MESSAGE = OutboxMessage(
    seq=2**60, id="m", tenant="acme", run=ID, step=None, sink="mail", key="k", payload_json=ODD,
    status=MessageStatus.DEAD, attempts=3, held_by=None, next_at=AT, error_json=ERROR, created_at=AT,
    tried_at=AT, sent_at=None,
)  # fmt: skip
GATE = ApprovalRequest(
    run=ID, type="t.t.v1", tenant="acme", step="manager", ask_json=f'{{"ask":"Pay?","data":{ODD}}}',
    digest="d", opened_at=AT, due_at=None,
)  # fmt: skip
DECIDED = Decided(
    step="manager", decision=Decision(approved=True, by="ada", comment="ok", at=AT, timed_out=False),
    repeated=True, run=RUN,
)  # fmt: skip
DEFINITION = Definition(
    type="a.b.v1", kind="plan", max_attempts=3, timeout_seconds=1.0, description="d",
    steps=(PlanStep(name="SHIP"), PlanStep(name="GATE", kind=StepKind.APPROVAL, ask='{"ask":"x"}')), budget=7,
    covers_children=True, params_schema='{"type":"object","maximum":1.0}', result_schema=None,
)  # fmt: skip
WORKER = Presence(
    worker="w", types=("a.b.v1",), tenants=("acme",), slots=5, stragglers=1, sinks=("mail",),
    lacking={"a.b.v1": ("SHIP",)}, seen_at=instant(AT),
)  # fmt: skip
STATS = Stats(
    now=instant(AT), by_status={"failed": 1}, workers=(WORKER,), oldest_due_at=instant(AT),
    unclaimable={"a.b.v1": 2}, undelivered=3, extra={"commits": 4},
)  # fmt: skip
KEY = ApiKey(
    id="a" * 12, tenant="acme", name="k", scopes=(Scope.ADMIN,), patterns=("a.%",), created_at=AT, rate=1.5,
    old_secret_until=AT + timedelta(days=1), created_by="ada",
)  # fmt: skip
COUNTS = ChildCounts(run=ID, by_status={"failed": 1, "pending": 2}, more=True)


def read(record, shape, type_, made):
    """Return the record that comes back over the wire."""
    return made(msgspec.json.decode(msgspec.json.encode(shape(record)), type=type_))


SAME = {
    "run with values": (RUN, data.run_values_data, shapes.RunValuesData, back.run_of),
    "failed run": (FAILED, data.run_values_data, shapes.RunValuesData, back.run_of),
    "open run": (OPEN, data.run_values_data, shapes.RunValuesData, back.run_of),
    "run with the result null": (NULL, data.run_values_data, shapes.RunValuesData, back.run_of),
    "listed run with values": (
        msgspec.structs.replace(FAILED, running=()),
        lambda run: data.listed_values_data(run, COUNTS), shapes.ListedRunData, back.run_of,
    ),
    "step": (STEP, data.step_data, shapes.StepData, shown_back.step_of),
    "trail entry": (
        TrailEntry(seq=2**60, run=ID, type="retried", at=AT, data_json=ODD, told=True),
        data.trail_data, shapes.TrailEntryData, shown_back.trail_entry_of,
    ),
    "cron schedule": (SCHEDULE, lambda one: data.schedule_data(one, [instant(AT)], None), shapes.ScheduleData,
                      back.schedule_of),
    "interval": (EVERY, lambda one: data.schedule_data(one, [], "why"), shapes.ScheduleData,
    back.schedule_of),
    "message": (MESSAGE, data.message_data, shapes.MessageData, back.message_of),
    "gate": (GATE, data.approval_data, shapes.ApprovalData, back.approval_of),
    "definition": (DEFINITION, data.definition_data, shapes.DefinitionData, back.definition_of),
    "worker": (WORKER, data.presence_data, shapes.PresenceData, back.presence_of),
    "stats": (STATS, data.stats_data, shapes.StatsData, lambda one: back.stats_of(one, (WORKER,))),
    "key": (KEY, data.key_data, shapes.KeyData, back.key_of),
    "children": (COUNTS, data.child_counts_data, shapes.ChildCountsData,
    lambda one: back.child_counts_of(ID, one)),
    "error": (RUN and msgspec.json.decode(ERROR, type=Error), data.error_data, shapes.ErrorData,
    shown_back.error_of),
    "decision": (
        DECIDED,
        lambda one: DecidedRunData(**msgspec.structs.asdict(data.decided_data(one)),
                                   decided_run=data.run_values_data(one.run)),
        DecidedRunData, lambda one: back.decided_of(one, one.decided_run),
    ),
    "explanation": (
        Explanation("paused", "text", {"a": 1}), lambda one: data.explanation_data(RUN, one),
        shapes.ExplanationData, back.explanation_of,
    ),
}  # fmt: skip


@pytest.mark.spec("HTTP-8", "START-9")
@pytest.mark.parametrize("name", SAME)
def test_a_record_comes_back_as_it_was(name):
    record, shape, type_, made = SAME[name]
    assert read(record, shape, type_, made) == record


def test_every_function_that_makes_a_shape_has_its_inverse():
    makers = {
        name
        for name, one in inspect.getmembers(data, inspect.isfunction)
        if name.endswith("_data") and name[0] != "_"
    }
    same = {"run_data", "listed_run_data", "result_data", "whole_run_data", "wait_data", "running_data"}
    tested = {
        "run_values_data", "listed_values_data", "step_data", "trail_data", "schedule_data", "message_data",
        "approval_data", "definition_data", "presence_data", "stats_data", "key_data", "child_counts_data",
        "error_data", "decided_data", "explanation_data",
    }  # fmt: skip
    assert makers == tested | same


@pytest.mark.spec("HTTP-8")
@pytest.mark.parametrize("run", [RUN, FAILED, OPEN], ids=["succeeded", "failed", "open"])
def test_a_run_without_values_makes_the_same_lines_again(run):
    for shape, type_ in (
        (data.run_data, shapes.RunData),
        (lambda one: data.listed_run_data(one, COUNTS), shapes.ListedRunData),
    ):
        once = msgspec.json.encode(shape(run))
        again = back.run_of(msgspec.json.decode(once, type=type_))
        if type_ is shapes.RunData:  # the fingerprint is made from the error, which is not in it
            again = msgspec.structs.replace(again, error_json=run.error_json)
        assert msgspec.json.encode(shape(again)) == once


def test_a_sealed_error_keeps_its_fingerprint():
    sealed = '{"holdfast.sealed":1,"fingerprint":"abc"}'
    run = msgspec.structs.replace(FAILED, error_json=sealed)
    assert read(run, data.run_values_data, shapes.RunValuesData, back.run_of).fingerprint == "abc"


@pytest.mark.spec("TEN-1")
def test_values_that_the_key_may_not_see_say_so_when_they_are_read():
    hidden = back.run_of(redacted(data.run_values_data(RUN)))
    for read_it in (lambda: hidden.params, lambda: hidden.result):
        with pytest.raises(BadValue, match=r"lacks the scope payloads\.read"):
            read_it()
    assert data.raw_text(hidden.params_json) == "unreadable (the API key lacks the scope payloads.read)"
    with pytest.raises(BadValue, match="lacks the scope"):
        _ = back.message_of(redacted(data.message_data(MESSAGE))).payload
    with pytest.raises(BadValue, match="lacks the scope"):
        _ = back.schedule_of(redacted(data.schedule_data(SCHEDULE, [], None))).params
    assert shown_back.step_of(redacted(data.step_data(STEP))).output == "redacted"
    gate = back.approval_of(redacted(data.approval_data(GATE)))
    assert gate.data == {"holdfast.unreadable": "the API key lacks the scope payloads.read"}
    assert gate.ask == ""
