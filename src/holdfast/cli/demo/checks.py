"""The checks of the demo: it compares what it shows with the ledger outside the store, and with the store."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import SECOND

from .scenario import COURIER, TOPIC, Scenario

RESULT = f"parcel from shelf B4 left with {COURIER}"
RECORDED = {"reserve", "charge", "pack", "sleep", f"event:{TOPIC}", "thank"}
# charge fails once by design; pack was running when its process was killed.
EXECUTIONS = {"reserve": 1, "charge": 2, "pack": 2, "thank": 1}

_COUNTS = """\
reserve and thank ran once; charge twice: its first attempt failed;
pack twice: its process died before the result was recorded
(a step runs at least once; see ctx.idempotency_key)"""


class Check(NamedTuple):
    """A sentence, whether it is true, and the evidence."""

    text: str
    true: bool
    evidence: str


def checks(demo: Scenario) -> Iterator[Check]:
    """Return all checks of the demo."""
    yield _succeeded(demo)
    yield _killed(demo)
    yield _taken_over(demo)
    yield _never_again(demo)
    yield _counted(demo)
    yield _recorded_once(demo)


def _succeeded(demo: Scenario) -> Check:
    run = demo.run
    true = run is not None and run.status is Status.SUCCEEDED and run.result == RESULT
    return Check(
        "the run succeeded, with the right result", true, f"{run and run.status}: {run and run.result}"
    )


def _killed(demo: Scenario) -> Check:
    first = demo.workers[0]
    held = [one for one in demo.executed() if one.step == "pack" and one.pid == first.pid]
    true = first.code == -signal.SIGKILL and len(held) == 1 and held[0].at < demo.killed_at
    return Check(
        "worker 1 was killed by SIGKILL while it executed pack",
        true,
        f"exit {first.code}, pack executed {len(held)} times",
    )


def _taken_over(demo: Scenario) -> Check:
    expired = [entry for entry in demo.trail if entry.type == "lease_expired"]
    pids = {one.pid for one in demo.executed()}
    true = len(expired) == 1 and pids == {worker.pid for worker in demo.workers} and len(demo.workers) == 2
    return Check(
        "its lease expired, and worker 2, another process, continued the run",
        true,
        f"{len(expired)} leases expired, processes that executed steps: {sorted(pids)}",
    )


def _never_again(demo: Scenario) -> Check:
    """The main promise: once a step's result is recorded, its code never runs again."""
    finished = {step.key: (step.finished_at or 0) / SECOND for step in demo.steps}
    late = [
        f"{one.step} by {one.pid}" for one in demo.executed() if one.at > finished.get(one.step, float("inf"))
    ]
    second = {one.step for one in demo.executed() if one.pid == demo.workers[-1].pid}
    true = not late and not second & {"reserve", "charge"} and bool(finished)
    return Check(
        "no recorded step ran again: worker 2 did not execute reserve or charge",
        true,
        f"executed after they were recorded: {late or 'none'}; by worker 2: {sorted(second)}",
    )


def _counted(demo: Scenario) -> Check:
    counted = dict(Counter(one.step for one in demo.executed()))
    counts = ", ".join(f"{step} {times}x" for step, times in counted.items())
    return Check(_COUNTS, counted == EXECUTIONS, counts)


def _recorded_once(demo: Scenario) -> Check:
    keys = [step.key for step in demo.steps if step.status is StepStatus.SUCCEEDED]
    rows = Counter(
        entry.data.get("step") for entry in demo.trail if entry.type in ("step_succeeded", "woken")
    )
    true = (
        len(keys) == len(RECORDED) == len(demo.steps)
        and set(keys) == RECORDED == set(rows)
        and set(rows.values()) == {1}
    )
    return Check(
        f"each of the {len(RECORDED)} steps has exactly one recorded result", true, f"{', '.join(keys)}"
    )
