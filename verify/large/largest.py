"""largest: a store full of the largest legal values. Small runs, workers and readers must still work."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from holdfast import StartOptions
from holdfast.bounds import RUN_BYTES
from holdfast.engine.app.app import App
from holdfast.engine.app.handle import Handle
from holdfast.errors import HoldfastError
from holdfast.records import ANY
from verify.checks.report import Check, Report, progress
from verify.environment.cli_reader import Look, Reader
from verify.environment.processes import Fleet
from verify.environment.run_counts import Counting, counting
from verify.environment.stores import SQLITE, store_url
from verify.sabotage import UNBOUNDED

from . import workflows
from .small_runs import EQUAL, Probe, probing, read_probes
from .workflows import CHARACTERS, make_large_app, run_large_worker

PROBE_SECONDS, MEMORY_BYTES, LOOK_SECONDS = 5.0, 1_000_000_000, 10.0
PROBES = 20
WORKERS = 2
EVERY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of runs of each kind. `texts` counts for each kind of character."""

    texts: int = 25
    heavy: int = 100
    bytes_max: int = RUN_BYTES  # recorded bytes of one run
    steps: int = 10_000
    waiters: int = 600
    waits: int = 5_000
    herd: int = 20_000
    patience: float = 300.0  # for each kind


SHORT = Sizes(
    texts=1, heavy=5, bytes_max=20_000_000, steps=500, waiters=12, waits=300, herd=1_000, patience=60.0
)
FULL = Sizes()
# On Redis an event for a run with many open waits is slow: each change competes for the row of the run.
ON_REDIS = replace(SHORT, waits=100, patience=120.0)
TWIN = Sizes(bytes_max=9_000_000, patience=8.0)
ENDLESS = 2**31 - 1  # recorded bytes of one run when the bound is removed


@dataclass(slots=True)
class Kind:
    """The result of one kind of runs."""

    name: str
    began: float
    ended: float = 0.0
    fault: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class FilledStore:
    """A store, its workers, and a client that fills it with one kind of runs after the other."""

    def __init__(self, app: App, count: Counting, reader: Reader, sizes: Sizes) -> None:
        self.app, self.count, self.sizes, self._reader = app, count, sizes, reader
        self.looks: list[Look] = []
        self.tell: Callable[[str], None] = lambda _: None

    async def start(
        self, type_: str, params: list[Any], **options: Unpack[StartOptions]
    ) -> list[Handle[Any]]:
        answers = await self.app.start_many([(type_, one, options) for one in params])
        refused = [one for one in answers if isinstance(one, HoldfastError)]
        if refused:
            raise refused[0]
        return [one for one in answers if isinstance(one, Handle)]

    async def until(self, type_: str, status: str, total: int) -> None:
        while (there := (await self.count(type_)).get(status, 0)) < total:
            self.tell(f"{type_[:20]}: {there} of {total} {status}")
            await asyncio.sleep(0.1)

    async def look_by(self, *args: str) -> None:
        self.looks.append(await self._reader(*args))

    async def look(self, run: Handle[Any]) -> None:
        """Run every command that reads one run, and a list of all runs."""
        id_ = str(run.id)
        for args in (("ls",), ("show", id_), ("trail", id_), ("explain", id_)):
            await self.look_by(*args)
        began = time.monotonic()
        steps = await self.app.steps(run.id)
        self.looks.append(Look(("steps", f"({len(steps)})"), 0, time.monotonic() - began, 0, ""))


async def texts(filled: FilledStore) -> None:
    """Fill params and results up to the limit, with characters that JSON writes with up to six bytes."""
    runs: list[Handle[Any]] = []
    for kind in CHARACTERS:
        runs += await filled.start(workflows.ECHO, [workflows.largest_text(kind)] * filled.sizes.texts)
    await filled.until(workflows.ECHO, "succeeded", len(runs))
    await filled.look(runs[-1])


async def heavy(filled: FilledStore) -> None:
    """Start runs with three values of 4 MB each, and wake all of them at once."""
    total = filled.sizes.heavy
    runs = await filled.start(workflows.HEAVY, [3] * total)
    await filled.until(workflows.HEAVY, "waiting", total)
    await filled.app.emit(workflows.GO)
    await filled.until(workflows.HEAVY, "succeeded", total)
    await filled.look(runs[0])


