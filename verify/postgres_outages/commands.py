"""The experiments with Postgres servers as commands. The driver is imported only when one of them runs."""

from __future__ import annotations

import argparse
import asyncio

from verify.checks.report import Report


def pg_backend_kill(args: argparse.Namespace) -> list[Report]:
    from .pg_backend_kill import pg_backend_kill as experiment

    return [asyncio.run(experiment(args.seconds, args.every, args.sabotage, args.seed))]


def pg_kill(args: argparse.Namespace) -> list[Report]:
    from .pg_kill import pg_kill as experiment

    return [asyncio.run(experiment(args.kills, args.sabotage, args.seed))]


def pg_outages(args: argparse.Namespace) -> list[Report]:
    from .pg_outages import Setting
    from .pg_outages import pg_outages as experiment

    setting = Setting(
        outages=args.outages,
        workers=args.workers,
        lease=args.lease,
        fsync=args.fsync == "on",
        full_ledger=args.full_page_writes == "on",
    )
    return [asyncio.run(experiment(args.rounds, setting, args.seed))]


def commit_cut(args: argparse.Namespace) -> list[Report]:
    from .commit_cut import commit_cut as experiment

    return [asyncio.run(experiment(args.cuts, args.sabotage, args.seed))]
