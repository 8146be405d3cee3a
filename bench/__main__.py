"""`./hf bench`: the engine compared with the bare limit, in turns; the median of the rounds."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager

from bench import benchmarks, stores
from bench.postgres import open_transaction, scale

STORES = ("sqlite", "postgres", "redis")
APART = ("scale", "held")  # minutes each, on Postgres: only when they are named


def main() -> None:
    """Run the named benchmarks, or all except those of `APART`."""
    parser = argparse.ArgumentParser(prog="./hf bench", description=__doc__)
    names = ", ".join(benchmarks.ALL)
    parser.add_argument(
        "what", nargs="*", metavar="NAME", help=f"any of: {names} (default: all these); {', '.join(APART)}"
    )
    parser.add_argument("--store", choices=[*STORES, "all"], default="sqlite", help="(default: sqlite)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--folder", help="where files go; a local disk, not a tmpfs (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    parser.add_argument("--sync", choices=["everysec", "always"], default="everysec", help="of Redis")
    parser.add_argument("--rows", type=int, default=1_000_000, help="scale: runs of each kind")
    parser.add_argument("--seconds", type=float, default=180, help="held: how long")
    args = parser.parse_args()
    unknown = set(args.what) - {*benchmarks.ALL, *APART}
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {names}, {', '.join(APART)}")
    for name in args.what:
        if name in APART:
            _apart(name, args)
    wanted = [name for name in args.what or benchmarks.ALL if name in benchmarks.ALL]
    for store in STORES if args.store == "all" else (args.store,):
        if not wanted:
            break
        with _place(store, args) as place:
            for name in wanted:
                print(f"-- {name} ({place.name})", flush=True)
                benchmarks.ALL[name](place, args.rounds)


def _place(store: str, args: argparse.Namespace) -> AbstractContextManager[stores.Place]:
    if store == "sqlite":
        return stores.sqlite(args.folder)
    return stores.postgres(args.pg) if store == "postgres" else stores.redis(args.sync)


def _apart(name: str, args: argparse.Namespace) -> None:
    print(f"-- {name} (postgres)", flush=True)
    settings = scale.SETTINGS if name == "scale" else {}
    with stores.postgres(args.pg, settings) as place:
        if name == "scale":
            scale.scale(place, args.rows, 10 * args.rounds)
        else:
            open_transaction.held(place, args.seconds)


if __name__ == "__main__":
    main()
