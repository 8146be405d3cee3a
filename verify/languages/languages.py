"""languages: workers in Go, TypeScript and Python share runs, and are killed; so is the server between them.

registry-moves: the registry gives a type from one runtime to another while its runs are open.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast import StartOptions
from holdfast.backoff import crash_delay
from holdfast.engine.app.app import App
from holdfast.engine.app.handle import Handle
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import MAX_CRASHES, SECOND, Scope
from verify.checks.evidence import Evidence, gathered
from verify.checks.report import Check, Report, progress
from verify.environment.environment import LOOK_SECONDS, STALL_SECONDS
from verify.environment.processes import Fleet
from verify.environment.stores import SQLITE, store_url
from verify.server_crashes.serve_kill import free_port, ready, serve

from .effects import Effects, effects
from .programs import DIRECT, GO, REMOTE, TYPESCRIPT, Programs, commands
from .script import TYPE

LEASE_SECONDS, SLOTS, EACH = 3.0, 8, 2  # processes of each kind
BATCH = 20  # starts in one call
TENANT = "default"
WORDS = 20
RUNTIMES = {GO: "go", TYPESCRIPT: "typescript", REMOTE: "python", DIRECT: "python"}
TAKEOVER_SECONDS = LEASE_SECONDS  # after the lease has expired: a keeper's round and a free slot


@dataclass
class Site:
    """A store with its server, worker programs of every kind, and the ledger of effects."""

    app: App
    port: int
    key: str
    servers: Fleet
    workers: list[Programs]
    ledger: Effects
    acked: list[UUID] = field(default_factory=list)
    stalled: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # the last lines that the processes have written

    async def start(self, numbers: Sequence[int]) -> None:
        """Start runs by the library, and send the events that some of them wait for."""
        starts = [(TYPE, _params(n, self.ledger.url), StartOptions(key=f"script {n}")) for n in numbers]
        answers = await self.app.start_many(starts)
        self.acked += [one.id for one in answers if isinstance(one, Handle)]
        for n in numbers:
            if _waits(n):
                await self.app.emit(f"go:{n}", {"n": n}, id=f"go {n}")

    async def open_runs(self) -> int:
        counts = (await self.app.store.stats()).by_status
        return sum(number for status, number in counts.items() if status not in FINAL)

    async def settled(self, each: Callable[[int], None]) -> None:
        """Wait until every run has ended; a stall is noted."""
        mark, marked_at = (0, 0), time.monotonic()
        while opened := await self.open_runs():
            each(opened)
            now = (opened, self.ledger.total)
            if now != mark:
                mark, marked_at = now, time.monotonic()
            elif time.monotonic() - marked_at > STALL_SECONDS:
                self.stalled += [f"{opened} runs are open"]
                return
            for programs in self.workers:
                programs.supervise()
            await asyncio.sleep(LOOK_SECONDS)

    async def kill_server(self) -> float:
        """Kill the server, and return the seconds until the next one answers."""
        began = time.monotonic()
        await asyncio.to_thread(self.servers.kill, self.servers.members[0])
        await ready(self.port, self.key)
        return time.monotonic() - began


@asynccontextmanager
async def _site(store: str, size: int = EACH) -> AsyncIterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name,
        store_url(store, Path(name)) as url,
        effects() as ledger,
        ExitStack() as stack,
    ):
        folder = Path(name)
        built = await asyncio.to_thread(commands, folder, url)
        app, port, log = App(url), free_port(), folder / "processes.log"
        await app.store.open()
        try:
            reader = (await app.create_key("verify", scopes=(Scope.RUNS_READ,), tenant=TENANT)).secret
            secret = (await app.create_key("workers", scopes=(Scope.WORK,), tenant=TENANT)).secret
            servers = stack.enter_context(Fleet(serve, (url, port, str(log), None), 1))
            await ready(port, reader)
            env = {
                "HOLDFAST_URL": f"http://127.0.0.1:{port}", "HOLDFAST_KEY": secret,
                "HOLDFAST_LEASE_MS": str(int(LEASE_SECONDS * 1000)), "HOLDFAST_SLOTS": str(SLOTS),
            }  # fmt: skip
            options = ["--lease", f"{LEASE_SECONDS:g}s", "--slots", str(SLOTS), "--log-level", "warning"]
            workers = [
                stack.enter_context(
                    Programs(
                        kind, [*command, *(options if RUNTIMES[kind] == "python" else ())], env, size, log
                    )
                )
                for kind, command in built.items()
            ]
            site = Site(app, port, reader, servers, workers, ledger)
            yield site
            site.words = log.read_text("utf-8", "replace").splitlines()[-WORDS:]
        finally:
            await app.close()


# The runs: most have steps and a sleep, some wait for an event, some call a child.


def _waits(n: int) -> bool:
    return n % 10 in {7, 8}


def _do(n: int, ledger: str) -> list[dict[str, Any]]:
    if _waits(n):
        return [{"step": "a", "value": n}, {"event": f"go:{n}"}, {"step": "b", "value": 2**53 + n}]
    if n % 10 == 9:
        child = {"ledger": ledger, "do": [{"step": "c", "value": n}]}
        return [{"step": "a", "value": n}, {"child": child}, {"step": "b", "value": n}]
    return [{"step": "a", "value": n}, {"step": "a", "value": n}, {"sleep": 30}, {"step": "b", "value": n}]


def _params(n: int, ledger: str) -> dict[str, Any]:
    return {"ledger": ledger, "do": _do(n, ledger)}


def _result(params: dict[str, Any]) -> list[Any]:
    """Return the result of a run: what each instruction gives."""
    found: list[Any] = []
    for op in params["do"]:
        if "step" in op:
            found.append(op["value"])
        elif "sleep" in op:
            found.append("slept")
        elif "event" in op:
            found.append({"n": int(op["event"].partition(":")[2])})
        else:
            found.append(_result(op["child"]))
    return found


def _keys(params: dict[str, Any]) -> list[str]:
    """Return the keys of the steps of a run."""
    names = Counter[str]()
    found = []
    for op in params["do"]:
        if "step" in op:
            names[op["step"]] += 1
            number = names[op["step"]]
            found.append(op["step"] if number == 1 else f"{op['step']}#{number}")
    return found


async def languages(
    runs: int = 1000,
    every: float = 0.5,
    server_kills: int = 5,
    seed: int = 0,
    *,
    store: str = SQLITE,
) -> Report:
    """Let all kinds of workers share runs; kill one of each kind every half second, and the server a few
    times.
    """
    report, dice, began = Report(f"languages {store}"), random.Random(seed), time.monotonic()
    back: list[float] = []
    async with _site(store) as site:
        with progress() as tell:
            numbers, seconds = range(runs), runs / 40
            starting = asyncio.create_task(_spread(site, numbers, seconds))
            killing = asyncio.create_task(_kill(site, dice, every))
            for _ in range(server_kills):
                await asyncio.sleep(seconds / (server_kills + 1))
                back.append(await site.kill_server())
            await starting
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await site.settled(lambda opened: tell(f"{opened} runs are open, {_kills(site)} kills"))
        evidence = await gathered(site.app.store, [], site.acked)
    _judge(report, evidence, site)
    kinds = Counter(_kind(row.data["worker"]) for row in evidence.rows("leased"))
    for kind in RUNTIMES:
        report.expect(f"{kind} was killed", _programs(site, kind).killed > 0)
    report.expect("every language executed runs", {"go", "typescript", "python"} <= kinds.keys(), str(kinds))
    report.expect(f"the server was killed {server_kills} times", len(back) == server_kills)
    report.figures |= {
        "runs": len(evidence.runs), "kills": _kills(site), "server kills": len(back),
        "server back after": f"{max(back, default=0):.2f} s", "claims": dict(sorted(kinds.items())),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _spread(site: Site, numbers: range, seconds: float) -> None:
    for first in range(0, len(numbers), BATCH):
        await site.start(numbers[first : first + BATCH])
        await asyncio.sleep(seconds * BATCH / len(numbers))


async def _kill(site: Site, dice: random.Random, every: float) -> None:
    """Kill a worker of each kind about every so many seconds, at random moments, until it is cancelled."""

    async def kill(programs: Programs) -> None:
        while True:
            await asyncio.sleep(dice.uniform(0.5 * every, 1.5 * every))
            await asyncio.to_thread(programs.kill, dice.randrange(len(programs.members)))

    await asyncio.gather(*[kill(one) for one in site.workers])


def _kills(site: Site) -> int:
    return sum(programs.killed for programs in site.workers)


def _programs(site: Site, kind: str) -> Programs:
    return next(one for one in site.workers if one.kind == kind)


def _kind(worker: str) -> str:
    """Return the language of a worker, by its name."""
    return next((word for word in ("go", "typescript") if worker.startswith(f"{word}-")), "python")


def _judge(report: Report, evidence: Evidence, site: Site) -> None:
    """Check what holds in every experiment with worker programs."""
    checks = {
        "P1 acknowledged starts that are not there": _lost(evidence),
        "P2 runs that failed without four crashes": _failed(evidence),
        "P3 results that differ": _results(evidence),
        "P4 steps recorded other than once": _recorded(evidence),
        "P5 effects after the step was recorded": _done_again(evidence, site.ledger),
        "P6 recorded steps without effect, or with another key": _without_effect(evidence, site.ledger),
        "P7 takeovers that came late": _late(evidence),
    }
    for name, cases in checks.items():
        found = tuple(cases)
        report.checks.append(Check(name, len(found), found[:5], invariant=True))
    ended = [f"{one.kind}: {one.ended}" for one in site.workers if one.ended]
    ended += site.words if ended else []
    report.expect("nothing stalled", not site.stalled, "\n          ".join(site.stalled))
    report.expect("no worker ended by itself", not ended, "\n          ".join(ended))
    bound = _kills(site) * SLOTS
    twice = site.ledger.duplicates
    report.expect(f"duplicate effects at most {bound}", twice <= bound, str(twice))
    report.figures |= {"takeovers": len(evidence.rows("lease_expired")), "duplicates": twice}


def _lost(ev: Evidence) -> Iterator[str]:
    return (str(run) for run in ev.acked if run not in ev.runs)


def _unlucky(ev: Evidence, run: UUID) -> bool:
    """Return True for a run, or the parent of a run, whose workers were killed at every try."""
    seen = ev.runs[run]
    kind = seen.error.kind if seen.error else ""
    return (kind == "lease_expired" and seen.crashes == MAX_CRASHES) or kind == "child_failed"


def _failed(ev: Evidence) -> Iterator[str]:
    for run in ev.runs.values():
        if run.status is not Status.SUCCEEDED and not _unlucky(ev, run.id):
            yield f"{run.id}: {run.status}, {run.error}"


def _results(ev: Evidence) -> Iterator[str]:
    for run in ev.succeeded():
        if run.result != _result(run.params):
            yield f"{run.id}: {run.result_json} for {run.params_json}"


def _recorded(ev: Evidence) -> Iterator[str]:
    for run in ev.succeeded():
        rows = Counter(row.data["step"] for row in ev.trail[run.id] if row.type == "step_succeeded")
        tasks = sorted(step.key for step in ev.steps[run.id] if step.kind is StepKind.TASK)
        if tasks != sorted(_keys(run.params)) or any(rows[key] != 1 for key in tasks):
            yield f"{run.id}: {tasks}, recorded {dict(rows)}"


def _done_again(ev: Evidence, ledger: Effects) -> Iterator[str]:
    for run in ev.runs.values():
        for step in ev.steps[run.id]:
            if step.kind is StepKind.TASK and step.status is StepStatus.SUCCEEDED:
                late = [one for one in ledger.of[str(run.id), step.key] if one.at > (step.finished_at or 0)]
                if late:
                    yield f"{run.id} {step.key}: {(late[0].at - (step.finished_at or 0)) / 1000:.1f} ms after"


def _without_effect(ev: Evidence, ledger: Effects) -> Iterator[str]:
    for run in ev.runs.values():
        for step in ev.steps[run.id]:
            if step.kind is StepKind.TASK and step.status is StepStatus.SUCCEEDED:
                keys = {one.key for one in ledger.of[str(run.id), step.key]}
                if keys != {f"{run.id}:{step.key}"}:
                    yield f"{run.id} {step.key}: {keys or 'none'}"


def _late(ev: Evidence) -> Iterator[str]:
    """Yield runs that nobody took over in time after a lease had expired, although nothing was in their way.

    A busy machine has a queue, and runs that were due before go first. A run is late when a younger one was
    taken before it, or when nobody took anything for so long.
    """
    claims = sorted(ev.rows("leased"), key=lambda row: row.at)
    created = {run.id: run.created_at for run in ev.runs.values()}
    for rows in ev.trail.values():
        for row, later in pairwise(rows):
            if row.type != "lease_expired" or later.type != "leased":
                continue
            due = row.at + timedelta(seconds=crash_delay(row.data["crashes"]))
            if (later.at - due).total_seconds() <= TAKEOVER_SECONDS:
                continue
            meanwhile = [one for one in claims if due < one.at <= later.at]
            times = [due, *(one.at for one in meanwhile)]
            idle = max(after - before for before, after in pairwise(times)).total_seconds()
            soon = later.at - timedelta(seconds=TAKEOVER_SECONDS)
            passed = [one for one in meanwhile if one.at < soon and created[one.run] > due]
            if passed or idle > TAKEOVER_SECONDS:
                waited = (later.at - due).total_seconds()
                yield f"{row.run}: claimed {waited:.1f} s after its time, {len(passed)} younger runs before"


async def registry_moves(runs: int = 500, moves: int = 12, *, store: str = SQLITE) -> Report:
    """Give the type to one runtime after the other while its runs are open: none is executed by another."""
    report, began = Report(f"registry-moves {store}"), time.monotonic()
    times: list[tuple[int, int, str]] = []  # from, until, runtime
    opened_at: list[int] = []  # open runs at each move
    async with _site(store, size=1) as site:
        with progress() as tell:
            await site.app.register(TYPE, runtime="nobody")
            await _spread(site, range(runs), 1.0)
            cycle = ("go", "typescript", "python")
            for number in range(moves):
                runtime = cycle[number % len(cycle)]
                await site.app.register(TYPE, runtime=runtime)
                since = time.time_ns() // 1000
                before = await site.open_runs()
                opened_at.append(before)
                deadline = time.monotonic() + STALL_SECONDS
                # Each runtime ends a share of the runs that are open; then the next one has them.
                while (opened := await site.open_runs()) > before * (1 - 1 / (moves - number + 1)):
                    tell(f"{opened} runs are open; {runtime} has the type")
                    if time.monotonic() > deadline:
                        site.stalled.append(f"{runtime} ended too few: {opened} of {before} are open")
                        break
                    await asyncio.sleep(LOOK_SECONDS)
                times.append((since, time.time_ns() // 1000, runtime))
            await site.app.unregister(TYPE)
            await site.settled(lambda opened: tell(f"{opened} runs are open, for anyone"))
        evidence = await gathered(site.app.store, [], site.acked)
    _judge(report, evidence, site)
    wrong = [
        f"{row.run}: claimed by {row.data['worker']} while {runtime} had the type"
        for row in evidence.rows("leased")
        for since, until, runtime in times
        if since <= _instant(row.at) <= until and _kind(row.data["worker"]) != runtime
    ]
    report.checks.append(Check("P8 claims of another runtime", len(wrong), tuple(wrong[:5]), invariant=True))
    shared = [run for run in evidence.trail.values() if len(_holders(run)) > 1]
    report.expect("runs were begun by one runtime and ended by another", shared)
    report.expect("runs were open at every move", min(opened_at) > 0, str(opened_at))
    report.figures |= {
        "runs": len(evidence.runs), "moves": moves, "runs of several runtimes": len(shared),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _holders(rows: Sequence[Any]) -> set[str]:
    return {_kind(row.data["worker"]) for row in rows if row.type == "leased"}


def _instant(at: Any) -> int:
    return int(at.timestamp() * SECOND)
