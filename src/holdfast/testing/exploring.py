"""Exploring a workflow: it is played again and again, each time with a crash at another store call.

Undisturbed it is played first. Whatever then differs is a finding: how it ended, what it recorded, a
recorded step that ran again, and what the outside world saw. Only a step that was cut off before its commit
may be seen twice: steps run at least once, and are recorded once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.engine.app import App
from holdfast.engine.definitions import Defined
from holdfast.engine.handle import CONTINUED
from holdfast.engine.plans.plan import Plan
from holdfast.errors import UsageError
from holdfast.lifecycle import FINAL
from holdfast.records import Claim, Item, Run, StepWrite

from .clockwork import MakeStore, Watch
from .complaints import complaints
from .crashes import Crash, Made, Mode, modes_of
from .findings import AGAIN, FAULT, FENCE, OF_CODE, OF_PLANS, RESTLESS, UNENDED, Report, where
from .rehearsal import Rehearsal, RehearsedRun, Stuck

LEASE_SECONDS = 1.0  # short, so that a takeover moves the play's times by little
GENERATIONS_MAX = 100  # of runs that go on as others
ENOUGH = 5  # plays that do not end: red as it is, and each takes its time

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
    """Play the workflow with a crash at every store call in turn; AssertionError with a report if that shows.

    `script(stage, run)` plays the outside world: it emits events, lets time pass. `reset()` is called before
    each play, `observe()` after it: what the outside world saw. `compare(result)` leaves out of the result
    what may differ. `idempotent`: not even a step that was cut off may be seen twice. `app` brings further
    workflows along; `replace` and `store` are as in `Rehearsal`. `check=False` never raises.
    """
    if not isinstance(workflow, Defined):
        raise UsageError(f"explore({workflow!r}): give the decorated function, or a plan")
    scene = _Scene(workflow, params, script, observe, reset, compare, app, replace, store)
    with complaints() as heard:
        report = _Exploration(scene, idempotent=idempotent).report()
    if heard:
        report.add("Holdfast logged an error", "none", heard[0], FAULT, "the worker was disturbed")
    return report.check() if check else report


@dataclass(frozen=True)
class _Scene:
    """What is played."""

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
        """Once."""
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
            # A copy: the next play will change what it holds.
            seen = None if self.observe is None else copy.deepcopy(self.observe())
        # Not by their ids: those of children differ from play to play.
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
            # An open run may have one of a lease that ran out: that is no outcome.
            "error": None if run.error is None or run.status not in FINAL else run.error.kind,
            "steps": sorted(f"{step.key} ({step.kind}) {step.status}" for step in steps),
        }

    def _result(self, run: Run) -> Any:
        if (run.result_json or "").startswith(CONTINUED):
            return "continued as another run"  # whose id differs from play to play
        return run.result if self.compare is None or run.result is None else self.compare(run.result)


def _finish_others(stage: Rehearsal) -> None:
    """Runs that it started or went on as; one that waits for the outside world is left waiting."""
    left: set[UUID] = set()
    generations = 0
    while others := [one for one in stage.runs() if one.id not in left and one.get().status not in FINAL]:
        generations += 1
        if generations > GENERATIONS_MAX:
            raise Stuck(
                f"{others[0].get().type} goes on as another again and again: let a script= cancel it."
            )
        for one in others:
            left.add(one.id)
            with suppress(Stuck):
                stage.finish(one)


class _Notes:
    """How often steps were begun, by workflow and key; and which of them after they had been recorded."""

    def __init__(self) -> None:
        self.bodies = 0  # executions, all in all
        self.begun: Counter[tuple[str, str]] = Counter()
        self.again: Counter[str] = Counter()
        self._stands: dict[tuple[UUID, str], int] = {}  # the fence under which it was recorded

    def begin(self, claim: Claim, key: str) -> None:
        if not key:
            self.bodies += 1
            return
        self.begun[claim.type, key] += 1
        # A zombie under an older fence cannot know; whoever holds the run, or did so later, must.
        if claim.fence >= self._stands.get((claim.id, key), claim.fence + 1):
            self.again[key] += 1

    def record(self, item: Item, step: StepWrite) -> None:
        self._stands.setdefault((item.run, step.key), item.fence)


@dataclass(frozen=True)
class _Played:
    """How one play ended."""

    crash: Crash
    outcome: list[dict[str, Any]]
    seen: Any
    notes: _Notes
    stuck: str


class _Exploration:
    def __init__(self, scene: _Scene, *, idempotent: bool) -> None:
        self._scene, self._idempotent = scene, idempotent

    def report(self) -> Report:
        calm, second = self._scene.play(Crash()), self._scene.play(Crash())
        hints = OF_PLANS if isinstance(self._scene.workflow, Plan) else OF_CODE
        report = Report(self._scene.workflow.type, plays=2, calls=len(calm.crash.made), hints=hints)
        report.observed = self._scene.observe is not None
        if calm.stuck:
            raise Stuck(f"undisturbed, {calm.stuck} Let a script= give it what it needs")
        if (calm.outcome, calm.seen) != (second.outcome, second.seen):
            self._differences(report, calm, second, "nobody was disturbed", hint=RESTLESS)
            return report
        unended = 0
        for made, mode in _crashes(calm.crash.made):
            played = self._scene.play(Crash(made.number, mode))
            report.plays += 1
            self._judge(report, calm, played, where(mode, made))
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
    """A step was begun more often than undisturbed: someone died between its begin and its commit."""
    return played.notes.begun != calm.notes.begun


def _crashes(made: list[Made]) -> Iterator[tuple[Made, Mode]]:
    return ((one, mode) for one in made for mode in modes_of(one, briefly=True))


def _compared(calm: list[dict[str, Any]], played: list[dict[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    if len(calm) != len(played):
        yield "number of runs", len(calm), len(played)
        return
    for expected, seen in zip(calm, played, strict=True):
        for name, value in expected.items():
            if seen[name] != value:
                yield f"{name} of {expected['workflow']}", value, seen[name]
