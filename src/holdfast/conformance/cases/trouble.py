"""Trouble on the way: refusals, busy rows, slow answers, a server that stops, another clock, new fields."""

from __future__ import annotations

import json
from uuid import UUID

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_executions, check_lease_kept, check_result, repeats
from holdfast.conformance.faults import RETRY_AFTER_MS, Fault, Kind, at, write
from holdfast.conformance.ledger import FAIL
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import Script, Stage
from holdfast.conformance.traffic import BATCH, CLAIM, HEARTBEAT, LOAD, REGISTER, Exchange
from holdfast.lifecycle import Status

EVERYTHING = (BATCH, CLAIM, HEARTBEAT, LOAD, REGISTER)
HOUR = 3600.0
SLEEP_MS = 150
LATE = 0.75  # of a lease
AHEAD_MS = 20.0  # the clocks of a worker and of the store run alike, but not exactly
TRIES = 3
EARLY = 0.8  # of the time that an answer asks for: timers are not exact


def _check_patience(stage: Stage, fault: Fault, what: str) -> None:
    """Check that a refused request came again, but not before the time that the answer asked for."""
    for refused in fault.hits:
        again = _next(stage, refused)
        if again is None:
            continue
        waited_ms = 1000 * (again.at - (refused.answered_at or refused.at))
        if waited_ms < EARLY * RETRY_AFTER_MS:
            seen = f"{what} came again after {waited_ms:.0f} ms, and the answer asked for {RETRY_AFTER_MS} ms"
            raise Wrong("too-eager", seen)


def _next(stage: Stage, refused: Exchange) -> Exchange | None:
    """Return the next request that repeats a refused one."""
    if refused.items:
        found = [one.exchange for item in refused.items for one in repeats(stage, refused.number, item)]
        return min(found, key=lambda one: one.number, default=None)
    later = [one for one in stage.traffic.of(refused.path) if one.number > refused.number]
    return later[0] if later else None


async def _held_script(stage: Stage) -> Script:
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, ledger=ledger)
    await stage.until(lambda: bool(ledger.calls), "step a to begin")
    return script


@case("refused-503")
async def refused_503(stage: Stage) -> None:
    """Sends refused writes again (503), after the time that the answer asks for."""
    script = await _held_script(stage)
    fault = stage.fault(Kind.REFUSE, at(BATCH), times=2)
    script.ledger.let_go()
    if not await stage.within(4 * stage.lease_seconds, lambda: bool(script.ledger.of("b"))):
        raise Wrong("dropped-result", "the checkpoint of step a was refused with 503, and not sent again")
    run = await stage.ended(script)
    _check_patience(stage, fault, "a batch that was refused with 503")
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    check_result(run, [1, 2])
    await check_lease_kept(stage, script)


@case("refused-claims")
async def refused_claims(stage: Stage) -> None:
    """Claims and sends heartbeats again after a 503."""
    script = await _held_script(stage)
    claims = stage.fault(Kind.REFUSE, at(CLAIM), times=2)
    stage.fault(Kind.REFUSE, at(HEARTBEAT))
    stage.api.end_claims()
    await stage.quiet(stage.lease_seconds)
    script.ledger.let_go()
    check_result(await stage.ended(script), [1, 2])
    await check_lease_kept(stage, script)
    after = await stage.start({"step": "a", "value": 3})
    if not await stage.within(6 * stage.lease_seconds, lambda: bool(after.ledger.calls)):
        raise Wrong("gives-up", "two claims were answered with 503, and no claim has come since")
    check_result(await stage.ended(after), [3])
    _check_patience(stage, claims, "a claim that was refused with 503")


@case("internal-error")
async def internal_error(stage: Stage) -> None:
    """Sends a write again that was answered with 500, although the server has applied it."""
    script = await _held_script(stage)
    stage.fault(Kind.INTERNAL, write(script.run, "checkpoint", key="a"))
    script.ledger.let_go()
    if not await stage.within(4 * stage.lease_seconds, lambda: bool(script.ledger.of("b"))):
        raise Wrong("dropped-result", "the checkpoint of step a was answered with 500, and not sent again")
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    check_result(run, [1, 2])


