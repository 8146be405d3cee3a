"""Why a run is not moving, in words and in data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any
from uuid import UUID

import msgspec

from holdfast.contract import BUDGET
from holdfast.escaping import escaped
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Hold, Instant, Presence, Run, Step, moment
from holdfast.records.reading import read_object
from holdfast.sealing.envelope import OURS

from .crashed import ALONE, crashed_quota

SHOWN = 5  # waits, workers and types that are told of in words; the data has all waits
ERROR_MAX = 500  # characters of an error's message
LATE_SECONDS = 10.0  # a keeper comes by every second: what is later than this is seen by none


class Explanation(msgspec.Struct, frozen=True):
    """`reason` is one stable word, `text` a sentence, `data` what it is made of."""

    reason: str
    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        """The sentence."""
        return self.text


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around a run, as far as it matters: each is looked up only where it does."""

    now: Instant
    workers: Sequence[Presence] = ()  # those who are there, for a run that is pending or overdue
    holds: Sequence[Hold] = ()  # what keeps it from being claimed, likewise
    failed: Step | None = None  # the step because of which it is tried again
    paused_by: str = ""
    children: Mapping[UUID, Run] = {}  # the first few that it waits for


def explain(run: Run, known: Known) -> Explanation:
    """Say what this run is waiting for."""
    if run.deleted_at is not None:
        said = f"It was deleted at {_at(run.deleted_at)}, {run.status}: until it is purged"
        said = f"{said} `holdfast restore {run.id}` shows it again."
        return Explanation("deleted", said, {"deleted_at": run.deleted_at, "status": run.status})
    if run.status in FINAL:
        return _ended(run)
    match run.status:
        case Status.LEASED:
            return _leased(run, known)
        case Status.WAITING:
            return Explanation(
                "waiting", f"It waits for {_all(run, known)}.", {"waiting_on": _waits(run, known)}
            )
        case Status.PAUSED:
            return _paused(run, known)
        case _:
            return _pending(run, known)


def _ended(run: Run) -> Explanation:
    why = f": {escaped(run.last_error, ERROR_MAX)}" if run.last_error else ""
    mend = f"; {way_on(run, str(run.id))}" if run.status is Status.FAILED else ""
    has = "was" if run.status is Status.CANCELLED else "has"
    return Explanation(
        str(run.status),
        f"It {has} {run.status} at {_at(run.finished_at)}{why}{mend}.",
        {"finished_at": run.finished_at, "error": run.last_error},
    )


def way_on(run: Run, name: str) -> str:
    """What may help a failed run. Retried with the same code, drift and a full history fail again."""
    kind = run.error.kind if run.error is not None and run.kind == "code" else ""
    if kind == "drift":
        return f"`holdfast rewind {name} STEP` forgets the step that the code has changed, and all later ones"
    if kind == "history":
        return (
            f"`holdfast rewind {name} STEP` forgets a step and all later ones; `ctx.continue_as` needs fewer"
        )
    return f"`holdfast retry {name}` lets it go on where it failed"


def _leased(run: Run, known: Known) -> Explanation:
    data: dict[str, Any] = {
        "leased_by": run.leased_by,
        "lease_until": run.lease_until,
        "attempt": run.attempt,
    }
    if run.lease_until is not None and run.lease_until < moment(known.now):
        return Explanation(
            "lease_expired",
            f"Its worker {escaped(run.leased_by)} has not renewed its lease, which ended at "
            f"{_at(run.lease_until)}: the next keeper's round gives it to another"
            f"{_nobody(run.lease_until, known, but=run.leased_by)}.",
            data,
        )
    waits = f"; beside that it waits for {_all(run, known)}" if run.waiting_on else ""
    return Explanation(
        "running",
        f"Worker {escaped(run.leased_by)} executes it{_again(run)}, with a lease until "
        f"{_at(run.lease_until)}{_pause(run)}{waits}.",
        {**data, "pause_asked_by": run.pause_asked_by, "waiting_on": _waits(run, known)},
    )


