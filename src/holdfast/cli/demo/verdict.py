"""What the demo claims, and whether it is true: by the ledger outside the store, and by the store."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import SECOND

from .play import COURIER, TOPIC, Play

RESULT = f"parcel from shelf B4 left with {COURIER}"
RECORDED = {"reserve", "charge", "pack", "sleep", f"event:{TOPIC}", "thank"}
# charge fails once by design; pack was running when its process was killed.
EXECUTIONS = {"reserve": 1, "charge": 2, "pack": 2, "thank": 1}

_HONEST = """\
reserve and thank ran once; charge twice, for its first try failed;
pack twice: a step whose process dies before its result is recorded
must run again (at least once; ctx.idempotency_key is made for that)"""


class Claim(NamedTuple):
    """One sentence, and whether the evidence bears it out."""

    text: str
    true: bool
    evidence: str


def claims(play: Play) -> Iterator[Claim]:
    """All that the demo says of itself."""
    yield _succeeded(play)
    yield _killed(play)
    yield _taken_over(play)
    yield _never_again(play)
    yield _counted(play)
    yield _recorded_once(play)


def _succeeded(play: Play) -> Claim:
    run = play.run
    true = run is not None and run.status is Status.SUCCEEDED and run.result == RESULT
    return Claim(
        "the run succeeded, with the right result", true, f"{run and run.status}: {run and run.result}"
    )


def _killed(play: Play) -> Claim:
    first = play.actors[0]
    held = [one for one in play.executed() if one.step == "pack" and one.pid == first.pid]
    true = first.code == -signal.SIGKILL and len(held) == 1 and held[0].at < play.killed_at
    return Claim(
        "worker 1 was killed by SIGKILL while it packed",
        true,
        f"exit {first.code}, packing {len(held)} times",
    )


def _taken_over(play: Play) -> Claim:
    expired = [entry for entry in play.trail if entry.type == "lease_expired"]
    pids = {one.pid for one in play.executed()}
    true = len(expired) == 1 and pids == {actor.pid for actor in play.actors} and len(play.actors) == 2
    return Claim(
        "its lease expired and worker 2, another process, went on",
        true,
        f"{len(expired)} leases expired, processes at work: {sorted(pids)}",
    )


def _never_again(play: Play) -> Claim:
    """The heart of it: once a step's result is recorded, its code never begins again."""
    finished = {step.key: (step.finished_at or 0) / SECOND for step in play.steps}
    late = [
        f"{one.step} by {one.pid}" for one in play.executed() if one.at > finished.get(one.step, float("inf"))
    ]
    second = {one.step for one in play.executed() if one.pid == play.actors[-1].pid}
    true = not late and not second & {"reserve", "charge"} and bool(finished)
    return Claim(
        "no recorded step ran again: worker 2 never reserved nor charged",
        true,
        f"after their record: {late or 'none'}; by worker 2: {sorted(second)}",
    )


def _counted(play: Play) -> Claim:
    counted = dict(Counter(one.step for one in play.executed()))
    told = ", ".join(f"{step} {times}x" for step, times in counted.items())
    return Claim(_HONEST, counted == EXECUTIONS, told)


def _recorded_once(play: Play) -> Claim:
    keys = [step.key for step in play.steps if step.status is StepStatus.SUCCEEDED]
    rows = Counter(
        entry.data.get("step") for entry in play.trail if entry.type in ("step_succeeded", "woken")
    )
    true = (
        len(keys) == len(RECORDED) == len(play.steps)
        and set(keys) == RECORDED == set(rows)
        and set(rows.values()) == {1}
    )
    return Claim(
        f"each of the {len(RECORDED)} steps has exactly one result in the record", true, f"{', '.join(keys)}"
    )
