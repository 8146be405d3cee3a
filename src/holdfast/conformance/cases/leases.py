"""Leases: kept while a step blocks, and respected when they are lost, cancelled or paused."""

from __future__ import annotations

from uuid import UUID

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_executions, check_lease_kept, check_result
from holdfast.conformance.faults import Kind, at, write
from holdfast.conformance.ledger import Ledger
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.other_worker import OtherWorker
from holdfast.conformance.stage import Script, Stage
from holdfast.conformance.traffic import HEARTBEAT, STATES
from holdfast.lifecycle import Status

BLOCKED_LEASES = 2.5


async def _held_script(stage: Stage, ledger: Ledger | None = None, step: str = "a") -> Script:
    """Start a run whose first step is held, and wait for that step."""
    book = ledger or stage.ledger()
    book.hold(step)
    script = await stage.start({"step": step, "value": 1}, {"step": "b", "value": 2}, ledger=book)
    await stage.until(lambda: bool(book.of(step)), f"step {step} to begin")
    return script


async def _stolen(stage: Stage, script: Script) -> tuple[OtherWorker, dict[str, object]]:
    """Let the lease of a run expire, and lease it to another worker. Heartbeats are kept back meanwhile."""
    stage.fault(Kind.HOLD, at(HEARTBEAT, STATES), times=10_000)
    await stage.api.keep_claims_back()
    await stage.turn_clock(2 * stage.lease_seconds)
    other = OtherWorker(stage)
    return other, await other.claimed(script)


def _end_holds(stage: Stage) -> None:
    for fault in stage.api.faults:
        fault.end()


@case("blocked-thread")
async def blocked_thread(stage: Stage) -> None:
    """Keeps its lease while a step blocks its thread for two and a half leases."""
    block_ms = int(1000 * BLOCKED_LEASES * stage.lease_seconds)
    script = await stage.start({"step": "a", "block_ms": block_ms, "value": 1}, {"step": "b", "value": 2})
    await stage.until(lambda: bool(script.ledger.calls), "the run to begin")
    await stage.quiet((BLOCKED_LEASES - 0.5) * stage.lease_seconds)
    await check_lease_kept(stage, script)
    run = await stage.ended(script)
    await check_lease_kept(stage, script)
    check_executions(script, {"a": 1, "b": 1}, "heartbeat-blocked")
    check_result(run, [1, 2])


@case("stale-fence")
async def stale_fence(stage: Stage) -> None:
    """Stops a run whose lease it has lost: no write with the old fence is repeated, no step begins."""
    script = await _held_script(stage)
    other, lease = await _stolen(stage, script)
    script.ledger.let_go()
    await stage.within(2 * stage.lease_seconds, lambda: bool(stage.traffic.writes(script.run)))
    _end_holds(stage)
    await stage.quiet(0.5 * stage.lease_seconds)
    if script.ledger.of("b"):
        raise Wrong("works-without-lease", "step b began after the lease was lost")
    await other.send(lease, "complete", result=["of the other"])
    stage.api.let_claim()
    check_result(await stage.ended(script), ["of the other"])


@case("stale-item")
async def stale_item(stage: Stage) -> None:
    """Goes on with the other runs of a batch in which one item is stale."""
    stale = await _held_script(stage)
    other, lease = await _stolen(stage, stale)
    stage.api.let_claim()
    ledger = stage.ledger()
    first = await _held_script(stage, ledger, "first")
    second = await _held_script(stage, ledger, "second")
    # The batch of the first run is held back, so that those of the other two share the next one.
    held = stage.fault(Kind.HOLD, write(first.run))
    ledger.let_go("first")
    await stage.within(0.5 * stage.lease_seconds, lambda: bool(held.hits))
    stale.ledger.let_go()
    ledger.let_go("second")
    await stage.quiet(0.1 * stage.lease_seconds)
    _end_holds(stage)
    for script in (first, second):
        if not await stage.within(2 * stage.lease_seconds, lambda: len(ledger.of("b")) == 2):
            raise Wrong("batch-as-one", "a run whose item was applied did not go on")
        if await stage.client.trail(UUID(script.run), types=["lease_expired"]):
            raise Wrong("batch-as-one", "a run whose item was applied was given up, and its lease expired")
        check_result(await stage.ended(script), [1, 2], "batch-as-one")
    check_executions(first, {"first": 1, "second": 1}, "batch-as-one")
    if stale.ledger.of("b"):
        raise Wrong("works-without-lease", "step b of the stale run began")
    await other.send(lease, "complete", result=["of the other"])
    check_result(await stage.ended(stale), ["of the other"])


@case("cancel")
async def cancel(stage: Stage) -> None:
    """Stops a run that is cancelled in the middle of a step, and drops what the step returns."""
    script = await _held_script(stage)
    await stage.client.cancel(UUID(script.run))
    if not await stage.within(
        3 * stage.lease_seconds, lambda: stage.traffic.told(script.run, "cancelled") is not None
    ):
        raise Wrong("no-heartbeat", "for three leases no heartbeat named a run that was held")
    await stage.quiet(0.2 * stage.lease_seconds)
    before = len(stage.traffic.writes(script.run))
    script.ledger.let_go()
    await stage.quiet(0.6 * stage.lease_seconds)
    writes = stage.traffic.writes(script.run)[before:]
    if writes:
        raise Wrong("cancel-ignored", f"`{writes[0].op}` came after a heartbeat had said `cancelled`")
    if script.ledger.of("b"):
        raise Wrong("cancel-ignored", "step b began after a heartbeat had said `cancelled`")
    after = await stage.start({"step": "a", "value": 3})
    check_result(await stage.ended(after), [3])


@case("pause")
async def pause(stage: Stage) -> None:
    """Stops a run that is paused, and goes on when it is resumed."""
    script = await _held_script(stage)
    await stage.client.pause(UUID(script.run), by="conformance")
    script.ledger.let_go()
    await stage.until_run(script, [Status.PAUSED, Status.SUCCEEDED], "the run to be paused")
    await stage.quiet(0.4 * stage.lease_seconds)
    if script.ledger.of("b"):
        raise Wrong("pause-ignored", "step b began after an item was answered `paused`")
    await stage.client.resume(UUID(script.run), by="conformance")
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1})
    check_result(run, [1, 2])
