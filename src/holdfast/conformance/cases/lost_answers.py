"""Lost and doubled answers: results are kept until they are acknowledged."""

from __future__ import annotations

from holdfast.conformance.case import case
from holdfast.conformance.checks import (
    check_executions,
    check_lease_kept,
    check_repeated,
    check_result,
    repeats,
)
from holdfast.conformance.faults import Fault, Kind, at, write
from holdfast.conformance.ledger import FAIL
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import Script, Stage
from holdfast.conformance.traffic import BATCH, CLAIM, HEARTBEAT
from holdfast.lifecycle import Status


async def _sent_again(stage: Stage, fault: Fault, script: Script, what: str) -> None:
    """Wait for the item whose answer was lost to come again; at most two leases."""

    def came() -> bool:
        return bool(fault.hits) and any(
            repeats(stage, fault.hits[-1].number, item)
            for item in fault.hits[-1].items
            if item.get("run") == script.run
        )

    await stage.until(lambda: bool(fault.hits), what)
    await stage.within(2 * stage.lease_seconds, came)
    check_repeated(stage, fault, script, what)


@case("lost-checkpoint")
async def lost_checkpoint(stage: Stage) -> None:
    """Sends a result again whose answer was lost, and does not run its step again."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, ledger=ledger)
    fault = stage.fault(Kind.LOSE, write(script.run, "checkpoint", key="a"), times=2)
    ledger.let_go()
    await _sent_again(stage, fault, script, "the checkpoint of step a")
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    check_result(run, [1, 2])
    await check_lease_kept(stage, script)


@case("cut-answer")
async def cut_answer(stage: Stage) -> None:
    """Sends a result again when only half of the answer came."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, ledger=ledger)
    fault = stage.fault(Kind.CUT, write(script.run, "checkpoint", key="a"))
    ledger.let_go()
    await _sent_again(stage, fault, script, "the checkpoint of step a")
    check_result(await stage.ended(script), [1, 2])
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")


@case("lost-park")
async def lost_park(stage: Stage) -> None:
    """Sends a park again whose answer was lost."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start(
        {"step": "a", "value": 1}, {"event": "park:1"}, {"step": "b", "value": 2}, ledger=ledger
    )
    fault = stage.fault(Kind.LOSE, write(script.run, "park"))
    ledger.let_go()
    await _sent_again(stage, fault, script, "the park")
    await stage.client.emit("park:1", "came")
    check_result(await stage.ended(script), [1, "came", 2])
    check_executions(script, {"a": 1, "b": 1})


@case("lost-retry")
async def lost_retry(stage: Stage) -> None:
    """Sends a failed try again whose answer was lost, and counts it once."""
    ledger = stage.ledger()
    ledger.answer("a", FAIL)
    ledger.hold("a")
    script = await stage.start({"step": "a", "attempts": 3, "delay_ms": 20, "value": 1}, ledger=ledger)
    fault = stage.fault(Kind.LOSE, write(script.run, "retry"))
    ledger.let_go()
    await _sent_again(stage, fault, script, "the retry of step a")
    check_result(await stage.ended(script), [1])
    check_executions(script, {"a": 2}, "wrong-tries")


@case("lost-complete")
async def lost_complete(stage: Stage) -> None:
    """Sends the end of a run again whose answer was lost."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, ledger=ledger)
    fault = stage.fault(Kind.LOSE, write(script.run, "complete"))
    ledger.let_go()
    await _sent_again(stage, fault, script, "the complete")
    check_result(await stage.ended(script), [1])
    check_executions(script, {"a": 1})


@case("lost-request")
async def lost_request(stage: Stage) -> None:
    """Sends a result again that the server never got."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, ledger=ledger)
    stage.fault(Kind.AWAY, at(BATCH), times=3)
    ledger.let_go()
    if not await stage.within(4 * stage.lease_seconds, lambda: bool(ledger.of("b"))):
        raise Wrong(
            "dropped-result",
            "the connection broke before the server had the checkpoint of step a, and it was not sent again",
        )
    check_result(await stage.ended(script), [1, 2])
    check_executions(script, {"a": 1, "b": 1}, "dropped-result")
    await check_lease_kept(stage, script)


@case("lost-heartbeat")
async def lost_heartbeat(stage: Stage) -> None:
    """Keeps its leases when the answer of a heartbeat is lost."""
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, ledger=ledger)
    await stage.until(lambda: bool(ledger.calls), "step a to begin")
    fault = stage.fault(Kind.LOSE, at(HEARTBEAT))
    beats = len(stage.traffic.beats(script.run))
    await stage.within(
        2 * stage.lease_seconds,
        lambda: bool(fault.hits) and len(stage.traffic.beats(script.run)) >= beats + 3,
    )
    ledger.let_go()
    run = await stage.ended(script)
    await check_lease_kept(stage, script)
    check_executions(script, {"a": 1})
    check_result(run, [1])


@case("lost-claim")
async def lost_claim(stage: Stage) -> None:
    """Claims again when the answer of a claim is lost; the run is executed all the same."""
    fault = stage.fault(Kind.LOSE, at(CLAIM))
    await stage.api.keep_claims_back()
    await stage.until(lambda: bool(fault.hits), "the next claim")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2})
    stage.api.let_claim()
    await stage.until_run(script, [Status.LEASED], "the server to lease the run")
    stage.waits_for = "the run whose claim was lost to be executed"
    await stage.within(6 * stage.lease_seconds, lambda: bool(script.ledger.calls))
    if not script.ledger.calls:
        raise Wrong("lost-claim", "the run of a lost claim was not executed within six leases")
    check_result(await stage.ended(script), [1, 2])
    check_executions(script, {"a": 1, "b": 1})


@case("doubled-request")
async def doubled_request(stage: Stage) -> None:
    """Works as ever when each of its writes and heartbeats reaches the server twice."""
    ledger = stage.ledger()
    ledger.answer("b", FAIL)
    stage.fault(Kind.DOUBLE, at(BATCH, HEARTBEAT), times=100)
    script = await stage.start(
        {"step": "a", "value": 1},
        {"step": "b", "attempts": 2, "delay_ms": 20, "value": 2},
        {"sleep": 1},
        {"step": "c", "value": 3},
        ledger=ledger,
    )
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 2, "c": 1})
    check_result(run, [1, 2, "slept", 3])
    await check_lease_kept(stage, script)