def _again(run: Run) -> str:
    crashed = f", {run.crashes} crashed" if run.crashes else ""
    return f" (execution {run.attempt} since its last progress{crashed})" if run.attempt > 1 else ""


def _nobody(since: datetime, known: Known, but: str | None = None) -> str:
    """That nobody is there to see to what is overdue since then, if so."""
    if any(one.worker != but for one in known.workers):
        return ""
    late = (moment(known.now) - since).total_seconds() > LATE_SECONDS
    return f", but no {'other ' * bool(known.workers)}worker {'or keeper ' * late}is live: start one"


def _pause(run: Run) -> str:
    match run.pause_asked_by:
        case None:
            return ""
        case by if by == BUDGET:
            return "; it has reached its budget and pauses at its next step"
        case by:  # empty: whoever asked for it did not say who he is
            whose = f" by {_quoted(by)}" if by else ""
            return f"; a pause is asked for{whose} and comes at its next step"


def _paused(run: Run, known: Known) -> Explanation:
    data = {"paused_by": known.paused_by, "waiting_on": _waits(run, known)}
    waits = f" It waits for {_all(run, known)}." if run.waiting_on else ""
    if known.paused_by == BUDGET and run.budget is not None:
        said = f"It has reached its budget: it has cost {run.cost:g} of {run.budget:g}."
        said = f"{said} `holdfast resume {run.id}` lets it go on beyond that."
        return Explanation("budget", said + waits, {**data, "cost": run.cost, "budget": run.budget})
    by = f" by {escaped(known.paused_by)}" if known.paused_by else ""
    said = f"It was paused{by}: `holdfast resume {run.id}` lets it go on."
    return Explanation("paused", said + waits, data)


# What it waits for.


def _all(run: Run, known: Known) -> str:
    """The first few in words."""
    if not run.waiting_on:
        return "nothing that is known: `holdfast doctor` looks for runs without a way on"
    words = [_wait(run, step, known) for step in run.waiting_on[:SHOWN]]
    left = len(run.waiting_on) - SHOWN
    return "; ".join(words) + (f"; and {left} more" if left > 0 else "")


def _wait(run: Run, step: Step, known: Known) -> str:
    since = "" if step.started_at is None else f" since {_at(moment(step.started_at))}"
    return f"{_what(step, known)}{since}{_until(step, known)}{_mend(run, step, known)}"


def _what(step: Step, known: Known) -> str:
    match step.kind:
        case StepKind.SLEEP:
            return f"a timer ({escaped(step.key)})"
        case StepKind.EVENT:
            return f"an event on {_quoted(step.topic)}"
        case StepKind.APPROVAL:
            asked = _asked(step)
            return f"a decision at gate {_quoted(step.key)}" + (f" ({asked})" if asked else "")
        case StepKind.CHILD:
            child = known.children.get(step.child) if step.child is not None else None
            how = f" ({escaped(child.type)}, {child.status})" if child is not None else ""
            return f"its child run {step.child}{how}, called as {_quoted(step.key)},"
        case _:
            topic = f" for an event on {_quoted(step.topic)}" if step.topic is not None else ""
            return f"its task {_quoted(step.key)}, which waits{topic}"


def _until(step: Step, known: Known) -> str:
    if step.due_at is None:
        return ""
    due_at, late = moment(step.due_at), ""
    if step.due_at <= known.now:
        late = f": its time has come, and the next keeper's round sees to it{_nobody(due_at, known)}"
    return f", until {_at(due_at)}{late}"


def _mend(run: Run, step: Step, known: Known) -> str:
    if step.kind is StepKind.APPROVAL:
        return f": `holdfast approve {run.id} {quote(escaped(step.key))}`, or `reject`, decides"
    child = known.children.get(step.child) if step.child is not None else None
    if child is not None and child.deleted_at is not None:
        return (
            f", which is deleted: `holdfast restore {child.id}` lets it go on, else it is `gone` once purged"
        )
    return ""


def _asked(step: Step) -> str:
    """The question of a gate in a few words; of one that is sealed nothing."""
    return escaped(read_object(step.ask).get("ask") or "")


