"""Why a run is not moving, in words and in data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Instant, Presence, Run, Step, moment


class Explanation(msgspec.Struct, frozen=True):
    """`reason` is one stable word, `text` a sentence, `data` what it is made of."""

    reason: str
    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        """The sentence."""
        return self.text


def explain(run: Run, at: Instant, workers: Sequence[Presence] = (), paused_by: str = "") -> Explanation:
    """Say what this run is waiting for; `workers` are those who are there, for a run that is pending."""
    now = moment(at)
    if run.status in FINAL:
        return _ended(run)
    match run.status:
        case Status.LEASED:
            return _leased(run, now)
        case Status.WAITING:
            return _waiting(run)
        case Status.PAUSED:
            by = f" by {paused_by}" if paused_by else ""
            said = f"It was paused{by}: `holdfast resume` lets it go on."
            return Explanation("paused", said, {"paused_by": paused_by, "waiting_on": _waits(run)})
        case _:
            return _pending(run, workers, now)


def _ended(run: Run) -> Explanation:
    why = f": {run.last_error}" if run.last_error else ""
    mend = "; `holdfast retry` lets it go on where it failed" if run.status is Status.FAILED else ""
    has = "was" if run.status is Status.CANCELLED else "has"
    return Explanation(
        str(run.status),
        f"It {has} {run.status} at {_at(run.finished_at)}{why}{mend}.",
        {"finished_at": run.finished_at, "error": run.last_error},
    )


def _leased(run: Run, now: datetime) -> Explanation:
    data: dict[str, Any] = {
        "leased_by": run.leased_by,
        "lease_until": run.lease_until,
        "attempt": run.attempt,
    }
    if run.lease_until is not None and run.lease_until < now:
        return Explanation(
            "lease_expired",
            f"Its worker {run.leased_by} has not renewed its lease, which ended at "
            f"{_at(run.lease_until)}: the next keeper's round gives it to another.",
            data,
        )
    pause = (
        f"; a pause is asked for by {run.pause_asked_by!r} and comes at its next step"
        if run.pause_asked_by
        else ""
    )
    return Explanation(
        "running",
        f"Worker {run.leased_by} executes it, attempt {run.attempt}, with a lease until "
        f"{_at(run.lease_until)}{pause}.",
        {**data, "pause_asked_by": run.pause_asked_by},
    )


def _waiting(run: Run) -> Explanation:
    waits = "; ".join(_wait(step) for step in run.waiting_on) or "nothing that is known"
    return Explanation("waiting", f"It waits for {waits}.", {"waiting_on": _waits(run)})


def _wait(step: Step) -> str:
    until = "" if step.due_at is None else f", until {_at(moment(step.due_at))}"
    since = "" if step.started_at is None else f" since {_at(moment(step.started_at))}"
    if step.kind is StepKind.SLEEP:
        return f"a timer ({step.key}){since}{until}"
    if step.kind is StepKind.EVENT:
        return f"an event on {step.topic!r}{since}{until}"
    return f"{step.kind} {step.key}{since}{until}"


def _waits(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "step": one.key,
            "kind": str(one.kind),
            "topic": one.topic,
            "due_at": None if one.due_at is None else moment(one.due_at),
            "since": None if one.started_at is None else moment(one.started_at),
        }
        for one in run.waiting_on
    ]


def _pending(run: Run, workers: Sequence[Presence], now: datetime) -> Explanation:
    data: dict[str, Any] = {"run_at": run.run_at, "attempt": run.attempt, "type": run.type}
    if run.run_at > now:
        if run.last_error:
            return Explanation(
                "retry",
                f"It failed ({run.last_error}) and is tried again at {_at(run.run_at)}.",
                {**data, "error": run.last_error},
            )
        return Explanation("scheduled", f"It is due at {_at(run.run_at)}.", data)
    able = [
        one for one in workers if run.type in one.types and (one.tenants is None or run.tenant in one.tenants)
    ]
    if not able:
        there = ", ".join(sorted({type_ for one in workers for type_ in one.types})) or "none"
        return Explanation(
            "no_worker",
            f"No live worker can run {run.type} (workers here run: {there}): "
            f"start one with `holdfast worker MODULE:APP`.",
            data,
        )
    heard = ", ".join(f"{one.worker} (heard of {_ago(one.seen_at, now)} ago)" for one in able)
    return Explanation(
        "queued",
        f"It is due since {_at(run.run_at)} and waits for a free slot of {heard}.",
        {**data, "workers": [one.worker for one in able]},
    )


def _ago(seen_at: Instant, now: datetime) -> str:
    return f"{max(0, round((now - moment(seen_at)).total_seconds()))} s"


def _at(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
