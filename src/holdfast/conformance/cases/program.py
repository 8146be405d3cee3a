"""The program itself: killed, stopped, and with a key that is refused."""

from __future__ import annotations

from uuid import UUID

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_executions, check_keys, check_result
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import Stage
from holdfast.lifecycle import Status
from holdfast.records import Scope

STOP_SECONDS = 10.0  # in which the program must end


def _stop_seconds(stage: Stage) -> float:
    return min(STOP_SECONDS, stage.options.case_seconds / 2)


@case("kill", alone=True)
async def kill(stage: Stage) -> None:
    """Goes on with a run whose process was killed (kill -9): recorded steps do not run again."""
    process = await stage.worker_started()
    ledger = stage.ledger()
    ledger.hold("b")
    script = await stage.start(
        {"step": "a", "value": 1}, {"step": "b", "value": 2}, {"step": "c", "value": 3}, ledger=ledger
    )
    await stage.until(lambda: bool(ledger.of("b")), "step b to begin")
    await process.kill()
    await stage.turn_clock(2 * stage.lease_seconds)
    ledger.let_go()
    await stage.worker_started()
    run = await stage.ended(script)
    check_executions(script, {"a": 1, "b": 2, "c": 1})
    check_keys(script, {"a": ["a"], "b": ["b", "b"], "c": ["c"]})
    check_result(run, [1, 2, 3])


@case("stop", alone=True)
async def stop(stage: Stage) -> None:
    """Stops gracefully on SIGTERM: the running step ends, its result is recorded, the run is given back."""
    process = await stage.worker_started()
    ledger = stage.ledger()
    ledger.hold("a")
    script = await stage.start({"step": "a", "value": 1}, {"step": "b", "value": 2}, ledger=ledger)
    await stage.until(lambda: bool(ledger.calls), "step a to begin")
    stage.terminate()
    await stage.quiet(1.0)  # the signal reaches the program, also on a busy machine
    ledger.let_go()
    seconds = _stop_seconds(stage)
    if await process.wait(seconds) is None:
        raise Wrong("not-graceful", f"it still runs {seconds:g} s after SIGTERM")
    if process.code != 0:
        raise Wrong("not-graceful", f"its exit code is {process.code}: {process.last_words}")
    run = await stage.run(script)
    if run.status is Status.LEASED:
        raise Wrong("not-graceful", "it has ended, and still holds a run: others get it only after its lease")
    if "a" not in await stage.steps(script):
        raise Wrong("not-graceful", "the step that ran at the signal has no result in the record")
    await stage.worker_started()
    check_result(await stage.ended(script), [1, 2])
    check_executions(script, {"a": 1, "b": 1})
    if await stage.client.trail(UUID(script.run), types=["lease_expired"]):
        raise Wrong("not-graceful", "its lease expired")


@case("wrong-key", "unauthenticated", alone=True)
async def wrong_key(stage: Stage) -> None:
    """Ends with one line and an exit code when its key is refused."""
    revoked = await stage.client.create_key("revoked", scopes=[Scope.WORK])
    await stage.client.revoke_key(revoked.key.id)
    stage.rules.key, seconds = revoked.secret, _stop_seconds(stage)
    try:
        process = await stage.worker_started(revoked.secret)
        code = await process.wait(seconds)
    finally:
        stage.rules.key = stage.key
    if code is None:
        requests = len(stage.traffic.exchanges)
        raise Wrong("ignores-401", f"after {seconds:g} s and {requests} requests it still runs")
    if code == 0 or not process.errors:
        raise Wrong("ignores-401", f"its exit code is {code}, and it said: {process.last_words}")
