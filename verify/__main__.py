"""`python -m verify`: the experiments as commands. Exit 1 when anything that must not be was seen."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

from . import suite
from .crashpoints import ACTS, REVEALED, crashpoints
from .exactly import exactly
from .kill9 import kill9, poison
from .purging import purging
from .report import Report, conclude
from .sabotage import NO_FENCE, RENEW_ON_LOOP, TORN
from .zombie import starve, zombie

Command = Callable[[argparse.Namespace], list[Report]]

HELP = "Commands (each takes --seed N and --json FILE; -h lists its options):"


def _kill9(args: argparse.Namespace) -> list[Report]:
    kills = args.kills or max(10, args.runs // 4)
    return [asyncio.run(kill9(args.runs, args.steps, args.workers, args.every, kills, args.seed))]


def _poison(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(poison(args.good, args.workers, args.seed))]


def _zombie(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(zombie(args.rounds, args.runs, args.sabotage, args.seed))]


def _starve(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(starve(args.runs, args.sabotage))]


def _crashpoints(args: argparse.Namespace) -> list[Report]:
    names = ("memory", "sqlite") if args.store is None else (args.store,)
    acts = [*ACTS] if args.act is None else [args.act]
    return crashpoints(names, args.sabotage, args.seed, short=args.brief, acts=acts)


def _purging(args: argparse.Namespace) -> list[Report]:
    return [asyncio.run(purging(args.runs, args.calm, args.workers))]


def _exactly(args: argparse.Namespace) -> list[Report]:
    torn = args.sabotage == TORN
    return [asyncio.run(exactly(args.runs, args.steps, args.every, args.kills, args.seed, torn=torn))]


def _sabotages(args: argparse.Namespace) -> list[Report]:
    return suite.twins(args.seed)


COMMANDS: dict[str, tuple[str, Command]] = {
    "kill9": (
        "SIGKILL to a random worker again and again: every run ends, no recorded step is done again",
        _kill9,
    ),
    "poison": ("a run that ends its worker's process, among good ones: it alone fails, at the cap", _poison),
    "zombie": ("a worker stands still past its lease and goes on: its late writes are refused", _zombie),
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
    _common(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    made = {name: commands.add_parser(name, description=words) for name, (words, _) in COMMANDS.items()}
    for command in made.values():
        _common(command)
    for name in ("kill9", "poison", "zombie", "starve", "purging", "exactly"):
        # Memory is gone with its process: there is nothing that another one could take over.
        made[name].add_argument("--store", choices=["sqlite"], default="sqlite")
    made["crashpoints"].add_argument("--store", choices=["memory", "sqlite"], help="default: both")
    made["crashpoints"].add_argument("--act", choices=[*ACTS], help="default: all")
    made["crashpoints"].add_argument(
        "--brief", action="store_true", help="spare calls that find nothing to do"
    )
    _sizes(made)
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=argparse.SUPPRESS, help="repeat the same choices")
    command.add_argument(
        "--json", type=Path, default=argparse.SUPPRESS, metavar="FILE", help="the result, for machines"
    )


def _sizes(made: dict[str, argparse.ArgumentParser]) -> None:
    made["kill9"].add_argument("--runs", type=int, default=200)
    made["kill9"].add_argument("--steps", type=int, default=5)
    made["kill9"].add_argument("--workers", type=int, default=3)
    made["kill9"].add_argument("--every", type=float, default=0.3, help="seconds between kills")
    made["kill9"].add_argument("--kills", type=int, help="so many at least; default: a quarter of the runs")
    made["poison"].add_argument("--good", type=int, default=100)
    made["poison"].add_argument("--workers", type=int, default=3)
    made["zombie"].add_argument("--rounds", type=int, default=8)
    made["zombie"].add_argument("--runs", type=int, default=8, help="in each round")
    made["starve"].add_argument("--runs", type=int, default=4)
    made["purging"].add_argument("--runs", type=int, default=100_000, help="that have expired")
    made["purging"].add_argument("--calm", type=float, default=15.0, help="seconds without, before and after")
    made["purging"].add_argument("--workers", type=int, default=2)
    made["exactly"].add_argument("--runs", type=int, default=60)
    made["exactly"].add_argument("--steps", type=int, default=10)
    made["exactly"].add_argument("--every", type=float, default=0.25, help="seconds between kills")
    made["exactly"].add_argument("--kills", type=int, default=60, help="so many at least")
    bugs = {
        "zombie": [NO_FENCE],
        "starve": [RENEW_ON_LOOP],
        "crashpoints": [*REVEALED],
        "exactly": [TORN],
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
    if args.command is None:
        reports = suite.everything(args.seed, short=args.short)
    else:
        reports = COMMANDS[args.command][1](args)
        for report in reports:
            report.show()
    return conclude(reports, getattr(args, "json", None))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("stopped; every process is gone", file=sys.stderr)
        sys.exit(130)
