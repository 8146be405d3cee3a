"""The benchmark held: throughput beside a transaction that stays open, so that old rows cannot be removed."""

from __future__ import annotations

import json
import subprocess
import time

import psycopg

from bench.measurements import begun, ended, say
from bench.stores import Server

WARM_SECONDS, WINDOW_SECONDS, GOAL = 10, 20, 0.65
DEAD = "select n_live_tup, n_dead_tup from pg_stat_user_tables where relname = 'workflow_run'"


def held(place: Server, seconds: float) -> None:
    """Measure 5-step runs before, during and after a transaction that another session holds open."""
    database = place.database()
    dsn, whole = place.server.dsn(database), WARM_SECONDS + 2 * WINDOW_SECONDS + seconds
    with begun("engine", "steady", "--url", place.server.url(database), "--seconds", whole + 5) as load:
        _rate(load, WARM_SECONDS)
        before = _rate(load, WINDOW_SECONDS)
        say(f"before: {before:.0f} steps/s")
        with psycopg.connect(dsn) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("select 1 from workflow.workflow_run limit 1")
            rate, left = before, seconds
            while left > 0:
                last = min(WINDOW_SECONDS, left)
                left -= last
                rate = _rate(load, last)
                say(f"held for {seconds - left:.0f} s: {rate:.0f} steps/s, {_dead(dsn)}")
        after = _rate(load, WINDOW_SECONDS)
        ended(load)
    say(f"steps_per_s: before {before:.0f}, held {rate:.0f}, ratio {rate / before:.2f}  (goal >= {GOAL})")
    say(f"let go: {after:.0f} steps/s")


def _rate(load: subprocess.Popen[str], seconds: float) -> float:
    """Return the steps a second from now on, as the load reports them."""
    assert load.stdout
    until = time.monotonic() + seconds
    first = json.loads(load.stdout.readline())
    for line in load.stdout:
        row = json.loads(line)
        if row["at"] >= until:
            return float(row["steps"] - first["steps"]) / float(row["at"] - first["at"])
    raise SystemExit("the load has ended")


def _dead(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(DEAD).fetchone()
    return f"{row[0]:,} runs and {row[1]:,} dead rows" if row else ""
