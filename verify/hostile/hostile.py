"""hostile: hostile values in everything that user SQL, a caller or a workflow may write.

Beside the writer there are workers, canary runs (small runs that must end), and all commands that read.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.engine.app.app import App
from holdfast.errors import HoldfastError
from verify.checks.report import Check, Report, progress
from verify.environment.cli_reader import STORE_LOST, Look, Reader, steering
from verify.environment.processes import Fleet
from verify.environment.stores import POSTGRES, store_url

from .app import CANARY, make_hostile_app, run_hostile_worker, song
from .calls import Calls
from .values import HostileValues

ROOT = Path(__file__).resolve().parents[2]
CANARY_SECONDS, LOOK_SECONDS = 15.0, 15.0
CANARY_EVERY_SECONDS = 0.25
CALL_SHARE = 5  # on Postgres: statements for one call of the library
CANARIES_A_MINUTE, LOOKS_A_MINUTE = 30, 10  # minimum
# Only at the start of a line: hostile text has the same words inside a line.
TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
TAIL = 25


@dataclass(slots=True)
class Seen:
    """The results of the writer, of the canaries and of the readers."""

    sent: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)  # SQLSTATE, or name of the error; "": done
    faults: list[str] = field(default_factory=list)  # writes that were neither done nor cleanly refused
    canaries: list[float] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return self.sent - self.answers[""]


async def hostile(
    statements: int = 100_000, store: str = POSTGRES, seed: int = 0, sabotage: str | None = None
) -> Report:
    """Send hostile writes, by user SQL and by the library. On SQLite only by the library."""
    began, seen = time.monotonic(), Seen()
    async with _env(store, sabotage) as env:
        over = asyncio.Event()
        beside = [
            asyncio.create_task(part(env, seen, over)) for part in (_canaries, partial(_looks, seed=seed))
        ]
        with progress() as tell, env.writer(seed, seen) as write:
            while seen.sent < statements:
                await write()
                tell(f"{seen.sent} statements, {len(seen.canaries)} canaries, {len(seen.looks)} looks")
        over.set()
        await asyncio.gather(*beside)
        untold = await _untold(env)
        lost, minutes = env.lost(), (time.monotonic() - began) / 60
        logs = env.logs()
    report = _judged(store, seen, logs, minutes)
    report.checks.append(Check("H6 dev no longer tells", len(untold), tuple(untold), invariant=True))
    tails = [f"{name}: {line}" for name, text in logs.items() for line in ascii(text[-800:]).split("\\n")]
    report.expect("no worker was lost", not lost, "\n          ".join([f"{lost} were", *tails]))
    report.figures["seconds"] = round(minutes * 60, 1)
    return report


@dataclass(slots=True)
class _Environment:
    url: str
    app: App
    reader: Reader
    fleet: Fleet
    dev: subprocess.Popen[bytes]
    folder: Path

    @contextmanager
    def writer(self, seed: int, seen: Seen) -> Iterator[Callable[[], Any]]:
        """Return a function that sends the next hostile write."""
        calls = Calls(self.app, seed)

        async def call() -> None:
            kind, answer, fault = await calls.next()
            _note(seen, kind, answer, fault)

        if not self.url.startswith("postgres"):
            yield call
            return
        from .roles import sender

        with sender(self.url, seed) as send:

            async def write() -> None:
                if seen.sent % (CALL_SHARE + 1) == CALL_SHARE:
                    await call()
                    return
                for kind, answer, fault in await asyncio.to_thread(send, CALL_SHARE):
                    _note(seen, kind, answer, fault)

            yield write

    async def until_dev_is_up(self) -> None:
        async with asyncio.timeout(60.0):
            while b"Ctrl-C stops" not in (self.folder / "dev.log").read_bytes():  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    def lost(self) -> int:
        return self.fleet.supervise() + (self.dev.poll() is not None)

    def logs(self) -> dict[str, str]:
        return {file.name: file.read_text("utf-8", "surrogateescape") for file in self.folder.glob("*.log")}


def _note(seen: Seen, kind: str, answer: str, fault: str) -> None:
    seen.sent += 1
    seen.kinds[kind] += 1
    seen.answers[answer] += 1
    if fault:
        seen.faults.append(f"{seen.sent} {kind}: {fault}")


@asynccontextmanager
async def _env(store: str, sabotage: str | None) -> AsyncIterator[_Environment]:
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        url = stack.enter_context(store_url(store, folder))
        app = make_hostile_app(App(url))
        await app.store.open()
        await app.publish()
        try:
            work = (url, str(folder / "worker.log"), {"lease": 3.0})
            fleet = stack.enter_context(Fleet(run_hostile_worker, work, 1))
            dev = stack.enter_context(_dev(url, folder / "dev.log"))
            env = _Environment(url, app, stack.enter_context(Reader(url, sabotage)), fleet, dev, folder)
            await env.until_dev_is_up()
            yield env
        finally:
            await app.close()


@contextmanager
def _dev(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `holdfast dev`, which shows the trail of all runs."""
    command = [sys.executable, "-m", "holdfast.cli", "dev", "verify.hostile.app:app", "--store", url]
    with log.open("wb") as to, subprocess.Popen(command, stdout=to, stderr=to, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


async def _canaries(env: _Environment, seen: Seen, over: asyncio.Event) -> None:
    """Start canaries one after the other."""
    async with asyncio.TaskGroup() as group:
        while not over.is_set():
            group.create_task(_canary(env.app, seen))
            await asyncio.sleep(CANARY_EVERY_SECONDS)


async def _canary(app: App, seen: Seen) -> None:
    began, run = time.monotonic(), None
    try:
        run = await app.start(CANARY, 21)
        await app.emit(song(run.id))
        result = await run.result(timeout=2 * CANARY_SECONDS)
    except HoldfastError as error:
        seen.stuck.append(f"{run and run.id}: {type(error).__name__}: {error}"[:300])
        return
    took = time.monotonic() - began
    seen.canaries.append(took)
    if took > CANARY_SECONDS or result != 42:
        seen.stuck.append(f"{run.id}: {took:.1f} s, result {result!r}")


async def _looks(env: _Environment, seen: Seen, over: asyncio.Event, *, seed: int) -> None:
    """Run all commands that read, for all runs and for hostile ones; once more at the end."""
    values, last = HostileValues(seed + 1), False
    while not last:
        last = over.is_set()
        for args in _commands(values, await _some_runs(env)):
            seen.looks.append(await env.reader(*args, limit=LOOK_SECONDS))
            if over.is_set() and not last:
                break


async def _untold(env: _Environment) -> list[str]:
    """Return a fault when `dev` does not show a last canary."""
    run = await env.app.start(CANARY, 21)
    for _ in range(round(CANARY_SECONDS / 0.1)):
        if str(run.id)[-8:] in (env.folder / "dev.log").read_text("utf-8", "replace"):
            return []
        await asyncio.sleep(0.1)
    tail = (env.folder / "dev.log").read_text("utf-8", "replace")[-400:]
    return [f"nothing of run {run.id} behind {tail!a}"]


async def _some_runs(env: _Environment) -> list[str]:
    """Return ids of hostile runs, read from the table: a failing list must show in `ls`, not here."""
    from verify.environment.run_counts import some_ids

    return await asyncio.to_thread(some_ids, env.url, "hostile.")


def _commands(values: HostileValues, runs: list[str]) -> list[tuple[str, ...]]:
    fixed = [
        ("ls", "--limit", "200"),
        ("doctor",),
        ("trail", "--limit", "2000"),
        ("approvals",),
        ("registry", "ls"),
        ("limit", "ls"),
        ("outbox", "ls"),
        ("schedule", "ls"),
        ("ls", "--type", "hostile.%"),
    ]
    chosen = values.dice.sample(fixed, 4)
    for run in values.dice.sample(runs, min(4, len(runs))):
        chosen += [("show", run), ("trail", run), ("explain", run)]
    return [(*one, "--json") if values.chance(0.3) else one for one in chosen]


def _judged(store: str, seen: Seen, logs: dict[str, str], minutes: float) -> Report:
    report = Report(f"hostile on {store}")
    faulty = [
        str(one)
        for one in seen.looks
        if one.fault or one.code in {-1, STORE_LOST} or one.seconds > LOOK_SECONDS
    ]
    traces = [
        _excerpt(name, text, trace.start())
        for name, text in logs.items()
        if (trace := TRACEBACK.search(text))
    ]
    steered = [f"{name}: {found}" for name, text in logs.items() if (found := steering(text))]
    for name, cases in {
        "H1 write was neither done nor cleanly refused": seen.faults,
        "H2 canary run was stuck": seen.stuck,
        "H3 reader failed or showed raw text": faulty,
        "H4 traceback in a log": traces,
        "H5 raw text in a log": steered,
    }.items():
        report.checks.append(Check(name, len(cases), tuple(cases[:8]), invariant=True))
    report.expect("canaries sang", len(seen.canaries) >= CANARIES_A_MINUTE * minutes, str(len(seen.canaries)))
    report.expect("readers looked", len(seen.looks) >= LOOKS_A_MINUTE * minutes, str(len(seen.looks)))
    report.expect(
        "some was done, some refused", 0.1 < seen.refused / max(1, seen.sent) < 0.9, str(seen.answers)
    )
    report.figures |= {
        "statements": seen.sent,
        "refused": seen.refused,
        "by_answer": dict(seen.answers.most_common(8)),
        "canaries": len(seen.canaries),
        "longest_canary": round(max(seen.canaries, default=0.0), 2),
        "looks": len(seen.looks),
        "longest_look": round(max((one.seconds for one in seen.looks), default=0.0), 2),
    }
    return report


def _excerpt(name: str, text: str, at: int) -> str:
    lines = text[max(0, at - 300) : at + 3000].splitlines()
    return "\n          ".join([name, *lines[:TAIL]])
