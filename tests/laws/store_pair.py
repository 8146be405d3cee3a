"""Two stores side by side under one clock: the same calls must get the same answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.contract import RATE_SECONDS
from holdfast.errors import HoldfastError
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import (
    ANY,
    SECOND,
    Decided,
    Due,
    Lease,
    Purged,
    Run,
    RunFilter,
    Running,
    RunningStep,
    Step,
    Ticked,
    TrailEntry,
    moment,
)
from holdfast.records.shown import outline
from holdfast.testing.contract.driver import Clock, StoreDriver
from holdfast.testing.contract.replay import replayed

# Fields that may differ: a checkpoint may leave the run row alone, so its last change is not comparable.
INCOMPARABLE = {"updated_at": None}


class Pair:
    """The reference store and the store that is compared with it."""

    def __init__(self, reference: Callable[[Clock], Any], other: Callable[[Clock], Any]) -> None:
        self.clock = Clock()
        self.drivers = (
            StoreDriver(reference(self.clock), self.clock),
            StoreDriver(other(self.clock), self.clock),
        )

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()

    def do(self, call: Callable[[StoreDriver], Any]) -> Any:
        """Make the call on both stores; return the answer, or the error that both raised."""
        expected, answer = (_outcome(call, driver) for driver in self.drivers)
        assert _plain(answer) == _plain(expected), f"{answer} is not {expected}"
        return expected

    def compare(self, runs: list[Any], types: tuple[str, ...]) -> None:
        """Check that everything that can be read is the same on both stores."""
        expected, seen = (_observed(driver, runs, types) for driver in self.drivers)
        for name, value in expected.items():
            assert seen[name] == value, f"{name}: {_difference(value, seen[name])}"
        for run in runs:
            assert_lawful(seen[f"run {run}"], seen[f"steps {run}"], seen[f"trail {run}"])


def _outcome(call: Callable[[StoreDriver], Any], driver: StoreDriver) -> Any:
    try:
        return call(driver)
    except HoldfastError as error:
        return error


def _plain(answer: Any) -> Any:
    """Return an answer in a form that can be compared: errors are equal by type and text."""
    if isinstance(answer, HoldfastError):
        return type(answer), str(answer)
    if isinstance(answer, list | tuple):
        return [_plain(part) for part in answer]
    if isinstance(answer, Run):
        return _run(answer)
    if isinstance(answer, Due | Ticked):  # each store folds its counts in its own way
        return msgspec.structs.replace(
            answer, **({"count_at": None} if isinstance(answer, Due) else {"folded": 0})
        )
    if isinstance(answer, Decided):
        return msgspec.structs.replace(answer, run=_run(answer.run))
    return answer


def _run(run: Run | None) -> Run | None:
    return None if run is None else msgspec.structs.replace(run, **INCOMPARABLE)


def _difference(expected: Any, seen: Any) -> Any:
    if not isinstance(expected, Run):
        return expected, seen
    pairs = {name: (getattr(expected, name), getattr(seen, name)) for name in Run.__struct_fields__}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _trails(driver: StoreDriver) -> dict[Any, list[TrailEntry]]:
    """Return the trail of each run, without numbers: they may differ, since keepers sweep in any order."""
    trails: dict[Any, list[TrailEntry]] = {}
    for entry in driver.trail(limit=100_000):
        data = json.loads(entry.data_json, parse_int=float)  # 5 and 5.0 are equal
        data_json = json.dumps(data, sort_keys=True)
        plain = msgspec.structs.replace(entry, seq=0, data_json=data_json)
        trails.setdefault(entry.run, []).append(plain)
    return trails


def _counted(driver: StoreDriver) -> Any:
    """Return the kept counts, which must agree with the rows, and what is due by type and tenant."""
    assert driver.recount() == []
    since = driver.clock.now - round(RATE_SECONDS / 2) * SECOND  # older minutes may be gone
    every = [(one.by_type, one.totals) for one in map(driver.counts, (ANY, "default", "acme"))]
    listed = driver.run(driver.store.list(RunFilter(tenant=ANY)))
    assert driver.counts().by_status() == dict(Counter(run.status.value for run in listed))
    return every, driver.rates(since=since), driver.rates("acme", since), driver.scale(), driver.scale("acme")


def _observed(driver: StoreDriver, runs: list[Any], types: tuple[str, ...]) -> dict[str, Any]:
    stats, trails = driver.stats(), _trails(driver)
    seen: dict[str, Any] = {
        "due": _plain(driver.due(types)),
        "counted": _counted(driver),
        "counts": {status: count for status, count in stats.by_status.items() if count},
        "oldest": stats.oldest_due_at,
        "undelivered": stats.undelivered,
        "unclaimable": stats.unclaimable,
    }
    everything = RunFilter(tenant=ANY, deleted=True)
    there = {run.id: run for run in driver.run(driver.store.list(everything))}
    assert [*driver.run(driver.store.outlines(everything, len(there)))] == [*map(outline, there.values())]
    seen["hidden"] = {run for run in runs if driver.get(run) is None}
    for run in runs:
        seen[f"run {run}"] = _run(there[run])
        seen[f"steps {run}"] = _plain(_outcome(lambda driver, run=run: driver.steps(run), driver))
        seen[f"trail {run}"] = trails[run]
    return seen


def assert_lawful(seen: Run, steps: list[Step], trail: list[TrailEntry]) -> None:
    """Check the laws that hold for every run at every moment."""
    status, by_key = replayed(trail)
    if seen.deleted_at is not None:
        assert status == seen.status != Status.LEASED, "no worker holds a deleted run"
        return
    assert (status, by_key) == (seen.status, {step.key: step.status for step in steps}), "the trail replayed"
    assert [step.seq for step in steps] == sorted({step.seq for step in steps}), "one row a seq"
    held = {seen.status is Status.LEASED, seen.leased_by is not None, seen.lease_until is not None}
    assert len(held) == 1, "a holder and a lease exactly while leased"
    assert (seen.status in FINAL) == (seen.finished_at is not None), "an end exactly when final"
    waits = [step for step in steps if step.status is StepStatus.WAITING]
    assert seen.status is not Status.WAITING or waits, "a way on"
    assert all(map(_can_come, waits)), "a way on"
    assert [wait.seq for wait in seen.waiting_on] == [wait.seq for wait in sorted(waits, key=_first_due)]
    assert min(seen.attempt, seen.crashes, seen.cost_units) >= 0


def _can_come(wait: Step) -> bool:
    named = wait.due_at is not None or wait.topic is not None
    return named or wait.kind is StepKind.APPROVAL or wait.child is not None


def _first_due(wait: Any) -> tuple[float, int]:
    return (float("inf") if wait.due_at is None else wait.due_at), wait.seq


def renew_and_look(pair: Pair, pick: Any, leases: list[Lease], runs: list[Any]) -> None:
    """Renew leases, read their states, show steps of their runs, and read runs with their running steps."""
    worker = pick("w1", "w2")
    pair.do(lambda driver: driver.renew(*leases, worker=worker))
    pair.do(lambda driver: driver.run(driver.store.lease_states([(one.run, one.fence) for one in leases])))
    names, began = pick(("a",), ("A", "b"), ("c", "a", "x")), moment(pair.clock.now)
    steps = tuple(RunningStep(step=name, attempt=pick(1, 2), started_at=began) for name in names)
    rows = [Running(run=one.run, fence=one.fence, started_at=one.started_at, steps=steps) for one in leases]
    pair.do(lambda driver: driver.run(driver.store.show_running("w1", rows)))
    for run in runs[-3:]:
        pair.do(lambda driver, run=run: getattr(driver.get(run), "running", None))


def search(pair: Pair, pick: Any, *asked: Any) -> None:
    """Search for a text that some runs hold."""
    text = pick("done", "broke", "k", "1", "x")

    def found(driver: StoreDriver) -> Any:
        answer = driver.run(driver.store.search(text, *asked))
        return answer.runs, answer.after, answer.looked_at

    pair.do(found)


def as_far_as_known(verdicts, newest):
    """Return verdicts; a store may know of older numbers only that they were applied."""
    return verdicts if newest else [(verdict.answer, verdict.status) for verdict in verdicts]


def news_of(followed: Any) -> list[Any]:
    """Return the news of runs, without the numbers of trail rows."""
    return [
        (one.run, one.gone, one.tenant, one.status, one.present, [entry.type for entry in one.entries])
        for one in followed
    ]


def events_of(trail: Any) -> list[Any]:
    """Return trail rows without their numbers: keepers sweep in any order."""
    return sorted((str(entry.run), entry.at, entry.type) for entry in trail)


def purged(driver: StoreDriver, **terms: Any) -> list[int]:
    """Purge until nothing is left; return what was removed, by kind."""
    slices = iter(lambda: driver.purge(**terms), Purged())
    counts = ((one.runs, one.events, one.audit, one.api_keys) for one in slices)
    return [sum(each) for each in zip(*counts, strict=True)]
