"""The words for a run that a budget has stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast.contract import BUDGET
from holdfast.escaping import inline
from holdfast.lifecycle import Status
from holdfast.records import COST_UNIT, Run
from holdfast.records.units import amount

_OF = f"{BUDGET} of "


def is_by_budget(by: str | None) -> bool:
    """Return True when a budget has paused the run: its own, or one that covers it."""
    return by is not None and (by == BUDGET or by.startswith(_OF))


def owner(run: Run) -> UUID | None:
    """Return the other run whose budget has stopped this one. None: its own has, or none."""
    return run.account if (run.pause_asked_by or "").startswith(_OF) else None


def limits(run: Run) -> tuple[int, int]:
    """Return what is spent of the budget that has stopped the run, and that budget, in units."""
    shared = run.account_budget_units is not None and (owner(run) is not None or run.account == run.chain)
    if shared:
        return run.account_cost_units or 0, run.account_budget_units or 0
    return run.cost_units, run.budget_units or 0


def budget_words(run: Run) -> str:
    """`budget 2.00 reached`, for a run that a budget has paused; empty for any other run."""
    if run.status is not Status.PAUSED or not is_by_budget(run.pause_asked_by):
        return ""
    spent, most = limits(run)
    whose = "" if (other := owner(run)) is None else f" of run {other}"
    how = "reached" if spent >= most else f"may be exceeded ({amount(spent)} spent)"
    return f"budget {amount(most)}{whose} {how}"


def reason_words(run: Run, why: Mapping[str, Any]) -> str:
    """The same with the step that may cost too much, which the trail names."""
    numbers = [why.get(name) for name in ("budget", "cost", "cost_max")]
    costs = [amount(round(one * COST_UNIT)) for one in numbers if isinstance(one, int | float)]
    if not why.get("cost_max") or len(costs) < len(numbers):
        return budget_words(run)
    whose = "" if (other := owner(run)) is None else f" of run {other}"
    most, spent, cost_max = costs
    step = inline(str(why.get("step")))
    return f'budget {most}{whose}: {spent} spent, the step "{step}" may cost up to {cost_max}'
