"""Which kind of execution a claimed run gets, and what a worker must have for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.records import Claim

from .definitions import Defined, Workflow
from .execution import Execution
from .held import HeldRun
from .plans.execution import PlanExecution
from .plans.plan import Plan

if TYPE_CHECKING:
    from .worker import Worker


def held(claim: Claim, known: Defined, worker: Worker, claimed_at: float) -> HeldRun:
    """The run that a worker holds from now on."""
    if isinstance(known, Plan):
        return PlanExecution(claim, known, worker, claimed_at)
    return Execution(claim, cast("Workflow", known), worker, claimed_at)


def why_lacking(tasks: tuple[str, ...], known: Defined) -> str:
    """The same in words. A handler that no step is called like may be of one that was meant."""
    names = known.handlers.keys() - {one.name for one in known.steps} if isinstance(known, Plan) else ()
    odd = f" (handlers without a step: {', '.join(sorted(names))})" if names else ""
    return f", for no handler is known of {', '.join(tasks)}: write @plan.task(name){odd}"