@case("proxy-page")
async def proxy_page(stage: Stage) -> None:
    """Takes the page of a proxy for no answer: it sends the same write and heartbeat again."""
    script = await _held_script(stage)
    stage.fault(Kind.PAGE, at(HEARTBEAT), times=2)
    fault = stage.fault(Kind.PAGE, write(script.run, "checkpoint", key="a"), times=2)
    script.ledger.let_go()
    await stage.until(lambda: bool(fault.hits), "the checkpoint of step a")
    if not await stage.within(2 * stage.lease_seconds, lambda: _next(stage, fault.hits[0]) is not None):
        seen = "the checkpoint of step a was answered by a proxy, with a page, and not sent again"
        raise Wrong("dropped-result", seen)
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    check_result(run, [1, 2])
    await check_lease_kept(stage, script)


@case("run-busy")
async def run_busy(stage: Stage) -> None:
    """Sends an item again that was answered `run-busy`."""
    script = await _held_script(stage)
    fault = stage.fault(Kind.BUSY, write(script.run, "checkpoint", key="a"))
    script.ledger.let_go()
    if not await stage.within(4 * stage.lease_seconds, lambda: bool(script.ledger.of("b"))):
        raise Wrong("dropped-result", "the checkpoint of step a was answered `run-busy`, and not sent again")
    run = await stage.ended(script)
    _check_patience(stage, fault, "an item that was answered `run-busy`")
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    check_result(run, [1, 2])


@case("slow-network")
async def slow_network(stage: Stage) -> None:
    """Keeps its leases while every answer is late, one by more than a lease."""
    script = await _held_script(stage)
    stage.fault(Kind.DELAY, write(script.run, key="a"), seconds=1.6 * stage.lease_seconds)
    stage.fault(Kind.DELAY, at(BATCH, HEARTBEAT), times=1000, seconds=0.3 * stage.lease_seconds)
    script.ledger.let_go()
    run = await stage.ended(script)
    await check_lease_kept(stage, script)
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, 2])


@case("slow-claim")
async def slow_claim(stage: Stage) -> None:
    """Counts the time of a run from the answer of its claim, however long the claim was on its way."""
    for _ in range(TRIES):
        if await _in_time(stage):
            return
    raise Wrong(
        "stuck", f"{TRIES} runs with a timeout of {LATE * stage.lease_seconds:g} s did not end in time"
    )


async def _in_time(stage: Stage) -> bool:
    """Let a claim be slow that brings a run with a short timeout. Return False if the store failed the run:
    the machine was too slow, and nothing can be said.
    """
    late_seconds = LATE * stage.lease_seconds
    fault = stage.fault(Kind.HOLD, at(CLAIM), times=1000)
    stage.api.end_claims()
    await stage.until(lambda: bool(fault.hits), "the next claim")
    await stage.quiet(late_seconds)
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, timeout=late_seconds)
    fault.end()
    run = await stage.until_run(script, [Status.SUCCEEDED, Status.FAILED], f"run {script.run} to end")
    about = f"a claim was {late_seconds:g} s on its way, and brought a run that had just been started"
    for one in stage.traffic.writes(script.run, "fail"):
        if (one.item.get("error") or {}).get("kind") == "timeout":
            raise Wrong("time-ahead", f"{about}: the worker failed it with the kind `timeout`")
    for step in (await stage.steps(script)).values():
        ahead_ms = ((step.started_at or 0) - (step.finished_at or 0)) / 1000
        if ahead_ms > AHEAD_MS:
            seen = f"step {step.key} began {ahead_ms:.0f} ms after the server had its result"
            raise Wrong("time-ahead", f"{about}: {seen}")
    if run.error is not None and run.error.kind == "timeout":
        return False
    check_result(run, [1, 2])
    check_executions(script, {"a": 1, "b": 1})
    return True


@case("cut-claim")
async def cut_claim(stage: Stage) -> None:
    """Counts a lease from the claim that brought it, and not from one before that was cut off."""
    late_seconds = 1.5 * stage.lease_seconds
    fault = stage.fault(Kind.AWAY, at(CLAIM), seconds=late_seconds)
    stage.api.end_claims()
    await stage.until(lambda: bool(fault.hits), "the next claim")
    before = len(stage.traffic.of(CLAIM))
    await stage.until(lambda: len(stage.traffic.of(CLAIM)) > before, "a claim after the one that was cut off")
    script = await stage.start({"step": "a", "value": 1})
    run = await stage.ended(script)
    if len(await stage.client.trail(UUID(script.run), types=["leased"])) > 1:
        seen = (
            f"a claim was cut off after {late_seconds:g} s; the next one brought a run, which was not begun"
        )
        raise Wrong("cut-claim", seen)
    check_executions(script, {"a": 1})
    check_result(run, [1])


