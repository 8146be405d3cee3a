"""redis-client-kill: the server closes connections of Holdfast, one after the other, under load."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from verify.checks.report import Report
from verify.environment.environment import environment
from verify.outages.lost_sessions import LEASE_SECONDS, WORKERS, Killer, lost_sessions

if TYPE_CHECKING:
    import redis

HEARD_SECONDS = 0.7  # without hints a worker looks once a second


async def redis_client_kill(
    seconds: float = 60.0, every: float = 0.3, sabotage: str | None = None, seed: int = 0
) -> Report:
    """Send CLIENT KILL again and again, for connections of workers and client, also those that SUBSCRIBE."""
    from servers.redis import running_redis

    with ExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_redis())
        client = stack.enter_context(server.client())
        async with environment(WORKERS, None, server.url("clients"), lease=LEASE_SECONDS, slots=4) as env:
            report, killer = Report("redis-client-kill"), ClientKiller(client, random.Random(seed))
            return await lost_sessions(report, env, killer, seconds, every, sabotage, HEARD_SECONDS)


class ClientKiller(Killer):
    """A connection that closes the other connections of its server."""

    def __init__(self, client: redis.Redis, dice: random.Random) -> None:
        super().__init__(dice)
        self._client = client

    def sessions(self) -> list[tuple[Any, bool]]:
        mine: Any = self._client.client_id()
        found: Any = self._client.client_list()
        return [(one["id"], one["sub"] != "0") for one in found if int(one["id"]) != mine]

    def end(self, session: Any) -> None:
        self._client.client_kill_filter(_id=session)
