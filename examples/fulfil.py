"""A plan: steps that anyone can see from the start. One is a person's, one waits for the carrier."""

from __future__ import annotations

import asyncio

import holdfast as hf

app = hf.App()

fulfil = app.plan(
    "shop.fulfil.v1",
    [
        hf.Task("VALIDATE"),
        hf.Task("CHARGE", attempts=5),
        hf.Approval("MANAGER", ask="Ship this order?"),
        hf.Task("SHIP"),
    ],
    retry=hf.Backoff.fixed(0.1),
)


@fulfil.task("VALIDATE")
async def validate(task: hf.PlanTask) -> int:
    return int(task.params["total"])


@fulfil.task("CHARGE")
def charge(task: hf.PlanTask) -> hf.Completed[str]:
    """Plain code, in a thread. The card is away at first: the policy tries again."""
    if task.attempt == 1:
        raise ConnectionError("the card terminal does not answer")
    return hf.Completed(f"{task.outputs['VALIDATE']} under {task.idempotency_key[-6:]}", cost=0.3)


@fulfil.task("SHIP")
async def ship(task: hf.PlanTask) -> hf.Outcome:
    if task.event is None:
        print("the carrier is asked")
        return hf.Waiting("carrier.accepted", timeout=hf.days(1))
    return hf.Completed({"parcel": task.event.payload["id"], "approved by": task.outputs["MANAGER"].by})


async def until(run: hf.Handle[object], step: str) -> None:
    """The run waits for this step."""
    while step not in [one.key for one in (await run.get()).waiting_on]:  # noqa: ASYNC110 - as a person looks
        await asyncio.sleep(0.01)


async def main() -> None:
    async with app.worker():
        run = await app.start(fulfil, {"total": 1200})
        await until(run, "MANAGER")
        for step in await app.steps(run.id):
            print(f"{step.seq} {step.key:<8} {step.kind:<8} {step.status}")
        await app.approve(run.id, by="Ada")
        await until(run, "SHIP")
        await app.emit("carrier.accepted", {"id": 9}, run=run.id)
        print(await run.result(timeout=30))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
