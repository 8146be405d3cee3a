"""The recorder: it counts the happenings of this process in memory, and answers a scrape with a copy.

A worker calls a method for every step, so a call has to be cheap. Times are appended to lists
and sorted into buckets later; one lock guards the rest. No library for metrics is known here.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from weakref import WeakSet

import msgspec

from holdfast.engine.app.app import App
from holdfast.engine.measures import Measures, Several, Slots

from . import catalog
from .catalog import LABELS_MAX, OTHER, Metric

FRESH_MAX = 256  # observations of one kind that wait to be counted

# Words of an execution's end, as the engine has them, and as they are shown.
OUTCOMES = {
    "waiting": "parked",
    "pending": "returned",
    "released": "returned",
    "full": "returned",
    "sealed": "returned",
    "short": "paused",
    "": "lost",
}
ENDS = frozenset({"succeeded", "failed", "cancelled", "paused", "lost"})


def shown_outcome(outcome: str) -> str:
    """Return the word for the end of an execution. One that began after its lease was over is lost."""
    return outcome if outcome in ENDS else OUTCOMES.get(outcome, "lost")


class Distribution(msgspec.Struct):
    """The observations of one histogram: how many are in each bucket (the last: above all), and their sum."""

    counts: list[int]
    total: float = 0.0


Value = float | Distribution


class Family(msgspec.Struct):
    """A metric with its values, by the values of its labels. `labels`: their names, if there are more than
    the metric has."""

    metric: Metric
    values: Mapping[tuple[str, ...], Value]
    labels: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.metric.labels if self.labels is None else self.labels


class _Histogram:
    """Observations by labels. They are appended to a list, which needs no lock, and sorted into the buckets
    when the list is long, or is read: to lock, and to find the bucket of each at once, cost twice as much.
    """

    def __init__(self, metric: Metric, lock: threading.Lock) -> None:
        self.metric, self._lock, self._bounds = metric, lock, metric.buckets
        self.fresh: dict[tuple[str, ...], list[float]] = {}
        self._kept: dict[tuple[str, ...], Distribution] = {}

    def add(self, labels: tuple[str, ...], seconds: float) -> None:
        fresh = self.fresh.get(labels)
        if fresh is None:
            fresh = self.made(labels)
        fresh.append(seconds)
        if len(fresh) >= FRESH_MAX:
            self.fold(labels)

    def made(self, labels: tuple[str, ...]) -> list[float]:
        with self._lock:
            self._kept.setdefault(labels, Distribution([0] * (len(self._bounds) + 1)))
            return self.fresh.setdefault(labels, [])

    def fold(self, labels: tuple[str, ...]) -> None:
        with self._lock:
            self._fold(labels)

    def _fold(self, labels: tuple[str, ...]) -> None:
        """Sort the new observations into the buckets. The lock is held. Other threads may append meanwhile:
        what they append stays in the list.
        """
        fresh, kept = self.fresh[labels], self._kept[labels]
        many = len(fresh)
        values = fresh[:many]
        del fresh[:many]
        values.sort()
        if values and values[0] < 0.0:
            # Clocks of two machines may differ: a time before the due time is in time.
            values = [max(one, 0.0) for one in values]
        kept.total += sum(values)
        below = 0
        for place, bound in enumerate(self._bounds):
            upto = bisect_right(values, bound, below)
            kept.counts[place] += upto - below
            below = upto
        kept.counts[-1] += many - below

    def copy(self) -> dict[tuple[str, ...], Value]:
        """Return all of them. The lock is held."""
        for labels in self.fresh:
            self._fold(labels)
        return {labels: Distribution(list(one.counts), one.total) for labels, one in self._kept.items()}


class _Counter:
    def __init__(self, metric: Metric, lock: threading.Lock) -> None:
        self.metric, self._lock = metric, lock
        # A counter without labels is there from the beginning.
        self.series: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0}

    def add(self, labels: tuple[str, ...]) -> None:
        with self._lock:
            self.more(labels, 1)

    def more(self, labels: tuple[str, ...], number: int) -> None:
        """Add a number. The lock is held."""
        self.series[labels] = self.series.get(labels, 0) + number

    def copy(self) -> dict[tuple[str, ...], Value]:
        return dict(self.series)


class Bounded:
    """The known values of a label: at most LABELS_MAX, further ones are `other`."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, value: str) -> str:
        """Return the value, or `other`."""
        found = self._known.get(value)
        if found is None:
            found = value if len(self._known) < LABELS_MAX else OTHER
            if found is not OTHER:
                self._known[value] = found
        return found


