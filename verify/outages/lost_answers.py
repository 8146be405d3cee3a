"""lost answers: a proxy in front of a server lets a write through, and drops its answer.

The connection is then closed, or stays open and silent for ever. A reader of the protocol says which write a
client calls, and when its answer is whole: at that moment the write is committed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from verify.checks.evidence import Evidence
from verify.checks.invariants import OVERTAKEN
from verify.checks.report import Check, Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, Environment, environment
from verify.environment.stores import answer_within
from verify.workloads.load import Load

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 6.0  # much longer than the wait for an answer
CALL_SECONDS = 1.0  # instead of ten: the wait for an answer
SHARE = 0.15  # share of the writes whose answers are lost
RUNS_A_CUT = 3.0  # enough writes that all cuts find one
SECONDS_A_CUT = 0.1
TOLD_FAILED = "E9 a client was told of failure"
REFUSED = "E9 committed, and answered as refused"

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Session(Protocol):
    """A reader of one connection. `is_shared`: the client sends more calls before it has the answer; those
    after the call whose answer is lost are not passed on."""

    is_shared: bool

    def client_says(self, data: bytes) -> str:
        """Return the verb that the client calls now, if any."""

    def server_says(self, data: bytes) -> bool:
        """Return True when the answer to the last call is whole."""


class Cutter:
    """The choice of the answers that are lost, up to a number, and whether their connections are closed."""

    def __init__(
        self,
        cuts: int,
        share: float,
        dice: random.Random,
        closes: Sequence[bool] = (False, True),
        verbs: frozenset[str] = frozenset(),
    ) -> None:
        self._cuts, self._share, self._dice, self._verbs = cuts, share, dice, verbs
        self._closes = itertools.cycle(closes)
        self.cut: Counter[str] = Counter()
        self.closed = self.silent = 0

    @property
    def count(self) -> int:
        return self.cut.total()

    @property
    def done(self) -> bool:
        return self.count >= self._cuts

    def wants(self, verb: str) -> bool:
        return verb in self._verbs and not self.done and self._dice.random() < self._share

    def closes(self, verb: str) -> bool:
        """Note a lost answer. True: close the connection; False: it stays open, and silent."""
        self.cut[verb] += 1
        closes = next(self._closes)
        self.closed += closes
        self.silent += not closes
        return closes


class Connection:
    """One connection, in both directions."""

    def __init__(self, here: Link, there: Link, session: Session, cutter: Cutter) -> None:
        self._here, self._there, self._session, self._cutter = here, there, session, cutter
        self._kept = ""  # the verb whose answer is lost
        self._silent = False

    async def carry(self) -> None:
        ways = [asyncio.create_task(self._to_server()), asyncio.create_task(self._to_client())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            self._there[1].transport.abort()

    async def _to_server(self) -> None:
        with suppress(OSError):
            while data := await self._here[0].read(65536):
                if self._silent or (self._kept and self._session.is_shared):
                    continue
                verb = self._session.client_says(data)
                if not self._kept and self._cutter.wants(verb):
                    self._kept = verb
                self._there[1].write(data)

    async def _to_client(self) -> None:
        with suppress(OSError):
            while data := await self._there[0].read(65536):
                ready = self._session.server_says(data)
                if not self._kept:
                    self._here[1].write(data)
                elif ready and not self._silent:
                    if self._cutter.closes(self._kept):
                        return
                    self._silent = True


@asynccontextmanager
async def proxy_at(
    path: Path, connected: Callable[[], Awaitable[Link]], session: Callable[[], Session], cutter: Cutter
) -> AsyncIterator[None]:
    """Run a proxy at a unix socket inside the block. `connected`: opens a connection to the server."""
    links = set[asyncio.Task[None]]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        links.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await Connection((reader, writer), await connected(), session(), cutter).carry()
        finally:
            writer.transport.abort()
            links.discard(task)

    server = await asyncio.start_unix_server(accept, path)
    try:
        yield
    finally:
        server.close()
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)


async def lost_answers(report: Report, url: str, cutter: Cutter, cuts: int, sabotage: str | None) -> Report:
    """Lose answers to committed writes of client and workers: a caller that asks again gets the true
    answer.
    """
    began = time.monotonic()
    options = {"lease": LEASE_SECONDS, "slots": 4, "call_seconds": CALL_SECONDS}
    async with environment(WORKERS, sabotage, url, **options) as env:
        answer_within(env.app.store, CALL_SECONDS)
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
