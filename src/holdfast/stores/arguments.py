"""Checks of records that all stores share: numbers, times, names and counts that every store can keep.

A refusal is a `UsageError`. An infinite duration counts as a very long one (see `durations`). Only negative
durations and NaN are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    COST_MAX,
    EARLIEST,
    LATEST,
    NAME_MAX,
    WHOLE_MAX,
    check_attempts,
    check_datetime,
    check_instant,
    check_name,
    check_number,
    check_percent,
    check_priority,
    check_startable,
    check_tenant,
    check_text,
    check_topic,
    check_type,
    check_whole,
    to_seconds,
)
from holdfast.bounds import SCHEMA_BYTES
from holdfast.clipped import clipped
from holdfast.contract import LABEL_MAX, START
from holdfast.decoding import fault
from holdfast.errors import UsageError
from holdfast.exact import check_fields
from holdfast.records import (
    COST_UNIT,
    OWN,
    SCOPES,
    AnyTenant,
    Ask,
    Definition,
    Firing,
    Instant,
    Lease,
    NewEvent,
    NewRun,
    NewSchedule,
    OutboxFilter,
    PlanStep,
    Presence,
    RelayAsk,
    Relayed,
    RunFilter,
    Webhook,
)
from holdfast.records.fingerprints import FILTERS_MAX, MESSAGE_MAX, STEP_MAX, TYPE_MAX
from holdfast.step_keys import check_call_name

from .key_arguments import check_starter, refuse_counted

UNITS_MAX = COST_MAX * COST_UNIT
WORKER_MAX = 2 * NAME_MAX  # the name of a worker, and the place where it runs
LIBRARY_MAX = 3 * NAME_MAX  # library, version and language of a worker
# A sealed store asks for each text as each of its keys may have stored it: those are not counted as texts.
DIGESTS_MAX = 20 * FILTERS_MAX
FINGERPRINT_MAX = TYPE_MAX + STEP_MAX + MESSAGE_MAX + 10  # characters, with the words between
TIME_FIELDS = tuple(name for name in RunFilter.__struct_fields__ if name.endswith(("_since", "_until")))
_DIGEST = re.compile("[0-9a-f]{64}")
_LABELS = msgspec.json.Decoder(dict[str, str])


# -- parts of records ------------------------------------------------------------------------------


def check_at(what: str, at: Instant | None) -> None:
    """Check an instant, or None: a calendar must be able to show it."""
    if at is not None and not (type(at) is int and EARLIEST <= at <= LATEST):
        check_instant(what, at)


def check_span(what: str, span: float | None) -> None:
    """Check a duration, or None: it must not be negative."""
    if span is not None and not (type(span) is float and span >= 0) and to_seconds(span, what) < 0:
        raise UsageError(f"{what} is {clipped(span)} s: a duration of 0 s or more")


def check_worker(what: str, worker: Any) -> None:
    """Check the id of a worker or a relay."""
    check_text(what, worker, WORKER_MAX)


def check_rows(what: str, limit: Any) -> None:
    """Check a number of rows. A negative number counts as 0."""
    check_whole(what, limit, -WHOLE_MAX)


def check_big(what: str, number: Any) -> None:
    """Check a fence, a revision or a position in a list: 64 bits."""
    if not (type(number) is int and 0 <= number <= BIG_MAX):
        check_whole(what, number, 0, BIG_MAX)


def check_number_known(what: str, number: Any) -> None:
    """Check the number of an item or a step: 32 bits. A negative number: before the first."""
    if number is not None and not (type(number) is int and 0 <= number <= WHOLE_MAX):
        check_whole(what, number, -WHOLE_MAX)


def check_after(what: str, after: Any) -> None:
    """Check the number of a step, or -1: before the first."""
    check_whole(what, after, START)


def check_bytes(what: str, size: Any) -> None:
    """Check the number of bytes of an answer. A negative number counts as 0."""
    if not (type(size) is int and 0 <= size <= BIG_MAX):
        check_whole(what, size, -BIG_MAX, BIG_MAX)


def check_labels(labels: str | None) -> None:
    """Check the labels of a run: an object of text."""
    if labels is not None:
        try:
            _LABELS.decode(labels)
        except msgspec.ValidationError:
            right = """an object of text, as in '{"team": "billing"}'"""
            raise UsageError(f"labels {clipped(labels)}: {right}") from None
        except (msgspec.DecodeError, RecursionError):
            pass  # a lone surrogate, or deep nesting: still JSON


def _attempts(what: str, attempts: Any) -> None:
    if attempts is not None:
        check_attempts(what, attempts)


def check_budget(what: str, budget: Any) -> None:
    """Check a budget, in units of cost."""
    if budget is not None:
        check_whole(what, budget, 1, UNITS_MAX)


def _names(what: str, names: Sequence[str] | None) -> None:
    for name in names or ():
        check_name(what, name)


def check_optional(what: str, name: str | None) -> None:
    """Check a name, if there is one."""
    if name is not None:
        check_name(what, name)


# -- records ---------------------------------------------------------------------------------------


def check_run(new: NewRun) -> None:
    """Check a run that is to be started."""
    check_fields(new)
    check_type(new.type)
    check_tenant(new.tenant)
    check_priority(new.priority)
    check_optional("key", new.key)
    check_optional("limit_key", new.limit_key)
    _attempts("max_attempts", new.max_attempts)
    check_budget("budget", new.budget)
    check_at("run_at", new.run_at)
    check_span("delay", new.delay_seconds)
    check_span("timeout", new.timeout_seconds)
    check_span("ttl", new.ttl_seconds)
    check_labels(new.labels)
    if new.trace != "":
        check_text("trace", new.trace)
    if new.by != "" or new.api_key is not None or new.open_runs_max is not None:
        check_starter(new)


def check_event(_: str, event: NewEvent) -> None:
    """Check an event that a caller sends."""
    check_event_content(event)
    check_name("event id", event.id)


def check_event_content(event: NewEvent) -> None:
    """Check an event without its id."""
    check_fields(event)
    check_topic(event.topic)
    check_tenant(event.tenant)
    check_span("keep", event.keep_seconds)


def check_plan_step(step: PlanStep) -> None:
    """Check a step of a plan."""
    check_fields(step)
    check_call_name(step.name)
    _attempts("max_attempts of a step", step.max_attempts)
    check_span("timeout of a step", step.timeout_seconds)
    if step.topic is not None:
        check_topic(step.topic)


def check_ask(_: str, ask: Ask) -> None:
    """Check the request of a claim."""
    check_fields(ask)
    check_worker("worker", ask.worker)
    check_rows("limit", ask.limit)
    _names("type", ask.types)
    _names("tenant", ask.tenants)
    check_name("runtime", ask.runtime)
    check_bytes("bytes", ask.bytes)
    check_span("lease", ask.lease_seconds)
    for count in ask.crashed or ():
        check_whole("crashed", count)


def check_leases(_: str, leases: Sequence[Lease]) -> None:
    """Check the leases of a renewal."""
    for lease in leases:
        check_lease("lease", lease)


def check_lease(_: str, lease: Lease) -> None:
    """Check one lease, but not its progress: see `readable`."""
    check_big("fence", lease.fence)
    check_number_known("known", lease.known)
    check_at("started_at", lease.started_at)


def check_pairs(what: str, pairs: Sequence[tuple[UUID, int]]) -> None:
    """Check leases that are given as run and fence, or runs that are followed after a number."""
    for run, number in pairs:
        if not isinstance(run, UUID):
            raise UsageError(f"{clipped(run)} is not the id of a run: give a UUID")
        check_big("fence" if what == "leases" else "after", number)


def readable(lease: Lease) -> Lease:
    """Return the lease without a progress that is not JSON: it must not stop the renewal of others."""
    if lease.progress is None or fault(lease.progress) is None:
        return lease
    return msgspec.structs.replace(lease, progress=None)


def check_definitions(_: str, definitions: Sequence[Definition]) -> None:
    """Check definitions that are to be published."""
    for one in definitions:
        check_fields(one)
        check_type(one.type)
        check_text("description", one.description)
        check_text("params_schema", one.params_schema or "", SCHEMA_BYTES)
        check_text("result_schema", one.result_schema or "", SCHEMA_BYTES)
        _attempts("max_attempts", one.max_attempts)
        check_budget("budget", one.budget)
        check_span("timeout", one.timeout_seconds)
        for step in one.steps:
            check_plan_step(step)


def check_presence(_: str, presence: Presence) -> None:
    """Check the row of a worker."""
    check_fields(presence)
    check_worker("worker", presence.worker)
    _names("type", presence.types)
    check_whole("slots", presence.slots)
    check_whole("stragglers", presence.stragglers)
    check_text("library", presence.library, LIBRARY_MAX)


def check_schedule(_: str, new: NewSchedule) -> None:
    """Check a schedule, and the values for its runs."""
    check_fields(new)
    check_name("schedule", new.name)
    check_startable(new.type)
    check_tenant(new.tenant)
    check_priority(new.priority)
    check_optional("limit_key", new.limit_key)
    _attempts("max_attempts", new.max_attempts)
    check_budget("budget", new.budget)
    check_span("timeout", new.timeout_seconds)
    check_span("ttl", new.ttl_seconds)
    check_text("zone", new.zone, NAME_MAX)
    check_text("cron", new.cron or "", NAME_MAX)
    if new.every_us is not None:
        check_whole("every_us", new.every_us, 1, LATEST)
    check_whole("jitter_us", new.jitter_us, 0, LATEST)
    check_labels(new.labels)
    check_at("anchor_at", new.anchor_at)
    check_at("next_at", new.next_at)


def check_firing(_: str, firing: Firing) -> None:
    """Check times of a schedule that start runs."""
    check_fields(firing)
    check_big("rev", firing.rev)
    check_at("next_at", firing.next_at)
    check_at("missed_at", firing.missed_at)
    for fire in firing.fires:
        check_at("a time of the schedule", fire.at)
        check_run(fire.run)
        refuse_counted(fire.run)


def check_relay_ask(_: str, ask: RelayAsk) -> None:
    """Check the request of a relay."""
    check_fields(ask)
    check_worker("relay", ask.relay)
    check_rows("limit", ask.limit)
    check_rows("each", ask.each)
    check_bytes("bytes", ask.bytes)
    for sink, count in (*ask.bounds.items(), *ask.taken.items()):
        check_rows(f"sink {clipped(sink)}", count)
    check_span("lease", ask.lease_seconds)


def check_where(_: str, where: RunFilter | OutboxFilter | None) -> None:
    """Check the filter of a list."""
    if where is not None:
        check_fields(where)
        if where.tenant is not OWN:
            check_tenant_or_any("tenant", where.tenant)
        if isinstance(where, RunFilter):
            _check_run_filter(where)


def _check_run_filter(where: RunFilter) -> None:
    check_percent("type", where.type or "")
    for name in TIME_FIELDS:
        if (at := getattr(where, name)) is not None:
            check_datetime(name, at)
    labels: Any = where.labels
    if not isinstance(labels, dict) or len(labels) > FILTERS_MAX:
        raise UsageError(
            f"labels {clipped(labels)}: a dict of at most {FILTERS_MAX} labels, as in "
            "{'team': 'billing'}; with None for any value"
        )
    for label, value in labels.items():
        check_label(label, value)
    errors = where.error if isinstance(where.error, tuple) else (where.error,)
    texts = [one for one in errors if not (isinstance(one, str) and _DIGEST.fullmatch(one))]
    if len(texts) > FILTERS_MAX or len(errors) > DIGESTS_MAX:
        raise UsageError(f"error: at most {FILTERS_MAX} texts, not {len(errors)}")
    for error in (one for one in errors if one is not None):
        check_text("error", error, FINGERPRINT_MAX)


def check_label(name: Any, value: Any) -> None:
    """Check a label in a filter: its name, and its value or None."""
    for text in (name,) if value is None else (name, value):
        if not isinstance(text, str):
            raise UsageError(f"label {clipped(name)}: {clipped(text)} is no text; give a name and a value")
        check_text("label", text, LABEL_MAX)


def check_relayed(_: str, answers: Sequence[Relayed]) -> None:
    """Check the answers of a relay."""
    for one in answers:
        check_fields(one)
        check_big("fence", one.fence)
        check_span("delay", one.delay_seconds)


def check_webhook(_: str, webhook: Webhook) -> None:
    """Check an address that messages are sent to."""
    check_fields(webhook)
    check_name("sink", webhook.name)
    check_big("rev", webhook.rev)


def check_rate(what: str, rate: tuple[int, float]) -> None:
    """Check a rate: a number of claims in a period."""
    count, period = rate
    check_whole(what, count, 1)
    if not to_seconds(period, "the period of a rate") > 0:
        raise UsageError(f"the period of a rate is {clipped(period)} s, and it is to be more than 0 s")


def check_weight(what: str, weight: Any) -> None:
    """Check the weight of a tenant."""
    check_number(what, weight, 0.001, 1000)


def check_tenant_or_any(what: str, tenant: Any) -> None:
    """Check the tenant of a verb: a name, or ANY where the verb accepts it."""
    if not isinstance(tenant, str | AnyTenant):
        raise UsageError(f"{what} is {clipped(tenant)}: name a tenant, or give ANY for all tenants")


def check_scope(_: str, scope: Any) -> None:
    """Check the scope of a limit."""
    if scope not in SCOPES:
        raise UsageError(f"a limit is of one of {', '.join(SCOPES)}, not {clipped(scope)}")
