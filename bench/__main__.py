"""`./hf bench`: the engine beside the bare limit, interleaved, median of the rounds."""

from __future__ import annotations

import argparse

from bench import loads, places

STORES = ("sqlite", "postgres")


def main() -> None:
    """Run the named measurements, or all."""
    names = ", ".join(loads.ALL)
    parser = argparse.ArgumentParser(prog="./hf bench", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"any of: {names} (default: all)")
    parser.add_argument("--store", choices=[*STORES, "all"], default="sqlite", help="(default: sqlite)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--folder", help="where files go; a local disk, not a tmpfs (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    args = parser.parse_args()
    unknown = set(args.what) - set(loads.ALL)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {names}")
    for store in STORES if args.store == "all" else (args.store,):
        where = places.sqlite(args.folder) if store == "sqlite" else places.postgres(args.pg)
        with where as place:
            for name in args.what or loads.ALL:
                print(f"-- {name} ({place.name})", flush=True)
                loads.ALL[name](place, args.rounds)


if __name__ == "__main__":
    main()
