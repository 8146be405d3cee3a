"""The questions of an idle worker, by kind: `python -m bench.idle --store all --seconds 180`.

The worker has a workflow, a plan, a sink and a schedule that is far away. `--sleeping`: so many runs sleep
until tomorrow. On Postgres every statement is counted, on whichever session it is sent, and the rows that
were written; on SQLite every call of the store, and the commits of the file.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import psycopg

import holdfast as hf
from bench import stores
from holdfast.contract import Store
from holdfast.stores.postgres.sessions import listener, pool, renewal, session

DAY_SECONDS = 86_400.0
SETTLE_SECONDS = 45.0  # longer than a lease: what a worker asks after its last run is over
VERBS = sorted(
    name
    for name, verb in inspect.getmembers(Store, inspect.isfunction)
    if not name.startswith("_") and name not in {"open", "close", "listen", "hears"}
)


class Asked:
    """Counts of calls and statements since the last `begin`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()

    def begin(self) -> None:
        """Forget what was counted so far."""
        self.calls.clear()
        self.statements.clear()

    def watch_calls(self, store: Any) -> None:
        """Count each call of the store by the name of its verb."""
        for name in VERBS:
            setattr(store, name, self._counted(name, getattr(store, name)))

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def called(*args: Any, **fields: Any) -> Any:
            self.calls[name] += 1
            return verb(*args, **fields)

        return called

    def watch_sessions(self) -> None:
        """Count each statement on every session that is opened from now on."""
        connected = session.connected

        async def watched(*args: Any, **fields: Any) -> Any:
            made = await connected(*args, **fields)
            made.add_query_logger(lambda said: self.statements.update([_kind(said.query)]))
            return made

        for module in (listener, pool, renewal):
            module.connected = watched  # type: ignore[attr-defined]


def _kind(sql: str) -> str:
    """Return the name of the function that a statement calls, or the statement."""
    return sql.rpartition(".")[2].partition("(")[0] if "(" in sql else sql


def application(url: str) -> hf.App:
    """Return an app with a workflow, a plan and a sink."""
    app = hf.App(url)

    @app.workflow("bench.nap.v1")
    async def nap(ctx: hf.Context) -> None:
        await ctx.sleep(DAY_SECONDS)

    plan = app.plan("bench.plan.v1", [hf.Task("ONE")])

    @plan.task("ONE")
    async def one(task: Any) -> None:
        return None

    @app.sink("mail")
    async def mail(message: hf.Message) -> None:
        return None

    return app


async def idle(url: str, args: argparse.Namespace, dsn: str = "") -> dict[str, Any]:
    """Measure one idle worker."""
    asked, app = Asked(), application(url)
    asked.watch_sessions()

    def written() -> dict[str, int]:
        return rows_of(dsn) if dsn else {"commits": app.store._transactor.commits}  # type: ignore[attr-defined]  # noqa: SLF001

    await app.store.open()
    await app.schedule("far away", "bench.nap.v1", every=DAY_SECONDS)
    asked.watch_calls(app.store)
    async with app.worker():
        if args.sleeping:
            await app.start_many([("bench.nap.v1", None)] * args.sleeping)
            while (await app.store.stats()).by_status["waiting"] < args.sleeping:
                await asyncio.sleep(0.5)
        await asyncio.sleep(args.settle)
        asked.begin()
        before = written()
        await asyncio.sleep(args.seconds)
        calls, statements, after = dict(asked.calls), dict(asked.statements), written()
    await app.close()
    minutes = args.seconds / 60
    return {
        "calls a minute": _rates(calls, minutes),
        "statements a minute": _rates(statements, minutes),
        "written": {name: after[name] - before[name] for name in after if after[name] > before[name]},
    }


def _rates(counts: dict[str, int], minutes: float) -> dict[str, float]:
    rates = {name: round(count / minutes, 2) for name, count in sorted(counts.items())}
    return {**rates, "total": round(sum(counts.values()) / minutes, 2)}


def rows_of(dsn: str) -> dict[str, int]:
    """Return how many rows of each table were ever written, as the server counts them."""
    sql = "select relname, n_tup_ins + n_tup_upd + n_tup_del from pg_stat_user_tables"
    with psycopg.connect(dsn) as connection:
        return {str(name): int(rows) for name, rows in connection.execute(sql).fetchall()}


def main() -> None:
    """Measure on the named stores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--sleeping", type=int, default=0)
    parser.add_argument("--options", default="", help="options of the Postgres URL, such as '&listen=off'")
    parser.add_argument("--folder")
    parser.add_argument("--pg", type=int)
    args = parser.parse_args()
    if args.store in {"sqlite", "all"}:
        with stores.sqlite(args.folder) as place:
            found = asyncio.run(idle(place.fresh(), args))
            print("sqlite", json.dumps(found), flush=True)
    if args.store in {"postgres", "all"}:
        with stores.postgres(args.pg) as server:
            database = server.database()
            url, dsn = server.server.url(database) + args.options, server.server.dsn(database)
            found = asyncio.run(idle(url, args, dsn))
            print("postgres", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
