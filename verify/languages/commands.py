"""The commands of the experiments with several languages, and their options."""

from __future__ import annotations

import argparse
import asyncio

from verify.checks.report import Report


def languages(args: argparse.Namespace) -> list[Report]:
    """Run the experiment with kills."""
    from .languages import languages

    sizes = (args.runs, args.every, args.server_kills)
    return [asyncio.run(languages(*sizes, args.seed, store=args.store))]


def registry_moves(args: argparse.Namespace) -> list[Report]:
    """Run the experiment with the registry."""
    from .languages import registry_moves

    return [asyncio.run(registry_moves(args.runs, args.moves, store=args.store))]


def add_sizes(made: dict[str, argparse.ArgumentParser]) -> None:
    """Add the options to the parsers of the commands."""
    chaos, moves = made["languages"], made["registry-moves"]
    chaos.add_argument("--runs", type=int, default=1000)
    chaos.add_argument("--every", type=float, default=0.5, help="seconds between kills of one kind of worker")
    chaos.add_argument("--server-kills", type=int, default=5)
    moves.add_argument("--runs", type=int, default=500)
    moves.add_argument("--moves", type=int, default=12)
