"""A model of crashes: how many innocent runs a poison takes with it, and how long all of them take.

Not a measurement: leases, delays, slots and the crash cap of the engine in a few lines, so that rules for
runs that have crashed can be compared before one is written. `python -m bench.crash_model` prints the table
of docs/decisions/0037-a-crashed-run-is-alone-only-before-the-last-crash.md.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from holdfast.backoff import crash_delay
from holdfast.engine.holding import crashed_quota
from holdfast.records import MAX_CRASHES

RESTART_SECONDS = 1.0  # until a process that died is there again
# Of slots, and of the runs that are held: how often each crashed, and for which share of a lease it executes.
Quota = Callable[[int, list[tuple[int, float]]], tuple[int, ...]]


@dataclass(slots=True, eq=False)
class ModelRun:
    """A run of so many seconds; `kills_at`: seconds after its begin, at which it ends its process.

    `step`: it makes progress each time it has executed for so long.
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


@dataclass(slots=True, eq=False)
class ModelWorker:
    """A process with slots. `life` grows with each death: what was planned for a former one is void."""

    slots: int
    held: list[ModelRun] = field(default_factory=list)
    life: int = 0
    up: bool = True


@dataclass(slots=True, eq=False)
class Model:
    """Runs on workers, under one rule. `forgives`: a run that survives a lease time has crashed no more, once."""

    quota: Quota
    forgives: bool
    lease: float = 30.0
    runs: list[ModelRun] = field(default_factory=list)
    workers: list[ModelWorker] = field(default_factory=list)
    now: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan something."""
        heapq.heappush(self._events, (when, next(self._numbers), what))

    def play(self, until: float = 1e6) -> None:
        """Until every run has ended."""
        for worker in self.workers:
            self.at(0.0, lambda worker=worker: self.claim(worker))  # type: ignore[misc]
        while self._events and any(run.ended_at is None for run in self.runs) and self.now < until:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def claim(self, worker: ModelWorker) -> None:
        """Take what is due, by the rule."""
        if not worker.up:
            return
        aged = [(run.crashes, (self.now - run.began_at) / self.lease) for run in worker.held if run.crashes]
        quota = list(self.quota(worker.slots, aged))
        held = {id(run) for one in self.workers for run in one.held}
        due = [run for run in self.runs if run.ended_at is None and id(run) not in held and run.run_at <= self.now]
        for run in sorted(due, key=lambda run: run.run_at):
            if len(worker.held) >= worker.slots:
                break
            levels = range(min(run.crashes, len(quota)))
            if any(quota[level] <= 0 for level in levels):
                continue
            for level in levels:
                quota[level] -= 1
            self.begin(worker, run)

    def begin(self, worker: ModelWorker, run: ModelRun) -> None:
        run.began_at, life = self.now, worker.life
        worker.held.append(run)

        def alive() -> bool:
            return worker.life == life and run in worker.held

        def end() -> None:
            if alive():
                worker.held.remove(run)
                run.ended_at = self.now
                self.claim(worker)

        def survive() -> None:
            if alive():
                if self.forgives and not run.survived:
                    run.crashes, run.survived = 0, True
                self.claim(worker)

        def advance() -> None:
            if alive():
                run.crashes, run.survived, run.lasts = 0, False, run.lasts - run.step
                self.at(self.now + run.step, advance)
                self.claim(worker)

        if run.kills_at is not None:
            self.at(self.now + run.kills_at, lambda: self.die(worker) if alive() else None)
        else:
            self.at(self.now + run.lasts, end)
            if run.step < run.lasts:
                self.at(self.now + run.step, advance)
        self.at(self.now + self.lease, survive)
        for share in WINDOWS:
            self.at(self.now + share * self.lease + 1e-6, lambda: self.claim(worker) if alive() else None)

    def die(self, worker: ModelWorker) -> None:
        """Its runs expire, and another process takes its place."""
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
        run.run_at = self.now + crash_delay(run.crashes)
        for worker in self.workers:
            self.at(run.run_at, lambda worker=worker: self.claim(worker))  # type: ignore[misc]


def eighths(slots: int, held: list[tuple[int, float]]) -> tuple[int, ...]:
    """The rule of before: slots / 8 of those that crashed once, slots / 64 of those that crashed twice, …"""
    quota, cap, level = [], slots, 1
    while True:
        cap = max(1, cap // 8)
        quota.append(max(0, cap - sum(crashes >= level for crashes, _ in held)))
        if cap == 1:
            return tuple(quota)
        level += 1


def no_limit(slots: int, held: list[tuple[int, float]]) -> tuple[int, ...]:
    """No rule."""
    return ()


def only_alone(slots: int, held: list[tuple[int, float]]) -> tuple[int, ...]:
    """Those that one more crash would fail are alone, each for a lease time at most."""
    return (slots, slots, 1 - any(crashes >= 3 and age < 1 for crashes, age in held))


def ramp(part: int, window: float) -> Quota:
    """The same; and of the others so many may begin within a share of a lease."""

    def quota(slots: int, held: list[tuple[int, float]]) -> tuple[int, ...]:
        young = sum(age < window for _, age in held)
        some = max(0, max(1, slots // part) - young)
        return (some, some, 1 - any(crashes >= 3 and age < 1 for crashes, age in held))

    return quota


WINDOWS = (1 / 60, 1 / 20, 1 / 10)
RULES: dict[str, tuple[Quota, bool]] = {
    "no rule": (no_limit, False),
    "slots / 8^c (before)": (eighths, False),
    "alone": (only_alone, False),
    "alone, forgiven": (only_alone, True),
    "ramp 1/4, L/20": (ramp(4, 1 / 20), True),
    "ramp 1/8, L/60": (ramp(8, 1 / 60), True),
    "ramp 1/8, L/20": (ramp(8, 1 / 20), True),
}


def poisoned(rule: str, lasts: float, step: float, kills_at: float, slots: int = 300, workers: int = 1) -> tuple[int, float, float]:
    """300 runs with a poison: innocents that failed; seconds until the poison has, and until all have ended."""
    quota, forgives = RULES[rule]
    model = Model(quota, forgives, workers=[ModelWorker(slots) for _ in range(workers)])
    bad = ModelRun(lasts, kills_at=kills_at)
    model.runs = [*(ModelRun(lasts, step) for _ in range(299)), bad]
    random.shuffle(model.runs)
    model.play()
    good = [run for run in model.runs if run is not bad]
    return sum(run.failed for run in good), bad.ended_at or -1, max(run.ended_at or 1e9 for run in good)


def killed_twice(rule: str) -> float:
    """40 runs of 6 s, killed twice from outside: seconds from becoming claimable to the end of the last."""
    quota, forgives = RULES[rule]
    worker = ModelWorker(40)
    model = Model(quota, forgives, runs=[ModelRun(6.0) for _ in range(40)], workers=[worker])
    model.at(1.0, lambda: model.die(worker))
    # The second time as soon as the first of them are at work again.
    model.at(34.0, lambda: model.die(worker))
    model.play()
    since = min(run.run_at for run in model.runs if run.crashes > 1)
    return max(run.ended_at or 1e9 for run in model.runs) - since


def blocked(rule: str) -> float:
    """Two runs that crashed three times, one of 1,000 s: how long the other, of 1 s, waits for it."""
    quota, forgives = RULES[rule]
    long, short = ModelRun(1000.0, crashes=3), ModelRun(1.0, run_at=0.1, crashes=3)
    model = Model(quota, forgives, runs=[long, short], workers=[ModelWorker(40)])
    model.at(0.1, lambda: model.claim(model.workers[0]))
    model.play()
    return (short.ended_at or 1e9) - 1.1


def main() -> None:
    random.seed(7)
    print(f"{'rule':38}{'run':>7}{'killed':>8}{'failed':>8}{'found':>9}{'all':>9}")
    for lasts, step, kills_at in ((20, 0.3, 0.1), (20, 0.3, 5), (20, 2, 0.1), (2, 9, 0.1), (6, 9, 0.1), (6, 9, 3), (60, 99, 1), (60, 99, 25), (1000, 9999, 1)):
        for rule in RULES:
            plays = [poisoned(rule, lasts, step, kills_at) for _ in range(5)]
            failed, found, ended = (sum(one[n] for one in plays) / 5 for n in range(3))
            print(f"{rule:30}{lasts:>5} s/{step:>4} s{kills_at:>6} s{failed:>8}{found:>7.0f} s{ended:>7.0f} s")
    for rule in RULES:
        print(f"{rule:38} killed twice: {killed_twice(rule):6.1f} s; behind 1,000 s: {blocked(rule):6.1f} s")


if __name__ == "__main__":
    main()
