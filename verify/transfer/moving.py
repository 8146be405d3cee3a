"""move: runs of all kinds go through five stores with workers at all of them, and the mover is killed.

The last journey is by a file. Each run has a twin that does not move. A file outside the stores has a line
for every effect.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast import ANY, App, Run, RunFilter
from holdfast.lifecycle import FINAL, Status
from holdfast.transfer.places import is_away
from verify.checks.report import Check, Report, progress
from verify.environment.processes import CONTEXT, Fleet, die_with_parent
from verify.environment.stores import POSTGRES, REDIS, SQLITE, store_url

from .by_file import move_by_file
from .kinds import CHAIN, KINDS, LISTENER, STRAIGHT, Effects, define, work

PACE = 0.2  # of all runs a second, while the mover is killed
STALL_SECONDS = 120.0
KEPT_AT = 0.002  # seconds that a clock may be behind

Outcome = tuple[str, Any, tuple[tuple[str, str], ...]]


async def move(runs: int = 1000, kills: int = 20, seed: int = 0) -> Report:
    """Start runs at the first store, and move all of them through the others."""
    report, dice, began = Report("move"), random.Random(seed), time.monotonic()
    hops = 3
    each = -(-kills // hops)
    with ExitStack() as stack, progress() as tell:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verify-move")))
        urls = _urls(stack, folder)
        twin = f"sqlite:///{folder}/twin.db"
        files = {"moved": folder / "effects", "twin": folder / "twin-effects"}
        async with AsyncExitStack() as opened:
            apps = [await _app(opened, url, files["moved"]) for url in urls]
            other = await _app(opened, twin, files["twin"])
            keys = await _start(apps[0], runs)
            await _start(other, runs)
            hidden = await _start_hidden(apps[0], runs // 20)
            log = str(folder / "log")
            for url in urls:
                stack.enter_context(Fleet(work, (url, str(files["moved"]), log), 1))
            stack.enter_context(Fleet(work, (twin, str(files["twin"]), log), 1))
            killed = 0
            moved, totals = [], []
            for hop in range(hops):
                await asyncio.sleep(1.0)
                for _ in range(each):
                    killed += await asyncio.to_thread(
                        _kill_mover, urls[hop], urls[hop + 1], folder / "ready", dice, runs
                    )
                    tell(f"hop {hop + 1} of {hops}, {killed} kills")
                await _wake(apps[hop], hop, runs)
                moved.append(_finish_move(urls[hop], urls[hop + 1]))
                totals.append(sum([1 async for run in _all(apps[hop]) if is_away(run)]))
                tell(f"hop {hop + 1} of {hops} done")
            tell("by a file")
            by_file = await asyncio.to_thread(move_by_file, urls[-2], urls[-1], folder / "runs.jsonl", dice)
            await _wake(apps[-1], hops, runs)
            for app in (apps[-1], other):
                await _resume_all(app)
            for part in range(hops + 1):
                await _wake(other, part, runs)
            ended = await _until_ended(apps[-1], tell)
            await _until_ended(other, tell)
            found, expected = await _outcomes(apps[-1]), await _outcomes(other)
            recorded = await _recorded(apps[-1])
            left = [run for app in apps[:-1] async for run in _all(app) if not is_away(run)]
            deleted = {run.id async for run in _all(apps[-1], deleted=True) if run.deleted_at is not None}
        effects = _read(files["moved"])
    _judge(report, found, expected, keys, recorded, effects, left)
    report.expect(
        "deleted runs are deleted, and not executed", hidden == deleted and not _of(effects, hidden)
    )
    report.expect("a step of the move by a file was killed", by_file["kills"] > 0)
    report.expect(f"planned kills fired: {kills}", killed >= kills, f"{killed} fired")
    report.expect("all ended", ended)
    report.figures |= {
        "runs": runs,
        "with children and links": len(found),
        "kills": killed,
        "moved by movers that were killed": [
            total - one["moved"] for total, one in zip(totals, moved, strict=True)
        ],
        "moved by the others": [one["moved"] for one in moved],
        "by a file": by_file,
        "effects": len(effects),
        "seconds": round(time.monotonic() - began, 1),
    }
    return report


def _urls(stack: ExitStack, folder: Path) -> list[str]:
    urls = []
    for number, store in enumerate((SQLITE, POSTGRES, REDIS, SQLITE, SQLITE)):
        own = folder / str(number)
        own.mkdir()
        urls.append(stack.enter_context(store_url(store, own)))
    return urls


async def _app(opened: AsyncExitStack, url: str, file: Path) -> App:
    app = define(App(url, name="move"), Effects(file))
    await app.store.open()
    await app.publish()
    opened.push_async_callback(app.close)
    return app


async def _start(app: App, runs: int) -> set[str]:
    keys = set()
    for number in range(runs):
        kind = KINDS[number % len(KINDS)]
        key = f"{kind}:{number}"
        run = await app.start(kind, number * 1000 if kind == CHAIN else number, key=key)
        if kind == STRAIGHT and number // len(KINDS) % 5 == 0:
            await app.pause(run.id, by="ada")
        keys.add(key)
    return keys


async def _start_hidden(app: App, number: int) -> set[UUID]:
    """Start runs that are deleted at once. Return them."""
    found = [await app.start(STRAIGHT, n, key=f"deleted:{n}") for n in range(number)]
    for one in found:
        await app.delete(one.id)
    return {one.id for one in found}


def mover(source: str, target: str, ready: str, pace: float) -> None:
    """Move runs until this process is killed, or all have moved."""

    async def run() -> None:
        here, there = App(source), App(target)
        await here.preview_move(there, RunFilter(key="nobody", tenant=ANY))
        _tell(ready, 0)
        await here.move(there, pace=pace, progress=lambda moved: _tell(ready, moved))

    die_with_parent()
    asyncio.run(run())


def _tell(ready: str, moved: int) -> None:
    new = Path(f"{ready}.new")
    new.write_text(str(moved))
    new.replace(ready)


def _kill_mover(source: str, target: str, ready: Path, dice: random.Random, runs: int) -> int:
    """Start a mover, and kill it a random time after it has begun, or has moved some runs. Return 1 if it was
    still at work."""
    ready.unlink(missing_ok=True)
    pace = max(20.0, PACE * runs)
    process = CONTEXT.Process(target=mover, args=(source, target, str(ready), pace), daemon=True)
    process.start()
    enough = dice.choice((0, 1, 1, 60, 60, 110)) * runs // 1000
    while process.is_alive() and (not ready.exists() or int(ready.read_text()) < enough):
        time.sleep(0.01)
    time.sleep(dice.uniform(0.0, 0.6))
    at_work = process.is_alive()
    process.kill()
    process.join()
    return int(at_work)


def _command(source: str, target: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli", "move", "--from", source, "--to", target, "--yes"]


def _finish_move(source: str, target: str) -> dict[str, Any]:
    done = subprocess.run(
        [*_command(source, target), "--json"], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"the mover failed: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _wake(app: App, part: int, runs: int) -> None:
    """Emit a part of the events, and decide the gates of this part."""
    for number in range(runs):
        if KINDS[number % len(KINDS)] == LISTENER and number // len(KINDS) % 4 == part % 4:
            await app.emit(f"news.{number}", number, id=f"news {number}")
    for gate in await app.approvals(limit=1000):
        run = await app.get(gate.run)
        number = 0 if run is None or run.key is None else int(run.key.rpartition(":")[2])
        if number // len(KINDS) % 4 == part % 4 or part == 3:
            await app.approve(gate.run, gate.step, by="ada")


async def _resume_all(app: App) -> None:
    """Resume the runs that were paused before they moved."""
    async for run in _all(app):
        if run.status == Status.PAUSED:
            await app.resume(run.id, by="ada")


async def _until_ended(app: App, tell: Any) -> bool:
    """Decide the last gates, and wait until all runs have ended."""
    last, at = -1, time.monotonic()
    while True:
        await _approve_all(app)
        stats = await app.stats()
        open_runs = sum(number for status, number in stats.by_status.items() if status not in FINAL)
        tell(f"{open_runs} runs are open")
        if not open_runs:
            return True
        if open_runs != last:
            last, at = open_runs, time.monotonic()
        elif time.monotonic() - at > STALL_SECONDS:
            return False
        await asyncio.sleep(0.5)


async def _approve_all(app: App) -> None:
    for gate in await app.approvals(limit=1000):
        await app.approve(gate.run, gate.step, by="ada")


async def _all(app: App, *, deleted: bool = False) -> Any:
    after = None
    while page := await app.list(RunFilter(tenant=ANY, deleted=deleted), 500, after):
        for run in page:
            yield run
        after = page[-1].id


async def _outcomes(app: App) -> dict[str, Outcome]:
    """Return what each run came to, by its key, or by the place that it has under its parent or chain."""
    found: dict[str, Outcome] = {}
    names: dict[UUID, str] = {}
    every: list[Run] = [run async for run in _all(app)]
    for run in sorted(every, key=lambda run: run.id):
        names[run.id] = run.key or (
            f"{names.get(run.parent)}/{run.parent_step}"
            if run.parent
            else f"{names.get(run.chain)}+{run.params}"
        )
        steps = await app.steps(run.id)
        result = run.result if not isinstance(run.result, dict) else "continued"
        found[names[run.id]] = run.status, result, tuple(sorted((one.key, one.status) for one in steps))
    return found


async def _recorded(app: App) -> dict[tuple[str, str], float]:
    """Return when each step was recorded, by run and step, in microseconds."""
    found: dict[tuple[str, str], float] = {}
    async for run in _all(app):
        for entry in await app.trail(run.id):
            if entry.type == "step_succeeded":
                found[str(run.id), entry.data["step"]] = entry.at.timestamp() * 1e6
    return found


def _of(effects: Sequence[dict[str, Any]], runs: set[UUID]) -> list[dict[str, Any]]:
    return [one for one in effects if UUID(one["run"]) in runs]


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def _judge(
    report: Report,
    found: dict[str, Outcome],
    expected: dict[str, Outcome],
    keys: set[str],
    recorded: dict[tuple[str, str], float],
    effects: Sequence[dict[str, Any]],
    left: Sequence[Run],
) -> None:
    def check(name: str, cases: Sequence[str]) -> None:
        report.checks.append(Check(name, len(cases), tuple(cases[:5]), invariant=True))

    again = [
        f"{one['run']} {one['step']}"
        for one in effects
        if (at := recorded.get((one["run"], one["step"]))) and one["at"] > at + KEPT_AT * 1e6
    ]
    check("no step is executed after it was recorded", again)
    done = Counter((one["run"], one["step"]) for one in effects)
    own = {run for run, _ in done}
    gone = [f"{run} {step}" for run, step in recorded if run in own and not done[run, step]]
    check("no recorded step is without an effect", [one for one in gone if not one.endswith((" OK", " NAP"))])
    check("no run is lost", sorted(keys - set(found)))
    check(
        "each run ends as its twin that did not move",
        [f"{key}: {found.get(key)}, and {one}" for key, one in expected.items() if found.get(key) != one],
    )
    check("every run has left the stores behind it", [f"{run.id} {run.status}" for run in left])
    report.figures["duplicate effects"] = sum(number - 1 for number in done.values())