class Recorder(Measures):
    """Counts the happenings of one process, from any of its threads."""

    is_harmless = True

    def __init__(self) -> None:
        self._lock = lock = threading.Lock()
        self._workers: WeakSet[Slots] = WeakSet()
        self._type, self._sink, self._error = Bounded(), Bounded(), Bounded()
        self._claims = _Histogram(catalog.CLAIM_LATENCY, lock)
        self._resumes = _Histogram(catalog.RESUME_LATENCY, lock)
        self._steps = _Histogram(catalog.STEP_DURATION, lock)
        self._tries = self._steps.fresh
        self._executions = _Counter(catalog.EXECUTIONS, lock)
        # Executions that are not counted yet: the type, and how they ended.
        self._ended: list[tuple[str, str]] = []
        self._retries = _Counter(catalog.STEP_RETRIES, lock)
        self._lost = _Counter(catalog.LEASES_LOST, lock)
        self._engine_errors = _Counter(catalog.ENGINE_ERRORS, lock)
        self._calls = _Histogram(catalog.STORE_CALL, lock)
        self._refusals = _Counter(catalog.STORE_ERRORS, lock)
        self._sent = _Counter(catalog.MESSAGES_SENT, lock)
        self._failed = _Counter(catalog.MESSAGES_FAILED, lock)
        self._fired = _Counter(catalog.SCHEDULES_FIRED, lock)
        self._late = _Histogram(catalog.SCHEDULE_LATENESS, lock)

    def worker_started(self, worker: Slots) -> None:
        with self._lock:
            self._workers.add(worker)

    def worker_stopped(self, worker: Slots) -> None:
        with self._lock:
            self._workers.discard(worker)

    def claimed(self, type_: str, late_seconds: float) -> None:
        fresh = self._claims.fresh.get((type_,))  # written out, as in `tried`
        if fresh is None:
            self._claims.add((self._type(type_),), late_seconds)
        else:
            fresh.append(late_seconds)
            if len(fresh) >= FRESH_MAX:
                self._claims.fold((type_,))

    def resumed(self, type_: str, late_seconds: float) -> None:
        self._resumes.add((self._type(type_),), late_seconds)

    def tried(self, type_: str, outcome: str, seconds: float) -> None:
        # This is called for every step: it is written out, and finds a known series at once.
        fresh = self._tries.get((type_, outcome))
        if fresh is None:
            self._steps.add((self._type(type_), outcome), seconds)
        else:
            fresh.append(seconds)
            if len(fresh) >= FRESH_MAX:
                self._steps.fold((type_, outcome))
        if outcome == "retried":
            self._retries.add((self._type(type_),))

    def executed(self, type_: str, outcome: str) -> None:
        ended = self._ended
        ended.append((type_, outcome))
        if len(ended) >= FRESH_MAX:
            with self._lock:
                self._count_ended()

    def _count_ended(self) -> None:
        """Count the executions that have ended. The lock is held; other threads may append meanwhile."""
        many = len(self._ended)
        found = Counter(self._ended[:many])
        del self._ended[:many]
        for (type_, word), number in found.items():
            bounded, outcome = self._type(type_), shown_outcome(word)
            self._executions.more((bounded, outcome), number)
            if outcome == "lost":
                self._lost.more((bounded,), number)

    def engine_failed(self) -> None:
        self._engine_errors.add(())

    def called(self, verb: str, seconds: float) -> None:
        self._calls.add((verb,), seconds)

    def refused(self, verb: str, error: str) -> None:
        self._refusals.add((verb, self._error(error)))

    def relayed(self, sink: str, *, sent: bool) -> None:
        (self._sent if sent else self._failed).add((self._sink(sink),))

    def fired(self, late_seconds: float) -> None:
        self._fired.add(())
        self._late.add((), late_seconds)

    @property
    def workers(self) -> int:
        """The number of workers that work in this process."""
        return len(self._workers)

    def families(self) -> list[Family]:
        """Return a copy of all metrics of this process, in the order of the catalog."""
        kept = (
            self._claims, self._resumes, self._steps, self._executions, self._retries, self._lost,
            self._engine_errors, self._calls, self._refusals, self._sent, self._failed, self._fired,
            self._late,
        )  # fmt: skip
        with self._lock:
            self._count_ended()
            found = {one.metric.name: Family(one.metric, one.copy()) for one in kept}
            workers = list(self._workers)
        gauges = (
            (catalog.SLOTS, sum(one.slots for one in workers)),
            (catalog.SLOTS_BUSY, sum(one.busy for one in workers)),
            (catalog.STRAGGLERS, sum(one.stragglers for one in workers)),
        )
        found |= {metric.name: Family(metric, {(): value}) for metric, value in gauges}
        return [found[metric.name] for metric in catalog.PROCESS_METRICS]


PROCESS = Recorder()  # what is shown as the metrics of this process


def measure(app: App, measures: Measures = PROCESS) -> None:
    """Count what the workers of this app do, and its calls to the store. Call it before a worker is made.

    A second call with the same measures changes nothing.
    """
    here = app.measures
    each = () if here is None else here.each if isinstance(here, Several) else (here,)
    if measures not in each:
        app.measures = Several((*each, measures)) if each else measures
