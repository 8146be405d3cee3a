"""pg-backend-kill: the server ends sessions of Holdfast, one after the other, under load."""

from __future__ import annotations

import random
from typing import Any, Self

import psycopg

from holdfast.stores.postgres.address import parsed
from verify.checks.report import Report
from verify.environment.environment import environment
from verify.environment.stores import POSTGRES
from verify.outages.lost_sessions import LEASE_SECONDS, WORKERS, Killer, lost_sessions

HEARD_SECONDS = 1.0  # without hints it takes ten
SESSIONS = """
select pid, query ilike 'listen %' or query = 'select 1' from pg_stat_activity
where datname = current_database() and application_name = 'holdfast'
"""


async def pg_backend_kill(
    seconds: float = 60.0, every: float = 0.3, sabotage: str | None = None, seed: int = 0
) -> Report:
    """Call pg_terminate_backend again and again, for sessions of workers and client, also those that
    LISTEN.
    """
    async with environment(WORKERS, None, POSTGRES, lease=LEASE_SECONDS, slots=4) as env:
        with BackendKiller(env.url, random.Random(seed)) as killer:
            report = Report("pg-backend-kill")
            return await lost_sessions(report, env, killer, seconds, every, sabotage, HEARD_SECONDS)


class BackendKiller(Killer):
    """A session that ends sessions in the database of a store."""

    def __init__(self, url: str, dice: random.Random) -> None:
        super().__init__(dice)
        self._connection = psycopg.connect(parsed(url).dsn, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def sessions(self) -> list[tuple[Any, bool]]:
        return self._connection.execute(SESSIONS).fetchall()

    def end(self, session: Any) -> None:
        self._connection.execute("select pg_terminate_backend(%s)", (session,))
