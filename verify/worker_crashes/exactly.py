"""exactly: workers are killed and stopped while their transactions write to tables beside the engine's.

In every snapshot of all tables there is exactly one deposit for each recorded step. On Postgres the answers
of some commits are lost as well.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from holdfast.engine.app.app import App
from holdfast.engine.app.handle import Handle
from holdfast.engine.code.context import Context
from holdfast.stores import make_store
from verify.checks.report import Check, Report, progress
from verify.environment.processes import Fleet, die_with_parent, quiet
from verify.environment.stores import POSTGRES, SQLITE, database, is_postgres, server

DEPOSIT = "verify.deposit.v1"
LEASE_SECONDS = 1.0
STOP_SECONDS = 1.5  # longer than a lease: a worker that is stopped inside its function comes back too late
LONGEST_SECONDS = 0.02  # of a function
PATIENCE_SECONDS = 120.0
STEPS_BETWEEN = 5  # steps that are recorded between two kills: a busy machine gets fewer kills a second,
QUIET_SECONDS = 4.0  # but after this time one comes all the same
CALL_SECONDS = 1.0  # instead of ten: the wait for an answer of Postgres

TABLES = """
create table deposit (run text, step integer);
create table counter (n integer);
insert into counter values (0)
"""
LOOK = """
select (select count(*) from deposit), (select n from counter),
    (select count(*) from workflow_step where key like 'deposit:%' and status = 'succeeded')
"""
TORN = """
select run || ' ' || step || ': ' || count(*) || ' times' from deposit group by run, step having count(*) > 1
"""
ENDED = "select count(*) from workflow_run where status in ('succeeded', 'failed')"
SHARE_DONE = 0.95  # a run whose worker is killed four times without progress fails, as it should
SHARE_CUT = 0.05  # share of the commits of transactions whose answers are lost
MOST_CUTS = 1000
COMMIT = "COMMIT"


def _rows(connection: Any, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Bank:
    """The store in which deposits are made: its URL for workers, and a connection for snapshots."""

    url: str
    connection: Any
    lost: Callable[[], int] = lambda: 0  # returns the number of lost answers


@asynccontextmanager
async def bank(store: str, folder: Path, dice: random.Random) -> AsyncIterator[Bank]:
    if store == SQLITE:
        path = str(folder / "holdfast.db")
        with closing(apsw.Connection(path)) as connection:
            connection.set_busy_timeout(5000)
            yield Bank(f"sqlite:///{path}", connection)
        return
    import psycopg

    from verify.outages.lost_answers import Cutter
    from verify.postgres_outages.proxy import proxy

    cutter = Cutter(MOST_CUTS, SHARE_CUT, dice, verbs=frozenset({COMMIT}))
    with database() as name, psycopg.connect(server().dsn(name), autocommit=True) as there:
        there.execute("set search_path = public, workflow")
        async with proxy(server().dsn(name), folder, cutter) as dsn:
            yield Bank(f"{dsn}&allow_fsync_off=1", there, lambda: cutter.count)


def deposit(connection: apsw.Connection, run: str, step: int) -> int:
    """Make two writes, with time between them for a kill."""
    connection.execute("insert into deposit values (?, ?)", (run, step))
    time.sleep(random.random() * LONGEST_SECONDS)
    return _rows(connection, "update counter set n = n + 1 returning n")[0][0]  # type: ignore[no-any-return]


async def deposit_there(connection: Any, run: str, step: int) -> int:
    """Make the two writes on Postgres."""
    await connection.execute("insert into deposit values ($1, $2)", run, step)
    await asyncio.sleep(random.random() * LONGEST_SECONDS)
    return await connection.fetchval("update counter set n = n + 1 returning n")  # type: ignore[no-any-return]


def by_itself(url: str, run: str, step: int) -> int:
    """Make a deposit on its own connection, in its own commit."""
    with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
        connection.set_busy_timeout(5000)
        connection.execute("begin immediate")
        n = deposit(connection, run, step)
        connection.execute("commit")
    return n


async def by_itself_there(url: str, run: str, step: int) -> int:
    import asyncpg

    from holdfast.stores.postgres.address import parsed

    connection = await asyncpg.connect(parsed(url).dsn)
    try:
        async with connection.transaction():
            return await deposit_there(connection, run, step)
    finally:
        connection.terminate()


def work(url: str, log: str, torn: bool) -> None:  # noqa: FBT001 - a process takes no names
    """Run a worker until the process is killed. Torn: deposits are made in steps, on their own
    connections.
    """
    die_with_parent()
    quiet(log)
    store = make_store(url)
    alone, within = (by_itself_there, deposit_there) if is_postgres(url) else (by_itself, deposit)
    if is_postgres(url):
        store.call_seconds = CALL_SECONDS  # type: ignore[attr-defined]
    app = App(store, name="verify")

    @app.workflow(DEPOSIT)
    async def depositing(ctx: Context, steps: int) -> int:
        for n in range(steps):
            if torn:
                await ctx.step("deposit", alone, url, str(ctx.run_id), n, key=f"deposit:{n}")
            else:
                await ctx.transaction(within, str(ctx.run_id), n, key=f"deposit:{n}")
        return steps

    app.run(lease=LEASE_SECONDS, slots=4, grace=0)


class Looks:
    """Snapshots of the tables, and the breaches that they showed."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.count, self.steps, self.breaches = 0, 0, list[str]()

    def look(self) -> int:
        """Take one snapshot, and return the number of ended runs."""
        deposits, counted, steps = _rows(self._connection, LOOK)[0]
        self.count, self.steps = self.count + 1, steps
        if not deposits == counted == steps:
            self.breaches.append(f"look {self.count}: {deposits} deposits, {counted} counted, {steps} steps")
        return _rows(self._connection, ENDED)[0][0]  # type: ignore[no-any-return]


