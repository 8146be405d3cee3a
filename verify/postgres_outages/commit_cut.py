"""commit-cut: the server commits and its answer is lost: the connection is closed, or stays silent for
ever.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from verify.checks.evidence import Evidence
from verify.checks.invariants import OVERTAKEN
from verify.checks.report import Check, Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, Environment, environment
from verify.environment.stores import database, server
from verify.workloads.load import Load

from .proxy import Cutter, proxy

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 6.0  # much longer than the wait for an answer
CALL_SECONDS = 1.0  # instead of ten: the wait for an answer
SHARE = 0.15  # share of the writes whose answers are lost
RUNS_A_CUT = 3.0  # enough writes that all cuts find one
SECONDS_A_CUT = 0.1
TOLD_FAILED = "E9 a client was told of failure"
REFUSED = "E9 committed, and answered as refused"


async def commit_cut(cuts: int = 100, sabotage: str | None = None, seed: int = 0) -> Report:
    """Lose answers to committed writes of client and workers: a caller that asks again gets the true
    answer.
    """
    report, began = Report("commit-cut"), time.monotonic()
    # The store itself asks again after a closed connection; only silent connections are errors for its
    # caller.
    closes = (False, True) if sabotage is None else (False,)
    cutter = Cutter(cuts, SHARE, random.Random(seed), closes)
    async with _behind(cutter) as url:
        options = {"lease": LEASE_SECONDS, "slots": 4, "call_seconds": CALL_SECONDS}
        async with environment(WORKERS, sabotage, url, **options) as env:
            env.app.store.call_seconds = CALL_SECONDS  # type: ignore[attr-defined] # Postgres only
            load = Load(env, max(20, round(cuts * RUNS_A_CUT)), STEPS, cuts * SECONDS_A_CUT)
            with progress() as tell:
                await env.until(
                    lambda: True,
                    load.total,
                    lambda done: tell(f"{done} of {load.total} runs finished, {cutter.count} answers lost"),
                    STALL_SECONDS if sabotage is None else BROKEN_SECONDS,
                )
            await load.end()
            evidence = await env.evidence()
    _judge(report, evidence, env)
    report.expect(f"answers were lost: {cuts}", cutter.done, f"{cutter.count} were")
    report.expect("all succeeded", sum(1 for _ in evidence.succeeded()) == load.total, "\n".join(env.stalled))
    report.figures |= {
        **load.figures, "cuts": cutter.count, "closed": cutter.closed, "silent": cutter.silent,
        **{f"of {verb}": n for verb, n in sorted(cutter.cut.items())},
        "asked_again_by_the_client": env.unanswered, "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _judge(report: Report, evidence: Evidence, env: Environment) -> None:
    # No process died: no worker may lose a lease, and no effect may happen twice.
    report.judge(evidence, OVERTAKEN)
    refused, failed = tuple(refused_though_committed(evidence)), tuple(env.refused)
    report.checks.append(Check(REFUSED, len(refused), refused[:3], invariant=True))
    report.checks.append(Check(TOLD_FAILED, len(failed), failed[:3], invariant=True))
    twice = evidence.duplicates
    report.checks.append(Check("an effect twice, though nobody died", twice, invariant=True))


def refused_though_committed(ev: Evidence) -> Iterator[str]:
    """Find writes that were answered as refused, though they are in the store under the holder's fence."""
    runs = {str(run.id): run for run in ev.runs.values()}
    for entry in ev.entries:
        run = runs.get(entry.run)
        if entry.kind != "refused" or run is None or run.fence > entry.fence:
            continue  # another worker has held the run since: nothing can be said
        recorded = {step.key for step in ev.steps[run.id] if step.fence == entry.fence and step.finished_at}
        if recorded & set(entry.nonce.split()):
            yield f"run {run.id} {entry.step} of {entry.nonce}, under fence {entry.fence}"


@asynccontextmanager
async def _behind(cutter: Cutter) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as folder, database() as name:
        async with proxy(server().dsn(name), Path(folder), cutter) as dsn:
            yield dsn + "&allow_fsync_off=1"