async def history(filled: FilledStore) -> None:
    """Start a run with as many recorded bytes as allowed, which parks and is loaded again; and one with
    more.
    """
    most = filled.sizes.bytes_max // workflows.STORED_BYTES
    run, beyond = await filled.start(workflows.HISTORY, [most, most + 1])
    await filled.until(workflows.HISTORY, "succeeded", 1)
    await filled.until(workflows.HISTORY, "failed", 1)
    await filled.look(run)
    error = (await filled.app.known(beyond.id)).error
    if error is None or error.kind != "history":
        raise HoldfastError(f"a run with too many bytes ended with {error}")


async def steps(filled: FilledStore) -> None:
    """Start a run with as many steps as allowed, which parks and is loaded again."""
    (run,) = await filled.start(workflows.STEPS, [filled.sizes.steps - 1])
    await filled.until(workflows.STEPS, "succeeded", 1)
    await filled.look(run)


async def waiters(filled: FilledStore) -> None:
    """Start many runs that wait for one event of nearly 4 MB."""
    total = filled.sizes.waiters
    runs = await filled.start(workflows.WAITER, [None] * total)
    await filled.until(workflows.WAITER, "waiting", total)
    await filled.app.emit(workflows.NEWS, workflows.noise(workflows.NOISE_BYTES - 100_000))
    await filled.until(workflows.WAITER, "succeeded", total)
    await filled.look(runs[0])


async def waits(filled: FilledStore) -> None:
    """Start one run that waits for many events."""
    total = filled.sizes.waits
    (run,) = await filled.start(workflows.GATHER, [total])
    await filled.until(workflows.GATHER, "waiting", 1)
    await filled.look(run)
    numbers = iter(range(total))

    async def emit() -> None:
        for n in numbers:
            await filled.app.emit(workflows.topic_of(n), n)

    await asyncio.gather(*(emit() for _ in range(8)))
    await filled.until(workflows.GATHER, "succeeded", 1)


async def herd(filled: FilledStore) -> None:
    """Start very many runs that wait for one small event."""
    total = filled.sizes.herd
    runs = await filled.start(workflows.HERD, [None] * total)
    await filled.until(workflows.HERD, "waiting", total)
    await filled.look(runs[0])
    await filled.app.emit(workflows.STAMPEDE)
    await filled.until(workflows.HERD, "succeeded", total)


async def limits(filled: FilledStore) -> None:
    """Fill every other field up to its limit: names, keys, topics, labels, error, log, progress, message,
    gate.
    """
    lengths = {
        "key": workflows.NAME_LENGTH,
        "tenant": workflows.TENANT_LENGTH,
        "limit_key": workflows.NAME_LENGTH,
    }
    names: Any = {name: workflows.wide(length, n) for n, (name, length) in enumerate(lengths.items(), 10)}
    said = workflows.largest_text("quotes")
    (run,) = await filled.start(workflows.LIMITS, [said], labels=workflows.labels(), **names)
    await filled.until(workflows.LIMITS, "waiting", 1)
    while not await filled.app.approvals(tenant=ANY):  # noqa: ASYNC110  # by other processes
        await asyncio.sleep(0.1)
    await filled.look_by("approvals")
    await filled.look(run)
    await filled.app.approve(run.id, "boss", by="b" * 200)
    await filled.until(workflows.LIMITS, "succeeded", 1)
    await filled.look(run)


KINDS: dict[str, Callable[[FilledStore], Coroutine[Any, Any, None]]] = {
    one.__name__: one for one in (texts, limits, steps, waits, herd, heavy, history, waiters)
}


async def largest(
    sizes: Sizes = FULL,
    kinds: tuple[str, ...] = tuple(KINDS),
    store: str = SQLITE,
    sabotage: str | None = None,
) -> Report:
    """Fill a store with one kind after the other, with small runs beside them all the time."""
    began, seen = time.monotonic(), list[Kind]()
    async with _filled(store, sizes, sabotage) as (filled, fleet, folder):
        with progress() as tell:
            for name in kinds:
                filled.tell = tell
                seen.append(await _play(filled, name))
            for args in (("trail",), ("doctor",), ("ls", "--json"), ("approvals",)):
                await filled.look_by(*args)
        probes, peak = read_probes(folder / "probes"), max(map(_peak, fleet.pids))
        lost, log = fleet.supervise(), folder / "workers.log"
        said = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    report = _judged(store, seen, probes, filled.looks, peak)
    report.expect("no worker was lost", not lost, "\n".join([f"{lost} were", *said[-5:]]))
    report.figures |= {"warnings": len(said), "seconds": round(time.monotonic() - began, 1)}
    return report


