"""pg-kill: the whole server is killed under load and started again: no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack

from verify.checks.report import Report
from verify.environment.environment import environment
from verify.environment.stores import chosen_version, database
from verify.outages.server_kill import LEASE_SECONDS, WORKERS, Kills, server_kills
from verify.sabotage import LATE_SYNC

# With these settings the server writes only when a buffer is full, or after ten seconds.
CARELESS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


async def pg_kill(kills: int = 3, sabotage: str | None = None, seed: int = 0) -> Report:
    """Kill every process of the server, `kills` times; it starts again with the same data and workers."""
    from servers.postgres import running_postgres

    planned = Kills(kills, calm=(2.0, 3.0), down=(0.0, 1.5))
    settings = CARELESS if sabotage == LATE_SYNC else {}
    durable = running_postgres(chosen_version(), fsync=True, settings=settings)
    with ExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, durable)
        name = stack.enter_context(database(server))
        async with environment(WORKERS, None, server.url(name), lease=LEASE_SECONDS, slots=4) as env:
            report, dice = Report("pg-kill"), random.Random(seed)
            return await server_kills(report, env, server, planned, dice, "E10", broken=sabotage is not None)
