"""All experiments, one after the other; then their twins, the same experiments with a bug switched in."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from .checks.report import Report
from .crashpoints.crashpoints import SCENARIOS, crashpoints
from .environment.stores import POSTGRES, REDIS, SQLITE
from .hostile.hostile import hostile
from .http_input.experiment import http
from .large.largest import FULL, ON_REDIS, SHORT, TWIN, largest
from .large.purging import purging
from .sabotage import (
    BLIND_RESEND,
    CARELESS,
    DEAF,
    EARLY_ANSWER,
    FORGETFUL,
    HASTY,
    LATE_SYNC,
    LOST_PLACE,
    NO_FENCE,
    OLD_EPOCH,
    OPTIMIST,
    RAW_TEXT,
    RENEW_ON_LOOP,
    SABOTAGES,
    SPLIT_START,
    TORN,
    UNASKED,
    UNBOUNDED,
    UNGUARDED,
)
from .scraped.scraped import scraped
from .server_crashes.serve_kill import serve_kill
from .worker_crashes.between import between
from .worker_crashes.bulk import bulk
from .worker_crashes.crashed import crashed
from .worker_crashes.exactly import exactly
from .worker_crashes.kill9 import kill9, poison
from .worker_crashes.zombie import starve, zombie

Experiment = Coroutine[Any, Any, Report]
T = TypeVar("T")
IN_MEMORY = ("memory", SQLITE)


# The seed of the short form: the same hostile values for every change, so that runs can be compared.
SHORT_SEED = 495810


def everything(seed: int, *, short: bool, postgres: bool = True, redis: bool = True) -> list[Report]:
    """Run all experiments. Short: the sizes for CI, and on Redis a selection. Otherwise the sizes that the
    project promises.
    """
    began = time.monotonic()
    stores = (*IN_MEMORY, POSTGRES) if postgres else IN_MEMORY
    lasting = (*stores[1:], REDIS) if redis else stores[1:]  # the data outlives its process
    selected = stores[1:] if short else lasting
    reports = [
        _shown(asyncio.run(kill9(runs=60, kills=20, seed=seed) if short else kill9(seed=seed))),
        _shown(asyncio.run(poison(good=40 if short else 100, seed=seed))),
        _shown(asyncio.run(starve(runs=2 if short else 6))),
        _shown(asyncio.run(purging(runs=5000, calm=3.0) if short else purging())),
        # These mostly wait, so they run at the same time.
        *_together(*(_exactly(seed, name, short=short) for name in stores[1:])),
        *_together(*(between(2 if short else 50, store=name) for name in lasting)),
        *(
            _shown(report)
            for reports in asyncio.run(_gathered([crashed(name, short=short) for name in selected]))
            for report in reports
        ),
        *_together(*(bulk(*((240, 40) if short else ()), store=name) for name in selected)),
        *(_shown(asyncio.run(_serve_kill(seed, name, short=short))) for name in selected),
        # Its short form is a test.
        *(() if short else (_shown(asyncio.run(scraped(seed=seed, store=name))) for name in selected)),
        *_together(*(zombie(rounds=1 if short else 8, seed=seed, store=name) for name in lasting)),
        *(on_postgres(seed, short=short) if postgres else ()),
        *(on_redis(seed, short=short) if redis else ()),
        *in_languages(seed, (SQLITE,) if short else lasting, short=short),
        *bounds(seed, selected, short=short),
        *(_shown(report) for report in crashpoints(stores, seed=seed, short=short)),
        *twins(seed, short=short, postgres=postgres, redis=redis),
    ]
    print(f"all of it took {time.monotonic() - began:.0f} s")
    return reports


def _exactly(seed: int, store: str, *, short: bool) -> Experiment:
    return exactly(runs=20, kills=15, seed=seed, store=store) if short else exactly(seed=seed, store=store)


def _serve_kill(seed: int, store: str, *, short: bool) -> Experiment:
    # The machines of CI are busy: there the server may need longer to come back.
    return serve_kill(3, seed, store=store, back_seconds=5.0) if short else serve_kill(seed=seed, store=store)


def on_postgres(seed: int, *, short: bool) -> list[Report]:
    """Run the experiments that need a server, and kill9 once more on it."""
    from .postgres_outages.commit_cut import commit_cut
    from .postgres_outages.pg_backend_kill import pg_backend_kill
    from .postgres_outages.pg_kill import pg_kill

    runs, kills = (100, 15) if short else (1000, 250)
    return [
        _shown(asyncio.run(kill9(runs=runs, kills=kills, seed=seed, store=POSTGRES))),
        _shown(asyncio.run(pg_backend_kill(8.0 if short else 60.0, seed=seed))),
        _shown(asyncio.run(pg_kill(1 if short else 3, seed=seed))),
        _shown(asyncio.run(commit_cut(15 if short else 100, seed=seed))),
    ]


def on_redis(seed: int, *, short: bool) -> list[Report]:
    """Run the experiments that need a Redis server of their own, and others once more on Redis."""
    from .redis_outages.redis_client_kill import redis_client_kill
    from .redis_outages.redis_cut import redis_cut
    from .redis_outages.redis_failover import redis_failover
    from .redis_outages.redis_kill import redis_kill
    from .redis_outages.redis_tail import redis_tail

    runs, kills = (60, 12) if short else (1000, 250)
    scenarios = ["journey"] if short else [*SCENARIOS]
    outages = (
        redis_kill(2 if short else 10, seed=seed),
        redis_tail(3 if short else 10, seed=seed),
        redis_failover(2 if short else 6, seed=seed),
        redis_client_kill(8.0 if short else 60.0, seed=seed),
        redis_cut(15 if short else 100, seed=seed),
    )
    return [
        _shown(asyncio.run(kill9(runs=runs, kills=kills, seed=seed, store=REDIS))),
        *(_together(*outages) if short else (_shown(asyncio.run(one)) for one in outages)),
        *(_shown(report) for report in crashpoints((REDIS,), seed=seed, short=short, scenarios=scenarios)),
    ]


def in_languages(seed: int, stores: Iterable[str], *, short: bool) -> list[Report]:
    """Run the experiments with workers in several languages; without Go or Node, say so."""
    from servers.private import ServerError

    from .languages.languages import languages, registry_moves

    chaos, moves = ((100, 1.0, 1), (100, 3)) if short else ((1000, 0.5, 5), (500, 12))
    try:
        return [
            _shown(asyncio.run(one()))
            for name in stores
            for one in (
                partial(languages, *chaos, seed, store=name),
                partial(registry_moves, *moves, store=name),
            )
        ]
    except ServerError as error:
        if os.environ.get("CI"):
            raise
        print(f"left out: languages and registry-moves: {error}")
        return []


def bounds(seed: int, stores: Iterable[str], *, short: bool) -> list[Report]:
    """Run the experiments with hostile and with the largest legal values."""
    sizes = SHORT if short else FULL
    writes = {SQLITE: 1_000 if short else 20_000, POSTGRES: 5_000 if short else 100_000, REDIS: 1_000}
    names = [*stores]
    return [
        *(_shown(asyncio.run(hostile(writes[name], name, SHORT_SEED if short else seed))) for name in names),
        *(_shown(asyncio.run(largest(ON_REDIS if name == REDIS else sizes, store=name))) for name in names),
        _shown(asyncio.run(http(1_000 if short else 10_000, seed, slow=not short))),
    ]


def twins(seed: int, *, short: bool = False, postgres: bool = True, redis: bool = True) -> list[Report]:
    """Run each experiment with a bug that it must find. The check passes when all of them fail. Of two plays
    of one experiment, one is enough.
    """
    report = Report("sabotages")
    # On a server the experiments with real processes find a bug in the store; crashpoints takes long there.
    names: tuple[str, ...] = IN_MEMORY
    if not short:
        names = (*IN_MEMORY, *((POSTGRES,) if postgres else ()), *((REDIS,) if redis else ()))
    played: dict[str, Callable[[], list[Report]]] = {
        NO_FENCE: lambda: crashpoints(names, NO_FENCE, seed),
        RENEW_ON_LOOP: lambda: [asyncio.run(starve(runs=2, sabotage=RENEW_ON_LOOP))],
        **{
            name: partial(crashpoints, names, name, seed)
            for name in (BLIND_RESEND, SPLIT_START, FORGETFUL, OPTIMIST)
        },
    }
    caught = [(name, twin) for name, play in played.items() for twin in play()]
    caught += _live_twins(seed, short=short, postgres=postgres, redis=redis)
    for name, words in SABOTAGES.items():
        print(f"  sabotage {name}: {words}", flush=True)
        plays = defaultdict[str, list[Report]](list)
        for of, twin in caught:
            if of == name:
                plays[twin.command].append(twin)
        for command, reports in plays.items():
            red = [check.name for twin in reports for check in twin.red]
            if not red:
                for twin in reports:
                    twin.show()  # what took place, and what did not
            report.expect(
                f"{name} is caught by {command}", bool(red), "every invariant held: nothing is checked"
            )
            report.figures[f"{name} in {command}"] = " and ".join(
                dict.fromkeys(one.partition(" ")[0] for one in red)
            )
    return [_shown(report)]


def _live_twins(seed: int, *, short: bool, postgres: bool, redis: bool) -> list[tuple[str, Report]]:
    """Run the twins with real processes, three at a time: a breach is also one on a busy machine."""
    live = [
        (NO_FENCE, zombie(rounds=1, sabotage=NO_FENCE, seed=seed)),
        (UNASKED, between(2, sabotage=UNASKED)),
        (TORN, exactly(runs=10, kills=5, seed=seed, torn=True)),
        (RAW_TEXT, hostile(150, SQLITE, seed, RAW_TEXT)),
        (CARELESS, http(100, seed, CARELESS, slow=False)),
        (EARLY_ANSWER, serve_kill(3, seed, sabotage=EARLY_ANSWER)),
        (LOST_PLACE, serve_kill(2, seed, sabotage=LOST_PLACE)),
        (UNBOUNDED, largest(TWIN, ("history",), SQLITE, UNBOUNDED)),
    ]
    if postgres:
        from .postgres_outages.commit_cut import commit_cut
        from .postgres_outages.pg_backend_kill import pg_backend_kill
        from .postgres_outages.pg_kill import pg_kill

        live += [
            (NO_FENCE, zombie(rounds=1, sabotage=NO_FENCE, seed=seed, store=POSTGRES)),
            (TORN, exactly(runs=10, kills=5, seed=seed, torn=True, store=POSTGRES)),
            (HASTY, kill9(runs=20, kills=12, seed=seed, store=POSTGRES, sabotage=HASTY)),
            (DEAF, pg_backend_kill(20.0, sabotage=DEAF, seed=seed)),
            (LATE_SYNC, pg_kill(1, LATE_SYNC, seed)),
            (BLIND_RESEND, commit_cut(15, BLIND_RESEND, seed)),
        ]
    else:
        live.append((HASTY, kill9(runs=20, kills=12, seed=seed, sabotage=HASTY)))
    if redis:
        live += _live_reportson_redis(seed, short=short)
    reports: list[tuple[str, Report]] = []
    for at in range(0, len(live), 3):
        names, experiments = zip(*live[at : at + 3], strict=True)
        reports += zip(names, asyncio.run(_gathered(experiments)), strict=True)
    return reports


def _live_reportson_redis(seed: int, *, short: bool) -> list[tuple[str, Experiment]]:
    from .redis_outages.redis_client_kill import redis_client_kill
    from .redis_outages.redis_cut import redis_cut
    from .redis_outages.redis_failover import redis_failover
    from .redis_outages.redis_kill import redis_kill

    live = [
        (NO_FENCE, zombie(rounds=1, sabotage=NO_FENCE, seed=seed, store=REDIS)),
        # These need luck: a claim that is lost, two changes at once. Each is played twice, on its own server.
        *((OLD_EPOCH, redis_failover(3, OLD_EPOCH, seed + play)) for play in range(2)),
        *(
            (UNGUARDED, kill9(runs=40, kills=10, seed=seed + play, store=REDIS, sabotage=UNGUARDED))
            for play in range(2)
        ),
    ]
    if short:
        return live
    return [
        *live,
        (LATE_SYNC, redis_kill(1, LATE_SYNC, seed)),
        (DEAF, redis_client_kill(20.0, sabotage=DEAF, seed=seed)),
        (BLIND_RESEND, redis_cut(15, BLIND_RESEND, seed)),
        (UNASKED, between(2, sabotage=UNASKED, store=REDIS)),
        (HASTY, kill9(runs=20, kills=12, seed=seed, store=REDIS, sabotage=HASTY)),
        (EARLY_ANSWER, serve_kill(3, seed, store=REDIS, sabotage=EARLY_ANSWER)),
        (LOST_PLACE, serve_kill(2, seed, store=REDIS, sabotage=LOST_PLACE)),
        (RENEW_ON_LOOP, starve(runs=2, sabotage=RENEW_ON_LOOP, store=REDIS)),
        (UNBOUNDED, largest(TWIN, ("history",), REDIS, UNBOUNDED)),
        (RAW_TEXT, hostile(150, REDIS, seed, RAW_TEXT)),
    ]


async def _gathered(experiments: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    return await asyncio.gather(*experiments)


def _together(*experiments: Experiment) -> list[Report]:
    return [_shown(report) for report in asyncio.run(_gathered(experiments))]


def _shown(report: Report) -> Report:
    report.show()
    return report
