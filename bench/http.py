"""The cost of the HTTP API, over loopback, with load from another process.

    python -m bench.http                        both stores, five rounds, about five minutes
    python -m bench.http --store sqlite --rounds 1

costs    POST /runs and GET /runs/{id} by 16 connections: requests a second, latencies, and processor time of
         the server process for each request, beside bare Starlette endpoints under the same uvicorn, and
         without the worker for bulk operations, which looks for work after each start (`api alone`), and
         beside `start` and `known` called directly by 16 and by 8 tasks (8: with commits as in the server);
         on SQLite also the store's own statements for starts, without engine and server, in commits of 16
         and of 8: no server can be below that, for the database works in its process
streams  1,000 event streams and 1,000 long polls on one server process: memory, calls of the store, and the
         latency of other requests meanwhile
"""

from __future__ import annotations

import argparse

from bench import stores
from bench.http_processes import server
from bench.http_streams import streams
from bench.measurements import Row, median, run, say
from bench.stores import Place

GOAL_US = 250


def costs(place: Place, rounds: int, requests: int) -> None:
    """Measure requests of the API, of the bare endpoints, and calls of the client, in turns."""
    found: dict[str, list[Row]] = {"api": [], "api alone": [], "bare": [], "16 tasks": [], "8 tasks": []}
    own: list[Row] = []
    for n in range(rounds):
        url = place.fresh()
        for what, *more in (("bare",), ("api",), ("api alone", "--without-worker")):
            with server(what.split()[0], "--url", url, *more) as (process, said):
                args = ("--port", said["port"], "--key", said["keys"][0], "--pid", process.pid)
                found[what].append(run("http_load", *args, "--name", f"{what} {n}", "--requests", requests))
        for tasks in (16, 8):
            direct = ("direct", "--url", url, "--requests", requests, "--tasks", tasks, "--name", tasks)
            found[f"{tasks} tasks"].append(run("http_servers", *direct))
        if place.name == "sqlite":
            own.append(run("http_store", "--url", url, "--requests", requests))
        cpu = {
            name: {verb: round(row["cpu_us"]) for verb, row in rows[-1].items()}
            for name, rows in found.items()
        }
        say(f"round {n + 1}: µs of processor time for each: {cpu}")
    for verb, words in (("post", "POST /runs"), ("get", "GET /runs/{id}")):
        us = {name: median([row[verb] for row in rows], "cpu_us") for name, rows in found.items()}
        for name in ("api", "api alone", "bare"):
            rows = [row[verb] for row in found[name]]
            rate, p50, p99 = (median(rows, field) for field in ("per_s", "ms_p50", "ms_p99"))
            say(f"{words} {name}: {rate:.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {us[name]:.0f} µs")
        for name in ("api", "api alone"):
            above = us[name] - us["bare"]
            left = " and ".join(
                f"{above - us[tasks]:.0f} µs without {tasks}" for tasks in ("16 tasks", "8 tasks")
            )
            say(f"{words} {name}: {above:.0f} µs above the bare endpoint, {left}  (goal <= {GOAL_US})")
            if own and verb == "post":
                _say_own(f"{words} {name}", own, above)


def _say_own(name: str, own: list[Row], above: float) -> None:
    """Print the share of the store's own statements."""
    us = {size: median(own, size) for size in own[0]}
    said = ", ".join(
        f"{us[size]:.0f} µs in commits of {size} (a bare insert: {us[f'bare {size}']:.0f})"
        for size in us
        if not size.startswith("bare")
    )
    say(f"{name}: the store's own statements {said}; without those of 8 {above - us['8']:.0f} µs above bare")


def main(argv: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=["costs", "streams", []], default=[])
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000, help="of each kind, in each round")
    parser.add_argument("--followers", type=int, default=1000, help="streams, and as many long polls")
    parser.add_argument("--folder", help="where the file goes (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    args = parser.parse_args(argv)
    for store in ("sqlite", "postgres") if args.store == "all" else (args.store,):
        with stores.sqlite(args.folder) if store == "sqlite" else stores.postgres(args.pg) as place:
            if not args.what or "costs" in args.what:
                print(f"-- costs ({place.name})", flush=True)
                costs(place, args.rounds, args.requests)
            if not args.what or "streams" in args.what:
                print(f"-- streams ({place.name})", flush=True)
                streams(place, args.followers)


if __name__ == "__main__":
    main()
