"""The simplest runs: one step, and the keys of steps."""

from __future__ import annotations

from holdfast.conformance.case import case
from holdfast.conformance.checks import check_executions, check_keys, check_lease_kept, check_result
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import SLOTS, Stage
from holdfast.conformance.traffic import CLAIM


@case("hello")
async def hello(stage: Stage) -> None:
    """Executes a run of one step, and says its name, key and version."""
    script = await stage.start({"step": "a", "value": {"n": 1}})
    run = await stage.ended(script)
    check_executions(script, {"a": 1})
    check_keys(script, {"a": ["a"]})
    check_result(run, [{"n": 1}])
    for exchange in stage.traffic.exchanges:
        if exchange.headers.get("holdfast-protocol") != "1":
            raise Wrong("no-version", f"POST {exchange.path} had no such header")
    if "a" not in await stage.steps(script):
        raise Wrong("wrong-step-key", "the step `a` is not in the record")


@case("several-runs")
async def several_runs(stage: Stage) -> None:
    """Executes several runs at once, up to its slots."""
    ledger = stage.ledger()
    ledger.hold("a")
    scripts = [await stage.start({"step": "a", "value": n}, ledger=ledger) for n in range(2)]
    await stage.until(lambda: len(ledger.calls) == len(scripts), "2 runs to be executed at once")
    ledger.let_go()
    for number, script in enumerate(scripts):
        check_result(await stage.ended(script), [number])
        await check_lease_kept(stage, script)


@case("slots")
async def slots(stage: Stage) -> None:
    """Claims no more runs than it has free slots, however many wait."""
    ledger = stage.ledger()
    ledger.hold("a")
    scripts = [await stage.start({"step": "a", "value": n}, ledger=ledger) for n in range(SLOTS + 2)]

    def claimed() -> int:
        return sum(len(one.granted) for one in stage.traffic.of(CLAIM))

    await stage.until(lambda: len(ledger.calls) >= SLOTS, f"{SLOTS} runs to be executed at once")
    if await stage.within(stage.lease_seconds / 2, lambda: claimed() > SLOTS):
        raise Wrong("hoards", f"it holds {claimed()} runs, and HOLDFAST_SLOTS is {SLOTS}")
    ledger.let_go()
    for number, script in enumerate(scripts):
        check_result(await stage.ended(script), [number])


@case("step-keys")
async def step_keys(stage: Stage) -> None:
    """Numbers steps by their names: repeated names, sleeps, events, children, keys of the user."""
    script = await stage.start(
        {"step": "a", "value": 1},
        {"step": "a", "value": 2},
        {"sleep": 1},
        {"sleep": 1},
        {"event": "keys:1"},
        {"child": {"ledger": stage.ledger().url, "do": []}},
        {"step": "b", "key": "mine", "value": 3},
        {"step": "b", "value": 4},
        {"step": "größe 数 🎉", "value": 5},
        {"step": "a", "value": 6},
        {"sleep": 1},
    )
    await stage.client.emit("keys:1", "paid")
    run = await stage.ended(script)
    wanted = {
        *("a", "a#2", "sleep", "sleep#2", "event:keys:1", "conformance.script"),
        *("mine", "b", "größe 数 🎉", "a#3", "sleep#3"),
    }
    found = set(await stage.steps(script))
    if found != wanted:
        odd, missing = sorted(found - wanted), sorted(wanted - found)
        raise Wrong(
            "wrong-step-key", f"recorded: {', '.join(odd) or 'nothing odd'}; missing: {', '.join(missing)}"
        )
    check_executions(script, {"a": 3, "b": 2, "größe 数 🎉": 1})
    check_keys(script, {"a": ["a", "a#2", "a#3"], "b": ["mine", "b"], "größe 数 🎉": ["größe 数 🎉"]})
    check_result(run, [1, 2, "slept", "slept", "paid", [], 3, 4, 5, 6, "slept"])


@case("step-order")
async def step_order(stage: Stage) -> None:
    """Begins a step only when the step before it is recorded."""
    script = await stage.start({"step": "a"}, {"step": "b"}, {"step": "c"})
    await stage.ended(script)
    check_executions(script, {"a": 1, "b": 1, "c": 1})
    recorded: dict[str, float] = {}
    for write in stage.traffic.writes(script.run, "checkpoint"):
        for step in write.steps:
            recorded.setdefault(str(step.get("key")), write.exchange.answered_at or float("inf"))
    for before, after in (("a", "b"), ("b", "c")):
        if before not in recorded or script.ledger.of(after)[0].at < recorded[before]:
            raise Wrong("step-unrecorded", f"step {after} began before step {before} was recorded")
