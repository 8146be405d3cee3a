"""Wait for a person's answer, which is an event. It may come in time, after a reminder, or never."""

from __future__ import annotations

import asyncio

import holdfast as hf

app = hf.App()

PATIENCE = 0.3  # seconds here; hf.days(2) in an office


async def remind(who: str, what: str) -> None:
    print(f"to {who}: please look at {what}")


@app.workflow("office.sign_off.v1")
async def sign_off(ctx: hf.Context, document: str) -> str:
    """Ask, remind twice, then give up."""
    await ctx.step("ask", remind, "the manager", document)
    for who in ("the manager", "the deputy"):
        try:
            answer = await ctx.await_event(f"signed.{document}", timeout=PATIENCE)
        except hf.EventTimeout:
            await ctx.step("remind", remind, who, document)
        else:
            return f"{document}: {answer.payload['verdict']} by {answer.payload['by']}"
    return f"{document}: nobody answered"


async def main() -> None:
    signed = await app.start(sign_off, "contract")
    forgotten = await app.start(sign_off, "memo")
    async with app.worker():
        await asyncio.sleep(PATIENCE * 1.5)  # the first deadline passes for both
        await app.emit("signed.contract", {"verdict": "approved", "by": "the deputy"})
        print(await signed.result(timeout=30))
        print(await forgotten.result(timeout=30))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
