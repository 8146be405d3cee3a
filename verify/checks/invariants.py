"""Invariants: each function lists the cases in which something happened that must never happen.

The functions read the store and the ledger after the end of an experiment. An effect may come twice: a worker
that dies between an effect and its commit leaves it unrecorded. Everything else is a breach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from holdfast.engine.app.handle import CONTINUED
from holdfast.lifecycle import FINAL, WAITS, Status, StepKind, StepStatus
from holdfast.records import COST_UNIT, Run, Step, TrailEntry
from verify.environment.ledger import Entry
from verify.workloads.workflows import costs

from . import relations
from .evidence import Evidence

Invariant = Callable[[Evidence], Iterator[str]]

# Rows that only the holder of a run can have written.
HOLDERS = frozenset(
    {
        "started", "heartbeat", "step_succeeded", "step_failed", "waiting", "approval_opened",
        "child_started", "log", "released", "succeeded",
    }
)  # fmt: skip
ENDS = frozenset({"lease_expired", "released", "paused", "cancelled", "rewound", "succeeded", "failed"})
FAR_SECONDS = 3600.0


def acked_start_missing(ev: Evidence) -> Iterator[str]:
    """I1: a start was acknowledged, and there is no such run."""
    return (f"run {run}" for run in ev.acked if run not in ev.runs)


def no_way_on(ev: Evidence) -> Iterator[str]:
    """I2: a run is neither finished, nor has it a lease, nor a time, topic, person or child that wakes it."""
    for run in ev.runs.values():
        if run.status not in FINAL and not _has_a_way_on(ev, run):
            yield f"run {run.id} is {run.status} and nothing will move it"


def _has_a_way_on(ev: Evidence, run: Run) -> bool:
    match run.status:
        case Status.LEASED:
            return run.leased_by is not None and run.lease_until is not None
        case Status.WAITING:
            return any(_will_be_settled(ev, step) for step in run.waiting_on)
        case Status.PENDING:
            return (run.run_at - run.updated_at).total_seconds() < FAR_SECONDS
        case _:
            return True


def _will_be_settled(ev: Evidence, step: Step) -> bool:
    """Return True when a wait will end. An ended child has told its parent by now, or never will."""
    if step.kind is StepKind.CHILD:
        child = None if step.child is None else ev.runs.get(step.child)
        return child is not None and child.status not in FINAL
    return step.kind is StepKind.APPROVAL or step.due_at is not None or step.topic is not None


def not_one_checkpoint(ev: Evidence) -> Iterator[str]:
    """I3: a finished run's step has no row, or two, or not just one row in the trail."""
    for run in ev.succeeded():
        rows = Counter(step.key for step in ev.steps[run.id] if step.status is StepStatus.SUCCEEDED)
        told = Counter(row.data["step"] for row in ev.trail[run.id] if row.type == "step_succeeded")
        for key in ev.wanted(run):
            if (rows[key], told[key]) != (1, 1):
                yield f"run {run.id} {key}: {rows[key]} checkpoints, {told[key]} rows in the trail"


def recorded_without_effect(ev: Evidence) -> Iterator[str]:
    """I4: a step is recorded, and the ledger knows of no effect."""
    effects = ev.of("effect")
    return (f"run {run.id} {step.key}" for run, step in ev.recorded() if not effects[str(run.id), step.key])


def older_fence(ev: Evidence) -> Iterator[str]:
    """I5: a worker wrote to a run that it did not hold at that time; replayed from the trail."""
    for run in ev.runs.values():
        steps = {step.key: step for step in ev.steps[run.id]}
        holder: int | None = None
        for row in ev.trail[run.id]:
            if row.type == "leased":
                holder = row.data["fence"]
                continue
            wrong = _wrong_writer(row, holder, run, steps)
            if wrong:
                yield f"run {run.id} {row.type} {row.data.get('step', '')}: {wrong}"
            given_up = row.type == "cancelled" and "step" in row.data  # a wait, not the run
            if (row.type in ENDS and not given_up) or row.data.get("status", Status.LEASED) != Status.LEASED:
                holder = None


