"""The choice of the execution for a claimed run: code or plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.engine.code.execution import Execution
from holdfast.engine.definitions import Defined, Workflow
from holdfast.engine.plans.execution import PlanExecution
from holdfast.engine.plans.plan import Plan
from holdfast.records import Claim

from .held_run import HeldRun

if TYPE_CHECKING:
    from .worker import Worker


def held(claim: Claim, known: Defined, worker: Worker, claimed_at: float) -> HeldRun:
    """Return the execution of a claimed run."""
    if isinstance(known, Plan):
        return PlanExecution(claim, known, worker, claimed_at)
    return Execution(claim, cast("Workflow", known), worker, claimed_at)


def why_lacking(tasks: tuple[str, ...], known: Defined) -> str:
    """Say which handlers of a plan are missing. A handler without a step may be a misspelt one."""
    names = known.handlers.keys() - {one.name for one in known.steps} if isinstance(known, Plan) else ()
    odd = f" (handlers without a step: {', '.join(sorted(names))})" if names else ""
    return f", for no handler is known of {', '.join(tasks)}: write @plan.task(name){odd}"
