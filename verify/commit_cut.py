"""commit-cut: the server commits, and nobody hears of it: the link is closed, or stays silent for ever."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from .cutting import Cutter, proxy
from .evidence import Evidence
from .invariants import OVERTAKEN
from .load import Load
from .places import database, server
from .report import Check, Report, progress
from .scene import BROKEN_SECONDS, STALL_SECONDS, Scene, scene

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 6.0  # an answer that does not come is not waited for nearly so long
CALL_SECONDS = 1.0  # instead of ten: how long a silent link is waited for
SHARE = 0.15  # of the writes
RUNS_A_CUT = 1.5
SECONDS_A_CUT = 0.1
TOLD_FAILED = "E9 a client was told of failure"
REFUSED = "E9 committed, and answered as refused"


async def commit_cut(cuts: int = 100, sabotage: str | None = None, seed: int = 0) -> Report:
    """Answers to writes of client and workers are lost after the fact: who asks again learns the truth."""
    report, began = Report("commit-cut"), time.monotonic()
    # The store itself asks again where a link was closed; who stands before it hears only of the silent ones.
    closes = (False, True) if sabotage is None else (False,)
    cutter = Cutter(cuts, SHARE, random.Random(seed), closes)
    async with _behind(cutter) as url:
        options = {"lease": LEASE_SECONDS, "slots": 4, "call_seconds": CALL_SECONDS}
        async with scene(WORKERS, sabotage, url, **options) as at:
            at.app.store.call_seconds = CALL_SECONDS  # type: ignore[attr-defined] # of Postgres
            load = Load(at, max(20, round(cuts * RUNS_A_CUT)), STEPS, cuts * SECONDS_A_CUT)
            with progress() as tell:
                await at.until(
                    lambda: True,
                    load.total,
                    lambda done: tell(f"{done} of {load.total} runs finished, {cutter.count} answers lost"),
                    STALL_SECONDS if sabotage is None else BROKEN_SECONDS,
                )
            await load.end()
            evidence = await at.evidence()
    _judge(report, evidence, at)
    report.expect(f"answers were lost: {cuts}", cutter.done, f"{cutter.count} were")
    report.expect("all succeeded", sum(1 for _ in evidence.succeeded()) == load.total, "\n".join(at.stalled))
    report.figures |= {
        **load.figures, "cuts": cutter.count, "closed": cutter.closed, "silent": cutter.silent,
        **{f"of {verb}": n for verb, n in sorted(cutter.cut.items())},
        "asked_again_by_the_client": at.unanswered, "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _judge(report: Report, evidence: Evidence, at: Scene) -> None:
    # Nobody died, so nobody may be overtaken, and nothing be done twice.
    report.judge(evidence, OVERTAKEN)
    refused, told = tuple(refused_though_committed(evidence)), tuple(at.refused)
    report.checks.append(Check(REFUSED, len(refused), refused[:3], invariant=True))
    report.checks.append(Check(TOLD_FAILED, len(told), told[:3], invariant=True))
    twice = evidence.duplicates
    report.checks.append(Check("an effect twice, though nobody died", twice, invariant=True))


def refused_though_committed(ev: Evidence) -> Iterator[str]:
    """A holder was told that its write changed nothing, and it stands there under its own fence."""
    runs = {str(run.id): run for run in ev.runs.values()}
    for entry in ev.entries:
        run = runs.get(entry.run)
        if entry.kind != "refused" or run is None or run.fence > entry.fence:
            continue  # who was overtaken cannot be told more
        stand = {step.key for step in ev.steps[run.id] if step.fence == entry.fence and step.finished_at}
        if stand & set(entry.nonce.split()):
            yield f"run {run.id} {entry.step} of {entry.nonce}, under fence {entry.fence}"


@asynccontextmanager
async def _behind(cutter: Cutter) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="hf-") as folder, database() as name:
        async with proxy(server().dsn(name), Path(folder), cutter) as dsn:
            yield dsn + "&allow_fsync_off=1"