def _wrong_writer(row: TrailEntry, holder: int | None, run: Run, steps: dict[str, Step]) -> str:
    if row.type in HOLDERS and holder is None and not _opens_by_itself(row, run, steps):
        return "nobody held it"
    if row.type in {"step_succeeded", "step_failed"}:
        step = steps.get(row.data["step"])
        if (
            step is not None
            and step.kind is StepKind.TASK
            and {step.fence, _made_under(step.output, step.fence)} != {holder}
        ):
            return f"written under fence {_made_under(step.output, step.fence)}, held under {holder}"
    if row.type == "succeeded" and _made_under(run.result_json, holder) != holder:
        return f"ended under fence {_made_under(run.result_json, holder)}, held under {holder}"
    return ""


def _opens_by_itself(row: TrailEntry, run: Run, steps: dict[str, Step]) -> bool:
    """Return True when no worker is needed: the end of a wait in a plan opens the next wait."""
    step = steps.get(row.data.get("step", ""))
    return run.kind == "plan" and step is not None and step.kind in WAITS


def _made_under(value: str | None, otherwise: int | None) -> int | None:
    """Return the fence that a value itself names as its maker's."""
    made = msgspec.json.decode(value) if value is not None else None
    return made.get("fence", otherwise) if isinstance(made, dict) else otherwise


def done_again(ev: Evidence) -> Iterator[str]:
    """I6: an effect came after its checkpoint was committed. A zombie's late effect is not that."""
    effects, commits = ev.of("effect"), ev.of("recorded")
    place = {id(entry): n for n, entry in enumerate(ev.entries)}
    for run, step in ev.recorded():
        name = (str(run.id), step.key)
        first = min((place[id(entry)] for entry in commits[name]), default=None)
        for entry in effects[name]:
            after = first is not None and place[id(entry)] > first and entry.fence >= step.fence
            if after or _is_after(entry, step):
                yield f"run {run.id} {step.key}: stands under fence {step.fence}, done under {entry.fence}"


def _is_after(effect: Entry, step: Step) -> bool:
    """Return True when the maker of the effect must have known of the record.

    A later holder was told of it, and the same holder wrote it. An older holder may not know yet.
    """
    late = step.finished_at is not None and effect.at > step.finished_at
    return effect.fence > step.fence or (effect.fence == step.fence and late)


def sums_differ(ev: Evidence) -> Iterator[str]:
    """I7: a finished run's amounts are not what its steps move: in its cost, its result or the ledger.

    Allowed duplicates count once. Every recorded attempt has the cost of its step. A run of a chain has also
    spent what the runs before it have spent.
    """
    effects = ev.of("effect")
    for run in ev.succeeded():
        wanted = ev.wanted(run)
        cost = _spent(ev, run)
        ledger = {key: {entry.amount for entry in effects[str(run.id), key]} for key in wanted}
        if run.cost_units != cost:
            yield f"run {run.id}: cost {run.cost_units / COST_UNIT:g}, its tries come to {cost / COST_UNIT:g}"
        went_on = (run.result_json or "").startswith(CONTINUED)
        if run.result is None or (not went_on and run.result["total"] != sum(wanted.values())):
            yield f"run {run.id}: result {run.result_json}, its steps come to {sum(wanted.values())}"
        if ledger != {key: {amount} for key, amount in wanted.items()}:
            yield f"run {run.id}: the ledger has {ledger}, wanted {wanted}"


def _spent(ev: Evidence, run: Run) -> int:
    """Return the cost of all attempts of a run and of the earlier runs of its chain."""
    wanted = ev.wanted(run)
    own = sum(costs(wanted.get(key, 0)) * tries for key, tries in _tries(ev, run).items()) * COST_UNIT
    before = ev.runs.get(UUID(run.labels["continued_from"])) if "continued_from" in run.labels else None
    return int(own) + (0 if before is None else _spent(ev, before))