def _waits(run: Run, known: Known) -> list[dict[str, Any]]:
    return [
        {
            "step": one.key,
            "kind": str(one.kind),
            "topic": one.topic,
            "due_at": None if one.due_at is None else moment(one.due_at),
            "since": None if one.started_at is None else moment(one.started_at),
            **({"ask": _asked(one), "digest": one.digest} if one.kind is StepKind.APPROVAL else {}),
            **(_child(one, known) if one.kind is StepKind.CHILD else {}),
        }
        for one in run.waiting_on
    ]


def _child(step: Step, known: Known) -> dict[str, Any]:
    child = known.children.get(step.child) if step.child is not None else None
    return {
        "child": step.child,
        "child_status": None if child is None else str(child.status),
        "child_deleted_at": None if child is None else child.deleted_at,
    }


# What keeps a pending one from being taken.


def _pending(run: Run, known: Known) -> Explanation:
    now = moment(known.now)
    data: dict[str, Any] = {"run_at": run.run_at, "attempt": run.attempt, "type": run.type}
    if run.run_at > now:
        return _later(run, known, data)
    able = [
        one
        for one in known.workers
        if run.type in one.types and (one.tenants is None or run.tenant in one.tenants)
    ]
    # A type of another runtime is held back from us only as long as none of its workers is here.
    elsewhere = {hold.runtime for hold in known.holds if hold.why == "runtime"}
    if elsewhere:
        able = [one for one in able if one.runtime in elsewhere]
    holds = [hold for hold in known.holds if hold.why != "runtime" or not able]
    if holds:
        lacking_too = "" if able or elsewhere else f". Besides: {_nobody_can(run, known)}"
        return _held_back(holds, data, lacking_too)
    if not able and (lacking := lacked(run.type, known.workers)):
        said = f"A live worker has this plan, but no handler of {lacking}"
        said = f"{said}: write @plan.task(name) and start the worker again."
        return Explanation("no_worker", said, {**data, "missing": lacking})
    if not able:
        return Explanation("no_worker", f"{_nobody_can(run, known)}.", data)
    heard = _few([_heard(one, run, now) for one in able[: SHOWN + 1]], len(able))
    said = f"It is due since {_at(run.run_at)} and waits for a free slot of {heard}"
    data = {**data, "workers": [one.worker for one in able]}
    return _suspect(run, able, said, data) if run.crashes else Explanation("queued", f"{said}.", data)


def _nobody_can(run: Run, known: Known) -> str:
    type_ = escaped(run.type)
    others = sorted(escaped(one.worker) for one in known.workers if run.type in one.types)
    if others:
        return (
            f"No live worker serves tenant {escaped(run.tenant)} ({_few(others)} can run {type_}, but for "
            f"other tenants only): start one with "
            f"`holdfast worker MODULE:APP --tenant {quote(escaped(run.tenant))}`"
        )
    there = _few(sorted({escaped(name) for one in known.workers for name in one.types})) or "none"
    return (
        f"No live worker can run {type_} (workers here run: {there}): "
        f"start one with `holdfast worker MODULE:APP`"
    )


def lacked(type_: str, workers: Sequence[Presence]) -> str:
    """The tasks that a live worker knows of and has no handler for: why nobody takes this plan."""
    names = next((tasks for one in workers if (tasks := one.lacking.get(type_))), ())
    return _few([escaped(name) for name in names])


def _suspect(run: Run, able: Sequence[Presence], said: str, data: dict[str, Any]) -> Explanation:
    room = crashed_quota(max(one.slots for one in able), ())[min(run.crashes, ALONE) - 1]
    begins = "executes 1 such run at a time" if run.crashes >= ALONE else f"begins {room} such at a time"
    rule = (
        f"it has crashed {run.crashes} time{'s' * (run.crashes > 1)}: a worker {begins}, so that one that "
        f"kills its worker is soon alone"
    )
    return Explanation("queued", f"{said}; {rule}.", {**data, "crashes": run.crashes, "at_once": room})


