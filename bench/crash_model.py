"""A model of crashes: how many good runs a poison makes fail, and how long all runs take.

This is no measurement. It models leases, delays, slots and the crash cap of the engine in a few lines, so
that rules for crashed runs can be compared before one is written. `python -m bench.crash_model` prints the
table of docs/decisions/0041-a-run-that-crashed-three-times-runs-alone.md.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from holdfast.backoff import crash_delay
from holdfast.engine.worker.crash_quota import ALONE, YOUNG, crashed_quota
from holdfast.records import MAX_CRASHES

RESTART_SECONDS = 1.0  # until a dead process is replaced
Quota = Callable[[int, list[tuple[int, float, bool]]], tuple[int, ...]]  # as engine/worker/crash_quota.py


@dataclass(slots=True, eq=False)
class ModelRun:
    """A run of some seconds. `kills_at`: seconds after its begin at which it ends its process.

    `step`: it makes progress each time it has executed for this time.
    """

    lasts: float
    step: float = 1e9
    kills_at: float | None = None
    run_at: float = 0.0
    crashes: int = 0
    survived: bool = False
    ended_at: float | None = None
    failed: bool = False
    began_at: float = 0.0
    claimable_at: float = 0.0


@dataclass(slots=True, eq=False)
class ModelWorker:
    """A process with slots. `life` grows with each death: plans for an earlier life are void."""

    slots: int
    held: list[ModelRun] = field(default_factory=list)
    life: int = 0
    up: bool = True


@dataclass(slots=True, eq=False)
class Model:
    """Runs on workers, under one rule. `forgives`: the crashes of a run that survives a lease time are
    forgotten.
    """

    quota: Quota
    forgives: bool
    lease: float = 30.0
    runs: list[ModelRun] = field(default_factory=list)
    workers: list[ModelWorker] = field(default_factory=list)
    now: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan a call."""
        heapq.heappush(self._events, (when, next(self._numbers), what))

    def play(self, until: float = 1e6) -> None:
        """Run the model until every run has ended."""
        for worker in self.workers:
            self.at(0.0, lambda worker=worker: self.claim(worker))  # type: ignore[misc]
        while self._events and any(run.ended_at is None for run in self.runs) and self.now < until:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def claim(self, worker: ModelWorker) -> None:
        """Take due runs, as the rule allows."""
        if not worker.up:
            return
        quota = list(self.quota(worker.slots, [self.aged(run) for run in worker.held if run.crashes]))
        held = {id(run) for one in self.workers for run in one.held}
        due = [
            run
            for run in self.runs
            if run.ended_at is None and id(run) not in held and run.run_at <= self.now
        ]
        for run in sorted(due, key=lambda run: run.run_at):
            if len(worker.held) >= worker.slots:
                break
            levels = range(min(run.crashes, len(quota)))
            if any(quota[level] <= 0 for level in levels):
                continue
            for level in levels:
                quota[level] -= 1
            self.begin(worker, run)

    def aged(self, run: ModelRun) -> tuple[int, float, bool]:
        """Return the number of crashes of a run, and the number of lease times that it has executed."""
        age = (self.now - run.began_at) / self.lease
        return run.crashes, age, age >= 1

    def begin(self, worker: ModelWorker, run: ModelRun) -> None:
        """Execute a run while its worker lives."""
        run.began_at, life = self.now, worker.life
        worker.held.append(run)

        def later(seconds: float, what: Callable[[], None]) -> None:
            def then() -> None:
                if worker.life == life and run in worker.held:
                    what()
                    self.claim(worker)

            self.at(self.now + seconds, then)

        def advance() -> None:
            run.crashes, run.survived, run.lasts = 0, False, run.lasts - run.step
            later(run.step, advance)

        if run.kills_at is not None:
            later(run.kills_at, lambda: self.die(worker))
        else:
            later(run.lasts, lambda: self.end(worker, run))
            if run.step < run.lasts:
                later(run.step, advance)
        later(self.lease, lambda: self.survive(run))
        later(YOUNG * self.lease + 1e-6, lambda: None)

    def end(self, worker: ModelWorker, run: ModelRun) -> None:
        worker.held.remove(run)
        run.ended_at = self.now

    def survive(self, run: ModelRun) -> None:
        if self.forgives and not run.survived:
            run.crashes, run.survived = 0, True

    def die(self, worker: ModelWorker) -> None:
        """Let the worker die: its runs expire, and another process replaces it."""
        held, worker.held, worker.up = worker.held, [], False
        worker.life += 1
        expires_at = self.now + random.uniform(2 / 3, 1) * self.lease
        for run in held:
            self.at(expires_at, lambda run=run: self.expire(run))  # type: ignore[misc]
            run.run_at = float("inf")
        self.at(self.now + RESTART_SECONDS, lambda: self.restart(worker))

    def restart(self, worker: ModelWorker) -> None:
        worker.up = True
        self.claim(worker)

    def expire(self, run: ModelRun) -> None:
        run.crashes += 1
        if run.crashes >= MAX_CRASHES:
            run.failed, run.ended_at = True, self.now
            return
        run.run_at = run.claimable_at = self.now + crash_delay(run.crashes)
        for worker in self.workers:
            self.at(run.run_at, lambda worker=worker: self.claim(worker))  # type: ignore[misc]


