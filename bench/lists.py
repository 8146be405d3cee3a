"""Lists by filters in a store with a million runs: the milliseconds of a page of 20, median and slowest; and
of one call of a search that finds nothing.

    python -m bench.lists                        both stores, a million runs (some minutes, 3 GB)
    python -m bench.lists --store sqlite --rows 100000 --bytes 1000   with params of a kilobyte

The runs were started over 30 days, one after the other. Each has two labels: one of 10,000 customers, and
one that nine of ten runs share. Two of a hundred runs have failed, in a hundred different steps; four wait;
ninety-nine are children.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import Any
from uuid import UUID

import apsw
import psycopg

from bench import stores
from bench.measurements import say
from holdfast.contract import Store
from holdfast.lifecycle import Status
from holdfast.records import ANY, RunFilter
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore

NOW = datetime.now(UTC).replace(microsecond=0)
FIRST = NOW - timedelta(days=30)
ROUNDS = 15
SETTINGS = {"autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
PARENT = UUID("00000000-0000-7000-8000-000000000001")

# Runs with the numbers n. The stores differ in how they write an id, a time and JSON.
RUNS = """
insert into workflow_run (
    id, type, status, max_attempts, run_at, rev, parent_id, labels, error, created_at, updated_at,
    finished_at, payload
)
select $id, 'bench.list' || (n % 20) || '.v1', status, 3, $at, 1, case when n % 100 > 0 then $parent end,
    ('{"customer":"' || (n % 10000) || '","env":"'
        || case when n % 10 = 0 then 'test' else 'prod' end || '"}')$json,
    case when status = 'failed'
        then ('{"kind":"fatal","type":"ValueError","step":"s' || (n / 100 % 100)
            || '","message":"no card"}')$json end,
    $at, $at, case when status <> 'waiting' then $at end, $payload
