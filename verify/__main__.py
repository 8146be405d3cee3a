"""`python -m verify`: the experiments as commands. The exit code is 1 when an invariant was breached."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

from servers.private import ServerError

from . import suite
from .checks.report import Report, conclude
from .crashpoints.crashpoints import REVEALED, SCENARIOS, crashpoints
from .environment.stores import POSTGRES, REDIS, SQLITE, choose_version
from .hostile.hostile import hostile
from .http_input.experiment import http
from .languages import commands as commands_of_languages
from .large.largest import FULL, KINDS, ON_REDIS, SHORT, largest
from .large.purging import purging
from .postgres_outages.commands import commit_cut, pg_backend_kill, pg_kill, pg_outages
from .redis_outages.commands import redis_client_kill, redis_cut, redis_failover, redis_kill, redis_tail
from .sabotage import (
    BLIND_RESEND,
    CARELESS,
    DEAF,
    EARLY_ANSWER,
    HASTY,
    LATE_SYNC,
    LOST_PLACE,
    NO_FENCE,
    OLD_EPOCH,
    RAW_TEXT,
    RENEW_ON_LOOP,
    TORN,
    UNASKED,
    UNBOUNDED,
    UNGUARDED,
)  # fmt: skip
from .scraped.scraped import scraped
from .server_crashes.serve_kill import serve_kill
from .transfer.moving import move
from .worker_crashes.between import between
from .worker_crashes.bulk import bulk
from .worker_crashes.crashed import crashed
from .worker_crashes.exactly import exactly
from .worker_crashes.kill9 import kill9, poison
from .worker_crashes.zombie import starve, zombie

Command = Callable[[argparse.Namespace], list[Report]]

HELP = "Commands (each takes --seed N and --json FILE; -h lists its options):"


def _kill9(args: argparse.Namespace) -> list[Report]:
    kills = args.kills or max(10, args.runs // 4)
    sizes = (args.runs, args.steps, args.workers, args.every, kills)
    return [asyncio.run(kill9(*sizes, args.seed, store=args.store, sabotage=args.sabotage))]


def _poison(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(poison(args.good, args.workers, args.seed, store=args.store))]


def _zombie(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(zombie(args.rounds, args.runs, args.sabotage, args.seed, store=args.store))]


def _between(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(between(args.rounds, args.runs, args.sabotage, store=args.store))]


def _crashed(args: argparse.Namespace) -> list[Report]:
    return asyncio.run(crashed(args.store, short=args.brief))


def _bulk(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(bulk(args.runs, args.rate, store=args.store))]


def _starve(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(starve(args.runs, args.sabotage, store=args.store))]


def _crashpoints(args: argparse.Namespace) -> list[Report]:
    names = ("memory", SQLITE, POSTGRES, REDIS) if args.store is None else (args.store,)
    scenarios = [*SCENARIOS] if args.scenario is None else [args.scenario]
    return crashpoints(names, args.sabotage, args.seed, short=args.brief, scenarios=scenarios)


def _serve_kill(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(serve_kill(args.kills, args.seed, store=args.store, sabotage=args.sabotage))]


def _scraped(args: argparse.Namespace) -> list[Report]:
    sizes = (args.runs, args.kills, args.every, args.workers)
    return [asyncio.run(scraped(*sizes, args.seed, store=args.store))]


def _purging(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(purging(args.runs, args.calm, args.workers))]


def _exactly(args: argparse.Namespace) -> list[Report]:
    torn = args.sabotage == TORN
    sizes = (args.runs, args.steps, args.every, args.kills)
    return [asyncio.run(exactly(*sizes, args.seed, torn=torn, store=args.store))]


def _largest(args: argparse.Namespace) -> list[Report]:
    kinds = tuple(args.kind or KINDS)
    brief = ON_REDIS if args.store == REDIS else SHORT
    return [asyncio.run(largest(brief if args.brief else FULL, kinds, args.store, args.sabotage))]


def _hostile(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(hostile(args.statements, args.store, args.seed, args.sabotage))]


def _http(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(http(args.requests, args.seed, args.sabotage, slow=not args.brief))]


def _move(args: argparse.Namespace) -> list[Report]:
    runs, kills = (120, 6) if args.brief else (args.runs, args.kills)
    return [asyncio.run(move(runs, kills, args.seed))]


def _sabotages(args: argparse.Namespace) -> list[Report]:
    return suite.twins(args.seed)


COMMANDS: dict[str, tuple[str, Command]] = {
    "kill9": (
        "SIGKILL to a random worker again and again: every run ends, no recorded step is done again",
        _kill9,
    ),
    "poison": ("a run that ends its worker's process, among good ones: it alone fails, at the cap", _poison),
    "zombie": ("a worker stands still past its lease and goes on: its late writes are refused", _zombie),
    "between": (
        "a worker stands still between two steps until another has done them: it begins none of them again",
        _between,
    ),
    "crashed": (
        "runs with one that kills its worker, a worker killed twice from outside, a run behind a long one",
        _crashed,
    ),
    "bulk": (
        "failed runs are retried in bulk while asker and workers are killed: each once, none left out",
        _bulk,
    ),
    "serve-kill": (
        "SIGKILL to the server of the HTTP API under load: what it answered is there, streams miss nothing",
        _serve_kill,
    ),
    "languages": (
        "workers in Go, TypeScript and Python share runs, and are killed, like the server between them",
        commands_of_languages.languages,
    ),
    "registry-moves": (
        "a type goes from one runtime to another while its runs are open: none is lost, none has two",
        commands_of_languages.registry_moves,
    ),
    "scraped": (
        "a real Prometheus scrapes workers that are killed, and a server: its values are what happened",
        _scraped,
    ),
    "starve": ("a step blocks the event loop for three leases: nobody takes the run over", _starve),
    "crashpoints": (
        "die before, die after, reply lost, never sent, sent twice, stand still, at every store call in turn",
        _crashpoints,
    ),
    "purging": (
        "many expired runs are removed beside workers at work: no commit waits long for it",
        _purging,
    ),
    "exactly": (
        "SIGKILL and SIGSTOP while transactions write beside the engine: a write a step, at every look",
        _exactly,
    ),
    "largest": (
        "a store full of the largest legal values: small runs, workers and readers beside them go on",
        _largest,
    ),
    "hostile": (
        "hostile values by plain SQL and by the library, beside workers, canary runs and readers",
        _hostile,
    ),
    "http": (
        "hostile requests to a server of the HTTP API: each is refused, memory and store stay as they are",
        _http,
    ),
    "pg-backend-kill": (
        "the server ends a session of ours every 300 ms, also those that LISTEN: no lease, no hint is lost",
        pg_backend_kill,
    ),
    "pg-kill": ("SIGKILL to the whole server under load: what it had answered is there afterwards", pg_kill),
    "pg-outages": (
        "the server is stopped and killed in several ways under load: every run ends within a minute",
        pg_outages,
    ),
    "commit-cut": (
        "a proxy lets commits through and keeps the answers: nothing is lost, nothing is done again",
        commit_cut,
    ),
    "redis-client-kill": (
        "the server closes a connection of ours every 300 ms, also those that SUBSCRIBE: no lease is lost",
        redis_client_kill,
    ),
    "redis-cut": (
        "a proxy lets scripts through and keeps the answers: nothing is lost, nothing is done again",
        redis_cut,
    ),
    "redis-kill": (
        "SIGKILL to a Redis server that syncs every write, under load: what it had answered is there",
        redis_kill,
    ),
    "redis-tail": (
        "SIGKILL to a Redis server that syncs every second, and the end of its log is lost: no run is stuck",
        redis_tail,
    ),
    "redis-failover": (
        "a replica that lacks the last writes takes over: no fence is given twice, all runs end",
        redis_failover,
    ),
    "move": (
        "runs of all kinds move through four stores beside workers, and the mover is killed: none runs twice",
        _move,
    ),
    "sabotages": ("the same experiments with a bug switched in: each must be caught", _sabotages),
}


def parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listed = [HELP, *(f"  {name:<{width}}  {words}" for name, (words, _) in COMMANDS.items())]
    top = argparse.ArgumentParser(
        "./hf verify", description=__doc__, epilog="\n".join(listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    form = top.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="all of it, small: what CI runs")
    form.add_argument("--full", action="store_true", help="all of it, at full size")
    top.add_argument("--no-postgres", action="store_true", help="without the experiments on Postgres")
    top.add_argument("--no-redis", action="store_true", help="without the experiments on Redis")
    _common(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    made = {name: commands.add_parser(name, description=words) for name, (words, _) in COMMANDS.items()}
    for command in made.values():
        _common(command)
    # No memory store here: its data are lost with its process, so another process could take over nothing.
    for name in (
        "kill9", "poison", "zombie", "between", "crashed", "bulk", "serve-kill", "scraped", "starve",
        "largest", "hostile", "languages", "registry-moves",
    ):  # fmt: skip
        made[name].add_argument("--store", choices=[SQLITE, POSTGRES, REDIS], default=SQLITE)
    # Redis has no transactions that users could share.
    made["exactly"].add_argument("--store", choices=[SQLITE, POSTGRES], default=SQLITE)
    made["purging"].add_argument("--store", choices=[SQLITE], default=SQLITE)
    for name in ("pg-backend-kill", "pg-kill", "pg-outages", "commit-cut"):
        made[name].add_argument("--store", choices=[POSTGRES], default=POSTGRES)
    for name in ("redis-client-kill", "redis-cut", "redis-kill", "redis-tail", "redis-failover"):
        made[name].add_argument("--store", choices=[REDIS], default=REDIS)
    made["crashpoints"].add_argument(
        "--store", choices=["memory", SQLITE, POSTGRES, REDIS], help="default: all"
    )
    made["crashpoints"].add_argument("--scenario", "--act", choices=[*SCENARIOS], help="default: all")
    made["crashpoints"].add_argument(
        "--brief", action="store_true", help="spare calls that find nothing to do; on a server a sample"
    )
    _sizes(made)
    commands_of_languages.add_sizes(made)
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=argparse.SUPPRESS, help="repeat the same choices")
    command.add_argument(
        "--json", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="the result, for machines"
    )
    command.add_argument(
        "--postgres-version",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the version of the server that is started",
    )


def _sizes(made: dict[str, argparse.ArgumentParser]) -> None:
    made["kill9"].add_argument("--runs", type=int, default=200)
    made["kill9"].add_argument("--steps", type=int, default=5)
    made["kill9"].add_argument("--workers", type=int, default=3)
    made["kill9"].add_argument("--every", type=float, default=0.3, help="seconds between kills")
    made["kill9"].add_argument(
        "--kills", type=int, help="at least this number; default: a quarter of the runs"
    )
    made["poison"].add_argument("--good", type=int, default=100)
    made["poison"].add_argument("--workers", type=int, default=3)
    made["zombie"].add_argument("--rounds", type=int, default=8)
    made["zombie"].add_argument("--runs", type=int, default=8, help="in each round")
    made["between"].add_argument("--rounds", type=int, default=50)
    made["between"].add_argument("--runs", type=int, default=3, help="in each round")
    made["crashed"].add_argument("--brief", action="store_true", help="few runs and short leases, as in CI")
    made["bulk"].add_argument("--runs", type=int, default=5000)
    made["bulk"].add_argument("--rate", type=int, default=200, help="runs a second")
    made["serve-kill"].add_argument("--kills", type=int, default=50)
    made["scraped"].add_argument("--runs", type=int, default=400)
    made["scraped"].add_argument("--kills", type=int, default=20)
    made["scraped"].add_argument("--every", type=float, default=0.6, help="seconds between kills")
    made["scraped"].add_argument("--workers", type=int, default=2, help="that are killed")
    made["starve"].add_argument("--runs", type=int, default=4)
    made["purging"].add_argument("--runs", type=int, default=100_000, help="that have expired")
    made["purging"].add_argument("--calm", type=float, default=15.0, help="seconds without, before and after")
    made["purging"].add_argument("--workers", type=int, default=2)
    made["exactly"].add_argument("--runs", type=int, default=60)
    made["exactly"].add_argument("--steps", type=int, default=10)
    made["exactly"].add_argument("--every", type=float, default=0.25, help="seconds between kills")
    made["exactly"].add_argument("--kills", type=int, default=60, help="at least this number")
    made["largest"].add_argument(
        "--kind", action="append", choices=[*KINDS], help="default: all; again for more"
    )
    made["largest"].add_argument("--brief", action="store_true", help="smaller counts, as in CI")
    made["hostile"].add_argument("--statements", type=int, default=100_000)
    made["http"].add_argument("--requests", type=int, default=10_000)
    made["http"].add_argument(
        "--brief", action="store_true", help="do not wait for slow connections, as in CI"
    )
    made["move"].add_argument("--runs", type=int, default=1000)
    made["move"].add_argument("--kills", type=int, default=20)
    made["move"].add_argument("--brief", action="store_true", help="few runs and kills")
    for name in ("pg-backend-kill", "redis-client-kill"):
        made[name].add_argument("--seconds", type=float, default=60.0)
        made[name].add_argument("--every", type=float, default=0.3, help="seconds between kills")
    made["pg-kill"].add_argument("--kills", type=int, default=3)
    made["pg-outages"].add_argument("--rounds", type=int, default=5)
    made["pg-outages"].add_argument("--outages", type=int, default=4, help="in each round")
    made["pg-outages"].add_argument("--workers", type=int, default=3)
    made["pg-outages"].add_argument("--lease", type=float, default=30.0, help="seconds")
    made["pg-outages"].add_argument("--fsync", choices=["on", "off"], default="off")
    made["pg-outages"].add_argument("--full-page-writes", choices=["on", "off"], default="on")
    for name in ("commit-cut", "redis-cut"):
        made[name].add_argument("--cuts", type=int, default=100)
    made["redis-kill"].add_argument("--kills", type=int, default=10)
    made["redis-tail"].add_argument("--cuts", type=int, default=10)
    made["redis-failover"].add_argument("--failovers", type=int, default=6)
    bugs = {
        "kill9": [HASTY, UNGUARDED],
        "pg-backend-kill": [DEAF],
        "pg-kill": [LATE_SYNC],
        "commit-cut": [BLIND_RESEND],
        "redis-client-kill": [DEAF],
        "redis-cut": [BLIND_RESEND],
        "redis-kill": [LATE_SYNC],
        "redis-failover": [OLD_EPOCH],
        "zombie": [NO_FENCE],
        "between": [UNASKED],
        "serve-kill": [EARLY_ANSWER, LOST_PLACE],
        "starve": [RENEW_ON_LOOP],
        "crashpoints": [*REVEALED],
        "exactly": [TORN],
        "hostile": [RAW_TEXT],
        "http": [CARELESS],
        "largest": [UNBOUNDED],
    }
    for name, choices in bugs.items():
        made[name].add_argument("--sabotage", choices=choices, help="switch a bug in: this must fail then")


def main(argv: list[str]) -> int:
    top = parser()
    args = top.parse_args(argv)
    args.seed = getattr(args, "seed", random.randrange(10**6))
    if args.command is None and not (args.short or args.full):
        top.print_help()
        return 0
    print(f"seed {args.seed}", flush=True)
    choose_version(getattr(args, "postgres_version", None))
    if args.command is None:
        reports = suite.everything(
            args.seed, short=args.short, postgres=not args.no_postgres, redis=not args.no_redis
        )
    else:
        reports = COMMANDS[args.command][1](args)
        for report in reports:
            report.show()
    return conclude(reports, getattr(args, "json", None))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerError as error:
        print(f"verify: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped; every process is gone", file=sys.stderr)
        sys.exit(130)
