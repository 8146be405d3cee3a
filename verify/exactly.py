"""exactly: workers are killed and stopped while their transactions write to tables beside the engine's.

At every look, in one snapshot of the file, there is one deposit for each recorded step, and none besides.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from holdfast.engine.app import App
from holdfast.engine.context import Context
from holdfast.engine.handle import Handle

from .processes import Fleet, die_with_parent, quiet
from .report import Check, Report, progress

DEPOSIT = "verify.deposit.v1"
LEASE_SECONDS = 1.0
STOP_SECONDS = 1.5  # longer than a lease: whoever is stopped inside its function comes back too late
LONGEST_SECONDS = 0.02  # that a function takes
PATIENCE_SECONDS = 120.0

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
SHARE_DONE = 0.95  # a run whose worker is killed four times before it gets anywhere has failed, as it should


def _rows(connection: apsw.Connection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()


def deposit(connection: apsw.Connection, run: str, step: int) -> int:
    """Two writes, and time between them for a kill to fall into."""
    connection.execute("insert into deposit values (?, ?)", (run, step))
    time.sleep(random.random() * LONGEST_SECONDS)
    return _rows(connection, "update counter set n = n + 1 returning n")[0][0]  # type: ignore[no-any-return]


def work(path: str, log: str, torn: bool) -> None:  # noqa: FBT001 - a process takes no names
    """Be a worker process, until killed. Torn: the same in a plain step, on a connection of its own."""
    die_with_parent()
    quiet(log)
    app = App(f"sqlite:///{path}", name="verify")

    def by_itself(run: str, step: int) -> int:
        with closing(apsw.Connection(path)) as connection:
            connection.set_busy_timeout(5000)
            connection.execute("begin immediate")
            n = deposit(connection, run, step)
            connection.execute("commit")
        return n

    @app.workflow(DEPOSIT)
    async def depositing(ctx: Context, steps: int) -> int:
        for n in range(steps):
            if torn:
                await ctx.step("deposit", by_itself, str(ctx.run_id), n, key=f"deposit:{n}")
            else:
                await ctx.transaction(deposit, str(ctx.run_id), n, key=f"deposit:{n}")
        return steps

    app.run(lease=LEASE_SECONDS, slots=4, grace=0)


class Looks:
    """What was seen of the file, and what of it must not be."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.count, self.breaches = 0, list[str]()

    def look(self) -> int:
        """One snapshot; answers how many runs have ended."""
        deposits, counted, steps = _rows(self._connection, LOOK)[0]
        self.count += 1
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
) -> Report:
    """SIGKILL or SIGSTOP to a random worker again and again, until all runs have ended."""
    report, dice, began = Report("exactly"), random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        path = str(Path(folder) / "holdfast.db")
        await _prepare(path, runs, steps)
        with closing(apsw.Connection(path)) as connection:
            connection.set_busy_timeout(5000)
            looks = Looks(connection)
            with Fleet(work, (path, str(Path(folder) / "log"), torn), 3) as fleet:
                hurt = await _hurt(fleet, looks, dice, (runs, kills, every))
            ended = looks.look()
            doubled = [row[0] for row in _rows(connection, TORN)]
            left = _rows(connection, LOOK)[0]
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
    report.figures |= {
        **hurt,
        "looks": looks.count,
        "steps": left[2],
        "seconds": round(time.monotonic() - began, 1),
    }
    return report


async def _prepare(path: str, runs: int, steps: int) -> None:
    app = App(f"sqlite:///{path}")
    started = await app.start_many([(DEPOSIT, steps)] * runs)
    assert all(isinstance(one, Handle) for one in started)
    await app.close()
    with closing(apsw.Connection(path)) as connection:
        connection.execute(TABLES)


async def _hurt(
    fleet: Fleet, looks: Looks, dice: random.Random, plan: tuple[int, int, float]
) -> dict[str, int]:
    (runs, kills, every), hurt = plan, {"kills": 0, "stops": 0}
    stopped: list[tuple[float, Any]] = []
    next_at = end_at = time.monotonic()
    with progress() as tell:
        while (ended := looks.look()) < runs or hurt["kills"] < kills:
            now = time.monotonic()
            if now - end_at > PATIENCE_SECONDS:
                break
            for at, process in [one for one in stopped if one[0] <= now]:
                stopped.remove((at, process))
                _signal(process, signal.SIGCONT)
            if now >= next_at:
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
