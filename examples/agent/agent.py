"""An agent: a model in a loop of at most 30 turns, with tools, a budget, an approval, and a cancel.

The model here is a function with fixed answers that counts its calls in a file; put your vendor's client in
its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import holdfast as hf

app = hf.App(name="agent")
log = logging.getLogger("agent")

TURNS_MAX = 30
CALL_COST = 0.02  # the most that one call of the model may cost
PACE_SECONDS = float(os.environ.get("AGENT_PACE", "0.05"))
CALLS = Path(os.environ.get("AGENT_CALLS", "calls.jsonl"))


def note_call(run: UUID, turn: int) -> None:
    """Count the call outside of the store, as the vendor's bill does."""
    with CALLS.open("a") as file:
        file.write(json.dumps({"run": str(run), "turn": turn}) + "\n")


async def ask(ctx: hf.Context, turn: int, question: str, seen: list[str]) -> dict[str, Any]:
    """One call of the model. It costs money, so its answer is recorded, and never paid for again."""
    note_call(ctx.run_id, turn)
    await asyncio.sleep(PACE_SECONDS)  # a real model takes seconds
    ctx.cost(CALL_COST)
    log.info("turn %d of %d", turn, TURNS_MAX)
    if turn < TURNS_MAX:
        return {"tool": "search", "input": f"{question} {turn}"}
    return {"text": f"{question}: {len(seen)} sources read"}


async def search(text: str) -> str:
    return f"a page about {text}"


@app.workflow("support.agent.v1", retry=hf.Backoff.exponential(base=1, attempts=5), budget=2.00)
async def agent(ctx: hf.Context, question: str) -> str:
    seen: list[str] = []
    for turn in range(1, TURNS_MAX + 1):
        # The run pauses before a call that could exceed its budget; `holdfast resume RUN --budget 5` goes on.
        answer = await ctx.step("model", ask, ctx, turn, question, seen, timeout=120, cost_max=CALL_COST)
        if "text" in answer:
            gate = await ctx.approval("publish", ask="Publish this answer?", data=answer, timeout=hf.days(1))
            return answer["text"] if gate.approved else f"not published: {gate.comment}"
        seen.append(await ctx.step("search", search, answer["input"]))
    raise hf.Fatal(f"no answer after {TURNS_MAX} turns")
