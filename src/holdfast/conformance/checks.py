"""Checks that many cases share: executions, results, keys, leases, repeated items."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from holdfast.records import Run

from .faults import Fault
from .mistakes import Wrong
from .stage import Script, Stage
from .traffic import HEARTBEAT, Write, shown


def check_executions(script: Script, counts: dict[str, int], mistake: str = "step-repeated") -> None:
    """Check how often the functions of steps were called."""
    for step, expected in counts.items():
        calls = len(script.ledger.of(step))
        if calls != expected:
            raise Wrong(mistake, f"step {step} ran {times(calls)}, not {times(expected)}")


def check_at_most(script: Script, counts: dict[str, int], mistake: str = "step-repeated") -> None:
    """Check that the functions of steps were not called more often than this, while the run still goes on."""
    for step, expected in counts.items():
        calls = len(script.ledger.of(step))
        if calls > expected:
            raise Wrong(mistake, f"step {step} ran {times(calls)}, not {times(expected)}")


def check_keys(script: Script, keys: dict[str, list[str]]) -> None:
    """Check the idempotency keys that the executions of steps were given, and the run that they name."""
    for call in script.ledger.calls:
        if call.run != script.run:
            raise Wrong(
                "wrong-idempotency-key", f"step {call.step} named the run {call.run!r}, not {script.run}"
            )
    for step, expected in keys.items():
        given = [call.key for call in script.ledger.of(step)]
        wanted = [f"{script.run}:{key}" for key in expected]
        if given != wanted:
            raise Wrong("wrong-idempotency-key", f"step {step} was given {shown(given)}, not {shown(wanted)}")


def check_result(run: Run, expected: Any, mistake: str = "wrong-result") -> None:
    """Check the result of a run, exactly: numbers keep their digits, and floats their value."""
    found = json.loads(run.result_json or "null")
    if not same(found, expected):
        raise Wrong(mistake, f"{shown(found)} instead of {shown(expected)}")


def same(one: Any, other: Any) -> bool:
    """Compare JSON values; an integer and a float are the same only if no digit is lost."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return (type(one) is type(other) and one == other) or (
        {type(one), type(other)} == {int, float} and one == other
    )


async def check_lease_kept(stage: Stage, script: Script) -> None:
    """Check that no lease of a run has run out; if one has, say what its heartbeats did."""
    expired = await stage.client.trail(UUID(script.run), types=["lease_expired"])
    if not expired:
        return
    # Heartbeats that come again as soon as the step has ended come from the thread of the step.
    await stage.within(stage.lease_seconds, lambda: bool(stage.traffic.of(HEARTBEAT)))
    beats, calls = stage.traffic.of(HEARTBEAT), script.ledger.calls
    during = [one for one in beats if calls and calls[0].at <= one.at <= calls[0].at + stage.lease_seconds]
    lease = f"a lease of {stage.lease_seconds:g} s"
    if not beats and not stage.api.beats:
        raise Wrong("no-heartbeat", f"{lease} expired, and no heartbeat came at all")
    if calls and not during:
        raise Wrong("heartbeat-blocked", f"{lease} expired: no heartbeat came while step {calls[0].step} ran")
    named = times(len(stage.traffic.beats(script.run)))
    raise Wrong("no-heartbeat", f"{lease} expired; the run was {named} named in a heartbeat")


def check_repeated(stage: Stage, fault: Fault, script: Script, what: str) -> None:
    """Check that the item whose answer was lost came again, with the same seq."""
    if not fault.hits:
        raise Wrong("stuck", f"no {what} came")
    lost = fault.hits[-1]
    item = next(one for one in lost.items if one.get("run") == script.run)
    if not repeats(stage, lost.number, item):
        lost_item = f"{what} with seq {item.get('seq')}"
        seen = f"{lost_item} was applied, but its answer was lost, and it was never sent again"
        raise Wrong("dropped-result", seen)


def repeats(stage: Stage, number: int, item: dict[str, Any]) -> list[Write]:
    """Return the later items with the same run, fence and seq."""
    return [
        one
        for one in stage.traffic.writes(str(item.get("run")))
        if one.exchange.number > number
        and (one.item.get("fence"), one.item.get("seq")) == (item.get("fence"), item.get("seq"))
    ]


def times(number: int) -> str:
    """Return `once`, `twice`, `3 times`, `never`."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")
