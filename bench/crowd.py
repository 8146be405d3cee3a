"""A store in which much has happened and much is to come: rows put in by SQL, past the verbs.

Of each kind so many runs: finished, asleep for a month, scheduled for later (half of them at a better
priority than what is due), and due but of types that nobody here asks for. Twenty types, fifty tenants.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

TYPES = tuple(f"bench.crowd{number}.v1" for number in range(20))
ASKED = TYPES[:10]  # what our worker runs; the rest is others'
KINDS = {"finished": "succeeded", "asleep": "waiting", "later": "pending", "other": "pending"}
PART = 50_000
SQL = Path(__file__).with_name("crowd.sql")


def fill(dsn: str, rows: int) -> None:
    """So many of each kind."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Triggers are for what plain SQL brings, and these rows are no news to anybody.
        connection.execute("set search_path = workflow; set session_replication_role = replica")
        connection.execute("set synchronous_commit = off; set jit = off")
        connection.execute(SQL.read_text("utf-8").encode())
        for kind, (name, status) in enumerate(KINDS.items(), 1):
            for low in range(1, rows + 1, PART):
                part = (kind, name, status, low, min(rows, low + PART - 1))
                connection.execute("select pg_temp.put_in(%s, %s, %s, %s, %s)", part)


def tidy(dsn: str) -> None:
    """What autovacuum would have come round to."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
