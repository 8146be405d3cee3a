"""Kept counts: what they cost each run, and how fast they are read in a store with very many runs.

    python -m bench.counts                                sqlite: cost, then two million runs (minutes, 3 GB)
    python -m bench.counts --store postgres --rows 0      only the cost, on Postgres
    python -m bench.counts --rounds 0 --rows 100000       only the reads

Cost: processor time of one process that starts runs and executes them, in turns with a store whose triggers
do not count; on Postgres also that of the server. Reads: half of the runs have ended, half sleep; five types,
a hundred tenants; a few are due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import psycopg

import holdfast as hf
from bench import stores
from bench.cpu import cpu_seconds
from bench.engine import Load, fill
from bench.measurements import run, say
from holdfast.contract import Store
from holdfast.records import ANY, Chore, NewRun, RunFilter
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.telemetry import store_wide
from holdfast.world import uuid7

READS = 15
DUE = 1000
LOADS = {"no steps": (0, 4000), "five steps": (5, 1500)}
SETTINGS = {"autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
RUNS = """
insert into workflow_run (
    id, tenant, type, status, max_attempts, run_at, rev, created_at, updated_at, finished_at
)
select {id}, 'tenant-' || (n % 100), 'bench.count' || (n % 5) || '.v1',
    case when n % 2 = 0 then 'succeeded' else 'waiting' end, 3, {at}, 1, {at}, {at},
    case when n % 2 = 0 then {at} end
