"""The experiments with Redis servers as commands. The driver is imported only when one of them runs."""

from __future__ import annotations

import argparse
import asyncio

from verify.checks.report import Report


def redis_kill(args: argparse.Namespace) -> list[Report]:
    from .redis_kill import redis_kill as experiment

    return [asyncio.run(experiment(args.kills, args.sabotage, args.seed))]


def redis_tail(args: argparse.Namespace) -> list[Report]:
    from .redis_tail import redis_tail as experiment

    return [asyncio.run(experiment(args.cuts, args.seed))]


def redis_failover(args: argparse.Namespace) -> list[Report]:
    from .redis_failover import redis_failover as experiment

    return [asyncio.run(experiment(args.failovers, args.sabotage, args.seed))]


def redis_client_kill(args: argparse.Namespace) -> list[Report]:
    from .redis_client_kill import redis_client_kill as experiment

    return [asyncio.run(experiment(args.seconds, args.every, args.sabotage, args.seed))]


def redis_cut(args: argparse.Namespace) -> list[Report]:
    from .redis_cut import redis_cut as experiment

    return [asyncio.run(experiment(args.cuts, args.sabotage, args.seed))]
