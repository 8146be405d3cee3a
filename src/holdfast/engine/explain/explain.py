"""The reason why a run is not moving, in words and in data."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import asdict

from holdfast.contract import BUDGET
from holdfast.escaping import inline
from holdfast.lifecycle import FINAL, Status, spoken_status
from holdfast.records import COST_UNIT, Run, moment
from holdfast.records.transfer import MOVED
from holdfast.records.units import amount
from holdfast.transfer.places import goes_to, is_away, moved_words

from .budgets import is_by_budget, limits, owner, reason_words
from .explanation import (
    ERROR_MAX,
    Explanation,
    Known,
    at_text,
    few,
    no_worker_live,
    paused_by,
    quoted,
)
from .pending import pending
from .waiting import child_data, child_text, waits_data, waits_text


def explain(run: Run, known: Known) -> Explanation:
    """Say what this run is waiting for."""
    if run.deleted_at is not None:
        text = (
            f"It was deleted at {at_text(run.deleted_at)}, with status {spoken_status(run.status)}. "
            f"`holdfast restore {run.id}` shows it again, until it is purged."
        )
        return Explanation("deleted", text, {"deleted_at": run.deleted_at, "status": run.status})
    if run.status in FINAL:
        return _ended(run, known)
    match run.status:
        case Status.LEASED:
            return _leased(run, known)
        case Status.WAITING:
            return Explanation(
                "waiting",
                f"It waits for {waits_text(run, known)}.{child_text(run, known)}",
                {"waiting_on": waits_data(run, known), **child_data(known)},
            )
        case Status.PAUSED:
            return _paused(run, known)
        case _:
            return pending(run, known)


def _ended(run: Run, known: Known) -> Explanation:
    why = f": {inline(run.last_error, ERROR_MAX)}" if run.last_error else ""
    moved = inline(moved_words(run), ERROR_MAX)
    child = known.failed.child if known.failed is not None else None
    fix = f"; {remedy(run, str(run.id), child)}" if run.status is Status.FAILED and not moved else ""
    if moved:
        why = f": {moved}" if run.status is Status.CANCELLED else f"{why}; {moved}"
        there = " and goes on there" * (run.status is Status.CANCELLED and goes_to(run) is not None)
        fix = there if run.pause_asked_by == MOVED else "; `holdfast move` ends the move"
    was = "was " * (run.status is Status.CANCELLED)
    return Explanation(
        str(run.status),
        f"It {was}{run.status} at {at_text(run.finished_at)}{why}{fix}.",
        {"finished_at": run.finished_at, "error": run.last_error, **({"child": child} if child else {})},
    )


def remedy(run: Run, name: str, child: UUID | None = None) -> str:
    """The command that may help a failed run. After drift or a full history, a retry would fail again.

    `child`: the child run whose failure made it fail.
    """
    if is_away(run):
        return "it moved to another store: retry it there"
    kind, message = (run.error.kind, run.error.message) if run.error is not None else ("", "")
    rerun = f"`holdfast rerun {name} --params …` starts a run with"
    if kind == "encoding" and message.startswith(f"params of {run.type} "):
        return f"a retry would fail again: {rerun} right ones"
    if kind in {"encoding", "usage"}:
        return f"a retry helps only when the code is mended: `holdfast retry {name}`; {rerun} other params"
    if run.kind != "code":
        kind = ""
    if kind == "drift":
        return (
            f"`holdfast rewind {name} STEP` forgets the step that the code has changed, and all later steps"
        )
    if kind == "history":
        return (
            f"`holdfast rewind {name} STEP` forgets a step and all later steps; "
            "`ctx.continue_as` goes on in a new run with an empty history"
        )
    if kind == "child_failed":
        anew = f"`holdfast retry {name}` starts a new child run from its beginning"
        return anew + (f"; to continue the child itself: `holdfast retry {child}`" if child else "")
    return f"`holdfast retry {name}` lets it continue where it failed"


def _leased(run: Run, known: Known) -> Explanation:
    data: dict[str, Any] = {
        "leased_by": run.leased_by,
        "lease_until": run.lease_until,
        "attempt": run.attempt,
    }
    if run.lease_until is not None and run.lease_until < moment(known.now):
        return Explanation(
            "lease_expired",
            f"Its worker {inline(run.leased_by)} has not renewed the lease, which expired at "
            f"{at_text(run.lease_until)}; a worker will make the run available to other workers"
            f"{no_worker_live(run.lease_until, known, but=run.leased_by)}.",
            data,
        )
    waits = f"; it also waits for {waits_text(run, known)}" if run.waiting_on else ""
    running = [asdict(one) for one in run.running]
    return Explanation(
        "running",
        f"Worker {inline(run.leased_by)} executes {_what(run, known)}{_again(run)}, with a lease until "
        f"{at_text(run.lease_until)}{_pause(run)}{waits}.{child_text(run, known)}",
        {
            **data,
            "running": running,
            "pause_asked_by": run.pause_asked_by,
            "waiting_on": waits_data(run, known),
            **child_data(known),
        },
    )


def _what(run: Run, known: Known) -> str:
    """The steps that have run for 2 s or longer; a step that began later is not known."""
    now = moment(known.now)
    named = [
        f"{quoted(one.step)} since {at_text(one.started_at)} ({_seconds(now, one.started_at)} s ago"
        f"{f', try {one.attempt}' if one.attempt > 1 else ''})"
        for one in run.running
    ]
    return f"its step{'s' * (len(named) > 1)} {few(named)}" if named else "it"


def _seconds(now: datetime, began: datetime) -> int:
    return max(0, round((now - began).total_seconds()))


def _again(run: Run) -> str:
    plural = "" if run.crashes == 1 else "s"
    crashed = f", {run.crashes} earlier execution{plural} crashed" if run.crashes else ""
    return f" (execution {run.attempt} since the last finished step{crashed})" if run.attempt > 1 else ""


def _pause(run: Run) -> str:
    match run.pause_asked_by:
        case None:
            return ""
        case by if by == BUDGET:
            return "; it has reached its budget and will pause at its next step"
        case by:  # empty: the person who asked gave no name
            whose = f" by {quoted(by)}" if by else ""
            return f"; a pause was requested{whose}, and it will pause at its next step"


def _paused(run: Run, known: Known) -> Explanation:
    data: dict[str, Any] = {
        "paused_by": paused_by(known), "waiting_on": waits_data(run, known), **child_data(known)
    }  # fmt: skip
    waits = f" It waits for {waits_text(run, known)}.{child_text(run, known)}" if run.waiting_on else ""
    if is_by_budget(run.pause_asked_by):
        spent, most = limits(run)
        top = owner(run) or run.id
        cost_max = round(float(known.paused.get("cost_max") or 0) * COST_UNIT)
        least = f"of at least {amount(spent + cost_max)}" if cost_max > 0 else f"above {amount(spent)}"
        text = (
            f"It is paused: {reason_words(run, known.paused)}. It has cost {amount(run.cost_units)}. "
            f"`holdfast resume {top} --budget N` lets it continue, with a budget {least}."
        )
        costs = {"cost": spent / COST_UNIT, "budget": most / COST_UNIT, "budget_of": top}
        step = {name: known.paused[name] for name in ("step", "cost_max") if name in known.paused}
        return Explanation("budget", text + waits, {**data, **costs, **step})
    by = f" by {inline(paused_by(known))}" if paused_by(known) else ""
    text = f"It was paused{by}: `holdfast resume {run.id}` lets it continue."
    return Explanation("paused", text + waits, data)