async def exactly(
    runs: int = 60,
    steps: int = 10,
    every: float = 0.25,
    kills: int = 60,
    seed: int = 0,
    *,
    torn: bool = False,
    store: str = SQLITE,
) -> Report:
    """Send SIGKILL or SIGSTOP to random workers until all runs have ended."""
    report, dice, began = Report(f"exactly {store}"), random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with bank(store, folder, dice) as at:
            await _prepare(at, runs, steps)
            looks = Looks(at.connection)
            with Fleet(work, (at.url, str(folder / "log"), torn), 3) as fleet:
                hurt = await _hurt(fleet, looks, dice, (runs, kills, every))
            ended = looks.look()
            doubled = [row[0] for row in _rows(at.connection, TORN)]
            left = _rows(at.connection, LOOK)[0]
            lost = at.lost()
    report.checks.append(
        Check(
            "FLOW-16 a deposit a step, at every look",
            len(looks.breaches),
            tuple(looks.breaches[:3]),
            invariant=True,
        )
    )
    report.checks.append(
        Check("FLOW-16 no deposit is there twice", len(doubled), tuple(doubled[:3]), invariant=True)
    )
    report.expect("all ended", ended == runs, f"{ended} of {runs}")
    done = left[2] >= SHARE_DONE * runs * steps
    report.expect("at least 95 % of the steps are there", done, f"{left[2]} of {runs * steps}")
    report.expect(f"planned kills fired: {kills}", hurt["kills"] >= kills, str(hurt))
    if store == POSTGRES:
        report.expect("answers to commits were lost", lost > 0)
        report.figures["answers_lost"] = lost
    report.figures |= {
        **hurt,
        "looks": looks.count,
        "steps": left[2],
        "seconds": round(time.monotonic() - began, 1),
    }
    return report


async def _prepare(at: Bank, runs: int, steps: int) -> None:
    app = App(at.url)
    started = await app.start_many([(DEPOSIT, steps)] * runs)
    assert all(isinstance(one, Handle) for one in started)
    await app.close()
    at.connection.execute(TABLES)


async def _hurt(
    fleet: Fleet, looks: Looks, dice: random.Random, plan: tuple[int, int, float]
) -> dict[str, int]:
    (runs, kills, every), hurt = plan, {"kills": 0, "stops": 0}
    stopped: list[tuple[float, Any]] = []
    next_at = end_at = time.monotonic()
    before = 0  # steps at the last kill
    with progress() as tell:
        while (ended := looks.look()) < runs or hurt["kills"] < kills:
            now = time.monotonic()
            if now - end_at > PATIENCE_SECONDS:
                break
            for at, process in [one for one in stopped if one[0] <= now]:
                stopped.remove((at, process))
                _signal(process, signal.SIGCONT)
            progressed = looks.steps >= before + STEPS_BETWEEN or ended == runs
            # No more than planned: on a slow machine further kills would use up the crashes of the last runs.
            if hurt["kills"] < kills and now >= next_at + (0 if progressed else QUIET_SECONDS):
                before = looks.steps
                next_at = now + every * (0.5 + dice.random())
                member = dice.choice(fleet.members)
                if hurt["kills"] % 5 == 4 and not stopped:
                    hurt["stops"] += 1
                    _signal(member, signal.SIGSTOP)
                    stopped.append((now + STOP_SECONDS, member))
                hurt["kills"] += 1
                fleet.kill(dice.choice([one for one in fleet.members if one is not member]))
            fleet.supervise()
            tell(f"{ended} of {runs} runs ended, {hurt['kills']} kills, {hurt['stops']} stops")
            await asyncio.sleep(0.01)
    return hurt


def _signal(process: Any, number: signal.Signals) -> None:
    if process.is_alive():
        os.kill(process.pid, number)
