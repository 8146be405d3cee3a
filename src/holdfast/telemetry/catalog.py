"""The list of all metrics, as data: the exposition, OpenTelemetry and the reference page are made from it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

LATENCY = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    1800.0,
)  # fmt: skip
DURATION = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
CALL = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LATENESS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0)

# values of one label in one process, or in one answer; later ones are counted under OTHER
LABELS_MAX = 500
OTHER = "other"
TENANTS_MAX = 100  # tenants in one answer


class Kind(StrEnum):
    """A kind of metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. `tenant`: it has one more label of this name when tenants are asked for."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    help: str
    buckets: tuple[float, ...] = ()  # upper bounds, in seconds
    tenant: bool = False


def _counter(name: str, *labels: str, help: str, tenant: bool = False) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, help=help, tenant=tenant)


def _gauge(name: str, *labels: str, help: str, tenant: bool = False) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, help=help, tenant=tenant)


def _histogram(name: str, *labels: str, help: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, labels=labels, help=help, buckets=buckets)


# -- of one process --------------------------------------------------------------------------

CLAIM_LATENCY = _histogram(
    "holdfast_claim_latency_seconds",
    "type",
    buckets=LATENCY,
    help="Time from a run being due to its claim, by the store's clock.",
)
RESUME_LATENCY = _histogram(
    "holdfast_resume_latency_seconds",
    "type",
    buckets=LATENCY,
    help="Time from a wait being settled or due to the run's code going on.",
)
STEP_DURATION = _histogram(
    "holdfast_step_duration_seconds",
    "type",
    "outcome",
    buckets=DURATION,
    help="Duration of one try of a step, without its commit: succeeded, failed, retried, cancelled.",
)
EXECUTIONS = _counter(
    "holdfast_executions_total",
    "type",
    "outcome",
    help="Executions that ended: succeeded, failed, cancelled, parked, paused, returned, lost.",
)
STEP_RETRIES = _counter(
    "holdfast_step_retries_total", "type", help="Failed tries of steps that are followed by another try."
)
LEASES_LOST = _counter(
    "holdfast_leases_lost_total", "type", help="Executions whose lease was lost, so that their work is void."
)
ENGINE_ERRORS = _counter(
    "holdfast_engine_errors_total", help="Unforeseen errors of the engine itself; each is in the log."
)
SLOTS = _gauge("holdfast_worker_slots", help="Runs that the workers of this process may execute at once.")
SLOTS_BUSY = _gauge("holdfast_worker_slots_busy", help="Runs that the workers of this process execute now.")
STRAGGLERS = _gauge(
    "holdfast_worker_stragglers",
    help="Sync functions that were cancelled and have not returned; each takes a slot.",
)
STORE_CALL = _histogram(
    "holdfast_store_call_seconds", "verb", buckets=CALL, help="Duration of calls to the store, by verb."
)
STORE_ERRORS = _counter(
    "holdfast_store_errors_total", "verb", "error", help="Calls to the store that raised, by verb and error."
)
MESSAGES_SENT = _counter(
    "holdfast_messages_sent_total", "sink", help="Messages that this process delivered to a sink."
)
MESSAGES_FAILED = _counter(
    "holdfast_messages_failed_total", "sink", help="Tries of this process to deliver a message that failed."
)
SCHEDULES_FIRED = _counter(
    "holdfast_schedules_fired_total", help="Runs that this process started for schedules."
)
SCHEDULE_LATENESS = _histogram(
    "holdfast_schedule_lateness_seconds",
    buckets=LATENESS,
    help="Time from a schedule's time to the start of its run.",
)

PROCESS_METRICS = (
    CLAIM_LATENCY, RESUME_LATENCY, STEP_DURATION, EXECUTIONS, STEP_RETRIES, LEASES_LOST, ENGINE_ERRORS, SLOTS,
    SLOTS_BUSY, STRAGGLERS, STORE_CALL, STORE_ERRORS, MESSAGES_SENT, MESSAGES_FAILED, SCHEDULES_FIRED,
    SCHEDULE_LATENESS,
)  # fmt: skip

# -- of the whole store ----------------------------------------------------------------------

STORE_UP = _gauge("holdfast_store_up", help="1 when the store has answered in time, else 0.")
RUNS_STARTED = _counter("holdfast_runs_started_total", "type", tenant=True, help="Runs that were started.")
RUNS_FINISHED = _counter(
    "holdfast_runs_finished_total",
    "type",
    "status",
    tenant=True,
    help="Runs that have ended: succeeded, failed, cancelled.",
)
RUNS_RETRIED = _counter(
    "holdfast_runs_retried_total",
    "type",
    tenant=True,
    help="Retries of runs, and of steps that left the worker.",
)
LEASES_EXPIRED = _counter(
    "holdfast_leases_expired_total", "type", tenant=True, help="Leases that expired: a worker died or hung."
)
RUNS_OPEN = _gauge(
    "holdfast_runs_open",
    "type",
    "status",
    tenant=True,
    help="Runs that have not ended: pending, leased, waiting, paused.",
)
RUNS_SUSPENDED = _gauge(
    "holdfast_runs_suspended",
    "type",
    tenant=True,
    help="Runs that wait for a time, an event, a person or a child.",
)
DUE_RUNS = _gauge(
    "holdfast_due_runs", "type", tenant=True, help="Runs that are due and not claimed; counted up to a bound."
)
QUEUE_AGE = _gauge(
    "holdfast_queue_age_seconds",
    "type",
    tenant=True,
    help="Time since the oldest due run of the type became due.",
)
UNCLAIMABLE = _gauge("holdfast_unclaimable_runs", "type", help="Due runs that no live worker can execute.")
WORKERS = _gauge("holdfast_workers", help="Live workers.")
UNDELIVERED = _gauge("holdfast_events_undelivered", help="Events that have not reached all their waits yet.")
OUTBOX_PENDING = _gauge("holdfast_outbox_pending", "sink", help="Messages that are not delivered yet.")
OUTBOX_LAG = _gauge(
    "holdfast_outbox_lag_seconds", "sink", help="Age of the oldest message that is not delivered."
)
OUTBOX_DEAD = _gauge("holdfast_outbox_dead", "sink", help="Messages that were given up.")
LIMITS_AT_CAP = _gauge(
    "holdfast_limits_at_cap", help="Limits whose concurrency is used up, and keys that are paused."
)
SCHEDULES_LATE = _gauge(
    "holdfast_schedules_late_seconds",
    help="Time since the oldest schedule that is due should have fired; else 0.",
)

STORE_METRICS = (
    STORE_UP, RUNS_STARTED, RUNS_FINISHED, RUNS_RETRIED, LEASES_EXPIRED, RUNS_OPEN, RUNS_SUSPENDED, DUE_RUNS,
    QUEUE_AGE, UNCLAIMABLE, WORKERS, UNDELIVERED, OUTBOX_PENDING, OUTBOX_LAG, OUTBOX_DEAD, LIMITS_AT_CAP,
    SCHEDULES_LATE,
)  # fmt: skip