from (
    select n, case when n % 100 in (1, 2) then 'failed' when n % 100 between 3 and 6 then 'waiting'
        else 'succeeded' end as status
    from $series as s (n)
) as made
"""
TRAIL = """
insert into workflow_event (workflow_id, event_type, created_at)
select id, 'created', created_at from workflow_run
"""
HOUR = timedelta(hours=1)
CASES: dict[str, dict[str, Any]] = {
    "no filter": {},
    "label, 100 runs": {"labels": {"customer": "77"}},
    "label, nine of ten": {"labels": {"env": "prod"}},
    "label is there": {"labels": {"customer": None}},
    "two labels": {"labels": {"customer": "77", "env": "prod"}},
    "two labels, no run": {"labels": {"customer": "70", "env": "prod"}},
    "roots": {"roots": True},
    "started in an hour": {"created_since": FIRST + 99 * HOUR, "created_until": FIRST + 100 * HOUR},
    "started before": {"created_until": FIRST + 2 * HOUR},
    "ended in an hour": {"finished_since": FIRST + 99 * HOUR, "finished_until": FIRST + 100 * HOUR},
    "ended before": {"finished_until": FIRST + 2 * HOUR},
    "changed since an hour": {"updated_since": NOW - HOUR},
    "changed before": {"updated_until": FIRST + 2 * HOUR},
    "error": {"error": "ValueError at s7: no card"},
    "error, prefix": {"error": "ValueError at s7%"},
    "error, prefix of all": {"error": "Value%"},
    "error, no run": {"error": "KeyError%"},
    "failed of a customer": {"labels": {"customer": "101"}, "statuses": (Status.FAILED,)},
    "failed roots": {"roots": True, "error": "%"},
    "label, waiting, in a day": {
        "labels": {"env": "prod"}, "statuses": (Status.WAITING,), "created_since": FIRST + 48 * HOUR,
        "created_until": FIRST + 72 * HOUR,
    },
}  # fmt: skip


SEARCHES: dict[str, dict[str, Any]] = {
    "search, no filter": {},
    "search, label of nine of ten": {"labels": {"env": "prod"}},
    "search, failed": {"statuses": (Status.FAILED,)},
    "search, no such type": {"type": "bench.none.v1"},
}


def fill_postgres(dsn: str, rows: int, size: int) -> None:
    """Write the runs by SQL, with the triggers that keep labels."""
    step = (timedelta(days=30) / rows).total_seconds()
    at = f"timestamptz '{FIRST.isoformat()}' + n * interval '{step} s'"
    time_part = f"lpad(to_hex((extract(epoch from {at}) * 1000)::bigint), 12, '0')"
    text = Template(RUNS).safe_substitute(
        id=f"({time_part} || '70008000' || lpad(to_hex(n), 12, '0'))::uuid",
        at=at, parent=f"'{PARENT}'::uuid", json="::json", series="generate_series(%s::integer, %s::integer)",
        payload=f"to_json(repeat(md5(n::text), {size // 32}))" if size else "'null'::json",
    ).replace("n % ", "n %% ").replace("100 % 100", "100 %% 100")  # fmt: skip
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = workflow; set synchronous_commit = off; set jit = off")
        for low in range(1, rows + 1, 50_000):
            connection.execute(text.encode(), (low, min(rows, low + 49_999)))
        connection.execute("set session_replication_role = replica")  # without the trigger of user SQL
        connection.execute(TRAIL)
        connection.execute("vacuum analyze")


def fill_sqlite(file: str, rows: int, size: int) -> None:
    """The same on SQLite."""
    step = timedelta(days=30) / rows // timedelta(microseconds=1)
    at = f"({int(FIRST.timestamp()) * 1_000_000} + n * {step})"
    time_part = f"printf('%012x', {at} / 1000)"
    first, second = f"substr({time_part}, 1, 8)", f"substr({time_part}, 9, 4)"
    text = Template(RUNS).safe_substitute(
        id=f"{first} || '-' || {second} || '-7000-8000-' || printf('%012x', n)",
        at=at, parent=f"'{PARENT}'", json="", series="numbers",
        payload=f"json_quote(hex(randomblob({size // 2})))" if size else "'null'",
    ).replace("numbers as s (n)", "numbers")  # fmt: skip
    numbers = "with recursive numbers (n) as (select ? union all select n + 1 from numbers where n < ?) "
    connection = apsw.Connection(file)
    connection.execute("pragma synchronous = off")
    for low in range(1, rows + 1, 50_000):
        connection.execute(numbers + text, (low, min(rows, low + 49_999)))
    connection.execute(TRAIL)
    connection.close()


async def measure(store: Store, rows: int) -> None:
    """Print one line for each case."""
    await store.open()
    say(f"{rows:,} runs: median ms, slowest ms, runs found")
    for name, where in CASES.items():
        took, found = list[float](), 0
        for _ in range(ROUNDS):
            began = time.perf_counter()
            found = len(await store.list(RunFilter(tenant=ANY, values=False, **where), 20))
            took.append((time.perf_counter() - began) * 1000)
        say(f"{name:<26}{statistics.median(took):8.1f}{max(took[1:]):8.1f}{found:5}")
    say("one call: median ms, slowest ms, runs looked at")
    for name, where in SEARCHES.items():
        took, looked_at = list[float](), 0
        for _ in range(ROUNDS):
            began = time.perf_counter()
            answer = await store.search("zebra", RunFilter(tenant=ANY, values=False, **where), 20)
            looked_at = answer.looked_at
            took.append((time.perf_counter() - began) * 1000)
        say(f"{name:<30}{statistics.median(took):8.1f}{max(took[1:]):8.1f}{looked_at:6}")
    calls, after, looked_at = 0, None, 0
    began = time.perf_counter()
    while calls == 0 or after is not None:
        answer = await store.search("zebra", RunFilter(tenant=ANY, values=False), 20, after)
        calls, after, looked_at = calls + 1, answer.after, looked_at + answer.looked_at
    say(f"a search to the end: {time.perf_counter() - began:.2f} s, {calls} calls, {looked_at:,} runs")
    await store.close()


async def _made(store: Store) -> None:
    await store.open()
    await store.close()


def main(argv: list[str] | None = None) -> None:
    """Fill the stores, and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.lists", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=0, help="of the params of each run")
    parser.add_argument("--folder", help="where the file goes (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    args = parser.parse_args(argv)
    if args.store != "postgres":
        with stores.sqlite(args.folder) as place:
            file = str(Path(place.fresh().removeprefix("sqlite:///")))
            asyncio.run(_made(SqliteStore(file)))
            fill_sqlite(file, args.rows, args.bytes)
            asyncio.run(measure(SqliteStore(file), args.rows))
    if args.store != "sqlite":
        with stores.postgres(args.pg, SETTINGS) as server:
            name = server.database()
            url = server.server.url(name)
            asyncio.run(_made(PostgresStore(url)))
            fill_postgres(server.server.dsn(name), args.rows, args.bytes)
            asyncio.run(measure(PostgresStore(url), args.rows))


if __name__ == "__main__":
    main()
