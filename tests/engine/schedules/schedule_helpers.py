"""Helpers for tests of schedules."""

from __future__ import annotations

import asyncio

from holdfast.records import SECOND, RunFilter

HOUR, DAY = 3600.0, 86400.0


def report(app):
    """Define a workflow that ends at once."""

    @app.workflow("shop.report.v1")
    async def made(ctx, params=None):
        return params

    return made


async def runs(app, tenant="default"):
    """Return all runs, oldest first."""
    return list(reversed(await app.list(RunFilter(tenant=tenant), limit=10_000)))


async def passes(app, seconds):
    """Let time pass from one due time to the next, and skip the polls between."""
    clock = asyncio.get_running_loop().time
    ends = clock() + seconds
    while (left := ends - clock()) > 0:
        due, now = await app.store.due(tuple(app.workflows)), await app.store.now()
        times = [(time - now) / SECOND for time in (due.claim_at, due.chore_at) if time is not None]
        # Stop shortly before the due time: a keeper that looks then wakes up in time.
        app.world.leap(max(0.0, min([left, *times]) - 1))
        await asyncio.sleep(min(1.1, max(0.0, ends - clock())))
