"""Moves of people on one run: cancel, pause, resume, rewind, retry, priority, delete and restore."""

from __future__ import annotations

from holdfast.http.call import Call
from holdfast.http.operation import Body, operation
from holdfast.records import BEGINNING, Run, Scope
from holdfast.shown.data import run_values_data, step_data
from holdfast.shown.shapes import RunValuesData, StepData

from .fields import Attempts, Cost, OneTenant, Priority, RunPath, StepKey

TAG = "Moves"


class Cancel(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """children: cancel its open children too."""

    children: bool = True


class Resume(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """budget: its new budget; a run that its budget has stopped needs one."""

    budget: Cost | None = None


class Rewind(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """step: the first step that is forgotten; null: all of them. children: cancel children of those steps."""

    step: StepKey | None
    children: bool = True


class SetPriority(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new priority."""

    priority: Priority


class AppendStep(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task behind the last step of an open plan run."""

    name: StepKey
    max_attempts: Attempts | None = None


@operation("POST", "/runs/{run}/cancel", tag=TAG, scope=Scope.RUNS_WRITE)
async def cancel(call: Call, path: RunPath, query: OneTenant, body: Cancel) -> RunValuesData:
    """Cancel an open run, and its open children. A second call changes nothing."""
    return _moved(call, await call.client(query.tenant).cancel(path.run, call.by, children=body.children))


@operation("POST", "/runs/{run}/pause", tag=TAG, scope=Scope.RUNS_WRITE)
async def pause(call: Call, path: RunPath, query: OneTenant) -> RunValuesData:
    """Pause an open run; a running one pauses at its next step boundary."""
    return _moved(call, await call.client(query.tenant).pause(path.run, call.by))


@operation("POST", "/runs/{run}/resume", tag=TAG, scope=Scope.RUNS_WRITE)
async def resume(call: Call, path: RunPath, query: OneTenant, body: Resume) -> RunValuesData:
    """Resume a paused run, or withdraw a pause that has not taken effect yet."""
    return _moved(call, await call.client(query.tenant).resume(path.run, call.by, budget=body.budget))


@operation("POST", "/runs/{run}/rewind", tag=TAG, scope=Scope.RUNS_WRITE)
async def rewind(call: Call, path: RunPath, query: OneTenant, body: Rewind) -> RunValuesData:
    """Forget a step and all later ones; the run continues from there."""
    step = BEGINNING if body.step is None else body.step
    client = call.client(query.tenant)
    return _moved(call, await client.rewind(path.run, step, call.by, children=body.children))


@operation("POST", "/runs/{run}/retry", tag=TAG, scope=Scope.RUNS_WRITE)
async def retry(call: Call, path: RunPath, query: OneTenant) -> RunValuesData:
    """Continue a failed run at the step that failed, with all attempts again."""
    return _moved(call, await call.client(query.tenant).retry(path.run, call.by))


@operation("POST", "/runs/{run}/priority", tag=TAG, scope=Scope.RUNS_WRITE)
async def set_priority(call: Call, path: RunPath, query: OneTenant, body: SetPriority) -> RunValuesData:
    """Change the priority of an open run. It counts from the next claim."""
    return _moved(call, await call.client(query.tenant).set_priority(path.run, body.priority, call.by))


@operation("POST", "/runs/{run}/append_step", tag=TAG, scope=Scope.RUNS_WRITE)
async def append_step(call: Call, path: RunPath, query: OneTenant, body: AppendStep) -> StepData:
    """Add a task behind the last step of an open plan run."""
    step = await call.client(query.tenant).append_step(path.run, body.name, body.max_attempts)
    return call.shown(step_data(step))


@operation("DELETE", "/runs/{run}", tag=TAG, scope=Scope.RUNS_WRITE)
async def delete(call: Call, path: RunPath, query: OneTenant) -> RunValuesData:
    """Hide a run, with its chain, and stop executing it, until it is restored or purged."""
    return _moved(call, await call.client(query.tenant).delete(path.run, call.by))


@operation("POST", "/runs/{run}/restore", tag=TAG, scope=Scope.RUNS_WRITE)
async def restore(call: Call, path: RunPath, query: OneTenant) -> RunValuesData:
    """Undo a delete; an open run continues."""
    return _moved(call, await call.client(query.tenant).restore(path.run, call.by))


def _moved(call: Call, run: Run) -> RunValuesData:
    return call.shown(run_values_data(run))