def _heard(one: Presence, run: Run, now: datetime) -> str:
    # One that was killed counts as live for a while yet: say what speaks against it.
    died = ", and it let the lease of this run end" if f"of {one.worker} " in (run.last_error or "") else ""
    return f"{escaped(one.worker)} (heard of {_ago(one.seen_at, now)} ago{died})"


def _later(run: Run, known: Known, data: dict[str, Any]) -> Explanation:
    at, error, why = _at(run.run_at), run.error, escaped(run.last_error, ERROR_MAX)
    if run.last_error is None:
        return Explanation("scheduled", f"It is due at {at}.", data)
    data = {**data, "error": run.last_error, "step": None if error is None else error.step}
    match "" if error is None else error.kind:
        case "no_handler" if error is not None:
            message = escaped(error.message, ERROR_MAX)
            said = f"{message[:1].upper()}{message[1:]}; it is looked for again at {at}."
            return Explanation("no_handler", said, data)
        case kind if kind == OURS:
            said = f"The worker that took it could not open it ({why}); it is offered again at {at}"
            return Explanation("sealed", f"{said}.", data)
        case "full":
            said = f"The worker that took it has no room for so large a record; it is offered again at {at}"
            return Explanation("full", f"{said}.", data)
        case "lease_expired":
            said = f"{run.crashes} in a row of its workers have died with it ({why})"
            return Explanation("crashed", f"{said}; it is tried again at {at}.", data)
        case _:
            step = known.failed
            what = "It" if step is None else f"Its step {_quoted(step.key)}"
            said = f"{what} failed ({why}) and is tried again at {at}"
            return Explanation("retry", f"{said}, as {_next(run, step)}.", data)


def _next(run: Run, step: Step | None) -> str:
    """Which attempt comes: a step of code counts its own; crashes use none up."""
    if run.kind == "code" and step is not None:
        return f"its try {step.attempts + 1}"
    most = run.max_attempts if step is None else step.max_attempts or run.max_attempts
    return f"attempt {run.attempt - run.crashes + 1} of {most}"


def _held_back(holds: Sequence[Hold], data: dict[str, Any], besides: str) -> Explanation:
    said = "; ".join(_hold(one) for one in holds)
    reason = "key_paused" if holds[0].why == "paused" else holds[0].why  # the run itself is not paused
    return Explanation(reason, f"It is due, but {said}{besides}.", {**data, "held_back": holds})


def _hold(hold: Hold) -> str:
    rule = escaped(hold.rule)
    whose = f"{hold.scope} {escaped(hold.name)}" + (f" (by {rule})" if hold.rule != hold.name else "")
    match hold.why:
        case "disabled":
            return f"{whose} is disabled: `holdfast registry enable {rule}` lets it be taken"
        case "runtime":
            said = f"{whose} is for workers of runtime {escaped(hold.runtime)}, and none is live"
            return f"{said}: `holdfast registry set {rule} --runtime …` gives it to another"
        case "concurrency":
            return f"{hold.used} of {whose} are running, {hold.allowed} may be at once: {_change(hold)}"
        case "rate":
            free = f", and there is room at {_at(hold.until)}" if hold.until is not None else ""
            said = f"{hold.used} of {whose} were claimed in its period, {hold.allowed} may be{free}"
            return f"{said}: {_change(hold)}"
        case _:
            resumes = f"`holdfast limit resume {quote(rule)}` ends that"
            return f"{whose} is paused until {_at(hold.until)}: {resumes}"


def _change(hold: Hold) -> str:
    rule = quote(escaped(hold.rule))
    return f"`holdfast limit ls` shows it, `holdfast limit set --{hold.scope} {rule} …` sets another"


def _quoted(name: str | None) -> str:
    return f"'{escaped(name)}'"


def _few(names: Sequence[str], count: int | None = None) -> str:
    """The first few of so many."""
    left = (len(names) if count is None else count) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {left:,} more" if left > 0 else "")


def _ago(seen_at: Instant, now: datetime) -> str:
    return f"{max(0, round((now - moment(seen_at)).total_seconds()))} s"


def _at(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
