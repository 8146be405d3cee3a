"""The benchmarks of `./hf bench`, by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median as middle

import psycopg

from bench.cpu import cpu_seconds
from bench.measurements import (
    Row,
    begun,
    beside,
    ended,
    load,
    median,
    run,
    say,
    say_shares,
    send_go,
    wait_for,
)
from bench.over_http.languages import languages
from bench.over_http.remote import remote
from bench.stores import Place, Server

IDLE_SECONDS = 40
TASKS = 16  # tasks that start runs
# Goals that differ between a file and a server.
ONESHOT = {"sqlite": ">= 0.40", "postgres": ">= 0.50", "redis": ">= 0.60"}
SERVER_LATENCY = ("p50 <= 5 ms, p99 <= 20 ms",) * 2
LATENCY = {"sqlite": ("p50 <= 5 ms", "p50 <= 25 ms"), "postgres": SERVER_LATENCY, "redis": SERVER_LATENCY}
SEGMENT = {"sqlite": "  (goal >= 3)", "postgres": "", "redis": ""}
SETTLE_SECONDS = 12  # an idle session reports its statistics after ten


def steps(place: Place, rounds: int) -> None:
    """Measure 5-step runs, 300 in flight."""
    beside(place, rounds, "steps_per_s", ">= 0.50", "--runs", 4000, "--steps", 5, "--flight", 300)


def oneshot(place: Place, rounds: int) -> None:
    """Measure runs without steps, 300 in flight."""
    beside(place, rounds, "runs_per_s", ONESHOT[place.name], "--runs", 8000, "--steps", 0, "--flight", 300)


def lone(place: Place, rounds: int) -> None:
    """Measure one run, one step at a time; on a server also beside one bare insert and commit."""
    bare = {"bare insert": lambda: run(*place.insert())} if isinstance(place, Server) else {}
    args = ("--runs", 1, "--steps", 1000, "--flight", 1)
    beside(place, rounds, "step_ms_p50", "<= 2.0", *args, limit=bare)


def latency(place: Place, rounds: int) -> None:
    """Measure the time from start to the first line of user code."""
    _latency(place, rounds, "start")


def emit(place: Place, rounds: int) -> None:
    """Measure the time from emit to the next line of user code that has waited for it."""
    _latency(place, rounds, "emit")


def _latency(place: Place, rounds: int, by: str) -> None:
    found = [run("latency", "both", "--url", place.fresh(), "--by", by) for _ in range(rounds)]
    alone, across = LATENCY[place.name]
    _say_latency("in one process", found, alone)
    found = []
    for _ in range(rounds):
        args = ("--url", place.fresh(), "--by", by, "--runs", 200)
        with begun("latency", "listener", *args) as worker:
            wait_for(worker, "ready")
            run("latency", "sender", *args)
            found.append(ended(worker))
    _say_latency("across two", found, across)


def _say_latency(what: str, found: list[Row], goal: str) -> None:
    p50, p99 = median(found, "ms_p50"), median(found, "ms_p99")
    say(f"{what}: p50 {p50:g} ms, p99 {p99:g} ms  (goal {goal})")


def cancel(place: Place, _rounds: int) -> None:
    """Measure the time from the cancel of a leased run to `CancelledError` in its step, across two
    processes.
    """
    args = ("--url", place.fresh(), "--runs", 100)
    with begun("cancel", "worker", *args) as worker:
        wait_for(worker, "ready")
        run("cancel", "caller", *args)
        row = ended(worker)
    figures = f"p50 {row['ms_p50']:g} ms, p99 {row['ms_p99']:g} ms, at most {row['ms_max']:g} ms"
    say(f"{figures}, {row['n']} tries  (goal < 1000 ms)")


def live(place: Place, _rounds: int) -> None:
    """Measure 1,000 live trails and 1,000 long polls of one process, idle and under 200 runs a second."""
    url = place.fresh()
    with begun("live", "watcher", "--url", url) as watcher:
        wait_for(watcher, "ready")
        with begun("live", "load", "--url", url) as worker:
            wait_for(worker, "steady")
            send_go(watcher)
            row = ended(watcher)
            rate = ended(worker)["started_per_s"]
    idle, busy = row["idle"], row["busy"]
    for name, one in (("idle", idle), ("busy", busy)):
        reads = ", ".join(f"{verb} {count:g}" for verb, count in sorted(one["reads_per_s"].items()))
        say(
            f"{name}: {one['subscribers']} subscribers, reads a second: {reads}; {one['share']:.1%} of a core"
        )
    say(f"{rate:g} runs a second: {busy['rows_per_s']:g} rows, {busy['ends_per_s']:g} ends a second")
    say(f"from the commit to the end: p50 {busy['end_ms_p50']:g} ms, p99 {busy['end_ms_p99']:g} ms")
    say(f"memory: {row['bare_mb']} MB, idle {idle['rss_mb']} MB, busy {busy['rss_mb']} MB")
    if busy["wrong"]:
        say(f"{busy['wrong']} trails had missing rows")


def idle(place: Place, _rounds: int) -> None:
    """Measure the cost of a worker with nothing to do."""
    with begun("engine", "idle", "--url", place.fresh(), "--seconds", IDLE_SECONDS) as worker:
        wait_for(worker, "ready")
        time.sleep(SETTLE_SECONDS)
        asked = -_transactions(place)
        at = time.monotonic()
        wait_for(worker, "over")
        time.sleep(SETTLE_SECONDS)
        asked += _transactions(place)
        seconds = time.monotonic() - at
        send_go(worker)
        row = ended(worker)
    say(f"{row['share']:.2%} of a core  (goal < 1 %)")
    if isinstance(place, Server):
        say(f"{asked / seconds:.2f} queries a second  (goal <= 1)")


def _transactions(place: Place) -> int:
    """Return the transactions of the store's own database, read from another database."""
    if not isinstance(place, Server):
        return 0
    sql = "select sum(xact_commit + xact_rollback)::bigint from pg_stat_database where datname like 'bench%'"
    with psycopg.connect(place.server.dsn("postgres")) as connection:
        row = connection.execute(sql).fetchone()
    return int(row[0]) if row else 0