from {series}
"""


async def cost(url: str, steps: int, runs: int, server: int) -> dict[str, float]:
    """Start runs, execute them, and return the processor time of each, in microseconds."""
    app = hf.App(url)
    load = Load(app, steps, "step")
    load.last = runs
    await app.store.open()
    cpu, served = time.process_time(), cpu_seconds(server)
    await fill(app, runs)
    async with app.worker(slots=300) as worker, asyncio.timeout(300):
        await load.done.wait()
        while worker.busy:
            await asyncio.sleep(0.001)
        while (await app.store.tick(only=Chore.COUNT)).folded:
            pass
        cpu, served = time.process_time() - cpu, cpu_seconds(server) - served
    await app.close()
    return {"own": cpu / runs * 1e6, "server": served / runs * 1e6}


def without_counts(url: str) -> str:
    """Take the triggers out of a new store."""
    asyncio.run(_made(_store(url)))
    if url.startswith("sqlite"):
        file = apsw.Connection(url.removeprefix("sqlite:///"))
        for (name,) in file.execute(
            "select name from sqlite_master where type = 'trigger' and name glob 'workflow_count_*'"
        ).fetchall():
            file.execute(f"drop trigger {name}")
        file.close()
        return url
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "select tgname, tgrelid::regclass::text from pg_trigger where tgname like 'counts_%'"
        ).fetchall()
        for name, table in found:
            connection.execute(f"drop trigger {name} on {table}".encode())
    return url


def _store(url: str) -> Store:
    return SqliteStore(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else PostgresStore(url)


async def _made(store: Store) -> None:
    await store.open()
    await store.close()


def costs(place: Any, rounds: int) -> None:
    """Measure each load with and without counts, in turns."""
    for name, (steps, runs) in LOADS.items():
        found: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for counted in (True, False):
                url = place.fresh()
                asyncio.run(_made(_store(url)))
                args = ("--cost", "--url", url if counted else without_counts(url), "--steps", steps)
                row = run("counts", *args, "--runs", runs, "--server", place.server_pid)
                found[counted].append(row["own"] + row["server"])
        kept, bare = (statistics.median(found[counted]) for counted in (True, False))
        low, bare_low = min(found[True]), min(found[False])
        say(
            f"{name}: {kept:.1f} µs a run with counts, {bare:.1f} without: {100 * (kept / bare - 1):+.1f} %; "
            f"the lowest {low:.1f} and {bare_low:.1f}: {100 * (low / bare_low - 1):+.1f} % "
            f"(with: {_all(found[True])}; without: {_all(found[False])})"
        )


def _all(numbers: list[float]) -> str:
    return " ".join(f"{one:.0f}" for one in numbers)


def fill_sqlite(file: str, rows: int) -> None:
    """Write runs by SQL. The triggers count them."""
    connection = apsw.Connection(file)
    connection.execute("pragma synchronous = off")
    text = RUNS.format(
        id="printf('%08x-0000-7000-8000-%012x', n / 65536, n)",
        at=str(time.time_ns() // 1000),
        series="numbers",
    )
    numbers = "with recursive numbers (n) as (select ? union all select n + 1 from numbers where n < ?) "
    for low in range(1, rows + 1, 50_000):
        connection.execute(numbers + text, (low, min(rows, low + 49_999)))
    connection.close()


def fill_postgres(dsn: str, rows: int) -> None:
    """The same on Postgres."""
    text = RUNS.format(
        id="lpad(to_hex(n), 32, '0')::uuid",
        at="now()",
        series="generate_series(%s::integer, %s::integer) as s (n)",
    ).replace("n % ", "n %% ")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set search_path = workflow; set synchronous_commit = off; set jit = off")
        for low in range(1, rows + 1, 50_000):
            connection.execute(text.encode(), (low, min(rows, low + 49_999)))
        connection.execute("vacuum analyze")


async def reads(store: Store, rows: int) -> None:
    """Print the milliseconds of each read."""
    await store.open()
    began = time.perf_counter()
    while (await store.tick(only=Chore.COUNT)).folded:
        pass
    say(f"{rows:,} runs, {DUE:,} due; all changes folded in {time.perf_counter() - began:.1f} s")
    ids = [uuid7(time.time_ns(), n) for n in range(DUE)]
    await store.start([NewRun(id=one, type="bench.due.v1", tenant=f"tenant-{one.int % 10}") for one in ids])
    day = (await store.now()) - 86400 * 1_000_000
    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "counts of all": lambda: store.counts(ANY),
        "counts of a tenant": lambda: store.counts("tenant-7"),
        "rates of a day": lambda: store.rates(ANY, day),
        "scale": lambda: store.scale(ANY),
        "stats": store.stats,
        "page of 100 runs": lambda: store.list(RunFilter(tenant=ANY), 100),
        "/metrics": lambda: store_wide.read(store, ANY),
    }
    for name, call in verbs.items():
        took = list[float]()
        for _ in range(READS):
            began = time.perf_counter()
            await call()
            took.append((time.perf_counter() - began) * 1000)
        first, *later = took  # the first call on a session compiles and plans the function
        say(f"{name:<22}{statistics.median(took):8.1f} ms, first {first:.1f}, slowest later {max(later):.1f}")
    began = time.perf_counter()
    wrong = await store.recount()
    say(f"recount: {time.perf_counter() - began:.1f} s, {len(wrong)} differences")
    await store.close()


def main(argv: list[str] | None = None) -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.counts", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rows", type=int, default=2_000_000, help="runs of the reads; 0: no reads")
    parser.add_argument("--rounds", type=int, default=5, help="of the cost; 0: no cost")
    parser.add_argument("--folder", help="where the file goes (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    parser.add_argument("--cost", action="store_true", help=argparse.SUPPRESS)
    for name, standard in (("--url", ""), ("--steps", 0), ("--runs", 0), ("--server", 0)):
        parser.add_argument(name, type=type(standard), default=standard, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.cost:
        print(json.dumps(asyncio.run(cost(args.url, args.steps, args.runs, args.server))))
        return
    where = stores.sqlite(args.folder) if args.store == "sqlite" else stores.postgres(args.pg, SETTINGS)
    with where as place:
        if args.rounds:
            costs(place, args.rounds)
        if args.rows:
            url = place.fresh()
            asyncio.run(_made(_store(url)))
            if isinstance(place, stores.Sqlite):
                fill_sqlite(url.removeprefix("sqlite:///"), args.rows)
            else:
                fill_postgres(url, args.rows)
            asyncio.run(reads(_store(url), args.rows))


if __name__ == "__main__":
    main()
