"""Failures: of steps, of the code itself, and what is recorded of them."""

from __future__ import annotations

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_at_most, check_executions, check_keys, check_result, times
from holdfast.conformance.ledger import FAIL, FATAL
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import Script, Stage
from holdfast.lifecycle import Status
from holdfast.records import Run


def _check_error(run: Run, kind: str, text: str) -> None:
    error = run.error
    if error is None or error.kind != kind or text not in error.message:
        seen = "no error" if error is None else f"kind {error.kind}, message {error.message!r}"
        raise Wrong("wrong-error", f"{seen}; kind {kind} and the text {text!r} were expected")


async def _failed(stage: Stage, script: Script, tries: int, mistake: str) -> Run:
    """Wait until the run has failed after so many tries of its step."""
    what = f"the run to fail after its step a ran {times(tries)}"
    ended = (Status.FAILED, Status.SUCCEEDED)
    run = await stage.until_run(script, ended, what, lambda: check_at_most(script, {"a": tries}, mistake))
    check_executions(script, {"a": tries}, mistake)
    if run.status is not Status.FAILED:
        raise Wrong(mistake, f"the run is {run.status}")
    return run


async def _retried(stage: Stage, script: Script, tries: int) -> None:
    """Wait until the run was given back for a later try, so many times."""
    what = f"`retry` number {tries} to give the run back"
    await stage.until(lambda: len(stage.traffic.writes(script.run, "retry")) >= tries, what)
    await stage.until_run(script, [Status.PENDING, Status.WAITING, Status.FAILED], what)


@case("step-retry")
async def step_retry(stage: Stage) -> None:
    """Tries a failing step again, with the same idempotency key."""
    ledger = stage.ledger()
    ledger.answer("a", FAIL, FAIL)
    op = {"step": "a", "attempts": 3, "delay_ms": 20, "value": 1}
    script = await stage.start(op, {"step": "b", "value": 2}, ledger=ledger)
    run = await stage.ended(script)
    check_executions(script, {"a": 3, "b": 1}, "wrong-tries")
    check_keys(script, {"a": ["a", "a", "a"]})
    check_result(run, [1, 2])
    ready = [
        step.get("attempts")
        for write in stage.traffic.writes(script.run, "retry")
        for step in write.steps
        if step.get("key") == "a" and step.get("status") == "ready"
    ]
    if ready != [1, 2]:
        raise Wrong("wrong-tries", f"two tries failed, and `retry` recorded the tries {ready}")
    tries = (await stage.steps(script))["a"].attempts
    if tries != 3:
        raise Wrong("wrong-tries", f"the step succeeded at its third try, and is recorded with {tries}")


@case("late-retry")
async def late_retry(stage: Stage) -> None:
    """Gives a run back for a retry that is hours away, and counts its tries on when it comes back."""
    ledger = stage.ledger()
    ledger.answer("a", FAIL, FAIL)
    op = {"step": "a", "attempts": 3, "delay_ms": 3_600_000, "value": 1}
    script = await stage.start(op, ledger=ledger)
    for tries in (1, 2):
        await _retried(stage, script, tries)
        await stage.turn_clock(4_500)
    check_result(await stage.ended(script), [1])
    check_executions(script, {"a": 3}, "wrong-tries")


@case("recorded-failure")
async def recorded_failure(stage: Stage) -> None:
    """Records a step that has failed for good, and never runs it again."""
    ledger = stage.ledger()
    ledger.answer("a", FAIL, FAIL)
    script = await stage.start(
        {"step": "a", "attempts": 2, "delay_ms": 20, "or": "caught"},
        {"sleep": 1},
        {"step": "b", "value": 2},
        ledger=ledger,
    )
    run = await stage.ended(script)
    check_executions(script, {"a": 2, "b": 1}, "wrong-tries")
    check_result(run, ["caught", "slept", 2])


@case("step-failure")
async def step_failure(stage: Stage) -> None:
    """Fails a run at once whose code does not catch the failure of a step."""
    ledger = stage.ledger()
    ledger.answer("a", FAIL, FAIL)
    script = await stage.start({"step": "a", "attempts": 2, "delay_ms": 20}, ledger=ledger)
    run = await _failed(stage, script, 2, "wrong-tries")
    _check_error(run, "exhausted", "the ledger lets a fail")


@case("fatal-failure")
async def fatal_failure(stage: Stage) -> None:
    """Does not try a step again whose error is fatal."""
    ledger = stage.ledger()
    ledger.answer("a", FATAL)
    script = await stage.start({"step": "a", "attempts": 3, "delay_ms": 20}, ledger=ledger)
    run = await _failed(stage, script, 1, "fatal-retried")
    _check_error(run, "fatal", "the ledger lets a fail")


@case("body-failure")
async def body_failure(stage: Stage) -> None:
    """Executes a run again whose code fails, as often as its tries allow, then fails it."""
    script = await stage.start({"step": "a", "value": 1}, {"raise": "oh no"}, max_attempts=2)
    await _retried(stage, script, 1)
    await stage.turn_clock(60)

    def watch() -> None:
        if len(stage.traffic.writes(script.run, "retry")) > 1:
            raise Wrong("body-error", "the run may be tried twice, and `retry` came a second time")

    await stage.until_run(script, [Status.FAILED], "the run to fail after its second try", watch)
    check_executions(script, {"a": 1})
    _check_error(await stage.run(script), "exhausted", "oh no")
