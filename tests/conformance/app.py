"""The conformance program of the Python library: `python tests/conformance/app.py`.

It works over the worker protocol when HOLDFAST_STORE is the address of a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import holdfast as hf

TYPE = "conformance.script.v1"
LEDGER_SECONDS = 60

app = hf.App()


@app.workflow(TYPE)
async def script(ctx: hf.Context, params: dict[str, Any]) -> list[Any]:
    """Execute the instructions in their order."""
    out: list[Any] = []
    for op in params["do"]:
        if "step" in op:
            out.append(await step_of(ctx, params["ledger"], op))
        if "map" in op:
            out.append(await map_of(ctx, params["ledger"], op))
        if "sleep" in op:
            await ctx.sleep(seconds=op["sleep"] / 1000)
            out.append("slept")
        if "event" in op:
            out.append(await event_of(ctx, op))
        if "approval" in op:
            out.append((await ctx.approval(op["approval"], ask=op.get("ask", ""))).approved)
        if "now" in op:
            out.append((ctx.now() - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))
        if "child" in op:
            out.append(await ctx.call(TYPE, op["child"]))
        if "raise" in op:
            raise RuntimeError(op["raise"])
    return out


async def step_of(ctx: hf.Context, ledger: str, op: dict[str, Any]) -> Any:
    """One instruction `step`."""

    async def run() -> Any:
        return await act(ctx, ledger, op["step"], op)

    options: hf.StepOptions = {"key": op.get("key")}
    if "attempts" in op:
        options["retry"] = hf.Backoff.fixed(op.get("delay_ms", 0) / 1000, attempts=op["attempts"])
    try:
        name = op["step"] + "\ud800" if "odd" in op else op["step"]
        value = await ctx.step(name, run, **options)
    except hf.StepFailed:
        if "or" not in op:
            raise
        return op["or"]
    return len(value) if "bytes" in op else value


async def map_of(ctx: hf.Context, ledger: str, op: dict[str, Any]) -> list[Any]:
    """One instruction `map`."""

    async def run(each: dict[str, Any]) -> Any:
        return await act(ctx, ledger, op["map"], each)

    values = await ctx.map(op["map"], run, op["each"], limit=len(op["each"]))
    return [len(one) if "bytes" in each else one for each, one in zip(op["each"], values, strict=True)]


async def act(ctx: hf.Context, ledger: str, name: str, op: dict[str, Any]) -> Any:
    """The function of a step: tell the ledger, and return a value."""
    said = {"run": str(ctx.run_id), "step": name, "key": ctx.idempotency_key}
    await asyncio.to_thread(post, ledger, said)
    # The event loop is blocked on purpose: heartbeats must not depend on it.
    time.sleep(op.get("block_ms", 0) / 1000)  # noqa: ASYNC251
    letter = op.get("letter", "x")
    return letter * ((op["bytes"] - 2) // len(letter.encode())) if "bytes" in op else op.get("value")


async def event_of(ctx: hf.Context, op: dict[str, Any]) -> Any:
    """One instruction `event`."""
    timeout = op["timeout_ms"] / 1000 if "timeout_ms" in op else None
    try:
        return (await ctx.await_event(op["event"], timeout=timeout)).payload
    except hf.EventTimeout:
        return "timeout"


def post(url: str, body: dict[str, Any]) -> None:
    """Tell the ledger that a step runs; it may let the step fail."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LEDGER_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        failure = hf.Fatal if error.code == 422 else RuntimeError
        raise failure(error.read().decode()) from None


if __name__ == "__main__":
    app.run(
        name=os.environ["HOLDFAST_WORKER"],
        lease=int(os.environ["HOLDFAST_LEASE_MS"]) / 1000,
        slots=int(os.environ["HOLDFAST_SLOTS"]),
    )