def workers(place: Place, rounds: int) -> None:
    """Compare two worker processes with one."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for n in range(rounds):
        for count, found in rates.items():
            found.append(_drained(place, count, 6000, 5))
        say(f"round {n + 1}: one {rates[1][-1]:.0f}, two {rates[2][-1]:.0f} steps/s")
    one, two = middle(rates[1]), middle(rates[2])
    say(f"steps_per_s: one {one:.0f}, two {two:.0f}, ratio {two / one:.2f}")


def _drained(place: Place, count: int, runs: int, steps: int) -> float:
    args = ("--url", place.fresh(), "--runs", runs, "--steps", steps)
    run("engine", "start", *args)
    processes = [begun("engine", "drain", *args) for _ in range(count)]
    for process in processes:
        wait_for(process, "ready")
    at, served = time.monotonic(), cpu_seconds(place.server_pid)
    for process in processes:
        send_go(process)
    rows = [ended(process) for process in processes]
    served = cpu_seconds(place.server_pid) - served
    assert sum(row["ended"] for row in rows) == runs
    took: float = max(row["ended_at"] for row in rows) - at
    busy = sum(row["cpu_seconds"] for row in rows) / took
    shares = f"the workers used {busy:.2f}, the server {served / took:.2f}"
    say(f"{count}: of {os.cpu_count()} cores {shares}; runs of each: {[row['ended'] for row in rows]}")
    return runs * steps / took


def sleeping(place: Place, _rounds: int) -> None:
    """Measure the memory that sleeping runs add to a worker."""
    row = run("engine", "sleeping", "--url", place.fresh(), "--runs", 10_000)
    say(f"10,000 sleeping runs add {row['rss_kib_added']} KiB to {row['rss_kib_before']} KiB")


def long(place: Place, rounds: int) -> None:
    """Compare the cost of a step in a run of 5,000 steps with a run of 50."""
    short, tall = [], []
    for _ in range(rounds):
        short.append(1e6 / load(place, "--runs", 100, "--steps", 50, "--flight", 1)["steps_per_s"])
        tall.append(1e6 / load(place, "--runs", 1, "--steps", 5000, "--flight", 1)["steps_per_s"])
    a, b = middle(short), middle(tall)
    say(f"a step costs {a:.0f} µs in a run of 50, {b:.0f} µs in one of 5,000")
    say(f"ratio {b / a:.2f}  (goal <= 1.5)")


def segment(place: Place, rounds: int) -> None:
    """Compare 5-step runs in segments with one commit a step, one run in flight."""
    found: dict[str, list[float]] = {"step": [], "segment": []}
    for n in range(rounds):
        for mode, rates in found.items():
            row = load(place, "--runs", 400, "--steps", 5, "--flight", 1, "--checkpoint", mode)
            rates.append(row["steps_per_s"])
        say(f"round {n + 1}: segment {found['segment'][-1]}, step {found['step'][-1]}")
    ours, plain = middle(found["segment"]), middle(found["step"])
    say(f"steps_per_s: segment {ours:g}, step {plain:g}, ratio {ours / plain:.2f}{SEGMENT[place.name]}")


def plans(place: Place, rounds: int) -> None:
    """Compare 5-step runs of a plan with those of code, 300 in flight."""
    found: dict[str, list[Row]] = {"plan": [], "code": []}
    args = ("--runs", 4000, "--steps", 5, "--flight", 300)
    for n in range(rounds):
        found["code"].append(load(place, *args))
        found["plan"].append(load(place, *args, "--plan"))
        line = ", ".join(f"{kind} {rows[-1]['steps_per_s']}" for kind, rows in found.items())
        say(f"round {n + 1}: {line}")
    ours, code = (median(found[kind], "steps_per_s") for kind in ("plan", "code"))
    say(f"steps_per_s: plan {ours:g}, code {code:g}, ratio {ours / code:.2f}  (goal >= 0.70)")
    for kind, rows in found.items():
        say_shares(place, rows, f"of a step of a {kind} run")


def starts(place: Place, rounds: int) -> None:
    """Measure runs that 16 tasks of one process start, one after the other; on a server beside bare
    inserts.
    """
    args = ("--runs", 8000, "--flight", TASKS)
    ours: list[Row] = []
    bare: list[Row] = []
    lone: list[Row] = []
    for n in range(rounds):
        if isinstance(place, Server):
            bare.append(run(*place.insert(), "--rows", 8000, "--tasks", TASKS))
        ours.append(_started(place, *args))
        lone.append(_started(place, "--runs", 500, "--flight", 1))
        beside = f", bare inserts {bare[-1]['starts_per_s']}" if bare else ""
        say(f"round {n + 1}: engine {ours[-1]['starts_per_s']}{beside}")
    rate, goal = median(ours, "starts_per_s"), "  (goal >= 5000)" if bare else ""
    say(f"{TASKS} tasks: {rate:g} starts/s, p50 {median(ours, 'start_ms_p50'):g} ms{goal}")
    if bare:
        limit = median(bare, "starts_per_s")
        say(f"bare inserts, {TASKS} connections: {limit:g} a second, ratio {rate / limit:.2f}")
    say_shares(place, ours, "of each")
    say(f"one task: p50 {median(lone, 'start_ms_p50'):g} ms, p99 {median(lone, 'start_ms_p99'):g} ms")


def _started(place: Place, *args: object) -> Row:
    return run("engine", "starts", "--url", place.fresh(), "--server", place.server_pid, *args)


def limits(place: Place, rounds: int) -> None:
    """Compare claims of twenty runs under limits with claims without limits."""
    names = ("none", "unrelated", "held", "roomy", "shared")
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, rates in found.items():
            rates.append(run("limits", name, "--url", place.fresh())["claims_per_s"])
    plain = middle(found["none"])
    for name, rates in found.items():
        ours = middle(rates)
        say(f"{name}: {ours:.0f} claims/s, ratio {ours / plain:.2f}")


ALL: dict[str, Callable[[Place, int], None]] = {
    each.__name__: each
    for each in (
        steps,
        oneshot,
        lone,
        latency,
        emit,
        cancel,
        live,
        idle,
        workers,
        sleeping,
        long,
        segment,
        plans,
        starts,
        limits,
        remote,
        languages,
    )
}
