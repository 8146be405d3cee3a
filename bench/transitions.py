"""The cost of each transition on SQLite: processor time and statements, without an engine and a disk.

    python -m bench.transitions                        this tree alone
    python -m bench.transitions --against ../other     compared with another checkout, in turns: medians

A store in memory is driven by its verbs, a batch at a time; the preparation of a case is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

from holdfast import records
from holdfast.lifecycle import Move, StepKind, StepStatus
from holdfast.records import (
    Ask,
    Claim,
    Definition,
    Item,
    NewEvent,
    NewRun,
    PlanStep,
    StepWrite,
    TrailWrite,
)
from holdfast.stores.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parent.parent
CODE, PLAN, GATED, CHILD = "bench.code.v1", "bench.plan.v1", "bench.gated.v1", "bench.child.v1"
ANYONE: dict[str, Any] = {"tenant": getattr(records, "ANY", None)}  # older checkouts say None
MOVES: dict[Move, Any] = {
    one.verb: one
    for one in get_args(getattr(getattr(records, "moves", None), "HolderMove", None))
    if one.__name__ != "BeginPlan"
}
MANY, TIMES = 50, 12  # runs in one batch, batches in one case
START_AT = 1_700_000_000_000_000
WAITING = StepStatus.WAITING


class Bed:
    """A store, a clock that the benchmark turns, and the counts."""

    def __init__(self) -> None:
        self.now, self._ids = START_AT, 0
        self.store = SqliteStore(":memory:", clock=lambda: self.now, inline=True)
        self.seconds, self.statements, self.done = 0.0, 0, 0
        self._counting, self._round = False, 0

    def id(self) -> UUID:
        self._ids += 1
        return UUID(int=(0x018BCFE6 << 96) | (7 << 76) | (2 << 62) | self._ids)

    async def open(self) -> None:
        await self.store.open()
        await self.begin()

    async def begin(self) -> None:
        """Begin a round with its own types; nothing is counted yet."""
        self._round += 1
        self.seconds, self.statements, self.done = 0.0, 0, 0
        plan = tuple(PlanStep(name=f"s{number}") for number in range(5))
        gate = PlanStep(name="gate", kind=StepKind.APPROVAL)
        await self.store.publish([
            Definition(type=self.named(PLAN), kind="plan", steps=plan),
            Definition(type=self.named(GATED), kind="plan", steps=(gate, PlanStep(name="after"))),
        ])  # fmt: skip

    def named(self, type: str) -> str:
        """Return the name of the type in this round."""
        return f"{type.removesuffix('.v1')}{self._round}.v1"

    def trace(self) -> None:
        """Count statements from now on, which makes them slow."""
        connection = self.store._transactor.db.connection  # type: ignore[union-attr]  # noqa: SLF001 - open

        def count(_cursor: Any, _sql: str, _args: Any) -> bool:
            self.statements += self._counting
            return True

        connection.exec_trace = count

    async def timed(self, work: Awaitable[Any], count: int) -> Any:
        """Do this, and count it as this number of transitions."""
        self._counting, began = True, time.process_time()
        answer = await work
        self.seconds += time.process_time() - began
        self._counting, self.done = False, self.done + count
        return answer

    async def each(self, calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
        """Do these one by one, and count each as one transition."""
        one_by_one = list(calls)

        async def work() -> list[Any]:
            return [await call() for call in one_by_one]

        answers: list[Any] = await self.timed(work(), len(one_by_one))
        return answers

    # Starting points of the cases.

    async def started(self, type: str = CODE, count: int = MANY, **fields: Any) -> list[UUID]:
        runs = [NewRun(id=self.id(), type=self.named(type), **fields) for _ in range(count)]
        await self.store.start(runs)
        return [run.id for run in runs]

    async def claimed(self, type: str = CODE, count: int = MANY) -> list[Claim]:
        claims = await self.store.claim(Ask(worker="w", types=(self.named(type),), limit=count))
        assert len(claims) == count, (type, len(claims), count)
        return claims

    async def held(self, type: str = CODE, count: int = MANY) -> list[Claim]:
        await self.started(type, count)
        return await self.claimed(type, count)

    async def send(self, items: list[Item]) -> None:
        verdicts = await self.store.commit(items)
        assert {verdict.answer for verdict in verdicts} == {"applied"}, verdicts

    async def parked(self, *steps: StepWrite, count: int = MANY) -> list[Claim]:
        claims = await self.held(count=count)
        await self.send([item(claim, Move.PARK, *steps, known=0) for claim in claims])
        return claims


def item(claim: Claim, move: Move, *steps: StepWrite, number: int = 1, **fields: Any) -> Item:
    """Return one item of a holder."""
    made: Any = move  # older checkouts have no records of moves: all fields are in the item
    if (own := MOVES.get(move)) is not None:
        made = own(**{name: fields.pop(name) for name in own.__struct_fields__ if name in fields})
    return Item(run=claim.id, fence=claim.fence, number=number, move=made, steps=steps, **fields)


def step(key: str = "a", **fields: Any) -> StepWrite:
    return StepWrite(key=key, output='{"n":1}', **fields)


SLEEP = StepWrite(key="nap", kind=StepKind.SLEEP, status=WAITING, delay_seconds=60.0)
HEAR = StepWrite(key="hear", kind=StepKind.EVENT, status=WAITING, topic="parcel", delay_seconds=3600.0)
GATE = StepWrite(key="gate", kind=StepKind.APPROVAL, status=WAITING, ask='{"ask":"?"}')
ERROR: dict[str, Any] = {"error": '{"kind":"boom","message":"it broke"}', "last_error": "it broke"}


async def start(bed: Bed) -> None:
    await bed.timed(bed.started(), MANY)


async def start_plan(bed: Bed) -> None:
    await bed.timed(bed.started(PLAN), MANY)


async def claim(bed: Bed) -> None:
    await bed.started()
    await bed.timed(bed.claimed(), MANY)


async def checkpoint_fast(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.CHECKPOINT, step()) for one in claims]), MANY)


async def checkpoint(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.CHECKPOINT, step(cost=1)) for one in claims]), MANY)


async def checkpoint_logged(bed: Bed) -> None:
    log = (TrailWrite("log", '{"message":"m","level":"info"}'),)
    claims = await bed.held()
    await bed.each(partial(bed.send, [item(one, Move.CHECKPOINT, step(), trail=log)]) for one in claims)


async def complete_fast(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.COMPLETE, result="1") for one in claims]), MANY)


async def complete(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.COMPLETE, result="1", progress="1") for one in claims]), MANY)


async def park(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.PARK, SLEEP, known=0) for one in claims]), MANY)


async def park_lone(bed: Bed) -> None:
    claims = await bed.held()
    await bed.each(partial(bed.send, [item(one, Move.PARK, HEAR, known=0)]) for one in claims)


async def wake_by_sleep(bed: Bed) -> None:
    await bed.parked(SLEEP)
    bed.now += 60_000_000
    ticked = await bed.timed(bed.store.tick(), MANY)
    assert ticked.lapsed == MANY


async def wake_by_deadline(bed: Bed) -> None:
    await bed.parked(HEAR)
    bed.now += 3600_000_000
    ticked = await bed.timed(bed.store.tick(), MANY)
    assert ticked.lapsed == MANY


async def wake_by_event(bed: Bed) -> None:
    claims = await bed.parked(HEAR)
    events = [NewEvent(topic="parcel", id=str(bed.id()), run=one.id) for one in claims]
    emitted = await bed.each(partial(bed.store.emit, event) for event in events)
    assert {one.woken for one in emitted} == {1}


async def fan_out(bed: Bed) -> None:
    await bed.parked(HEAR)
    emitted = await bed.timed(bed.store.emit(NewEvent(topic="parcel", id=str(bed.id()))), MANY)
    assert emitted.woken == MANY


async def retry(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(
        bed.send([item(one, Move.RETRY, delay_seconds=1.0, **ERROR) for one in claims]), MANY
    )  # fmt: skip


async def fail(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.FAIL, kind="boom", **ERROR) for one in claims]), MANY)


async def release(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send([item(one, Move.RELEASE) for one in claims]), MANY)


def calls(bed: Bed, claims: list[Claim]) -> list[Item]:
    return [
        item(one, Move.PARK, StepWrite(
            key="kid", kind=StepKind.CHILD, status=WAITING, child=NewRun(id=bed.id(), type=bed.named(CHILD))
        ), known=0)
        for one in claims
    ]  # fmt: skip


async def child_start(bed: Bed) -> None:
    claims = await bed.held()
    await bed.timed(bed.send(calls(bed, claims)), MANY)


async def child_end(bed: Bed) -> None:
    await bed.send(calls(bed, await bed.held()))
    kids = await bed.claimed(CHILD)
    await bed.send([item(one, Move.COMPLETE, result="1") for one in kids])
    assert await bed.timed(bed.store.deliver(), MANY) == MANY


async def approve(bed: Bed) -> None:
    claims = await bed.parked(GATE)
    await bed.each(partial(bed.store.decide, one.id, approved=True, **ANYONE) for one in claims)


async def approve_plan(bed: Bed) -> None:
    runs = await bed.started(GATED)
    await bed.each(partial(bed.store.decide, run, approved=True, **ANYONE) for run in runs)


async def plan_step(bed: Bed) -> None:
    claims = await bed.held(PLAN)
    for number in range(4):
        done = step(f"s{number}")
        items = [item(one, Move.ADVANCE, done, number=number + 1, in_place=True) for one in claims]
        await bed.timed(bed.send(items), MANY)


async def cancel(bed: Bed) -> None:
    runs = await bed.started()
    await bed.each(partial(bed.store.cancel, run, **ANYONE) for run in runs)


async def pause_resume(bed: Bed) -> None:
    runs = await bed.started()
    await bed.each(
        partial(verb, run, **ANYONE) for run in runs for verb in (bed.store.pause, bed.store.resume)
    )


async def rewind(bed: Bed) -> None:
    claims = await bed.held()
    await bed.send([item(one, Move.CHECKPOINT, step()) for one in claims])
    await bed.each(partial(bed.store.rewind, one.id, "a", **ANYONE) for one in claims)


async def expire(bed: Bed) -> None:
    await bed.held()
    bed.now += 31_000_000
    ticked = await bed.timed(bed.store.tick(), MANY)
    assert ticked.expired == MANY


async def time_out(bed: Bed) -> None:
    await bed.started(timeout_seconds=10.0)
    bed.now += 11_000_000
    ticked = await bed.timed(bed.store.tick(), MANY)
    assert ticked.timed_out == MANY


Case = Callable[[Bed], Awaitable[None]]
CASES: tuple[Case, ...] = (
    start, start_plan, claim, checkpoint_fast, checkpoint, checkpoint_logged, complete_fast, complete, park,
    park_lone, wake_by_sleep, wake_by_deadline, wake_by_event, fan_out, retry, fail, release, child_start,
    child_end, approve, approve_plan, plan_step, cancel, pause_resume, rewind, expire, time_out,
)  # fmt: skip
NAMES = {case.__name__: case for case in CASES}


async def measured(case: Case, *, counted: bool) -> float:
    """Return the microseconds, or the statements, of one transition."""
    seen: list[float] = []
    for _ in range(1 if counted else TIMES):
        bed = Bed()
        await bed.open()
        await case(bed)  # the statements are prepared by now
        await bed.begin()
        if counted:
            bed.trace()
        gc.collect()
        await case(bed)
        await bed.store.close()
        seen.append(bed.statements / bed.done if counted else bed.seconds / bed.done * 1e6)
    return statistics.median(seen)


def here(names: list[str]) -> dict[str, tuple[float, float]]:
    """Measure each case once: microseconds and statements."""

    async def main() -> dict[str, tuple[float, float]]:
        return {
            name: (await measured(NAMES[name], counted=False), await measured(NAMES[name], counted=True))
            for name in names
        }

    return asyncio.run(main())


def there(tree: Path, names: list[str]) -> dict[str, tuple[float, float]]:
    """Measure with another checkout's code, in a separate process."""
    env = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.transitions", "--once", *names],
        env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(trees: list[Path], names: list[str], rounds: int) -> Iterator[str]:
    """Return one line for each case: medians of all rounds, of the trees in turns."""
    seen = [[there(tree, names) for tree in trees] for _ in range(rounds)]
    for name in names:
        columns = list(zip(*([one[name] for one in turn] for turn in seen), strict=True))
        times = [statistics.median(one[0] for one in column) for column in columns]
        counts = [column[0][1] for column in columns]
        said = "".join(f"{at:9.1f} µs {count:6.1f} st" for at, count in zip(times, counts, strict=True))
        yield f"{name:<18}{said}" + (f"   {times[1] / times[0]:.2f}" if len(times) == 2 else "")


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.transitions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"any of: {', '.join(NAMES)}")
    parser.add_argument("--against", type=Path, help="another checkout, measured first: ratios are to it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    names = args.names or list(NAMES)
    if args.once:
        print(json.dumps(here(names)))
        return
    trees = [ROOT] if args.against is None else [args.against.resolve(), ROOT]
    for row in rows(trees, names, args.rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
