"""Waits: sleeps, events, approvals, children, and runs that another worker has begun."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_executions, check_lease_kept, check_result, times
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.other_worker import OtherWorker
from holdfast.conformance.stage import Script, Stage
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import RunFilter

HOUR = 3600


async def _parked(stage: Stage, script: Script, what: str) -> None:
    """Wait until a run waits; one that stays leased is a mistake."""
    if not await stage.within(
        3 * stage.lease_seconds, lambda: bool(stage.traffic.writes(script.run, "park"))
    ):
        raise Wrong("wait-held", f"{what}, and no `park` came within three leases")
    await stage.until_run(script, [Status.WAITING], f"{what}: the run to wait")


@case("sleep")
async def sleep(stage: Stage) -> None:
    """Lets go of a run that sleeps, and answers recorded steps from the record when it comes back."""
    script = await stage.start({"step": "a", "value": 1}, {"sleep": HOUR * 1000}, {"step": "b", "value": 2})
    await _parked(stage, script, "the run sleeps for an hour")
    (open_wait,) = (await stage.run(script)).waiting_on
    due = (open_wait.due_at or 0) - (open_wait.started_at or 0)
    if abs(due / 1_000_000 - HOUR) > 60:
        raise Wrong("wrong-wait", f"a sleep of an hour is due after {due / 1_000_000:.0f} s")
    await stage.turn_clock(HOUR + 60)
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, "slept", 2])


@case("event")
async def event(stage: Stage) -> None:
    """Waits for an event, without holding the run."""
    script = await stage.start({"step": "a", "value": 1}, {"event": "event:1"}, {"step": "b", "value": 2})
    await _parked(stage, script, "the run awaits an event")
    await stage.client.emit("event:1", {"paid": True})
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, {"paid": True}, 2], "wrong-outcome")


@case("event-timeout")
async def event_timeout(stage: Stage) -> None:
    """Gives up an event that does not come in time."""
    script = await stage.start({"event": "never", "timeout_ms": HOUR * 1000}, {"step": "b", "value": 2})
    await _parked(stage, script, "the run awaits an event for an hour")
    (open_wait,) = (await stage.run(script)).waiting_on
    if open_wait.due_at is None:
        raise Wrong("wrong-wait", "an event with a timeout has no `delay_ms`")
    await stage.turn_clock(HOUR + 60)
    check_result(await stage.ended(script), ["timeout", 2], "wrong-outcome")


@case("already-there")
async def already_there(stage: Stage) -> None:
    """Goes on at once when a park is answered that the event is already there."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start(
        {"step": "a", "value": 1}, {"event": "there:1"}, {"step": "b", "value": 2}, ledger=ledger
    )
    await stage.until(lambda: bool(ledger.calls), "step a to begin")
    await stage.client.emit("there:1", "early")
    ledger.let_go()
    await stage.within(3 * stage.lease_seconds, lambda: bool(ledger.of("b")))
    parks = stage.traffic.writes(script.run, "park")
    was_there = any((one.answer or {}).get("status") == "leased" for one in parks)
    if was_there and not ledger.of("b"):
        raise Wrong("already-there", "the answer had the event in `settled`, and the next step never began")
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, "early", 2], "wrong-outcome")
    leased = len(await stage.client.trail(run.id, types=["leased"]))
    if leased != 1:
        raise Wrong("already-there", f"the run was claimed {times(leased)}, although it never had to wait")


@case("approval")
async def approval(stage: Stage) -> None:
    """Asks people for a decision; a rejection is no failure."""
    script = await stage.start({"approval": "ok", "ask": "Ship it?"}, {"approval": "again", "ask": "Really?"})
    for name, ask, decide in (
        ("ok", "Ship it?", stage.client.approve),
        ("again", "Really?", stage.client.reject),
    ):
        await stage.until_run(script, [Status.WAITING], f"the run to wait for the approval {name}")
        (open_wait,) = (await stage.run(script)).waiting_on
        is_asked = open_wait.kind is StepKind.APPROVAL and ask in (open_wait.ask or "")
        if not is_asked or open_wait.key != name:
            found = f"{open_wait.kind} {open_wait.key!r} with {open_wait.ask}"
            raise Wrong("wrong-wait", f"an approval {name!r} with the question {ask!r} became {found}")
        await decide(UUID(script.run), name, by="conformance")
    check_result(await stage.ended(script), [True, False], "wrong-outcome")


@case("child")
async def child(stage: Stage) -> None:
    """Calls a child run once, and goes on with its result."""
    inner = stage.ledger()
    params = {"ledger": inner.url, "do": [{"step": "c", "value": {"inner": 2**60 + 1}}]}
    script = await stage.start({"step": "a", "value": 1}, {"child": params}, {"step": "b", "value": 2})
    run = await stage.ended(script)
    if len(inner.calls) != 1:
        raise Wrong("step-repeated", f"the step of the child ran {times(len(inner.calls))}")
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, [{"inner": 2**60 + 1}], 2], "wrong-outcome")
    children = await stage.client.list(RunFilter(parent=run.id))
    if len(children) != 1:
        raise Wrong("wrong-wait", f"one child was called, and {len(children)} were started")


@case("other-worker")
async def other_worker(stage: Stage) -> None:
    """Finishes a run that another worker has begun and parked."""
    await stage.api.keep_claims_back()
    script = await stage.start(
        {"step": "a", "value": "of this worker"},
        {"step": "a", "value": "of this worker"},
        {"step": "f", "attempts": 1, "or": "caught"},
        {"sleep": 1},
        {"event": "other:1"},
        {"step": "b", "value": 2},
    )
    other = OtherWorker(stage)
    lease = await other.claimed(script)
    failure: dict[str, Any] = {"kind": "exhausted", "type": "Other", "message": "no", "step": "f"}
    await other.send(
        lease,
        "checkpoint",
        steps=[
            {"key": "a", "output": "first of the other"},
            {"key": "a#2", "output": {"big": 2**60 + 1}},
            {"key": "f", "status": "failed", "attempts": 1, "max_attempts": 1, "error": failure},
        ],
    )
    waits = [{"key": "sleep", "kind": "sleep", "status": "waiting", "delay_ms": 1}]
    await other.send(lease, "park", steps=waits, known=0)
    stage.api.let_claim()
    await stage.until_run(script, [Status.LEASED, Status.WAITING], "the run to be claimed by this worker")
    await stage.client.emit("other:1", "went on")
    run = await stage.ended(script)
    check_executions(script, {"a": 0, "f": 0, "b": 1}, "other-record")
    check_result(
        run, ["first of the other", {"big": 2**60 + 1}, "caught", "slept", "went on", 2], "other-record"
    )
    statuses = {key: step.status for key, step in (await stage.steps(script)).items()}
    if statuses.get("f") is not StepStatus.FAILED:
        raise Wrong("other-record", f"the recorded failure of step f has become {statuses.get('f')}")
    await check_lease_kept(stage, script)
