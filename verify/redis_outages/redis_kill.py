"""redis-kill: a server that syncs its log at every write is killed under load, again and again.

No acknowledged write is lost.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack

from verify.checks.report import Report
from verify.environment.environment import environment
from verify.outages.server_kill import LEASE_SECONDS, WORKERS, Kills, server_kills
from verify.sabotage import LATE_SYNC

from .aof import cut, log_file
from .losses import fence_given_twice

LOST_BYTES = 100_000  # of the log, with the sabotage
FENCES = {"R5 fence given to two claims": fence_given_twice}


async def redis_kill(kills: int = 10, sabotage: str | None = None, seed: int = 0) -> Report:
    """Kill the server `kills` times; it starts again with the same data, and the workers stay.

    With the sabotage its log has lost its end: the answers came before the writes.
    """
    from servers.redis import running_redis

    with ExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_redis(durable=True))
        url = f"unix://{server.socket}?prefix=kill&durability=fsync"
        options = {"lease": LEASE_SECONDS, "slots": 4, "notes_claims": True}

        def lose() -> None:
            if sabotage == LATE_SYNC:
                cut(log_file(server.folder), LOST_BYTES)

        planned = Kills(kills, calm=(1.5, 2.5), down=(0.0, 1.0), lose=lose)
        async with environment(WORKERS, None, url, **options) as env:
            report, dice, broken = Report("redis-kill"), random.Random(seed), sabotage is not None
            return await server_kills(report, env, server, planned, dice, "E13", FENCES, broken=broken)
