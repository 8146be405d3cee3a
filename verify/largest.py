"""largest: a store full of the largest legal values. Small runs, workers and readers beside them go on."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.bounds import RUN_BYTES
from holdfast.engine.app import App
from holdfast.engine.handle import Handle
from holdfast.errors import HoldfastError
from holdfast.records import ANY

from . import bulk
from .bulk import CHARACTERS, VALUE_BYTES, bulk_work, make_bulk
from .counting import Counting, counting
from .places import SQLITE, place
from .probes import EQUAL, Probe, probing, read_probes
from .processes import Fleet
from .readers import Look, Reader
from .report import Check, Report, progress
from .sabotage import UNBOUNDED

PROBE_SECONDS, MEMORY_BYTES, LOOK_SECONDS = 5.0, 1_000_000_000, 10.0
PROBES = 20
WORKERS = 2
EVERY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each kind there is. `texts` is for each kind of character."""

    texts: int = 25
    heavy: int = 100
    bytes_max: int = RUN_BYTES  # of recorded values, in one run
    steps: int = 10_000
    waiters: int = 600
    waits: int = 5_000
    herd: int = 20_000
    patience: float = 300.0  # for each kind


SHORT = Sizes(
    texts=1, heavy=5, bytes_max=20_000_000, steps=500, waiters=12, waits=300, herd=1_000, patience=60.0
)
FULL = Sizes()
TWIN = Sizes(bytes_max=9_000_000, patience=8.0)
ENDLESS = 2**31 - 1  # bytes that a run may record where that bound is taken away


@dataclass(slots=True)
class Kind:
    """What was seen while the runs of one kind were there."""

    name: str
    began: float
    ended: float = 0.0
    fault: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class Hall:
    """A store, its workers, and a client who fills it with one kind after the other."""

    def __init__(self, app: App, count: Counting, reader: Reader, sizes: Sizes) -> None:
        self.app, self.count, self.sizes, self._reader = app, count, sizes, reader
        self.looks: list[Look] = []
        self.tell: Callable[[str], None] = lambda _: None

    async def start(self, type_: str, params: list[Any], **options: Any) -> list[Handle[Any]]:
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
        """Every reader of one run, and a list of all."""
        id_ = str(run.id)
        for args in (("ls",), ("show", id_), ("trail", id_), ("explain", id_)):
            await self.look_by(*args)
        began = time.monotonic()
        steps = await self.app.steps(run.id)
        self.looks.append(Look(("steps", f"({len(steps)})"), 0, time.monotonic() - began, 0, ""))


async def texts(hall: Hall) -> None:
    """Params and results at the limit, in characters that JSON writes with up to six bytes."""
    runs: list[Handle[Any]] = []
    for kind in CHARACTERS:
        runs += await hall.start(bulk.ECHO, [bulk.largest_text(kind)] * hall.sizes.texts)
    await hall.until(bulk.ECHO, "succeeded", len(runs))
    await hall.look(runs[-1])


async def heavy(hall: Hall) -> None:
    """Runs with three values of 4 MB, all of them woken at once."""
    total = hall.sizes.heavy
    runs = await hall.start(bulk.HEAVY, [3] * total)
    await hall.until(bulk.HEAVY, "waiting", total)
    await hall.app.emit(bulk.GO)
    await hall.until(bulk.HEAVY, "succeeded", total)
    await hall.look(runs[0])


async def history(hall: Hall) -> None:
    """One run with as many bytes as a run may record, which parks and is loaded again; and one with more."""
    most = hall.sizes.bytes_max // bulk.STORED_BYTES
    run, beyond = await hall.start(bulk.HISTORY, [most, most + 1])
    await hall.until(bulk.HISTORY, "succeeded", 1)
    await hall.until(bulk.HISTORY, "failed", 1)
    await hall.look(run)
    error = (await hall.app.known(beyond.id)).error
    if error is None or error.kind != "history":
        raise HoldfastError(f"a run with too many bytes ended with {error}")


async def steps(hall: Hall) -> None:
    """One run with as many steps as a run may have, which parks and is loaded again."""
    (run,) = await hall.start(bulk.STEPS, [hall.sizes.steps - 1])
    await hall.until(bulk.STEPS, "succeeded", 1)
    await hall.look(run)


async def waiters(hall: Hall) -> None:
    """Many runs wait for one event of nearly 4 MB."""
    total = hall.sizes.waiters
    runs = await hall.start(bulk.WAITER, [None] * total)
    await hall.until(bulk.WAITER, "waiting", total)
    await hall.app.emit(bulk.NEWS, bulk.noise(VALUE_BYTES - 100_000))
    await hall.until(bulk.WAITER, "succeeded", total)
    await hall.look(runs[0])


async def waits(hall: Hall) -> None:
    """One run waits for many events."""
    total = hall.sizes.waits
    (run,) = await hall.start(bulk.GATHER, [total])
    await hall.until(bulk.GATHER, "waiting", 1)
    await hall.look(run)
    numbers = iter(range(total))

    async def emit() -> None:
        for n in numbers:
            await hall.app.emit(bulk.topic_of(n), n)

    await asyncio.gather(*(emit() for _ in range(8)))
    await hall.until(bulk.GATHER, "succeeded", 1)


