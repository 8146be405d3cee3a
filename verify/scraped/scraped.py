"""scraped: workers are killed while a real Prometheus scrapes them and a server.

At the end the values in Prometheus are compared with a ledger, with the runs and their trails, and with a
recount of the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

from holdfast.engine.app.app import App
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY, Miscount, Run, RunFilter, Scope
from holdfast.telemetry.panels import expressions
from servers.private import Private, free_port
from servers.prometheus import Prometheus, Target, running_prometheus
from verify.checks.report import Check, Report, progress
from verify.environment.stores import SQLITE, store_url

from .app import BROKEN, LEDGER, ORDER, STEPS

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS, SLOTS = 1.0, 4
STALL_SECONDS = 90.0
SEEN_SECONDS = 20.0  # within this time Prometheus has seen the end
LOOK_SECONDS = 0.1
BROKEN_SHARE = 10  # one run in so many fails
SHOWN = 5
# Panels about things that do not happen here have no values.
ABSENT = (
    "outbox",
    "messages",
    "lateness",
    "store_errors",
    "unclaimable",
    "resume_latency",
    "step_retries",
    "leases_lost",
)


class Process:
    """A command of Holdfast at a port of its own. It can be killed, and started again at that port."""

    def __init__(self, stack: ExitStack, job: str, env: dict[str, str], option: str, *words: str) -> None:
        self.job, self.port, self.pids = job, free_port(), list[int]()
        self._private = stack.enter_context(Private("sc", drop_root=False))
        self._argv = [sys.executable, "-m", "holdfast.cli", *words, option, str(self.port)]
        self._env = env
        self.start()

    def start(self) -> None:
        self.pids.append(self._private.start(self._argv, self._env))

    def kill(self) -> None:
        self._private.end(signal.SIGKILL)

    def log(self) -> str:
        return f"{self.job}: {self._private.log()}"


class Truth(NamedTuple):
    """The facts: tries of steps by process, run and step; the runs; their trails; a recount."""

    tries: list[tuple[int, str, str]]
    runs: list[Run]
    trail: Counter[tuple[str, str]]  # by the type of the run, and the word
    miscounts: list[Miscount]

    def happened(self, word: str) -> Counter[str]:
        return Counter({kind: n for (kind, found), n in self.trail.items() if found == word})


async def scraped(
    runs: int = 400,
    kills: int = 20,
    every: float = 0.6,
    workers: int = 2,
    seed: int = 0,
    *,
    store: str = SQLITE,
) -> Report:
    """Kill workers while runs are executed and everything is scraped; compare the values at the end.

    One more worker is never killed: what it has counted itself is compared with the ledger.
    """
    report, began, dice = Report(f"scraped {store}"), time.monotonic(), random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name,
        store_url(store, Path(name)) as url,
        ExitStack() as stack,
        progress() as tell,
    ):
        app, ledger = App(url), Path(name) / "ledger"
        await app.store.open()
        key = (await app.create_key("prometheus", scopes=[Scope.OPERATOR])).secret
        env = {"HOLDFAST_STORE": url, LEDGER: str(ledger), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        work = ("worker", "verify.scraped.app:app", "--lease", f"{LEASE_SECONDS}s", "--slots")
        api = Process(stack, "api", env, "--port", "serve")
        calm = Process(stack, "calm", env, "--metrics-port", *work, "1")
        hit = [Process(stack, f"hit-{n}", env, "--metrics-port", *work, str(SLOTS)) for n in range(workers)]
        every_one = [api, calm, *hit]
        targets = [Target(one.job, f"127.0.0.1:{one.port}", key=key * (one is api)) for one in every_one]
        server = stack.enter_context(running_prometheus(targets))
        killed = 0

        async def look(starts: asyncio.Task[int]) -> bool:
            """Kill one that is at work; return True when all has happened."""
            nonlocal killed
            await asyncio.sleep(every)
            victim = dice.choice(hit)
            if killed < kills and victim.pids[-1] in [pid for pid, _, _ in _tries(ledger)[-SLOTS:]]:
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
                killed += 1
            counts = (await app.counts()).by_status()
            ended = sum(counts.get(status, 0) for status in FINAL)
            tell(f"{ended} runs ended, {killed} kills")
            return starts.done() and ended == starts.result()

        # A worker without runs is not killed: so there are more runs until all kills have been.
        deadline = time.monotonic() + STALL_SECONDS
        starts = asyncio.create_task(
            _start(
                app,
                every * kills / runs,
                lambda n: (n >= runs and killed >= kills) or time.monotonic() > deadline,
            )
        )
        stalled = not await _within(2 * STALL_SECONDS, lambda: look(starts))
        runs = await starts
        truth = await _truth(app, ledger)
        here = sum(pid in calm.pids for pid, _, _ in truth.tries)
        tell("waiting for the last scrape")
        seen = await _within(SEEN_SECONDS, lambda: _has_seen(server, runs, here))
        for title, cases in _differences(server, truth, here):
            found = list(cases)
            report.checks.append(Check(title, len(found), tuple(found[:SHOWN]), invariant=True))
        logs = "\n".join(one.log() for one in every_one)
        report.expect("nothing stalled", not stalled, logs)
        report.expect(f"Prometheus has seen the end within {SEEN_SECONDS:.0f} s", seen, str(server.up()))
        report.expect(f"planned kills fired: {kills}", killed >= kills, str(killed))
        takeovers = sum(truth.happened("lease_expired").values())
        report.expect("takeovers were seen", takeovers > 0, logs)
        duplicates = len(truth.tries) - len({one[1:] for one in truth.tries})
        report.expect(f"tries again at most {kills * SLOTS}", duplicates <= kills * SLOTS, str(duplicates))
        await app.close()
    report.figures |= {
        "runs": runs, "kills": killed, "takeovers": takeovers, "tries_of_steps": len(truth.tries),
        "by_the_calm_worker": here, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _start(app: App, pause: float, enough: Callable[[int], bool]) -> int:
    """Start runs, one after the other, until there are enough; return their number."""
    for n in count():
        if enough(n):
            return n
        await app.start(BROKEN if n % BROKEN_SHARE == 0 else ORDER)
        await asyncio.sleep(pause)
    raise AssertionError


async def _within(seconds: float, done: Callable[[], object]) -> bool:
    """Look until it is true; return False after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = done()
        if await found if asyncio.iscoroutine(found) else found:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