@asynccontextmanager
async def _filled(
    store: str, sizes: Sizes, sabotage: str | None = None
) -> AsyncIterator[tuple[FilledStore, Fleet, Path]]:
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        url, log = stack.enter_context(store_url(store, folder)), str(folder / "workers.log")
        app = make_large_app(App(url), sizes.bytes_max)
        await app.store.open()
        try:
            options = {"bytes_max": ENDLESS if sabotage == UNBOUNDED else sizes.bytes_max}
            fleet = stack.enter_context(Fleet(run_large_worker, (url, log, options), WORKERS))
            probes = (url, str(folder / "probes"), log, EVERY_SECONDS)
            stack.enter_context(Fleet(probing, probes, 1))
            reader, count = stack.enter_context(Reader(url)), stack.enter_context(counting(url))
            await _until_there(folder)
            yield FilledStore(app, count, reader, sizes), fleet, folder
        finally:
            await app.close()


async def _until_there(folder: Path) -> None:
    """Wait until the processes have started, which is not measured."""
    async with asyncio.timeout(30.0):
        for _ in itertools.count():
            if any(
                one.seconds < 1.0 and one.ended < time.monotonic() - 0.3
                for one in read_probes(folder / "probes")
            ):
                return
            await asyncio.sleep(0.1)


async def _play(filled: FilledStore, name: str) -> Kind:
    kind = Kind(name, time.monotonic())
    try:
        async with asyncio.timeout(filled.sizes.patience):
            await KINDS[name](filled)
    except TimeoutError:
        kind.fault = f"not done after {filled.sizes.patience:.0f} s"
    except HoldfastError as error:
        kind.fault = f"{type(error).__name__}: {error}"[:300]
    kind.ended = time.monotonic()
    return kind


def _peak(pid: int) -> int:
    """Return the peak memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _judged(store: str, seen: list[Kind], probes: list[Probe], looks: list[Look], peak: int) -> Report:
    report = Report(f"largest on {store}")
    for kind in seen:
        faults = (kind.fault,) if kind.fault else ()
        report.checks.append(Check(f"L1 {kind.name} did not end", len(faults), faults, invariant=True))
    # Runs of equal priority queue: small runs behind a herd of woken runs wait for all of the herd.
    beside = [(kind, one) for kind in seen for one in probes if one.is_beside(kind.began, kind.ended)]
    counted = [(kind, one) for kind, one in beside if kind.name != "herd" or one.priority < EQUAL]
    late = [f"{kind.name}: {one.seconds:.1f} s" for kind, one in counted if one.seconds > PROBE_SECONDS]
    _count(report, f"L2 small run took longer than {PROBE_SECONDS:g} s", late)
    big = [] if peak < MEMORY_BYTES else [f"{peak / 1e6:.0f} MB"]
    _count(report, f"L3 worker had more than {MEMORY_BYTES / 1e9:g} GB", big)
    slow = [str(one) for one in looks if one.seconds > LOOK_SECONDS or one.code not in {0, 1} or one.fault]
    _count(report, f"L4 reader failed or took {LOOK_SECONDS:g} s", slow)
    report.expect(f"small runs beside it: {PROBES}", len(counted) >= PROBES, str(len(counted)))
    report.figures |= {
        "small_runs": len(counted), "longest": round(max((one.seconds for _, one in counted), default=0), 2),
        "worker_mb": round(peak / 1e6), "looks": len(looks),
        "longest_look": round(max((one.seconds for one in looks), default=0), 1),
    }  # fmt: skip
    for kind in seen:
        longest = max((one.seconds for of, one in counted if of is kind), default=0.0)
        report.figures[kind.name] = f"{kind.ended - kind.began:.1f} s ({longest:.1f})"
    return report


def _count(report: Report, name: str, cases: list[str]) -> None:
    report.checks.append(Check(name, len(cases), tuple(cases[:8]), invariant=True))
