"""A store with very many runs: rows written by SQL, without the verbs.

There are four kinds of runs, each the same number: finished, asleep for a month, scheduled for later (half of
them at a better priority than the due runs), and due but of types that no worker here runs. Twenty types,
fifty tenants.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

TYPES = tuple(f"bench.many_runs{number}.v1" for number in range(20))
ASKED = TYPES[:10]  # types that our worker runs
KINDS = {"finished": "succeeded", "asleep": "waiting", "later": "pending", "other": "pending"}
PART = 50_000
SQL = Path(__file__).with_name("many_runs.sql")


def fill(dsn: str, rows: int) -> None:
    """Write `rows` runs of each kind."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Without triggers, which are for user SQL: no worker has to hear of these rows.
        connection.execute("set search_path = workflow; set session_replication_role = replica")
        connection.execute("set synchronous_commit = off; set jit = off")
        connection.execute(SQL.read_text("utf-8").encode())
        for kind, (name, status) in enumerate(KINDS.items(), 1):
            for low in range(1, rows + 1, PART):
                part = (kind, name, status, low, min(rows, low + PART - 1))
                connection.execute("select pg_temp.put_in(%s, %s, %s, %s, %s)", part)


def tidy(dsn: str) -> None:
    """Vacuum and analyze, as autovacuum would do later."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
