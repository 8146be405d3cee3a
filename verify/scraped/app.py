"""The app of the experiment, as `holdfast worker` loads it. Each try of a step is a line in a file."""

from __future__ import annotations

import asyncio
import os

import holdfast as hf
from holdfast.backoff import Backoff

LEDGER = "HOLDFAST_VERIFY_LEDGER"  # the variable with the name of the file
ORDER, BROKEN = "bill.order.v1", "bill.broken.v1"
STEPS = 3
STEP_SECONDS = 0.1

app = hf.App()


def note(run: str, step: str) -> None:
    """Write one line. It stays when this process is killed."""
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{os.getpid()} {run} {step}\n".encode())
    finally:
        os.close(file)


async def pay(run: str, step: str) -> str:
    """Note the try, and take some time."""
    note(run, step)
    await asyncio.sleep(STEP_SECONDS)
    return step


@app.workflow(ORDER)
async def order(ctx: hf.Context) -> int:
    """Execute a few short steps."""
    for n in range(STEPS):
        await ctx.step(f"step {n}", pay, str(ctx.run_id), f"step {n}")
    return STEPS


@app.workflow(BROKEN, retry=Backoff.fixed(0.05, attempts=2))
async def broken(_ctx: hf.Context) -> None:
    """Fail twice, and then for good."""
    raise ValueError("it never works")
