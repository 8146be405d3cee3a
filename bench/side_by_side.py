"""All stores and bare limits in turns, in one run: `python -m bench.side_by_side`.

Runs with five steps and without steps, 300 in flight, one worker process; from start to code and from emit to
code. Medians of the rounds, and ratios to the bare limit of the same store and to Postgres.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from bench import stores
from bench.measurements import Row, load, median, run
from bench.stores import Place

STEPS = ("--runs", 4000, "--steps", 5, "--flight", 300)
ONE_SHOT = ("--runs", 8000, "--steps", 0, "--flight", 300)
LATENCIES = {"start to code": "start", "emit to code": "emit"}
Found = dict[str, dict[str, list[Row]]]  # by measurement and store


def measured(places: dict[str, Place], rounds: int) -> Found:
    """Measure everything so many times, one store after the other in each round."""
    found: Found = {}

    def note(what: str, store: str, row: Row) -> None:
        found.setdefault(what, {}).setdefault(store, []).append(row)

    for number in range(rounds):
        for store, place in places.items():
            for what, words in (("steps", STEPS), ("one-shot", ONE_SHOT)):
                note(f"{what}, limit", store, run(*place.limit(), *words))
                note(what, store, load(place, *words))
        for store, place in places.items():
            for what, by in LATENCIES.items():
                note(what, store, run("latency", "both", "--url", place.fresh(), "--by", by))
        print(f"   round {number + 1} of {rounds}", flush=True)
    return found


def say(found: Found, names: list[str]) -> None:
    """Print a table with a column for each store."""

    def line(what: str, *cells: str) -> None:
        print(f"   {what:44}" + "".join(f"{cell:>18}" for cell in cells), flush=True)

    line("", *names)
    for what, field in (("steps", "steps_per_s"), ("one-shot", "runs_per_s")):
        rates = {name: median(found[what][name], field) for name in names}
        limits = {name: median(found[f"{what}, limit"][name], field) for name in names}
        line(f"{what}: a second", *(f"{rates[name]:,.0f}" for name in names))
        line(
            f"{what}: share of the bare limit (goal 0.60)",
            *(f"{rates[name] / limits[name]:.2f}" for name in names),
        )
        line(f"{what}: ratio to postgres", *(f"{rates[name] / rates['postgres']:.2f}" for name in names))
        times = [
            f"{median(found[what][name], 'cpu_us'):.0f} + {median(found[what][name], 'server_cpu_us'):.0f}"
            for name in names
        ]
        line(f"{what}: processor, worker + server, µs", *times)
    for what in LATENCIES:
        for part in ("p50", "p99"):
            cells = (f"{median(found[what][name], f'ms_{part}'):.1f}" for name in names)
            line(f"{what}: {part}, ms", *cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.side_by_side", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    with ExitStack() as stack:
        places: dict[str, Place] = {
            "sqlite": stack.enter_context(stores.sqlite(None)),
            "postgres": stack.enter_context(stores.postgres(None)),
            "redis everysec": stack.enter_context(stores.redis("everysec")),
            "redis always": stack.enter_context(stores.redis("always")),
        }
        say(measured(places, args.rounds), list(places))


if __name__ == "__main__":
    main()