def _tries(ev: Evidence, run: Run) -> dict[str, int]:
    """Return the recorded attempts of each step. A plan's row also counts attempts that crashed."""
    if run.kind != "plan":
        return {step.key: step.attempts for step in ev.steps[run.id] if step.kind is StepKind.TASK}
    return Counter(
        row.data["step"] for row in ev.trail[run.id] if row.type in {"retried", "waiting", "step_succeeded"}
    )


def two_values(ev: Evidence) -> Iterator[str]:
    """I8: two executions were given different values of a step or child, or another than is recorded."""
    stands = {
        (str(run.id), step.key): recorded_value(step.output) for run, step in ev.recorded() if step.output
    }
    for run in ev.runs.values():
        ended = (step for step in ev.steps[run.id] if step.kind is StepKind.CHILD and step.child in ev.runs)
        stands |= {
            (str(run.id), step.key): recorded_value(ev.runs[step.child].result_json)
            for step in ended
            if step.child
        }
    for name, entries in ev.of("seen").items():
        values = {entry.nonce for entry in entries} | {stands.get(name, "nothing")}
        if len(values) > 1:
            yield f"run {name[0]} {name[1]}: {sorted(values)}"


def recorded_value(output: str | None) -> str:
    """Return the nonce in the output of a step: it names the execution that made the value."""
    value = msgspec.json.decode(output or "null")
    return str(value.get("nonce", "")) if isinstance(value, dict) else ""


def log_differs(ev: Evidence) -> Iterator[str]:
    """TRAIL-1: a log line of a finished run is there twice, or not at all."""
    for run in ev.succeeded():
        logged = [row.data["message"] for row in ev.trail[run.id] if row.type == "log"]
        if logged != list(ev.logged(run)):
            yield f"run {run.id}: log rows {logged}"


def early_timer(ev: Evidence) -> Iterator[str]:
    """I9: a sleep ended before its time."""
    for run in ev.runs.values():
        for step in ev.steps[run.id]:
            ended = step.kind is StepKind.SLEEP and step.status is StepStatus.SUCCEEDED
            if ended and (step.finished_at or 0) < (step.due_at or 0):
                yield f"run {run.id} {step.key}: due at {step.due_at}, ended at {step.finished_at}"


def living_overtaken(ev: Evidence) -> Iterator[str]:
    """E19: a lease expired although its worker lived. Only for experiments without kills and stops."""
    return (f"run {row.run}: the lease of {row.data['worker']} expired" for row in ev.rows("lease_expired"))


def count_differs(ev: Evidence) -> Iterator[str]:
    """READ-4: a kept count is not the number of runs."""
    return (f"{one.kept} {one.status} of {one.type} for {one.tenant}: {one.real}" for one in ev.miscounts)


def sets_differ(ev: Evidence) -> Iterator[str]:
    """READ-4: a sorted set of Redis has an entry without its row, or a row has no entry."""
    return iter(ev.drift)


INVARIANTS: dict[str, Invariant] = {
    "I1 acked start missing": acked_start_missing,
    "I2 run without a way on": no_way_on,
    "I3 step with other than one checkpoint": not_one_checkpoint,
    "I4 recorded step without effect": recorded_without_effect,
    "I5 written under an older fence": older_fence,
    "I6 recorded step done again": done_again,
    "I7 sums differ": sums_differ,
    "I8 two values of one step": two_values,
    "I9 timer early": early_timer,
    "I10 step with other than one child": relations.not_one_child,
    "I11 news of a child before its end": relations.news_before_the_end,
    "I12 gate with other than one decision": relations.not_decided_once,
    "I13 waited, and called as if not": relations.begun_after_waiting,
    "OUT-1 message lost": relations.message_lost,
    "OUT-1 message invented": relations.message_invented,
    "OUT-1 message out of order": relations.message_out_of_order,
    "TRAIL-1 log row doubled or missing": log_differs,
    "READ-4 kept count differs": count_differs,
    "READ-4 set differs from its rows": sets_differ,
}
OVERTAKEN = {"E19 living worker overtaken": living_overtaken}
