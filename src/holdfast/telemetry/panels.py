"""The panels of the Grafana dashboard, and the expressions that they show.

Two kinds of metrics are asked for in two ways. A metric of the whole store is the same wherever it is
scraped, so the largest value of all targets counts, for each tenant. A metric of a process is added up over
processes. `store` is a label that users give to the scrapes of each store if they have several; without it
nothing changes.
"""

from __future__ import annotations

from typing import NamedTuple

from .catalog import STORE_METRICS

STORE = 'store=~"$store"'
TYPED = f'{STORE}, type=~"$type"'
RATE = "[$__rate_interval]"
_LABELS = {one.name: one.labels for one in STORE_METRICS}


class Query(NamedTuple):
    """An expression, and the text of its lines in the legend."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel. A stat shows one number; `red` is the value from which it is red."""

    title: str
    help: str
    queries: tuple[Query, ...]
    unit: str = "short"
    stat: bool = False
    red: float | None = None


def whole(metric: str, *by: str, match: str = STORE, window: str = "") -> str:
    """Return the expression of a metric of the whole store. window: ask for its rate in this range."""
    chosen = f"{metric}{{{match}}}"
    value = f"rate({chosen}{window})" if window else chosen
    # Without its labels, `max` would keep the largest type instead of all types.
    outer, inner = (", ".join(("store", *labels)) for labels in (by, (*_LABELS[metric], "tenant")))
    return f"sum by ({outer}) (max by ({inner}) ({value}))"


def largest(metric: str, *by: str, match: str = STORE) -> str:
    """Return the expression of the largest value of a gauge: an age, or a state."""
    return f"max by ({', '.join(('store', *by))}) ({metric}{{{match}}})"


def added(metric: str, *by: str, match: str = STORE, window: str = "") -> str:
    """Return the expression of a metric of processes. window: ask for its rate in this range."""
    chosen = f"{metric}{{{match}}}"
    value = f"rate({chosen}{window})" if window else chosen
    return f"sum by ({', '.join(('store', *by))}) ({value})"


