"""Values: all text, whole numbers of any size, and values as large as they may be."""

from __future__ import annotations

import json

from holdfast.conformance.case import case
from holdfast.conformance.checks import (
    check_at_most,
    check_executions,
    check_lease_kept,
    check_result,
    same,
)
from holdfast.conformance.mistakes import Wrong
from holdfast.conformance.stage import Stage
from holdfast.conformance.traffic import LOAD, shown
from holdfast.lifecycle import Status

VALUE_BYTES = 4 * 2**20
TOO_LARGE = ("too_large", "encoding")  # the second one if the worker itself has found it
HAN_BYTES = 3 * 690_000 + 2  # below 4 MiB also when each letter is escaped, with six bytes
AT_ONCE = 12  # so many results are far more than one batch may have
MANY = 3  # steps of this size are more than one page of a record

ODD = {
    "integers": [0, -1, 2**53 + 1, -(2**53) - 1, 2**63, 2**64 + 1, -(2**63) - 1, 10**30 + 7],
    "floats": [0.1, -0.5, 1e-7, 1.7976931348623157e308, 5e-324, 1e21, 123456.789],
    "text": [
        "",
        "größe",
        "数は力",
        "🎉👩‍👩‍👧",
        "\u202eעבר",
        "e\u0301",
        "a\u2028b\u2029c",
        '"\\/\b\f\n\r\t',
        "\u007f",
    ],
    "markup": "<a href='x'>&amp;</a>",
    "keys": {"": 1, "__proto__": 2, "constructor": 3, "10": 4, "9": 5, "größe": 6, "a.b": 7},
    "empty": [[], {}, [[]], None, True, False],
}


@case("values")
async def values(stage: Stage) -> None:
    """Keeps Unicode and integers beyond 2^53 in params, outputs, events and results."""
    script = await stage.start({"step": "a", "value": ODD}, {"event": "values:1"}, {"sleep": 1})
    await stage.client.emit("values:1", ODD)
    run = await stage.ended(script)
    recorded = json.loads((await stage.steps(script))["a"].output or "null")
    for name, value in ODD.items():
        found = recorded.get(name) if isinstance(recorded, dict) else None
        if not same(found, value):
            raise Wrong(
                "changed-value", f"the output of a step has {name} {shown(found)}, not {shown(value)}"
            )
    check_result(run, [ODD, ODD, "slept"], "changed-value")


@case("large-step")
async def large_step(stage: Stage) -> None:
    """Records a step of 4 MiB."""
    script = await stage.start({"step": "a", "bytes": VALUE_BYTES})
    run = await stage.ended(script)
    check_executions(script, {"a": 1}, "large-step")
    check_result(run, [VALUE_BYTES - 2], "large-step")
    await check_lease_kept(stage, script)


@case("large-commit", "too-large")
async def large_commit(stage: Stage) -> None:
    """Records many large results that come at the same time, in a script of three bytes a letter."""
    ledger = stage.ledger()
    ledger.hold("m")
    each = [{"bytes": HAN_BYTES, "letter": "漢"}] * AT_ONCE
    script = await stage.start({"map": "m", "each": each}, ledger=ledger)
    # A worker without parallel steps begins one; others begin several, and all end together.
    await stage.until(lambda: bool(ledger.calls), "the first item of the map to begin")
    await stage.within(0.5 * stage.lease_seconds, lambda: len(ledger.calls) == AT_ONCE)
    ledger.let_go()
    run = await stage.until_run(script, [Status.SUCCEEDED, Status.FAILED], "the map to end")
    if run.error is not None and run.error.kind in TOO_LARGE:
        raise Wrong("too-much-at-once", f"{AT_ONCE} results of {HAN_BYTES} bytes: {run.error.message}")
    check_executions(script, {"m": AT_ONCE}, "large-step")
    check_result(run, [[(HAN_BYTES - 2) // 3] * AT_ONCE], "large-step")
    keys = {f"m[{n}]" for n in range(AT_ONCE)}
    if missing := keys - (await stage.steps(script)).keys():
        raise Wrong("wrong-step-key", f"missing: {', '.join(sorted(missing))}")
    await check_lease_kept(stage, script)


@case("odd-name")
async def odd_name(stage: Stage) -> None:
    """Refuses a name that is no valid text before its step runs; a language may have no such names."""
    script = await stage.start(
        {"step": "a", "odd": True, "value": 1}, {"sleep": 1}, {"step": "b", "value": 2}
    )

    def watch() -> None:
        check_at_most(script, {"a": 1}, "odd-name")

    run = await stage.until_run(script, [Status.SUCCEEDED, Status.FAILED], "the run to end", watch)
    check_at_most(script, {"a": 1}, "odd-name")
    if run.status is Status.SUCCEEDED:
        return check_result(run, [1, "slept", 2])
    if run.error is None or run.error.kind != "usage" or script.ledger.calls:
        kind = "no error" if run.error is None else f"kind {run.error.kind}"
        raise Wrong("odd-name", f"the run failed with {kind} after {len(script.ledger.calls)} steps ran")
    return None


@case("large-record")
async def large_record(stage: Stage) -> None:
    """Reads a record that does not fit into a claim, in pages, before it goes on."""
    steps = [{"step": f"s{n}", "bytes": VALUE_BYTES} for n in range(MANY)]
    script = await stage.start(*steps, {"sleep": 1}, {"step": "last", "value": 1})
    once = {f"s{n}": 1 for n in range(MANY)}
    run = await stage.ended(script, lambda: check_at_most(script, once, "not-loaded"))
    if not stage.traffic.of(LOAD):
        raise Wrong("not-loaded", "the lease said `unread`, and no POST /leases/load came")
    check_executions(script, {**once, "last": 1}, "not-loaded")
    check_result(run, [*[VALUE_BYTES - 2] * MANY, "slept", 1], "not-loaded")
    await check_lease_kept(stage, script)


@case("too-large-step", "too-large")
async def too_large_step(stage: Stage) -> None:
    """Fails a run whose step returns more than 4 MiB, and goes on with others."""
    script = await stage.start({"step": "a", "bytes": VALUE_BYTES + 1})
    run = await stage.until_run(script, [Status.FAILED], "the run with a value that is too large to fail")
    kind = run.error.kind if run.error is not None else None
    if kind not in TOO_LARGE:
        raise Wrong("wrong-error", f"the kind is {kind!r}, not 'too_large'")
    check_executions(script, {"a": 1}, "too-large")
    after = await stage.start({"step": "b", "value": 1})
    check_result(await stage.ended(after), [1])
