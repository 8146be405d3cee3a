"""A plan: all steps are visible from the start. A person decides one step; another waits for the carrier."""

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
    """Run in a thread, because it is a sync function. The first attempt fails, and the policy retries it."""
    if task.attempt == 1:
        raise ConnectionError("the card terminal does not answer")
    return hf.Completed(f"{task.outputs['VALIDATE']} under {task.idempotency_key[-6:]}", cost=0.3)


@fulfil.task("SHIP")
async def ship(task: hf.PlanTask) -> hf.Outcome:
    if task.event is None:
        print("ask the carrier")
        return hf.Waiting("carrier.accepted", timeout=hf.days(1))
    return hf.Completed({"parcel": task.event.payload["id"], "approved by": task.outputs["MANAGER"].by})


async def until(run: hf.Handle[object], step: str) -> None:
    """Wait until the run waits for this step."""
    while step not in [one.key for one in (await run.get()).waiting_on]:  # noqa: ASYNC110 - poll, as a person would
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