def quantiles(
    metric: str, *by: str, match: str = STORE, shares: tuple[float, ...] = (0.5, 0.95)
) -> list[Query]:
    """Return the queries for the quantiles of a histogram of processes."""
    rates = added(f"{metric}_bucket", "le", *by, match=match, window=RATE)
    named = "".join(f"{{{{{label}}}}} " for label in by)
    return [Query(f"histogram_quantile({share}, {rates})", f"{named}p{share * 100:g}") for share in shares]


ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        Panel(
            "Store",
            "1 while the store answers.",
            (Query(f"min by (store) (holdfast_store_up{{{STORE}}})"),),
            stat=True,
        ),
        Panel("Workers", "Live workers of the store.", (Query(largest("holdfast_workers")),), stat=True),
        Panel(
            "Open runs",
            "Runs that have not ended.",
            (Query(whole("holdfast_runs_open", match=TYPED)),),
            stat=True,
        ),
        Panel(
            "Due runs",
            "Runs that a worker could execute now.",
            (Query(whole("holdfast_due_runs", match=TYPED)),),
            stat=True,
        ),
        Panel(
            "Oldest due run",
            "How long the oldest due run has waited for a worker.",
            (Query(largest("holdfast_queue_age_seconds", match=TYPED)),),
            "s",
            stat=True,
            red=300,
        ),
        Panel(
            "Dead messages",
            "Messages of the outbox that were given up.",
            (Query(whole("holdfast_outbox_dead")),),
            stat=True,
            red=1,
        ),
    ),
    "Runs": (
        Panel(
            "Started",
            "Runs started in a second, by type.",
            (Query(whole("holdfast_runs_started_total", "type", match=TYPED, window=RATE), "{{type}}"),),
            "ops",
        ),
        Panel(
            "Finished",
            "Runs that ended in a second, by type and status.",
            (
                Query(
                    whole("holdfast_runs_finished_total", "type", "status", match=TYPED, window=RATE),
                    "{{type}} {{status}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Failed share",
            "Failed runs as a part of those that ended.",
            (
                Query(
                    whole(
                        "holdfast_runs_finished_total", "type", match=f'{TYPED}, status="failed"', window=RATE
                    )
                    + " / "
                    + whole("holdfast_runs_finished_total", "type", match=TYPED, window=RATE),
                    "{{type}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Open by status",
            "Runs that have not ended, by status; `leased` ones are executed now.",
            (Query(whole("holdfast_runs_open", "status", match=TYPED), "{{status}}"),),
        ),
        Panel(
            "Suspended",
            "Runs that wait for a timer, an event, a child run or a decision.",
            (Query(whole("holdfast_runs_suspended", "type", match=TYPED), "{{type}}"),),
        ),
        Panel(
            "Retried",
            "Failed executions in a second whose run is executed again.",
            (Query(whole("holdfast_runs_retried_total", "type", match=TYPED, window=RATE), "{{type}}"),),
            "ops",
        ),
    ),
    "Queue": (
        Panel("Due runs", "By type.", (Query(whole("holdfast_due_runs", "type", match=TYPED), "{{type}}"),)),
        Panel(
            "Age of the oldest due run",
            "By type.",
            (Query(largest("holdfast_queue_age_seconds", "type", match=TYPED), "{{type}}"),),
            "s",
        ),
        Panel(
            "Without a worker",
            "Due runs that no live worker can execute.",
            (Query(whole("holdfast_unclaimable_runs", "type", match=TYPED), "{{type}}"),),
        ),
        Panel(
            "Claim latency",
            "From the time a run is due until a worker has it.",
            tuple(quantiles("holdfast_claim_latency_seconds", "type", match=TYPED)),
            "s",
        ),
        Panel(
            "Resume latency",
            "From the time a waiting run is woken until a worker has it.",
            tuple(quantiles("holdfast_resume_latency_seconds", "type", match=TYPED)),
            "s",
        ),
        Panel(
            "Limits in force",
            "Limits whose places are all taken.",
            (Query(largest("holdfast_limits_at_cap"), "limits"),),
        ),
    ),
    "Workers": (
        Panel(
            "Slots",
            "Runs that the scraped workers can execute at once, and those that they execute.",
            (
                Query(added("holdfast_worker_slots"), "slots"),
                Query(added("holdfast_worker_slots_busy"), "busy"),
                Query(added("holdfast_worker_stragglers"), "stragglers"),
            ),
        ),
        Panel(
            "Executions",
            "Executions of runs that ended in a second, by outcome.",
            (Query(added("holdfast_executions_total", "outcome", match=TYPED, window=RATE), "{{outcome}}"),),
            "ops",
        ),
        Panel(
            "Step duration",
            "By type.",
            tuple(quantiles("holdfast_step_duration_seconds", "type", match=TYPED)),
            "s",
        ),
        Panel(
            "Step retries",
            "Steps retried in a second, by type.",
            (Query(added("holdfast_step_retries_total", "type", match=TYPED, window=RATE), "{{type}}"),),
            "ops",
        ),
        Panel(
            "Lost leases",
            "Leases in a second that a worker found lost, and that the store saw expire.",
            (
                Query(added("holdfast_leases_lost_total", match=TYPED, window=RATE), "lost"),
                Query(whole("holdfast_leases_expired_total", match=TYPED, window=RATE), "expired"),
            ),
            "ops",
        ),
        Panel(
            "Errors of the engine",
            "Unforeseen errors in a second; each is in the log of its process.",
            (Query(added("holdfast_engine_errors_total", window=RATE), "errors"),),
            "ops",
        ),
    ),
    "Outbox, schedules and events": (
        Panel("Pending messages", "By sink.", (Query(whole("holdfast_outbox_pending", "sink"), "{{sink}}"),)),
        Panel(
            "Oldest pending message",
            "By sink.",
            (Query(largest("holdfast_outbox_lag_seconds", "sink"), "{{sink}}"),),
            "s",
        ),
        Panel(
            "Messages",
            "Tries to deliver a message in a second.",
            (
                Query(added("holdfast_messages_sent_total", "sink", window=RATE), "{{sink}} sent"),
                Query(added("holdfast_messages_failed_total", "sink", window=RATE), "{{sink}} failed"),
            ),
            "ops",
        ),
        Panel(
            "Schedules",
            "Runs that schedules start in a second.",
            (Query(added("holdfast_schedules_fired_total", window=RATE), "fired"),),
            "ops",
        ),
        Panel(
            "Late schedules",
            "How late the schedules fire, and the age of the oldest time that is due.",
            (
                *quantiles("holdfast_schedule_lateness_seconds"),
                Query(largest("holdfast_schedules_late_seconds"), "due"),
            ),
            "s",
        ),
        Panel(
            "Undelivered events",
            "Recorded events that have not reached all waiting runs.",
            (Query(largest("holdfast_events_undelivered"), "events"),),
        ),
    ),
    "Store": (
        Panel(
            "Calls",
            "Calls of the store in a second, by verb.",
            (Query(added("holdfast_store_call_seconds_count", "verb", window=RATE), "{{verb}}"),),
            "ops",
        ),
        Panel(
            "Duration of calls",
            "By verb.",
            tuple(quantiles("holdfast_store_call_seconds", "verb", shares=(0.95,))),
            "s",
        ),
        Panel(
            "Errors",
            "Calls in a second that the store did not carry out, by verb and error.",
            (
                Query(
                    added("holdfast_store_errors_total", "verb", "error", window=RATE), "{{verb}} {{error}}"
                ),
            ),
            "ops",
        ),
    ),
}


def expressions() -> list[str]:
    """Return all expressions, with ranges that Prometheus itself can parse instead of Grafana's variables."""
    found = [query.expression for panels in ROWS.values() for panel in panels for query in panel.queries]
    return [
        one.replace("$__rate_interval", "5m").replace("$store", ".*").replace("$type", ".*") for one in found
    ]
