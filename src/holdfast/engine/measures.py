"""The seam for metrics: happenings that the engine reports, to whoever measures them.

The engine knows no library for metrics. A worker without measures pays one test for None at each place. The
methods are called on event loops and, by `Measured`, from the thread that renews leases; they may not block.
If one raises, its measurement is dropped (`guarded`): a broken exporter must not fail a claim or a commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holdfast.escaping import safe_logger

log = safe_logger("holdfast.metrics")


class Slots(Protocol):
    """A worker, as a gauge reads it."""

    slots: int

    @property
    def busy(self) -> int:
        """The number of runs that it holds."""

    @property
    def stragglers(self) -> int:
        """The number of cancelled sync functions that have not returned."""


class Measures:
    """Takes the happenings of a process. Here every method does nothing; a subclass keeps what it wants.

    `is_harmless`: a class sets it to True when none of its methods raises. It does not count for subclasses.
    """

    is_harmless = False

    def worker_started(self, worker: Slots) -> None:
        """A worker begins to work in this process."""

    def worker_stopped(self, worker: Slots) -> None:
        """A worker has stopped. It may be called for a worker that is not known."""

    def claimed(self, type_: str, late_seconds: float) -> None:
        """A run was claimed, so long after it became due, by the store's clock."""

    def resumed(self, type_: str, late_seconds: float) -> None:
        """The code of a run goes on after a wait, so long after the wait was settled or due."""

    def tried(self, type_: str, outcome: str, seconds: float) -> None:
        """A try of a step has ended: `succeeded`, `failed`, `retried` or `cancelled`."""

    def executed(self, type_: str, outcome: str) -> None:
        """An execution has ended: a status of the run, `lost`, or `pending` when it is in the queue again."""

    def engine_failed(self) -> None:
        """The engine itself has raised something unforeseen."""

    def called(self, verb: str, seconds: float) -> None:
        """A verb of the store has answered, or raised."""

    def refused(self, verb: str, error: str) -> None:
        """A verb of the store has raised an error of this class."""

    def relayed(self, sink: str, *, sent: bool) -> None:
        """A message was delivered to a sink, or a try to deliver it has failed."""

    def fired(self, late_seconds: float) -> None:
        """A keeper has started the run of one time of a schedule, so long after that time."""


class Several(Measures):
    """Reports each happening to several measures, once to each."""

    def __init__(self, each: Iterable[Measures]) -> None:
        self.each = tuple(each)

    def worker_started(self, worker: Slots) -> None:
        for one in self.each:
            one.worker_started(worker)

    def worker_stopped(self, worker: Slots) -> None:
        for one in self.each:
            one.worker_stopped(worker)

    def claimed(self, type_: str, late_seconds: float) -> None:
        for one in self.each:
            one.claimed(type_, late_seconds)

    def resumed(self, type_: str, late_seconds: float) -> None:
        for one in self.each:
            one.resumed(type_, late_seconds)

    def tried(self, type_: str, outcome: str, seconds: float) -> None:
        for one in self.each:
            one.tried(type_, outcome, seconds)

    def executed(self, type_: str, outcome: str) -> None:
        for one in self.each:
            one.executed(type_, outcome)

    def engine_failed(self) -> None:
        for one in self.each:
            one.engine_failed()

    def called(self, verb: str, seconds: float) -> None:
        for one in self.each:
            one.called(verb, seconds)

    def refused(self, verb: str, error: str) -> None:
        for one in self.each:
            one.refused(verb, error)

    def relayed(self, sink: str, *, sent: bool) -> None:
        for one in self.each:
            one.relayed(sink, sent=sent)

    def fired(self, late_seconds: float) -> None:
        for one in self.each:
            one.fired(late_seconds)


class Harmless(Measures):
    """Reports each happening to other measures. What they raise is logged, once for each method."""

    def __init__(self, inner: Measures) -> None:
        self.inner = inner
        self._failed: set[str] = set()

    # These four are called for every step, run or commit, and `_report` costs 2,000 instructions more.

    def claimed(self, type_: str, late_seconds: float) -> None:
        try:
            self.inner.claimed(type_, late_seconds)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._dropped("claimed", error)

    def tried(self, type_: str, outcome: str, seconds: float) -> None:
        try:
            self.inner.tried(type_, outcome, seconds)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._dropped("tried", error)

    def executed(self, type_: str, outcome: str) -> None:
        try:
            self.inner.executed(type_, outcome)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._dropped("executed", error)

    def called(self, verb: str, seconds: float) -> None:
        try:
            self.inner.called(verb, seconds)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._dropped("called", error)

    def _report(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call this method of the other measures."""
        try:
            getattr(self.inner, method)(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._dropped(method, error)

    def _dropped(self, method: str, error: Exception) -> None:
        """Log the first error of each method."""
        if method not in self._failed:
            self._failed.add(method)
            log.error("metrics: %s fails, its measurements are dropped", method, exc_info=error)


def guarded(measures: Measures) -> Measures:
    """Return measures that never raise. A guard costs a fifth of a report, so harmless ones get none."""
    if vars(type(measures)).get("is_harmless"):
        return measures
    if type(measures) is Several:
        return Several(map(guarded, measures.each))
    return Harmless(measures)


def _reporting(method: str) -> Callable[..., None]:
    def report(self: Harmless, *args: Any, **kwargs: Any) -> None:
        self._report(method, args, kwargs)

    return report


for _name, _ in inspect.getmembers(Measures, inspect.isfunction):
    if not _name.startswith("_") and _name not in vars(Harmless):
        setattr(Harmless, _name, _reporting(_name))
