"""Exploring a workflow: it is executed again and again, each time with a crash at another store call.

Each execution is called a play. The first play is undisturbed. A difference from it is a finding: another
end, other records, a recorded step that ran again, or another effect on the outside world. Only a step that
was cut off before its commit may be seen twice: steps run at least once, and are recorded once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.engine.app.app import App
from holdfast.engine.app.handle import CONTINUED
from holdfast.engine.definitions import Defined
from holdfast.engine.plans.plan import Plan
from holdfast.errors import UsageError
from holdfast.lifecycle import FINAL
from holdfast.records import Claim, Item, Run, StepWrite

from .crashes import Crash, Mode, StoreCall, modes_of
from .findings import AGAIN, FAULT, FENCE, OF_CODE, OF_PLANS, RESTLESS, UNENDED, Report, where
from .logged_errors import logged_errors
from .rehearsal import Rehearsal, RehearsedRun, Stuck
from .simulation import MakeStore, Watch

LEASE_SECONDS = 1.0  # short, so that a takeover changes times by little
GENERATIONS_MAX = 100  # of runs that go on as others
ENOUGH = 5  # plays that do not end, after which the exploration stops: each one takes long

Script = Callable[[Rehearsal, RehearsedRun], object]


def explore(
    workflow: Defined,
    params: Any = None,
    *,
    script: Script | None = None,
    observe: Callable[[], Any] | None = None,
    reset: Callable[[], object] | None = None,
    compare: Callable[[Any], Any] | None = None,
    idempotent: bool = False,
    app: App | None = None,
    replace: Mapping[Any, Any] | None = None,
    store: str | MakeStore = "memory",
    check: bool = True,
) -> Report:
    """Execute the workflow with a crash at every store call in turn; AssertionError with a report if any
    differs.

    `script(stage, run)` acts as the outside world: it emits events and lets time pass. `reset()` is called
    before each play, and `observe()` after it returns what the outside world saw. `compare(result)` leaves
    out of the result what may differ. `idempotent`: not even a step that was cut off may be seen twice. `app`
    brings further workflows; `replace` and `store` are as in `Rehearsal`. `check=False` never raises.
    """
    if not isinstance(workflow, Defined):
        raise UsageError(f"explore({workflow!r}): give the decorated function, or a plan")
    setup = _Setup(workflow, params, script, observe, reset, compare, app, replace, store)
    with logged_errors() as errors:
        report = _Exploration(setup, idempotent=idempotent).report()
    if errors:
        report.add("Holdfast logged an error", "none", errors[0], FAULT, "the worker was disturbed")
    return report.check() if check else report


@dataclass(frozen=True)
class _Setup:
    """The workflow to explore, with the arguments of `explore`."""

    workflow: Defined
    params: Any
    script: Script | None
    observe: Callable[[], Any] | None
    reset: Callable[[], object] | None
    compare: Callable[[Any], Any] | None
    app: App | None
    replace: Mapping[Any, Any] | None
    store: str | MakeStore

    def play(self, crash: Crash) -> _Played:
        """Execute the workflow once, with this crash."""
        if self.reset is not None:
            self.reset()
        notes = _Notes()
        watch = Watch(crash, notes.begin, notes.record)
        what = (self.workflow,) if self.app is None else (self.app, self.workflow)
        with Rehearsal(
            *what, replace=self.replace, store=self.store, lease=LEASE_SECONDS, watch=watch
        ) as stage:
            run = stage.start(self.workflow, self.params, key="explored")
            stuck = self._run(stage, run, crash)
            ended = [self._outcome(one.get(), stage) for one in stage.runs()]
            # A copy: the next play changes the observed object.
            seen = None if self.observe is None else copy.deepcopy(self.observe())
        # Not sorted by id: ids of children differ from play to play.
        ended.sort(key=lambda one: (one["workflow"], repr(one)))
        return _Played(crash, ended, seen, notes, stuck)

    def _run(self, stage: Rehearsal, run: RehearsedRun, crash: Crash) -> str:
        try:
            if self.script is not None:
                self.script(stage, run)
            stage.finish(run, GENERATIONS_MAX)
            _finish_others(stage)
            stage.rest()
        except Stuck as stuck:
            return str(stuck)
        except Exception as error:
            if crash.fired is not None:
                error.add_note(f"in the play in which {where(crash.mode, crash.fired)}")
            raise
        return ""

    def _outcome(self, run: Run, stage: Rehearsal) -> dict[str, Any]:
        steps = stage.do(stage.app.steps(run.id))
        return {
            "workflow": run.type,
            "status": str(run.status),
            "result": self._result(run),
            # An open run may have the error of an expired lease: that is no outcome.
            "error": None if run.error is None or run.status not in FINAL else run.error.kind,
            "steps": sorted(f"{step.key} ({step.kind}) {step.status}" for step in steps),
        }

    def _result(self, run: Run) -> Any:
        if (run.result_json or "").startswith(CONTINUED):
            return "continued as another run"  # without its id, which differs from play to play
        return run.result if self.compare is None or run.result is None else self.compare(run.result)


def _finish_others(stage: Rehearsal) -> None:
    """Finish the other runs: children and later runs of a chain. A run that is stuck is left waiting."""
    left: set[UUID] = set()
    generations = 0
    while others := [one for one in stage.runs() if one.id not in left and one.get().status not in FINAL]:
        generations += 1
        if generations > GENERATIONS_MAX:
            raise Stuck(
                f"{others[0].get().type} goes on as another run without an end: let a script= cancel it."
            )
        for one in others:
            left.add(one.id)
            with suppress(Stuck):
                stage.finish(one)


class _Notes:
    """Counts of begun steps, by workflow and key; and of steps that began after they had been recorded."""

    def __init__(self) -> None:
        self.bodies = 0  # executions of workflow bodies
        self.begun: Counter[tuple[str, str]] = Counter()
        self.again: Counter[str] = Counter()
        self._recorded: dict[tuple[UUID, str], int] = {}  # the fence under which a step was recorded

    def begin(self, claim: Claim, key: str) -> None:
        if not key:
            self.bodies += 1
            return
        self.begun[claim.type, key] += 1
        # A zombie under an older fence cannot know of the record; the holder and later holders must know.
        if claim.fence >= self._recorded.get((claim.id, key), claim.fence + 1):
            self.again[key] += 1

    def record(self, item: Item, step: StepWrite) -> None:
        self._recorded.setdefault((item.run, step.key), item.fence)


@dataclass(frozen=True)
class _Played:
    """The end of one play."""

    crash: Crash
    outcome: list[dict[str, Any]]
    seen: Any
    notes: _Notes
    stuck: str


class _Exploration:
    def __init__(self, setup: _Setup, *, idempotent: bool) -> None:
        self._setup, self._idempotent = setup, idempotent

    def report(self) -> Report:
        calm, second = self._setup.play(Crash()), self._setup.play(Crash())
        hints = OF_PLANS if isinstance(self._setup.workflow, Plan) else OF_CODE
        report = Report(self._setup.workflow.type, plays=2, calls=len(calm.crash.calls), hints=hints)
        report.observed = self._setup.observe is not None
        if calm.stuck:
            raise Stuck(f"undisturbed, {calm.stuck} Let a script= give it what it needs")
        if (calm.outcome, calm.seen) != (second.outcome, second.seen):
            self._differences(report, calm, second, "nobody was disturbed", hint=RESTLESS)
            return report
        unended = 0
        for call, mode in _crashes(calm.crash.calls):
            played = self._setup.play(Crash(call.number, mode))
            report.plays += 1
            self._judge(report, calm, played, where(mode, call))
            unended += bool(played.stuck)
            if unended >= ENOUGH:
                break
        return report

    def _judge(self, report: Report, calm: _Played, played: _Played, case: str) -> None:
        if played.stuck:
            report.add("the run did not end", "an end", played.stuck, UNENDED, case)
            return
        for key, times in (played.notes.again - calm.notes.again).items():
            report.add("recorded and run again", "once", f"step {key!r}, {times} times more", AGAIN, case)
        for late in played.crash.late:
            report.add("written by one who had lost the run", "refused", late, FENCE, case)
        report.cut_off += _cut_off(calm, played)
        executed_again = played.notes.bodies > calm.notes.bodies
        report.compared += executed_again and (self._idempotent or not _cut_off(calm, played))
        self._differences(report, calm, played, case)

    def _differences(
        self, report: Report, calm: _Played, played: _Played, case: str, hint: str | None = None
    ) -> None:
        if played.outcome != calm.outcome:
            for what, expected, seen in _compared(calm.outcome, played.outcome):
                report.add(what, expected, seen, hint or report.hints.outcome, case)
        cut_off = _cut_off(calm, played)
        if played.seen != calm.seen and (not cut_off or self._idempotent or hint):
            why = report.hints.outside_step if cut_off else report.hints.outside
            report.add("the outside world saw", calm.seen, played.seen, hint or why, case)


def _cut_off(calm: _Played, played: _Played) -> bool:
    """Return True when a step began more often than in the undisturbed play: it was cut off before its
    commit.
    """
    return played.notes.begun != calm.notes.begun


def _crashes(calls: list[StoreCall]) -> Iterator[tuple[StoreCall, Mode]]:
    return ((one, mode) for one in calls for mode in modes_of(one, briefly=True))


def _compared(calm: list[dict[str, Any]], played: list[dict[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    if len(calm) != len(played):
        yield "number of runs", len(calm), len(played)
        return
    for expected, seen in zip(calm, played, strict=True):
        for name, value in expected.items():
            if seen[name] != value:
                yield f"{name} of {expected['workflow']}", value, seen[name]
