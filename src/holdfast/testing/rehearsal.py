"""Rehearsals: workflows of an app in a simulation, with a clock that the test turns.

Time stands still until the test lets it pass, which takes no real time. The app's own store is never opened.
The order of calls decides everything: a rehearsal runs the same way every time.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, cast
from uuid import UUID

from holdfast.arguments import Seconds, check_datetime, check_positive, check_units
from holdfast.engine.app.app import APPS, App
from holdfast.engine.app.handle import Handle
from holdfast.engine.definitions import Defined
from holdfast.engine.options import StartOptions
from holdfast.engine.pages import gathered
from holdfast.errors import UsageError
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import (
    ANY,
    SECOND,
    ApprovalRequest,
    Beginning,
    Decided,
    Emitted,
    Run,
    RunFilter,
    Step,
    TrailEntry,
    moment,
)

from .app_isolation import AppIsolation
from .replacements import Replacements, with_replacements
from .simulation import MakeStore, Simulation, Watch
from .virtual import EPOCH, VirtualWorld

LEASE_SECONDS = 30.0
ALL = 100_000  # runs, gates or trail rows that are shown
TURNS_MAX = 100_000  # turns of the clock; a run that is then open counts as one that never ends
LINKS_MAX = 1000  # runs of a chain; a longer chain counts as endless
# The same for a run that only other runs or people can wake: beside a schedule, time never stops by itself.
IDLE_TURNS_MAX = 500


class Stuck(AssertionError):
    """The run cannot end by itself: it waits for something from outside, or for itself."""


class RehearsedRun:
    """A run in a rehearsal: its state and history, without `await`."""

    def __init__(self, stage: Rehearsal, handle: Handle[Any]) -> None:
        self._stage, self._handle = stage, handle
        self.id, self.created = handle.id, handle.created

    def __repr__(self) -> str:
        """Return the run with its status, for messages of failed asserts."""
        return f"<run {self.id}>" if self._stage.over else f"<run {self.id} {self.status}>"

    def get(self) -> Run:
        """Return the run as it is now."""
        return cast("Run", self._stage.do(self._handle.get()))

    @property
    def status(self) -> Status:
        """The status now, of this run or of the last run of its chain."""
        return cast("Run", self._stage.do(self._stage.app.present(self.id))).status

    def result(self) -> Any:
        """Let time pass until the run ends, and return the result, of this run or of the last run of its
        chain. Raises RunFailed, RunCancelled, Stuck.
        """
        self._stage.finish(self)
        return self._stage.do(self._handle.result())

    def steps(self) -> dict[str, Step]:
        """Return the recorded steps by key, in the order in which they ended."""
        return {step.key: step for step in self._stage.do(self._stage.app.steps(self.id))}

    def trail(self) -> list[TrailEntry]:
        """Return the trail of the run, in order."""
        app = self._stage.app
        pages = gathered(lambda limit, after: app.trail(self.id, after, limit), ALL, 0, lambda row: row.seq)
        return cast("list[TrailEntry]", self._stage.do(pages))

    def explain(self) -> str:
        """Return a sentence that says why the run does not go on."""
        return str(self._stage.do(self._stage.app.explain(self.id)))


class Rehearsal:
    """A simulation with a store in memory, one worker, and a stopped clock: `with Rehearsal(app) as stage:`.

    `what`: apps, or single workflows. `store`: "memory", "sqlite", or a function `make_store(clock)`.
    `replace`: replacements for functions that steps call. `at`: the time at which the rehearsal begins.
    """

    def __init__(
        self,
        *what: App | Defined,
        store: str | MakeStore = "memory",
        replace: Mapping[Any, Any] | None = None,
        at: datetime | None = None,
        lease: Seconds = LEASE_SECONDS,
        watch: Watch | None = None,
    ) -> None:
        if not what or not all(isinstance(one, App | Defined) for one in what):
            raise UsageError("Rehearsal: give your app, or workflows, as in `with Rehearsal(app) as stage:`")
        self._what, self._make_store, self._lease_seconds = (
            what,
            _maker(store),
            check_positive("lease", lease),
        )
        self._begins_at = EPOCH if at is None else check_datetime("at", at)
        self._watch = watch or Watch()
        self._replacements = Replacements(replace, self._watch.begun)
        self._isolation = AppIsolation(what)

    def __enter__(self) -> Self:
        """Begin the rehearsal: isolate the apps, open the store, and start a worker."""
        if _inside_a_loop():
            raise UsageError("a rehearsal runs an event loop of its own: use it in a `def test_…`, not async")
        self._simulation = Simulation(
            self._make_store, self._make_app, self._lease_seconds, self._begins_at, self._watch
        )
        self.app = self._simulation.app
        try:
            self._isolation.isolate(self._simulation)
            self._simulation.begin()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the rehearsal, and raise an error that a forgotten task has raised."""
        self._close()
        if error is None:
            self._simulation.check()

    def _close(self) -> None:
        try:
            self._simulation.close()
        finally:
            self._isolation.restore()

    # -- calls from outside --------------------------------------------------------------------

    def start(
        self, workflow: Defined | str, params: Any = None, **options: Unpack[StartOptions]
    ) -> RehearsedRun:
        """Start a run; it goes as far as it can without time passing. Options as in `app.start`."""
        return RehearsedRun(self, self.do(self.app.start(workflow, params, **options)))

    def emit(self, topic: str, payload: Any = None, **options: Any) -> Emitted:
        """Send an event; runs that it wakes go on at once. Options as in `app.emit`."""
        return cast("Emitted", self.do(self.app.emit(topic, payload, **options)))

    def approve(self, run: RehearsedRun | UUID, step: str | None = None, **said: Any) -> Decided:
        """Approve an open gate; the run goes on at once. Options as in `app.approve`."""
        return cast("Decided", self.do(self.app.approve(_id(run), step, **{"by": "test", **said})))

    def reject(self, run: RehearsedRun | UUID, step: str | None = None, **said: Any) -> Decided:
        """Reject an open gate; the run goes on at once. Options as in `app.reject`."""
        return cast("Decided", self.do(self.app.reject(_id(run), step, **{"by": "test", **said})))

    def approvals(self) -> list[ApprovalRequest]:
        """Return the gates of all runs that wait for a decision."""
        fetch = partial(self.app.approvals, ANY)
        return cast("list[ApprovalRequest]", self.do(gathered(fetch, ALL, None, lambda gate: gate)))

    def cancel(self, run: RehearsedRun | UUID, *, children: bool = True) -> None:
        """Cancel a run, and its open children unless `children=False`."""
        self.do(self.app.cancel(_id(run), by="test", children=children))

    def pause(self, run: RehearsedRun | UUID) -> None:
        """Pause a run; a running one pauses at its next step."""
        self.do(self.app.pause(_id(run), by="test"))

    def resume(self, run: RehearsedRun | UUID, *, budget: float | None = None) -> None:
        """Let a paused run go on, with a new budget if one is given."""
        self.do(self.app.resume(_id(run), by="test", budget=budget))

    def rewind(self, run: RehearsedRun | UUID, step: str | Beginning, *, children: bool = True) -> None:
        """Forget a step and all later ones; the run goes on from there. BEGINNING: from the start."""
        self.do(self.app.rewind(_id(run), step, by="test", children=children))

    def retry(self, run: RehearsedRun | UUID) -> None:
        """Let a failed run go on where it failed."""
        self.do(self.app.retry(_id(run), by="test"))

    def do(self, call: Awaitable[Any]) -> Any:
        """Await any other call of the app: `stage.do(stage.app.list())`. Its effects happen at once."""
        return self._simulation.do(call)

    def replace(self, function: Callable[..., Any], other: Callable[..., Any]) -> None:
        """Let steps call `other` from now on where they would call `function`."""
        self._replacements.replace(function, other)

    def crash(self) -> None:
        """Crash the worker as by kill -9. Another worker takes over when the lease has expired.

        Inside a step it crashes there: the result of the step is not recorded.
        """
        self._simulation.crash()

    # -- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time in the rehearsal."""
        return moment(self._begins_at + self._simulation.elapsed)

    @property
    def over(self) -> bool:
        """True when the rehearsal has ended."""
        return self._simulation.over

    def advance(self, duration: Seconds = 0, **units: float) -> None:
        """Let time pass: `stage.advance(days=30)`, seconds, or a timedelta. Everything that is due
        happens.
        """
        delay = check_units("advance", duration, units)
        until = self._simulation.elapsed + round(delay * SECOND)
        while self._simulation.elapsed < until:
            self._simulation.turn(until)

    def finish(self, run: RehearsedRun | UUID, links: int = LINKS_MAX) -> Run:
        """Let time pass until the run and its chain, of at most `links` runs, have ended; return the last
        run.

        Raises Stuck, with the reason, when the run can never end.
        """
        idle, before, seen = 0, None, set[UUID]()
        for _ in range(TURNS_MAX):
            found = self._get(run)
            if found.status in FINAL:
                return found
            seen.add(found.id)
            if len(seen) > links:
                raise Stuck(
                    f"{found.type} goes on as another run without an end: let a script= or the test cancel it"
                )
            idle = idle + 1 if found == before and _needs_others(found) else 0
            if idle > IDLE_TURNS_MAX:
                break
            before = found
            paused = found.status is Status.PAUSED and not self._simulation.busy
            # `turn` may have changed the run though nothing more is to come: read it again before giving up.
            if (paused or not self._simulation.turn(None)) and self._get(run) == found:
                raise Stuck(f"{found.type} can never end by itself. {self._explained(found)}")
        found = self._get(run)
        raise Stuck(f"{found.type} has not ended by {self.now:%Y-%m-%d %H:%M}. {self._explained(found)}")

    def rest(self) -> None:
        """Let time pass until a frozen zombie has come back, and until all workers know the current state."""
        while self._simulation.processes.zombie_frozen:
            self.advance(self._lease_seconds)
        self.advance(2 * self._lease_seconds)

    def runs(self, type: str | None = None) -> list[RehearsedRun]:
        """Return all runs, or those of a type (`shop.%` is a prefix), in the order of their starts."""
        fetch = partial(self.app.list, RunFilter(type=type, tenant=ANY))
        found = self.do(gathered(fetch, ALL, None, lambda run: run.id))
        return [RehearsedRun(self, self._handle(run)) for run in reversed(found)]

    # -- inside --------------------------------------------------------------------------------

    def _get(self, run: RehearsedRun | UUID) -> Run:
        return cast("Run", self.do(self.app.present(_id(run))))

    def _handle(self, run: Run) -> Handle[Any]:
        return Handle(self.app, run.id, run.type, created=True, workflow=self.app.workflows.get(run.type))

    def _explained(self, run: Run) -> str:
        return str(self.do(self.app.explain(run.id)))

    def _make_app(self, world: VirtualWorld, store: Any) -> App:
        """Return a copy of the first app, with its configuration, on another store and in another world."""
        app = next((copy.copy(one) for one in self._what if isinstance(one, App)), None) or self._new(store)
        app.store, app.world = store, world
        app.hooks, app.sinks = {}, {}  # or a test would call real hooks, and send real mail
        known = [[*one.workflows.values()] if isinstance(one, App) else [one] for one in self._what]
        app.workflows = {
            one.type: with_replacements(one, self._replacements) for many in known for one in many
        }
        return app

    def _new(self, store: Any) -> App:
        """Make an app for single workflows, with the codec of their own app: each reads values of the
        other.
        """
        codecs = [app._codec for app in self._isolation.apps]  # noqa: SLF001 - of our own engine
        made = App(store, codec=codecs[0] if codecs else None)
        APPS.discard(made)  # the rehearsal's own app needs no isolation
        return made


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _id(run: RehearsedRun | UUID) -> UUID:
    return run.id if isinstance(run, RehearsedRun) else run


def _maker(store: str | MakeStore) -> MakeStore:
    match store:
        case "memory":
            from holdfast.stores.memory import MemoryStore

            return lambda clock: MemoryStore(clock=clock)
        case "sqlite":
            from .temporary_sqlite import TemporarySqliteStore

            return TemporarySqliteStore
        case str():
            raise UsageError(
                f"store={store!r}: 'memory', 'sqlite', or a function of the clock that makes one"
            )
        case _:
            from .threaded_store import ThreadedStore

            return lambda clock: ThreadedStore(store(clock))


def _needs_others(run: Run) -> bool:
    """Return True when only an event or a decision can wake the run: no timer, and no child."""
    kinds = {wait.kind for wait in run.waiting_on}
    timed = run.timeout_at is not None or any(wait.due_at is not None for wait in run.waiting_on)
    return run.status is Status.WAITING and kinds <= {StepKind.EVENT, StepKind.APPROVAL} and not timed
