"""A nightly load: a schedule starts one run a night, which has one child for each shop, a few at a time.

`ETL_VERSION=1` is the first deployment, `2` the next one: it loads shops with a new version, and finishes the
nights that the first one began.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import holdfast as hf

app = hf.App(name="etl")
log = logging.getLogger("etl")

VERSION = int(os.environ.get("ETL_VERSION", "1"))
SHOPS = int(os.environ.get("ETL_SHOPS", "500"))
AT_ONCE = 50
PACE_SECONDS = float(os.environ.get("ETL_PACE", "0"))  # a real extract takes its time


@dataclass
class Shop:
    """One shop in one night."""

    night: str
    number: int


async def extract(shop: Shop) -> list[int]:
    await asyncio.sleep(PACE_SECONDS)
    return [shop.number * 10 + n for n in range(3)]


async def load(shop: Shop, rows: list[int]) -> int:
    log.info("shop %d: %d rows", shop.number, len(rows))
    return len(rows)


@app.workflow("etl.shop.v1")
async def shop_v1(ctx: hf.Context, shop: Shop) -> int:
    rows = await ctx.step("extract", extract, shop)
    return await ctx.step("load", load, shop, rows)


@app.workflow("etl.night.v1", timeout=hf.hours(20))
async def night(ctx: hf.Context) -> dict[str, int]:
    """Load all shops of one night. The children run at most `AT_ONCE` at a time, over all workers."""
    day = ctx.labels.get("fire_at", "by hand")[:10]

    async def one(number: int) -> int:
        # A bare name starts the newest version that a worker has published when the child starts.
        loaded: int = await ctx.call(
            "etl.shop", Shop(day, number), key=f"shop-{number}", limit_key="warehouse", ttl=hf.days(3)
        )
        return loaded

    rows = await asyncio.gather(*(one(number) for number in range(SHOPS)))
    return {"shops": len(rows), "rows": sum(rows)}


if VERSION > 1:

    async def clean(rows: list[int]) -> list[int]:
        return sorted(set(rows))

    @app.workflow("etl.shop.v2")
    async def shop_v2(ctx: hf.Context, shop: Shop) -> int:
        rows = await ctx.step("extract", extract, shop)
        rows = await ctx.step("clean", clean, rows)
        return await ctx.step("load", load, shop, rows)


async def set_up() -> None:
    """Run this at each deploy: the same limit and schedule again change nothing."""
    await app.publish()
    await app.limit(key="warehouse", concurrency=AT_ONCE)
    await app.schedule("nightly", "etl.night", cron="0 3 * * *", zone="Europe/Berlin")
    await app.close()


if __name__ == "__main__":
    asyncio.run(set_up())
