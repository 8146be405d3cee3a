"""hostile: everything that a role of plain SQL, a caller or a workflow may write, made to hurt.

Beside the writer there are workers, canary runs, and every reader of the CLI, again and again.
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

from holdfast.engine.app import App
from holdfast.errors import HoldfastError

from .places import POSTGRES, place
from .processes import Fleet
from .readers import STORE_LOST, Look, Reader, steering
from .report import Check, Report, progress
from .spite import Spite
from .spite_calls import Calls
from .spiteful import CANARY, make_spiteful, song, spiteful_work

ROOT = Path(__file__).resolve().parents[1]
CANARY_SECONDS, LOOK_SECONDS = 15.0, 15.0
CANARY_EVERY_SECONDS = 0.25
CALL_SHARE = 5  # on Postgres one call of the library for so many statements
CANARIES_A_MINUTE, LOOKS_A_MINUTE = 30, 10  # at least
TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\)", re.MULTILINE
)  # not inside a line: hostile text has it too
TAIL = 25


@dataclass(slots=True)
class Seen:
    """What happened to everybody."""

    sent: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)  # by SQLSTATE, or the name of an error; "": done
    faults: list[str] = field(default_factory=list)  # of the writer: neither done nor cleanly refused
    canaries: list[float] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return self.sent - self.answers[""]


async def hostile(
    statements: int = 100_000, store: str = POSTGRES, seed: int = 0, sabotage: str | None = None
) -> Report:
    """So many hostile writes, by plain SQL and by the library. On SQLite plain SQL only reads."""
    began, seen = time.monotonic(), Seen()
    async with _scene(store, sabotage) as scene:
        over = asyncio.Event()
        beside = [
            asyncio.create_task(part(scene, seen, over)) for part in (_canaries, partial(_looks, seed=seed))
        ]
        with progress() as tell, scene.writer(seed, seen) as write:
            while seen.sent < statements:
                await write()
                tell(f"{seen.sent} statements, {len(seen.canaries)} canaries, {len(seen.looks)} looks")
        over.set()
        await asyncio.gather(*beside)
        untold = await _untold(scene)
        lost, minutes = scene.lost(), (time.monotonic() - began) / 60
        logs = scene.logs()
    report = _judged(store, seen, logs, minutes)
    report.checks.append(Check("H6 dev no longer tells", len(untold), tuple(untold), invariant=True))
    tails = [f"{name}: {line}" for name, text in logs.items() for line in ascii(text[-800:]).split("\\n")]
    report.expect("no worker was lost", not lost, "\n          ".join([f"{lost} were", *tails]))
    report.figures["seconds"] = round(minutes * 60, 1)
    return report


@dataclass(slots=True)
class _Scene:
    url: str
    app: App
    reader: Reader
    fleet: Fleet
    dev: subprocess.Popen[bytes]
    folder: Path

    @contextmanager
    def writer(self, seed: int, seen: Seen) -> Iterator[Callable[[], Any]]:
        """A function that sends the next hostile write."""
        calls = Calls(self.app, seed)

        async def call() -> None:
            kind, answer, fault = await calls.next()
            _note(seen, kind, answer, fault)

        if not self.url.startswith("postgres"):
            yield call
            return
        from .hostile_roles import sender

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
async def _scene(store: str, sabotage: str | None) -> AsyncIterator[_Scene]:
    with tempfile.TemporaryDirectory(prefix="hf-") as name, ExitStack() as stack:
        folder = Path(name)
        url = stack.enter_context(place(store, folder))
        app = make_spiteful(App(url))
        await app.store.open()
        await app.publish()
        try:
            work = (url, str(folder / "worker.log"), {"lease": 3.0})
            fleet = stack.enter_context(Fleet(spiteful_work, work, 1))
            dev = stack.enter_context(_dev(url, folder / "dev.log"))
            scene = _Scene(url, app, stack.enter_context(Reader(url, sabotage)), fleet, dev, folder)
            await scene.until_dev_is_up()
            yield scene
        finally:
            await app.close()


@contextmanager
def _dev(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`holdfast dev`, which shows the trail of all runs as it comes."""
    command = [sys.executable, "-m", "holdfast.cli", "dev", "verify.spiteful:app", "--store", url]
    with log.open("wb") as to, subprocess.Popen(command, stdout=to, stderr=to, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


async def _canaries(scene: _Scene, seen: Seen, over: asyncio.Event) -> None:
    """One after the other: a step, a nap, an event, an end."""
    async with asyncio.TaskGroup() as group:
        while not over.is_set():
            group.create_task(_canary(scene.app, seen))
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


async def _looks(scene: _Scene, seen: Seen, over: asyncio.Event, *, seed: int) -> None:
    """Every reader, at all runs and at hostile ones, in turns; once more when all is written."""
    spite, last = Spite(seed + 1), False
    while not last:
        last = over.is_set()
        for args in _commands(spite, await _some_runs(scene)):
            seen.looks.append(await scene.reader(*args, limit=LOOK_SECONDS))
            if over.is_set() and not last:
                break


async def _untold(scene: _Scene) -> list[str]:
    """Whether `dev` still tells what happens: a last canary, unless it does."""
    run = await scene.app.start(CANARY, 21)
    for _ in range(round(CANARY_SECONDS / 0.1)):
        if str(run.id)[-8:] in (scene.folder / "dev.log").read_text("utf-8", "replace"):
            return []
        await asyncio.sleep(0.1)
    tail = (scene.folder / "dev.log").read_text("utf-8", "replace")[-400:]
    return [f"nothing of run {run.id} behind {tail!a}"]


async def _some_runs(scene: _Scene) -> list[str]:
    """Ids, asked of the table: a list of the store that fails is to be seen in `ls`."""
    from .counting import some_ids

    return await asyncio.to_thread(some_ids, scene.url, "hostile.")


def _commands(spite: Spite, runs: list[str]) -> list[tuple[str, ...]]:
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
    chosen = spite.dice.sample(fixed, 4)
    for run in spite.dice.sample(runs, min(4, len(runs))):
        chosen += [("show", run), ("trail", run), ("explain", run)]
    return [(*one, "--json") if spite.chance(0.3) else one for one in chosen]


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