async def herd(hall: Hall) -> None:
    """Very many runs wait for one small event."""
    total = hall.sizes.herd
    runs = await hall.start(bulk.HERD, [None] * total)
    await hall.until(bulk.HERD, "waiting", total)
    await hall.look(runs[0])
    await hall.app.emit(bulk.STAMPEDE)
    await hall.until(bulk.HERD, "succeeded", total)


async def limits(hall: Hall) -> None:
    """Every other field at its limit: names, keys, topics, labels, error, log, progress, message, gate."""
    lengths = {"key": bulk.NAME_LENGTH, "tenant": bulk.TENANT_LENGTH, "limit_key": bulk.NAME_LENGTH}
    names = {name: bulk.wide(length, n) for n, (name, length) in enumerate(lengths.items(), 10)}
    said = bulk.largest_text("quotes")
    (run,) = await hall.start(bulk.LIMITS, [said], labels=bulk.labels(), **names)
    await hall.until(bulk.LIMITS, "waiting", 1)
    while not await hall.app.approvals(tenant=ANY):  # noqa: ASYNC110  # by other processes
        await asyncio.sleep(0.1)
    await hall.look_by("approvals")
    await hall.look(run)
    await hall.app.approve(run.id, "boss", by="b" * 200)
    await hall.until(bulk.LIMITS, "succeeded", 1)
    await hall.look(run)


KINDS: dict[str, Callable[[Hall], Coroutine[Any, Any, None]]] = {
    one.__name__: one for one in (texts, limits, steps, waits, herd, heavy, history, waiters)
}


async def largest(
    sizes: Sizes = FULL,
    kinds: tuple[str, ...] = tuple(KINDS),
    store: str = SQLITE,
    sabotage: str | None = None,
) -> Report:
    """Fill a store with one kind after the other, with small runs beside it all the time."""
    began, seen = time.monotonic(), list[Kind]()
    async with _hall(store, sizes, sabotage) as (hall, fleet, folder):
        with progress() as tell:
            for name in kinds:
                hall.tell = tell
                seen.append(await _play(hall, name))
            for args in (("trail",), ("doctor",), ("ls", "--json"), ("approvals",)):
                await hall.look_by(*args)
        probes, peak = read_probes(folder / "probes"), max(map(_peak, fleet.pids))
        lost, log = fleet.supervise(), folder / "workers.log"
        said = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    report = _judged(store, seen, probes, hall.looks, peak)
    report.expect("no worker was lost", not lost, "\n".join([f"{lost} were", *said[-5:]]))
    report.figures |= {"warnings": len(said), "seconds": round(time.monotonic() - began, 1)}
    return report


@asynccontextmanager
async def _hall(
    store: str, sizes: Sizes, sabotage: str | None = None
) -> AsyncIterator[tuple[Hall, Fleet, Path]]:
    with tempfile.TemporaryDirectory(prefix="hf-") as name, ExitStack() as stack:
        folder = Path(name)
        url, log = stack.enter_context(place(store, folder)), str(folder / "workers.log")
        app = make_bulk(App(url), sizes.bytes_max)
        await app.store.open()
        try:
            options = {"bytes_max": ENDLESS if sabotage == UNBOUNDED else sizes.bytes_max}
            fleet = stack.enter_context(Fleet(bulk_work, (url, log, options), WORKERS))
            probes = (url, str(folder / "probes"), log, EVERY_SECONDS)
            stack.enter_context(Fleet(probing, probes, 1))
            reader, count = stack.enter_context(Reader(url)), stack.enter_context(counting(url))
            await _until_there(folder)
            yield Hall(app, count, reader, sizes), fleet, folder
        finally:
            await app.close()


async def _until_there(folder: Path) -> None:
    """Processes take a while to be there, and that is not what is measured."""
    async with asyncio.timeout(30.0):
        for _ in itertools.count():
            if any(
                one.seconds < 1.0 and one.ended < time.monotonic() - 0.3
                for one in read_probes(folder / "probes")
            ):
                return
            await asyncio.sleep(0.1)


async def _play(hall: Hall, name: str) -> Kind:
    kind = Kind(name, time.monotonic())
    try:
        async with asyncio.timeout(hall.sizes.patience):
            await KINDS[name](hall)
    except TimeoutError:
        kind.fault = f"not done after {hall.sizes.patience:.0f} s"
    except HoldfastError as error:
        kind.fault = f"{type(error).__name__}: {error}"[:300]
    kind.ended = time.monotonic()
    return kind


def _peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _judged(store: str, seen: list[Kind], probes: list[Probe], looks: list[Look], peak: int) -> Report:
    report = Report(f"largest on {store}")
    for kind in seen:
        faults = (kind.fault,) if kind.fault else ()
        report.checks.append(Check(f"L1 {kind.name} did not end", len(faults), faults, invariant=True))
    # Runs of equal priority queue: those that a herd of woken runs is ahead of wait for all of it.
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
