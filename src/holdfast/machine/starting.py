"""start: create runs, each once. The steps of a plan become rows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.arguments import LATEST
from holdfast.errors import DuplicateRun, HoldfastError, KeyReused, TooManyRuns, UnknownRun
from holdfast.lifecycle import StepKind
from holdfast.records import MAX_ATTEMPTS, OPEN_RUNS_MAX, Definition, Instant, NewRun, Started

from . import budgets, chains, plans
from .durations import bounded, micros
from .rows import PLAN, RunRow
from .view import Account, Beginning, R, View

OpenRuns = dict[str, int]  # open runs by API key


def start(view: View[R], runs: Sequence[NewRun], by: R | None = None) -> list[Started | HoldfastError]:
    """Start runs. Return one answer for each, in order; an error concerns only its own run.

    `by`: the run whose commit starts them. Their fence is at least as high as any fence so far, because each
    increase of a fence is a row of the trail.
    """
    fence = view.newest_note()
    open_runs: OpenRuns = {}
    answers: list[Started | HoldfastError] = []
    for new in runs:
        answer = start_one(view, new, fence, by, open_runs)
        if new.api_key in open_runs and isinstance(answer, Started) and answer.created:
            open_runs[new.api_key] += 1
        answers.append(answer)
    return answers


def start_one(
    view: View[R], new: NewRun, fence: int, by: R | None = None, open_runs: OpenRuns | None = None
) -> Started | HoldfastError:
    """Start one run: pending, attempt 0, run_at as given, else now + delay, else now. Trail: created.

    A timeout counts from run_at, or from now if that has passed. The key is checked before the id, and both
    before the parent. max_attempts, timeout and budget are as given, else those of the published definition,
    else 3 and none. The fence is at least as high as any fence that this store has given so far: the id may
    be that of a purged run, whose holder must stay shut out. A run above the limit of its API key is answered
    TooManyRuns, after key, parent and id were checked. `open_runs`: by API key, the open runs that this call
    has counted.

    A published plan: kind `plan`, and all its steps are rows, pending, seq from 0, key = name, each with its
    max_attempts (a task's: else the run's), topic, timeout, ask. Then the first becomes current, as in
    `advance`: the run is waiting when it is a gate, an awaited event or a sleep.
    """
    if (answer := _not_started(view, new, by, {} if open_runs is None else open_runs)) is not None:
        return answer
    known = view.definition(new.type)
    begins = _beginning(new, known, view.now, view.newest_event(), fence)
    if by is not None and begins.kind != PLAN and chains.goes_on_as(new, by):
        new, begins = chains.handed_on(new, begins, by)
    begins = budgets.opened(view, new, known, begins)
    run = view.insert(new, begins)
    if run is None:
        return DuplicateRun(new.id)
    if begins.account == new.id:
        assert begins.budget is not None
        view.keep_account(new.id, Account(begins.budget, 0))
    more = {} if new.origin is None else {"origin": str(new.origin)}
    if new.by:
        more["by"] = new.by
    if known is None or not known.steps:
        view.note(run, "created", type=new.type, **more)
        if by is not None and begins.chain is not None:
            chains.link(view, by, run)
        return Started(new.id, created=True)
    view.note(run, "created", type=new.type, steps=[step.name for step in known.steps], **more)
    plans.insert(view, run, known.steps)
    if known.steps[0].kind is not StepKind.TASK:
        plans.become(view, run, plans.come_to(view, run))
    return Started(new.id, created=True)


def _not_started(
    view: View[R], new: NewRun, by: R | None, open_runs: OpenRuns
) -> Started | HoldfastError | None:
    """Return the answer for a run that is not started; None: it may be, if its id is free."""
    if new.key is not None and (taken := view.by_key(new.tenant, new.key)) is not None:
        there, digest = taken
        return Started(there, created=False) if digest == new.digest else KeyReused(new.key, there)
    if new.parent is not None and not _has_parent(view, new, by):
        return DuplicateRun(new.id) if view.is_known(new.id) else UnknownRun(new.parent)
    if new.open_runs_max is not None and new.api_key is not None:
        if new.api_key not in open_runs:
            open_runs[new.api_key] = view.open_runs(new.api_key, OPEN_RUNS_MAX)
        if open_runs[new.api_key] >= new.open_runs_max:
            if view.is_known(new.id):
                return DuplicateRun(new.id)  # perhaps the same start again: it may have taken the last place
            return TooManyRuns(new.api_key, new.open_runs_max)
    return None


def _has_parent(view: View[R], new: NewRun, by: RunRow | None) -> bool:
    """Return True when the parent exists. The next run of a child has the same parent, even if that is
    gone."""
    assert new.parent is not None
    if by is not None and (new.parent, new.tenant) == (by.parent, by.tenant):
        return True
    return view.has_parent(new.parent, new.tenant)


def _beginning(new: NewRun, known: Definition | None, now: Instant, watermark: int, fence: int) -> Beginning:
    attempts, timeout, budget = new.max_attempts, new.timeout_seconds, new.budget
    kind, run_at = "code", now if new.run_at is None else new.run_at
    if new.run_at is None and new.delay_seconds is not None:
        run_at = now + micros(new.delay_seconds)
    if known is not None:
        kind = known.kind
        attempts = known.max_attempts or None if attempts is None else attempts
        timeout = known.timeout_seconds if timeout is None else timeout
        budget = known.budget if budget is None else budget
    return Beginning(
        kind,
        run_at,
        MAX_ATTEMPTS if attempts is None else attempts,
        budget,
        None if timeout is None else bounded(timeout),
        # The timeout does not include the delay: a run must not time out before it may be claimed.
        None if timeout is None else min(max(now, run_at) + micros(timeout), LATEST),
        None if new.ttl_seconds is None else bounded(new.ttl_seconds),
        watermark,
        fence,
    )


def follow(view: View[R], before: RunRow, runs: Sequence[NewRun]) -> None:
    """Let the next run of a child take its place: the step of the parent now waits for the next run."""
    for new in runs:
        parent = None if new.parent is None or new.parent_step is None else view.run(new.parent)
        step = None if parent is None else view.step(parent, new.parent_step or "")
        if step is not None and step.child == before.id:
            step.child = new.id
