"""A rehearsal: an app's workflows on a stage of their own, with a clock that the test turns.

Time stands still while the test looks, and passes in no time when it says so. The app's own store is
never opened. Everything is decided by the order of calls: a rehearsal goes the same way every time.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID

from holdfast.arguments import Seconds, check_datetime, check_positive, check_units
from holdfast.engine.app import APPS, App
from holdfast.engine.definitions import Defined
from holdfast.engine.handle import Handle
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

from .clockwork import Clockwork, MakeStore, Watch
from .curtain import Curtain
from .understudy import Parts, taken_over
from .virtual import EPOCH, VirtualWorld

LEASE_SECONDS = 30.0
ALL = 100_000  # runs, gates or trail rows that are shown
TURNS_MAX = 100_000  # of the clock, until a run that has not ended is taken for one that never will
LINKS_MAX = 1000  # runs of a chain, until it is taken for one that never ends
IDLE_TURNS_MAX = (
    500  # and of one that only others can wake, while they go on without it: a schedule never ends
)


class Stuck(AssertionError):
    """The run cannot end by itself: something must come from outside, or it stands in its own way."""


class RehearsedRun:
    """A run on a stage: everything about it, without `await`."""

    def __init__(self, stage: Rehearsal, handle: Handle[Any]) -> None:
        self._stage, self._handle = stage, handle
        self.id, self.created = handle.id, handle.created

    def __repr__(self) -> str:
        """With its status, for it stands in the message of a failed assert."""
        return f"<run {self.id}>" if self._stage.over else f"<run {self.id} {self.status}>"

    def get(self) -> Run:
        """The run as it is now."""
        return cast("Run", self._stage.do(self._handle.get()))

    @property
    def status(self) -> Status:
        """Its status now, or that of the run which its chain has come to."""
        return cast("Run", self._stage.do(self._stage.app.present(self.id))).status

    def result(self) -> Any:
        """What it returns, or the last run of its chain, in its own type; time passes until it ends.
        RunFailed, RunCancelled, Stuck.
        """
        self._stage.finish(self)
        return self._stage.do(self._handle.result())

    def steps(self) -> dict[str, Step]:
        """Its recorded steps by key, in the order in which their outcomes became known."""
        return {step.key: step for step in self._stage.do(self._stage.app.steps(self.id))}

    def trail(self) -> list[TrailEntry]:
        """What happened to it, in order."""
        app = self._stage.app
        pages = gathered(lambda limit, after: app.trail(self.id, after, limit), ALL, 0, lambda row: row.seq)
        return cast("list[TrailEntry]", self._stage.do(pages))

    def explain(self) -> str:
        """Why it is not moving, in a sentence."""
        return str(self._stage.do(self._stage.app.explain(self.id)))


class Rehearsal:
    """`with Rehearsal(app) as stage:` — a store in memory, one worker, and a clock that stands still.

    `what` are apps, or single workflows. `store` is "memory", "sqlite", or `make_store(clock)`;
    `replace` maps functions that steps call to those that stand for them; `at` is the time it begins.
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
        self._parts = Parts(replace, self._watch.begun)
        self._curtain = Curtain(what)

    def __enter__(self) -> Self:
        """Raise the curtain: a worker stands ready."""
        if _inside_a_loop():
            raise UsageError("a rehearsal turns a loop of its own: use it in a plain `def test_…`, not async")
        self._works = Clockwork(
            self._make_store, self._make_app, self._lease_seconds, self._begins_at, self._watch
        )
        self.app = self._works.app
        try:
            self._curtain.rise(self._works)
            self._works.begin()
        except BaseException:
            self._fall()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everything is gone; what went wrong behind the scenes is raised now."""
        self._fall()
        if error is None:
            self._works.check()

    def _fall(self) -> None:
        try:
            self._works.close()
        finally:
            self._curtain.fall()

    # -- what the outside world does -----------------------------------------------------------

    def start(self, workflow: Defined | str, params: Any = None, **options: Any) -> RehearsedRun:
        """Start a run; it comes as far as it comes without time passing. Options as in `app.start`."""
        return RehearsedRun(self, self.do(self.app.start(workflow, params, **options)))

    def emit(self, topic: str, payload: Any = None, **options: Any) -> Emitted:
        """Send an event; whoever it wakes goes on at once. Options as in `app.emit`."""
        return cast("Emitted", self.do(self.app.emit(topic, payload, **options)))

    def approve(self, run: RehearsedRun | UUID, step: str | None = None, **said: Any) -> Decided:
        """Approve an open gate; the run goes on at once. Options as in `app.approve`."""
        return cast("Decided", self.do(self.app.approve(_id(run), step, **{"by": "test", **said})))

    def reject(self, run: RehearsedRun | UUID, step: str | None = None, **said: Any) -> Decided:
        """Reject an open gate; the run goes on at once. Options as in `app.reject`."""
        return cast("Decided", self.do(self.app.reject(_id(run), step, **{"by": "test", **said})))

    def approvals(self) -> list[ApprovalRequest]:
        """The gates that wait for a decision, of all runs."""
        fetch = partial(self.app.approvals, ANY)
        return cast("list[ApprovalRequest]", self.do(gathered(fetch, ALL, None, lambda gate: gate)))

    def cancel(self, run: RehearsedRun | UUID, *, children: bool = True) -> None:
        """Cancel a run, and its open children unless they are to go on."""
        self.do(self.app.cancel(_id(run), by="test", children=children))

    def pause(self, run: RehearsedRun | UUID) -> None:
        """Pause a run, at its next step boundary if it is at work."""
        self.do(self.app.pause(_id(run), by="test"))

    def resume(self, run: RehearsedRun | UUID) -> None:
        """Let a paused run go on."""
        self.do(self.app.resume(_id(run), by="test"))

    def rewind(self, run: RehearsedRun | UUID, step: str | Beginning, *, children: bool = True) -> None:
        """Forget a step and all later ones; the run goes on from there. BEGINNING: it begins anew."""
        self.do(self.app.rewind(_id(run), step, by="test", children=children))

    def retry(self, run: RehearsedRun | UUID) -> None:
        """Let a failed run go on where it failed."""
        self.do(self.app.retry(_id(run), by="test"))

    def do(self, call: Awaitable[Any]) -> Any:
        """Any other verb of the app: `stage.do(stage.app.list())`. All that it sets off happens at once."""
        return self._works.do(call)

    def replace(self, function: Callable[..., Any], other: Callable[..., Any]) -> None:
        """From now on steps call `other` where they would call `function`."""
        self._parts.replace(function, other)

    def crash(self) -> None:
        """The worker dies as by kill -9. Another stands ready, and takes over when the lease has run out.

        Called inside a step it dies there: what the step returns is recorded nowhere.
        """
        self._works.crash()

    # -- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time on the stage."""
        return moment(self._begins_at + self._works.elapsed)

    @property
    def over(self) -> bool:
        """The curtain has fallen."""
        return self._works.over

    def advance(self, duration: Seconds = 0, **units: float) -> None:
        """Let time pass: `stage.advance(days=30)`, seconds, or a timedelta. All that comes due happens."""
        delay = check_units("advance", duration, units)
        until = self._works.elapsed + round(delay * SECOND)
        while self._works.elapsed < until:
            self._works.turn(until)

    def finish(self, run: RehearsedRun | UUID, links: int = LINKS_MAX) -> Run:
        """Let time pass until the run has ended, and those it went on as, at most `links`: the last of them.

        Stuck, saying what it waits for, when it never will.
        """
        idle, before, seen = 0, None, set[UUID]()
        for _ in range(TURNS_MAX):
            found = self._get(run)
            if found.status in FINAL:
                return found
            seen.add(found.id)
            if len(seen) > links:
                raise Stuck(
                    f"{found.type} goes on as another again and again: let a script= or the test cancel it."
                )
            idle = idle + 1 if found == before and _needs_others(found) else 0
            if idle > IDLE_TURNS_MAX:
                break
            before = found
            paused = found.status is Status.PAUSED and not self._works.busy
            # Looking lets the stage settle: what was seen may be past when nothing more is to come.
            if (paused or not self._works.turn(None)) and self._get(run) == found:
                raise Stuck(f"{found.type} can never end by itself. {self._explained(found)}")
        found = self._get(run)
        raise Stuck(f"{found.type} has not ended by {self.now:%Y-%m-%d %H:%M}. {self._explained(found)}")

    def rest(self) -> None:
        """Let time pass until whoever stood still has come back, and everyone has learnt what there is."""
        while self._works.cast.standing_still:
            self.advance(self._lease_seconds)
        self.advance(2 * self._lease_seconds)

    def runs(self, type: str | None = None) -> list[RehearsedRun]:
        """All runs, or those of a type (`shop.%` is a prefix), in the order of their starts."""
        fetch = partial(self.app.list, RunFilter(type=type, tenant=ANY))
        found = self.do(gathered(fetch, ALL, None, lambda run: run.id))
        return [RehearsedRun(self, self._handle(run)) for run in reversed(found)]

    # -- inside --------------------------------------------------------------------------------

    def _get(self, run: RehearsedRun | UUID) -> Run:
        return cast("Run", self.do(self.app.present(_id(run))))

    def _handle(self, run: Run) -> Handle[Any]:
        return Handle(self.app, run.id, created=True, workflow=self.app.workflows.get(run.type))

    def _explained(self, run: Run) -> str:
        return str(self.do(self.app.explain(run.id)))

    def _make_app(self, world: VirtualWorld, store: Any) -> App:
        """The first app with all that is configured on it, before another store, in another world."""
        app = next((copy.copy(one) for one in self._what if isinstance(one, App)), None) or self._new(store)
        app.store, app.world = store, world
        app.hooks, app.sinks = {}, {}  # or a test would ring a real pager, and send real mail
        known = [[*one.workflows.values()] if isinstance(one, App) else [one] for one in self._what]
        app.workflows = {one.type: taken_over(one, self._parts) for many in known for one in many}
        return app

    def _new(self, store: Any) -> App:
        """For single workflows: what they write must be read by the app they are of, and the reverse."""
        codecs = [app._codec for app in self._curtain.apps]  # noqa: SLF001 - of our own engine
        made = App(store, codec=codecs[0] if codecs else None)
        APPS.discard(made)  # the stage's own, and no user's: it has nothing to be kept from
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
            from .scratch import ScratchStore

            return ScratchStore
        case str():
            raise UsageError(
                f"store={store!r}: 'memory', 'sqlite', or a function of the clock that makes one"
            )
        case _:
            from .threaded import Threaded

            return lambda clock: Threaded(store(clock))


def _needs_others(run: Run) -> bool:
    """Whether no time will wake it, and no child of its own."""
    kinds = {wait.kind for wait in run.waiting_on}
    timed = run.timeout_at is not None or any(wait.due_at is not None for wait in run.waiting_on)
    return run.status is Status.WAITING and kinds <= {StepKind.EVENT, StepKind.APPROVAL} and not timed