def _tries(ledger: Path) -> list[tuple[int, str, str]]:
    """Return the process, the run and the step of each try so far."""
    lines = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
    return [(int(pid), run, step) for pid, run, step in (one.split(" ", 2) for one in lines)]


async def _truth(app: App, ledger: Path) -> Truth:
    tries = _tries(ledger)
    runs: list[Run] = []
    while page := await app.list(RunFilter(tenant=ANY), 1000, runs[-1].id if runs else None):
        runs += page
    kinds, trail, after = {run.id: run.type for run in runs}, Counter[tuple[str, str]](), 0
    while rows := await app.trail(after=after, tenant=ANY):
        after = rows[-1].seq
        trail.update((kinds[row.run], row.type) for row in rows)
    return Truth(tries, runs, trail, list(await app.store.recount()))


def _has_seen(server: Prometheus, runs: int, tries: int) -> bool:
    ended = server.value('holdfast_runs_finished_total{job="api"}')
    return ended == runs and server.value('holdfast_step_duration_seconds_count{job="calm"}') == tries


def _differences(server: Prometheus, truth: Truth, here: int) -> Iterator[tuple[str, Iterator[str]]]:
    """Return the comparisons by title, with what differs."""

    def by_type(metric: str, expected: Counter[str]) -> Iterator[str]:
        found = {labels["type"]: value for labels, value in server.query(f'{metric}{{job="api"}}')}
        for kind in (ORDER, BROKEN):
            if found.get(kind, 0) != expected[kind]:
                yield f"{metric} of {kind}: {found.get(kind)} scraped, {expected[kind]} happened"

    yield "P1 runs started", by_type("holdfast_runs_started_total", truth.happened("created"))
    yield "P2 runs finished, by status", _finished(server, truth)
    yield "P3 runs retried", by_type("holdfast_runs_retried_total", truth.happened("retried"))
    yield "P4 leases expired", by_type("holdfast_leases_expired_total", truth.happened("lease_expired"))
    still = ('holdfast_runs_open{job="api"} != 0', 'holdfast_due_runs{job="api"} != 0')
    yield "P5 nothing is open or due", (str(one) for query in still for one in server.query(query))
    yield "P6 a recount of the store finds no difference", (str(one) for one in truth.miscounts)
    yield "P7 counters of the store never go back", _reset(server)
    yield "P8 tries of steps that the calm worker has counted", _calm(server, here)
    yield "P9 each step of a succeeded run is in the ledger", _missing(truth)
    yield "P10 the panels have values", _empty(server)


def _finished(server: Prometheus, truth: Truth) -> Iterator[str]:
    expected = Counter((run.type, run.status.value) for run in truth.runs)
    found = {
        (labels["type"], labels["status"]): value
        for labels, value in server.query('holdfast_runs_finished_total{job="api"}')
    }
    for one in sorted({*expected, *found}):
        if found.get(one, 0) != expected[one]:
            yield f"{one}: {found.get(one)} scraped, {expected[one]} happened"


def _reset(server: Prometheus) -> Iterator[str]:
    for metric in ("runs_started_total", "runs_finished_total", "leases_expired_total", "runs_retried_total"):
        for labels, value in server.query(f'resets(holdfast_{metric}{{job="api"}}[1h]) > 0'):
            yield f"{metric} {labels}: {value:.0f} times"


def _calm(server: Prometheus, expected: int) -> Iterator[str]:
    found = server.value('holdfast_step_duration_seconds_count{job="calm"}')
    if found != expected:
        yield f"{found:.0f} scraped, {expected} in the ledger"


def _missing(truth: Truth) -> Iterator[str]:
    done = {one[1:] for one in truth.tries}
    for run in truth.runs:
        if run.type == ORDER and run.status is Status.SUCCEEDED:
            for n in range(STEPS):
                if (str(run.id), f"step {n}") not in done:
                    yield f"{run.id} step {n}"


def _empty(server: Prometheus) -> Iterator[str]:
    for one in expressions():
        if not server.query(one) and not any(word in one for word in ABSENT):
            yield one
