"""Fan out: one step for each page, three at a time, each recorded separately."""

from __future__ import annotations

import asyncio

import holdfast as hf

app = hf.App()


@app.workflow("web.survey.v1")
async def survey(ctx: hf.Context, pages: list[str]) -> dict[str, int]:
    """Return the length of each page."""
    done = 0

    async def measure(page: str) -> int:
        nonlocal done
        await asyncio.sleep(0.01)  # in place of a real download
        ctx.cost(0.001)
        done += 1
        ctx.progress(done, len(pages), note=page)
        return len(page) * 100

    # If this worker is killed halfway, the next one fetches only the pages that are not recorded yet.
    sizes = await ctx.map("measure", measure, pages, limit=3)
    return dict(zip(pages, sizes, strict=True))


async def main() -> None:
    run = await app.start(survey, ["home", "about", "prices", "jobs", "contact"])
    async with app.worker(slots=10):
        print(await run.result(timeout=30))
    print(f"{len(await app.steps(run.id))} steps, cost {(await run.get()).cost:.3f}")
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
