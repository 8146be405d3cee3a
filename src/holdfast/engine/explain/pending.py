"""Reasons why no worker executes a pending run, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.engine.definitions import RESERVED
from holdfast.engine.worker.crash_quota import ALONE, crashed_quota
from holdfast.escaping import escaped, inline
from holdfast.records import Hold, Instant, Presence, Run, Step, moment
from holdfast.sealing.envelope import OURS
from holdfast.shell import command_of, line_of

from .explanation import ERROR_MAX, SHOWN, Explanation, Known, at_text, few, quoted, silent


def pending(run: Run, known: Known) -> Explanation:
    now = moment(known.now)
    data: dict[str, Any] = {"run_at": run.run_at, "attempt": run.attempt, "type": run.type}
    if run.run_at > now:
        return _later(run, known, data)
    able = [
        one
        for one in known.workers
        if run.type in one.types and (one.tenants is None or run.tenant in one.tenants)
    ]
    # A type of another runtime is held back only while none of its workers is live.
    elsewhere = {hold.runtime for hold in known.holds if hold.why == "runtime"}
    if elsewhere:
        able = [one for one in able if one.runtime in elsewhere]
    holds = [hold for hold in known.holds if hold.why != "runtime" or not able]
    if holds:
        also = "" if able or elsewhere else f". Also: {_nobody_can(run, known)}"
        return _held_back(holds, data, also)
    if not able and (lacking := lacked(run.type, known.workers)):
        text = (
            f"A live worker has this plan, but no handler for the task {lacking}: "
            "write @plan.task(name) and start the worker again."
        )
        return Explanation("no_worker", text, {**data, "missing": lacking})
    if not able:
        return Explanation("no_worker", f"{_nobody_can(run, known)}.", data)
    named = few([_presence(one, run, now) for one in able[: SHOWN + 1]], len(able))
    text = f"It is due since {at_text(run.run_at)} and waits for a free slot of {named}{silent(able, now)}"
    data = {**data, "workers": [one.worker for one in able]}
    return _crashed(run, able, text, data) if run.crashes else Explanation("queued", f"{text}.", data)


def _nobody_can(run: Run, known: Known) -> str:
    type_ = inline(run.type)
    others = sorted(inline(one.worker) for one in known.workers if run.type in one.types)
    if others:
        return (
            f"No live worker serves tenant {inline(run.tenant)} ({few(others)} can run {type_}, but "
            f"only for other tenants): start one with "
            f"`holdfast worker MODULE:APP --tenant {line_of(escaped(run.tenant))}`"
        )
    names = {inline(name) for one in known.workers for name in one.types if not name.startswith(RESERVED)}
    there = few(sorted(names)) or "none"
    return (
        f"No live worker can run {type_} (live workers can run: {there}): "
        f"start one with `holdfast worker MODULE:APP`"
    )


def lacked(type_: str, workers: Sequence[Presence]) -> str:
    """The tasks of a plan that a live worker has no handler for."""
    names = next((tasks for one in workers if (tasks := one.lacking.get(type_))), ())
    return few([inline(name) for name in names])


def _crashed(run: Run, able: Sequence[Presence], text: str, data: dict[str, Any]) -> Explanation:
    most = crashed_quota(max(one.slots for one in able), ())[min(run.crashes, ALONE) - 1]
    begins = (
        "executes only 1 such run"
        if run.crashes >= ALONE
        else f"begins only {most} such run{'s' * (most > 1)}"
    )
    rule = (
        f"its worker died {run.crashes} time{'s' * (run.crashes > 1)}: a worker {begins} "
        "at a time, so that a run that kills its worker does not stop others"
    )
    return Explanation("queued", f"{text}; {rule}.", {**data, "crashes": run.crashes, "at_once": most})


def _presence(one: Presence, run: Run, now: datetime) -> str:
    # A worker that was killed counts as live for a while: add facts that show it is dead.
    died = ", and its lease of this run expired" if f"of {one.worker} " in (run.last_error or "") else ""
    return f"{inline(one.worker)} (last heartbeat {_ago(one.seen_at, now)} ago{died})"


def _later(run: Run, known: Known, data: dict[str, Any]) -> Explanation:
    at, error, why = at_text(run.run_at), run.error, inline(run.last_error, ERROR_MAX)
    if run.last_error is None:
        return Explanation("scheduled", f"It is due at {at}.", data)
    data = {**data, "error": run.last_error, "step": None if error is None else error.step}
    match "" if error is None else error.kind:
        case "no_handler" if error is not None:
            message = inline(error.message, ERROR_MAX)
            text = f"{message[:1].upper()}{message[1:]}; the next attempt is at {at}."
            return Explanation("no_handler", text, data)
        case kind if kind == OURS:
            text = (
                f"A worker could not decrypt or encrypt a value of it ({why}); the next attempt is at {at}."
            )
            return Explanation("sealed", text, data)
        case "full":
            text = (
                "A worker had no room for its large record beside other large runs; the next attempt is at "
                f"{at}."
            )
            return Explanation("full", text, data)
        case "lease_expired":
            times = f"{run.crashes} time{'s' * (run.crashes > 1)} in a row"
            text = f"Its worker died {times} ({why}); the next attempt is at {at}."
            return Explanation("crashed", text, data)
        case _:
            step = known.failed
            failed = "It" if step is None else f"Its step {quoted(step.key)}"
            text = f"{failed} failed ({why}); the next attempt, {_next(run, step)}, is at {at}."
            return Explanation("retry", text, data)


def _next(run: Run, step: Step | None) -> str:
    """The number of the next attempt. A step of code counts its own attempts; crashes do not count."""
    if run.kind == "code" and step is not None:
        return f"number {step.attempts + 1}"
    most = run.max_attempts if step is None else step.max_attempts or run.max_attempts
    return f"{run.attempt - run.crashes + 1} of {most}"


def _held_back(holds: Sequence[Hold], data: dict[str, Any], also: str) -> Explanation:
    reasons = "; ".join(_hold(one) for one in holds)
    reason = "key_paused" if holds[0].why == "paused" else holds[0].why  # the run itself is not paused
    return Explanation(reason, f"It is due, but {reasons}{also}.", {**data, "held_back": holds})


def _hold(hold: Hold) -> str:
    rule = escaped(hold.rule)
    whose = f"{hold.scope} {inline(hold.name)}" + (
        f" (rule {inline(rule)})" if hold.rule != hold.name else ""
    )
    match hold.why:
        case "disabled":
            return f"{whose} is disabled: `{command_of('registry enable', rule)}` enables it"
        case "runtime":
            text = f"{whose} is for workers of runtime {inline(hold.runtime)}, and none is live"
            other = command_of("registry set", rule, options="--runtime …")
            return f"{text}: `{other}` chooses another runtime"
        case "concurrency":
            return (
                f"{whose} is limited to {hold.allowed} at once, and {hold.used} are running: {_change(hold)}"
            )
        case "rate":
            free = f", the next one is possible at {at_text(hold.until)}" if hold.until is not None else ""
            text = (
                f"{whose} is limited to {hold.allowed} claims in its period, and {hold.used} were made{free}"
            )
            return f"{text}: {_change(hold)}"
        case _:
            resumes = f"`{command_of('limit resume', rule)}` ends the pause"
            return f"{whose} is paused until {at_text(hold.until)}: {resumes}"


def _change(hold: Hold) -> str:
    rule = line_of(escaped(hold.rule))
    return (
        f"`holdfast limit ls` shows the limits, `holdfast limit set --{hold.scope} {rule} …` changes this one"
    )


def _ago(seen_at: Instant, now: datetime) -> str:
    return f"{max(0, round((now - moment(seen_at)).total_seconds()))} s"
