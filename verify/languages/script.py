"""The conformance script in Python: the workflow that the worker programs of all languages execute."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import holdfast
from holdfast.engine.code.context import Context

TYPE = "conformance.script.v1"
ANSWER_SECONDS = 60.0

app = holdfast.App()


@app.workflow(TYPE)
async def script(ctx: Context, params: dict[str, Any]) -> list[Any]:
    out: list[Any] = []
    for op in params["do"]:
        if "step" in op:
            out.append(await ctx.step(op["step"], _act, ctx, params["ledger"], op))
        elif "sleep" in op:
            await ctx.sleep(op["sleep"] / 1000)
            out.append("slept")
        elif "event" in op:
            out.append((await ctx.await_event(op["event"])).payload)
        elif "child" in op:
            out.append(await ctx.call(TYPE, op["child"]))
    return out


async def _act(ctx: Context, ledger: str, op: dict[str, Any]) -> Any:
    call = {"run": str(ctx.run_id), "step": op["step"], "key": ctx.idempotency_key}
    await asyncio.to_thread(_post, ledger, json.dumps(call).encode())
    return op.get("value")


def _post(ledger: str, body: bytes) -> None:
    url = urlsplit(ledger)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", url.path, body, {"Content-Type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()