@case("drain")
async def drain(stage: Stage) -> None:
    """Keeps its runs, and claims again, when the server stops and another one takes its place."""
    script = await _held_script(stage)
    begun = len(stage.traffic.of(CLAIM))
    away = stage.fault(Kind.AWAY, at(*EVERYTHING), times=10_000)
    await stage.api.stop_serving()
    if not await stage.within(3 * stage.lease_seconds, lambda: len(stage.traffic.of(CLAIM)) > begun):
        raise Wrong("drain-ignored", "a claim was answered with `drain`, and no other one came")
    await stage.quiet(0.3 * stage.lease_seconds)
    await stage.api.serve_again()
    away.end()
    script.ledger.let_go()
    after = await stage.start({"step": "a", "value": 3})
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1}, "drain-ignored")
    check_result(run, [1, 2])
    await check_lease_kept(stage, script)
    check_result(await stage.ended(after), [3])


@case("unknown-fields")
async def unknown_fields(stage: Stage) -> None:
    """Ignores fields of answers that it does not know."""
    stage.fault(Kind.EXTEND, at(*EVERYTHING), times=10_000)
    stage.api.end_claims()
    ledger = stage.ledger()
    ledger.answer("a", FAIL)
    script = await stage.start(
        {"step": "a", "attempts": 2, "delay_ms": 20, "value": 1},
        {"sleep": 1},
        {"event": "fields:1"},
        ledger=ledger,
    )
    await stage.client.emit("fields:1", "came")
    if not await stage.within(
        4 * stage.lease_seconds, lambda: bool(stage.traffic.writes(script.run, "complete"))
    ):
        stage.check_alive()
        raise Wrong("unknown-fields", "with such fields in every answer, the run did not come to its end")
    check_result(await stage.ended(script), [1, "slept", "came"], "unknown-fields")
    check_executions(script, {"a": 2}, "unknown-fields")


@case("clock")
async def clock(stage: Stage) -> None:
    """Works alike when the server's clock is an hour ahead, or an hour behind."""
    await stage.turn_clock(HOUR)
    await _sleep(stage, "ahead")
    await stage.turn_clock(-2 * HOUR)
    await _sleep(stage, "behind")
    await stage.turn_clock(HOUR)


@case("now")
async def now(stage: Stage) -> None:
    """Gives a run no earlier time than before, also when the server's clock was set back."""
    script = await stage.start({"now": True}, {"approval": "ok", "ask": "On?"}, {"now": True})
    await stage.until_run(script, [Status.WAITING], "the run to wait for the approval ok")
    await stage.turn_clock(-HOUR)
    try:
        await stage.client.approve(UUID(script.run), "ok", by="conformance")
        run = await stage.ended(script)
    finally:
        await stage.turn_clock(HOUR)
    steps = await stage.steps(script)
    if "now" not in steps and run.result == [None, True, None]:
        return  # the library has no such call
    missing = [key for key in ("now", "now#2") if key not in steps]
    if missing:
        raise Wrong("wrong-step-key", f"not recorded: {', '.join(missing)}")
    before, after = (json.loads(steps[key].output or "null") for key in ("now", "now#2"))
    if not isinstance(before, int) or not isinstance(after, int):
        raise Wrong(
            "wrong-result", f"`now` is recorded as {before!r} and {after!r}, not in whole microseconds"
        )
    if after < before:
        back = f"`now` of its second lease is {(before - after) / 1_000_000:.0f} s before that of its first"
        raise Wrong("time-back", back)
    check_result(run, [before // 1000, True, after // 1000])


async def _sleep(stage: Stage, where: str) -> None:
    """Check the length of a sleep while the server's clock is wrong."""
    script = await stage.start({"step": "a", "value": 1}, {"sleep": SLEEP_MS}, {"step": "b", "value": 2})
    about = f"with the server's clock an hour {where}, a sleep of {SLEEP_MS} ms"
    if not await stage.within(4 * stage.lease_seconds, lambda: bool(script.ledger.of("b"))):
        status = (await stage.run(script)).status
        raise Wrong("wrong-clock", f"{about} does not end: the run is {status}")
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1}, "wrong-clock")
    (park, *_) = stage.traffic.writes(script.run, "park")
    slept_ms = 1000 * (script.ledger.of("b")[0].at - park.exchange.at)
    if slept_ms < SLEEP_MS / 2:
        raise Wrong("wrong-clock", f"{about} lasts {slept_ms:.0f} ms")
    check_result(run, [1, "slept", 2])
    await check_lease_kept(stage, script)