def eighths(slots: int, held: list[tuple[int, float, bool]]) -> tuple[int, ...]:
    """The former rule: slots / 8 of runs that crashed once, slots / 64 of runs that crashed twice."""
    quota, cap, level = [], slots, 1
    while True:
        cap = max(1, cap // 8)
        quota.append(max(0, cap - sum(crashes >= level for crashes, _, _ in held)))
        if cap == 1:
            return tuple(quota)
        level += 1


def no_limit(slots: int, held: list[tuple[int, float, bool]]) -> tuple[int, ...]:
    """No rule: take all."""
    return ()


def only_alone(slots: int, held: list[tuple[int, float, bool]]) -> tuple[int, ...]:
    """A run that one more crash would fail is alone; all others begin at once."""
    return (slots, slots, int(not any(crashes >= ALONE and not forgiven for crashes, _, forgiven in held)))


RULES: dict[str, tuple[Quota, bool]] = {
    "none": (no_limit, False),
    "slots / 8^c": (eighths, False),
    "alone": (only_alone, False),
    "alone, forgiven": (only_alone, True),
    "parts, alone, forgiven": (crashed_quota, True),
}


def poisoned(rule: str, lasts: float, step: float, kills_at: float) -> tuple[int, float, float]:
    """Model 300 runs with a poison: good runs that failed; seconds until the poison failed, and until all
    ended.
    """
    quota, forgives = RULES[rule]
    model = Model(quota, forgives, workers=[ModelWorker(300)])
    bad = ModelRun(lasts, kills_at=kills_at)
    model.runs = [*(ModelRun(lasts, step) for _ in range(299)), bad]
    random.shuffle(model.runs)
    model.play()
    good = [run for run in model.runs if run is not bad]
    return sum(run.failed for run in good), bad.ended_at or -1, max(run.ended_at or 1e9 for run in good)


def killed_twice(rule: str) -> float:
    """Model 40 runs of 6 s, killed twice from outside: seconds from becoming claimable to the end of the
    last.
    """
    quota, forgives = RULES[rule]
    worker = ModelWorker(40)
    model = Model(quota, forgives, runs=[ModelRun(6.0) for _ in range(40)], workers=[worker])
    model.at(1.0, lambda: model.die(worker))
    # The second kill comes when as many runs execute again as the rule allows.
    model.at(36.0, lambda: model.die(worker))
    model.play()
    return max((run.ended_at or 1e9) - run.claimable_at for run in model.runs)


def blocked(rule: str) -> float:
    """Model two runs that crashed three times, one of 1,000 s: the time that the other, of 1 s, waits for
    it.
    """
    quota, forgives = RULES[rule]
    long, short = ModelRun(1000.0, crashes=3), ModelRun(1.0, run_at=0.1, crashes=3)
    model = Model(quota, forgives, runs=[long, short], workers=[ModelWorker(40)])
    model.at(0.1, lambda: model.claim(model.workers[0]))
    model.play()
    return (short.ended_at or 1e9) - 1.1


CASES = ((20, 0.3, 0.1), (6, 1e9, 0.1), (60, 1e9, 1), (1000, 1e9, 1))  # seconds: a run, a step, the poison
PLAYS = 3


def main() -> None:
    """Print the table."""
    random.seed(7)
    print(f"{'rule':24}{'run':>6}{'step':>8}{'kills at':>10}{'failed':>8}{'found':>9}{'all ended':>11}")
    for lasts, step, kills_at in CASES:
        for rule in RULES:
            plays = [poisoned(rule, lasts, step, kills_at) for _ in range(PLAYS)]
            failed, found, ended = (sum(one[n] for one in plays) / PLAYS for n in range(3))
            steps = f"{step:g} s" if step < lasts else "whole"
            print(
                f"{rule:24}{lasts:>4} s{steps:>8}{kills_at:>8} s{failed:>8.0f}{found:>7.0f} s{ended:>9.0f} s"
            )
    for rule in RULES:
        print(f"{rule:24}killed twice: {killed_twice(rule):.1f} s; behind 1,000 s: {blocked(rule):.1f} s")


if __name__ == "__main__":
    main()
